//! Reconciles the open views and streams of this process with the catalog and with the assigned
//! partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::StoreId;
use forebay_log::Assigned;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::events::DerivedUpTo;
use crate::parts::FeatureParts;
use crate::streams::{OpenStream, OpenStreams};
use crate::views::{Assignment, OpenView, OpenViews};

/// Wait before a view or stream that could not be opened is tried again.
const REOPEN_WAIT: Duration = Duration::from_millis(200);

/// Opens and closes views and streams as the catalog changes.
pub(crate) struct Keeper {
    pub(crate) parts: FeatureParts,
    pub(crate) views: OpenViews,
    pub(crate) streams: OpenStreams,
    /// Offsets up to which views have derived the events of streams, which may then be trimmed.
    pub(crate) derived: DerivedUpTo,
    /// Notified when a view or stream must be reopened.
    pub(crate) reopen: Arc<Notify>,
}

impl Keeper {
    pub(crate) async fn run(self) {
        let mut assigned = self.parts.membership.assigned();
        loop {
            let changed = self.parts.catalog.changes();
            let ours = assigned.borrow_and_update().clone();
            if !self.refresh(&ours).await {
                tokio::time::sleep(REOPEN_WAIT).await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.reopen.notified() => {}
                Ok(()) = assigned.changed() => {}
                is_alive = changed => if !is_alive { return },
            }
        }
    }

    /// Opens new views and streams and closes those that are gone; returns whether everything
    /// succeeded.
    async fn refresh(&self, ours: &Assigned) -> bool {
        let catalog = self.parts.catalog.catalog();
        let streams = catalog.living().filter(|schema| schema.definition.stream.is_some());
        let living: BTreeMap<_, _> =
            streams.map(|schema| (schema.definition.store, Arc::clone(schema))).collect();
        self.close_all_but(&living).await;
        self.remove_dropped(&living).await;
        let logs = living.values().map(|schema| schema.definition.written().store).collect();
        let mut complete = true;
        if let Err(error) = self.parts.membership.take_part(&logs) {
            warn!(%error, "consumer group of views and streams not joined yet");
            complete = false;
        }
        let (views, streams): (BTreeMap<_, _>, _) =
            living.into_iter().partition(|(_, schema)| schema.definition.view().is_some());
        complete &= self.refresh_streams(streams, ours).await;
        for (store, schema) in views {
            let assigned = self.assigned(&schema, ours);
            let is_it = |open: &OpenView| open.stays(&schema, &assigned);
            if self.views.lock().get(&store).is_some_and(is_it) {
                continue;
            }
            self.close(store).await;
            let told = (self.derived.clone(), Arc::clone(&self.reopen));
            match OpenView::open(&self.parts, &schema, assigned, told) {
                Ok(view) => {
                    self.views.lock().insert(store, view);
                }
                Err(error) => {
                    warn!(view = %schema.definition.name, %error, "view not opened yet");
                    complete = false;
                }
            }
        }
        self.parts.membership.note_held(ours);
        complete
    }

    async fn close_all_but(&self, living: &BTreeMap<StoreId, Arc<SchemaAt>>) {
        let open: Vec<_> = self.views.lock().keys().copied().collect();
        for gone in open.into_iter().filter(|store| !living.contains_key(store)) {
            self.close(gone).await;
        }
        let open: Vec<_> = self.streams.lock().keys().copied().collect();
        for gone in open.into_iter().filter(|store| !living.contains_key(store)) {
            self.close_stream(gone).await;
        }
    }

    /// Opens the streams that are new or have changed; returns whether everything succeeded.
    async fn refresh_streams(
        &self,
        living: BTreeMap<StoreId, Arc<SchemaAt>>,
        ours: &Assigned,
    ) -> bool {
        let mut complete = true;
        for (store, schema) in living {
            let logs = schema.definition.written();
            let assigned = ours.of(logs.store, logs.partitions);
            let is_it = |open: &OpenStream| open.stays(&schema, &assigned);
            if self.streams.lock().get(&store).is_some_and(is_it) {
                continue;
            }
            self.close_stream(store).await;
            let told = (self.derived.clone(), Arc::clone(&self.reopen));
            match OpenStream::open(&self.parts, &schema, assigned, told) {
                Ok(stream) => drop(self.streams.lock().insert(store, stream)),
                Err(error) => {
                    warn!(stream = %schema.definition.name, %error, "stream not opened yet");
                    complete = false;
                }
            }
        }
        complete
    }

    async fn close_stream(&self, store: StoreId) {
        let stream = self.streams.lock().remove(&store);
        if let Some(stream) = stream {
            stream.ended().await;
        }
    }

    fn assigned(&self, schema: &SchemaAt, ours: &Assigned) -> Assignment {
        let own = schema.definition.written();
        let catalog = self.parts.catalog.catalog();
        let source = schema.definition.view().and_then(|view| catalog.store(view.source));
        let source = source.and_then(|history| history.newest());
        let derived = source.map(|source| {
            let logs = source.definition.written();
            ours.of(logs.store, logs.partitions)
        });
        (ours.of(own.store, own.partitions), derived.unwrap_or_default())
    }

    async fn close(&self, store: StoreId) {
        let view = self.views.lock().remove(&store);
        if let Some(view) = view {
            info!(view = %view.schema.definition.name, "view closed");
            view.ended().await;
        }
    }

    /// Removes the data of views and streams that were dropped.
    async fn remove_dropped(&self, living: &BTreeMap<StoreId, Arc<SchemaAt>>) {
        let catalog = self.parts.catalog.catalog();
        let kept = self.parts.shards.stores().unwrap_or_default().into_iter();
        // A store that the catalog does not know yet may be living.
        let gone =
            kept.filter(|store| !living.contains_key(store) && catalog.store(*store).is_some());
        for store in gone.collect::<Vec<_>>() {
            let shards = self.parts.shards.clone();
            let removed = tokio::task::spawn_blocking(move || shards.remove(store)).await;
            match removed {
                Ok(Ok(())) => info!(%store, "data of dropped store deleted"),
                Ok(Err(error)) => warn!(%store, %error, "data of dropped store not deleted"),
                Err(_) => return,
            }
        }
    }
}
