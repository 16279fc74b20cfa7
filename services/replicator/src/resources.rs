//! The replicas that the reconciler opens and closes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_core::catalog::{Catalog, SchemaAt};
use forebay_core::id::{PartitionId, StoreId};
use forebay_log::PartitionAssignment;
use forebay_runtime::{OpenResources, ServiceResources, StoreResource, remove_dropped};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use crate::dead_letters::Backlog;
use crate::open_replica::{OpenReplica, ours_of};
use crate::parts::ReplicatorParts;

/// The replicas of all active stores, for the reconciler.
pub(crate) struct ReplicaResources {
    pub(crate) parts: ReplicatorParts,
    /// The open replicas by storage id: a store has one for each version of its documents.
    pub(crate) replicas: OpenResources<OpenReplica>,
    /// Backlogs of closed replicas, for the replicas that replace them.
    pub(crate) backlogs: Mutex<BTreeMap<StoreId, Arc<Backlog>>>,
    /// Notified of each replica that is opened.
    pub(crate) opened: Arc<watch::Sender<()>>,
    /// Notified when a replica must be reopened.
    pub(crate) reopen: Arc<Notify>,
}

impl ReplicaResources {
    /// Closes the replica of a store if it has failed, must be reopened, or is reassigned.
    async fn close_if_stale(&self, schema: &SchemaAt, partitions: &BTreeSet<PartitionId>) {
        let store = schema.definition.store;
        let replica = {
            let mut replicas = self.replicas.lock();
            let Some(replica) = replicas.get(&store) else { return };
            let Some(staleness) = replica.staleness(&schema.definition, partitions) else { return };
            info!(%store, ?staleness, "replica reassigned");
            replicas.remove(&store)
        };
        let Some(replica) = replica else { return };
        let backlog = replica.backlog.clone();
        replica.shut_down().await;
        if let Some(backlog) = backlog {
            backlog.restart();
            self.backlogs.lock().insert(store, backlog);
        }
    }
}

impl ServiceResources for ReplicaResources {
    fn logs(&self, catalog: &Catalog) -> BTreeSet<StoreId> {
        catalog.logs().into_keys().collect()
    }

    async fn close_stale(&self, catalog: &Catalog, assigned: &PartitionAssignment) {
        // The backlog of a replica that could not be opened is read from the log again.
        self.backlogs.lock().clear();
        let active = active_versions(catalog);
        let is_active = |store: StoreId| active.contains_key(&store);
        self.replicas.close_where(|store, _| !is_active(store)).await;
        if let Some(directory) = self.parts.shards.clone() {
            let stored = directory.stores().unwrap_or_default();
            let remove = move |store| directory.remove_store(store);
            remove_dropped(catalog, stored, is_active, remove).await;
        }
        for schema in active.values() {
            let partitions = ours_of(assigned, &schema.definition);
            self.close_if_stale(schema, &partitions).await;
        }
    }

    async fn open_missing(&self, catalog: &Catalog, assigned: &PartitionAssignment) -> bool {
        let mut complete = true;
        for (store, schema) in active_versions(catalog) {
            let definition = &schema.definition;
            let partitions = ours_of(assigned, definition);
            if partitions.is_empty() || self.replicas.lock().contains_key(&store) {
                continue;
            }
            let backlog = self.backlogs.lock().remove(&store);
            let opened =
                OpenReplica::open(&self.parts, &schema, partitions, backlog, &self.reopen).await;
            match opened {
                Ok(replica) => {
                    self.replicas.lock().insert(store, replica);
                    self.opened.send_replace(());
                }
                Err(error) => {
                    warn!(store = %definition.name, %error, "replica not opened yet");
                    complete = false;
                }
            }
        }
        complete
    }
}

/// Returns the definition of each version of the active stores' documents, by storage id.
fn active_versions(catalog: &Catalog) -> BTreeMap<StoreId, Arc<SchemaAt>> {
    catalog.active_versions().map(|schema| (schema.definition.store, Arc::clone(schema))).collect()
}
