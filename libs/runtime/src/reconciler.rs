//! The loop that reconciles the resources that a process holds open with the catalog and with the
//! partitions that are assigned to the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::Catalog;
use forebay_core::id::StoreId;
use forebay_entries::CatalogFollower;
use forebay_log::{Membership, PartitionAssignment};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tracing::{info, warn};

/// Wait before a resource that could not be opened is tried again.
const REOPEN_WAIT: Duration = Duration::from_millis(200);

/// The resources that a service opens and closes as the catalog and the assignment change.
pub trait ServiceResources: Send + Sync + 'static {
    /// Returns the stores whose logs the processes of the service share.
    fn logs(&self, catalog: &Catalog) -> BTreeSet<StoreId>;

    /// Closes each resource that is not needed any more or must be replaced, and removes the data
    /// of dropped stores. All duties for partitions of other processes have ended on return.
    fn close_stale(
        &self,
        catalog: &Catalog,
        assignment: &PartitionAssignment,
    ) -> impl Future<Output = ()> + Send;

    /// Opens each resource that is needed and not open; returns whether all of them are open.
    fn open_missing(
        &self,
        catalog: &Catalog,
        assignment: &PartitionAssignment,
    ) -> impl Future<Output = bool> + Send;
}

/// The task that reconciles the resources of a service.
pub struct Reconciler<R> {
    /// The catalog to reconcile with.
    pub catalog: Arc<CatalogFollower>,
    /// The assignment to reconcile with.
    pub membership: Arc<dyn Membership>,
    /// Notified when a resource must be reopened.
    pub reopen: Arc<Notify>,
    /// The resources.
    pub resources: R,
}

impl<R: ServiceResources> Reconciler<R> {
    /// Reconciles at each change until the catalog is closed or the task is dropped.
    pub async fn run(self) {
        let mut assignment_updates = self.membership.assignment();
        loop {
            let change = self.catalog.changes();
            let assignment = assignment_updates.borrow_and_update().clone();
            if !self.reconcile(&assignment).await {
                tokio::time::sleep(REOPEN_WAIT).await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.reopen.notified() => {}
                Ok(()) = assignment_updates.changed() => {}
                is_alive = change => if !is_alive { return },
            }
        }
    }

    /// Closes, then opens; returns whether everything succeeded.
    async fn reconcile(&self, assignment: &PartitionAssignment) -> bool {
        let catalog = self.catalog.catalog();
        let subscription = self.membership.subscribe(&self.resources.logs(&catalog));
        if let Err(error) = &subscription {
            warn!(%error, "could not join the consumer group; trying again");
        }
        self.resources.close_stale(&catalog, assignment).await;
        // Other processes may now take over the partitions that are not ours any more.
        self.membership.acknowledge_assignment(assignment);
        self.resources.open_missing(&catalog, assignment).await && subscription.is_ok()
    }
}

/// A resource that a process holds open for one store.
pub trait StoreResource: Send + 'static {
    /// Shuts the resource down, and waits until its files are closed, so that others may open them.
    fn shut_down(self) -> impl Future<Output = ()> + Send;
}

/// The open resources of one kind, by store. Cheap to clone.
pub struct OpenResources<R>(Arc<Mutex<BTreeMap<StoreId, R>>>);

impl<R> Clone for OpenResources<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Default for OpenResources<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R: StoreResource> OpenResources<R> {
    /// Locks the resources.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<StoreId, R>> {
        self.0.lock()
    }

    /// Closes the resource of each store for which `is_stale` holds, one after the other.
    pub async fn close_where(&self, is_stale: impl Fn(StoreId, &R) -> bool) {
        let stale_stores: Vec<_> = {
            let open = self.lock();
            let stale_stores = open.iter().filter(|(store, resource)| is_stale(**store, resource));
            stale_stores.map(|(store, _)| *store).collect()
        };
        for store in stale_stores {
            let resource = self.lock().remove(&store);
            if let Some(resource) = resource {
                resource.shut_down().await;
            }
        }
    }

    /// Takes all resources out, so that the caller shuts them down.
    pub fn take_all(&self) -> Vec<R> {
        std::mem::take(&mut *self.lock()).into_values().collect()
    }
}

/// Removes the data of stores that the catalog has dropped. `stored_ids` names the stores that have
/// data; the data of a store for which `is_needed` holds stays, and so does the data of a store
/// that the catalog does not know yet.
pub async fn remove_dropped(
    catalog: &Catalog,
    stored_ids: BTreeSet<StoreId>,
    is_needed: impl Fn(StoreId) -> bool,
    remove: impl Fn(StoreId) -> Result<()> + Send + 'static,
) {
    let is_dropped = |store: &StoreId| !is_needed(*store) && catalog.store(*store).is_some();
    let dropped_stores: Vec<_> = stored_ids.into_iter().filter(is_dropped).collect();
    let removal = tokio::task::spawn_blocking(move || {
        for store in dropped_stores {
            match remove(store) {
                Ok(()) => info!(%store, "deleted the data of a dropped store"),
                Err(error) => {
                    warn!(%store, %error, "could not delete data of a dropped store; trying again")
                }
            }
        }
    });
    // A panic in the removal leaves the data to the next reconciliation.
    drop(removal.await);
}

#[cfg(test)]
mod tests {
    use forebay_core::Error;
    use forebay_core::catalog::ControlRecord;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use forebay_log::SingleMember;
    use tokio::sync::watch;

    use super::*;

    /// Resources that are open from the second attempt on; the tests see the number of attempts.
    struct LateResources(watch::Sender<u32>);

    impl ServiceResources for LateResources {
        fn logs(&self, _catalog: &Catalog) -> BTreeSet<StoreId> {
            BTreeSet::new()
        }

        async fn close_stale(&self, _catalog: &Catalog, _assigned: &PartitionAssignment) {}

        async fn open_missing(&self, _catalog: &Catalog, _assigned: &PartitionAssignment) -> bool {
            self.0.send_modify(|attempts| *attempts += 1);
            *self.0.borrow() > 1
        }
    }

    /// A resource that reports its end.
    struct Reporter(StoreId, Arc<Mutex<Vec<StoreId>>>);

    impl StoreResource for Reporter {
        async fn shut_down(self) {
            self.1.lock().push(self.0);
        }
    }

    #[tokio::test]
    async fn stale_resources_are_shut_down_and_others_remain() {
        let (open, ended_stores) = (OpenResources::default(), Arc::<Mutex<Vec<_>>>::default());
        for store in [1, 2, 3].map(StoreId) {
            open.lock().insert(store, Reporter(store, Arc::clone(&ended_stores)));
        }
        open.close_where(|store, _| store != StoreId(2)).await;
        assert_eq!(*ended_stores.lock(), [StoreId(1), StoreId(3)]);
        assert_eq!(open.take_all().len(), 1);
        assert!(open.lock().is_empty());
    }

    #[tokio::test]
    async fn reconciler_repeats_a_failed_open_and_reopens_on_request() {
        let attempts = watch::Sender::new(0);
        let (mut attempts_seen, reopen) = (attempts.subscribe(), Arc::new(Notify::new()));
        let reconciler = Reconciler {
            catalog: Arc::new(CatalogFollower::standing(Catalog::default())),
            membership: Arc::new(SingleMember::default()),
            reopen: Arc::clone(&reopen),
            resources: LateResources(attempts),
        };
        let running = tokio::spawn(reconciler.run());
        attempts_seen.wait_for(|attempts| *attempts == 2).await.unwrap();
        reopen.notify_one();
        attempts_seen.wait_for(|attempts| *attempts == 3).await.unwrap();
        running.abort();
    }

    #[tokio::test]
    async fn removal_spares_needed_and_unknown_stores_and_survives_a_refusal() {
        let mut catalog = Catalog::default();
        for store in [1, 2, 3].map(StoreId) {
            let spec = StoreSpec::documents(format!("store{store}"), KeyType::String).partitions(1);
            catalog.apply(ControlRecord::Define(Box::new(spec.define(store).unwrap())));
        }
        let removed_stores = Arc::<Mutex<Vec<StoreId>>>::default();
        let removals = Arc::clone(&removed_stores);
        let remove = move |store: StoreId| {
            removals.lock().push(store);
            match store {
                StoreId(1) => Err(Error::unavailable("the disk refuses")),
                _ => Ok(()),
            }
        };
        let stored_ids = BTreeSet::from([1, 2, 3, 4].map(StoreId));
        remove_dropped(&catalog, stored_ids, |store| store == StoreId(2), remove).await;
        assert_eq!(*removed_stores.lock(), [StoreId(1), StoreId(3)]);
    }
}
