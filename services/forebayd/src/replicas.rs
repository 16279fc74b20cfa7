//! The node's own replica of every store: an embedded reader that tells outcomes and knows how long
//! a partition has been silent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::id::StoreId;
use forebay_log::CatalogFollower;
use forebay_reader::{LogBarriers, Reader, ReaderOptions, ReaderParts};
use forebay_writer_service::Writer;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::heartbeat;
use crate::node::NodeParts;

/// Wait before a store whose replica could not be opened is tried again.
const REOPEN_WAIT: Duration = Duration::from_millis(200);

struct Replica {
    reader: Reader,
    heartbeats: JoinHandle<()>,
}

impl Replica {
    fn end(self) {
        self.heartbeats.abort();
        self.reader.close();
    }
}

/// The replicas of all living stores.
pub(crate) struct Replicas {
    replicas: Mutex<BTreeMap<StoreId, Replica>>,
    follower: Mutex<Option<JoinHandle<()>>>,
}

impl Replicas {
    pub(crate) fn new() -> Self {
        Self { replicas: Mutex::new(BTreeMap::new()), follower: Mutex::new(None) }
    }

    /// The replica of a store, once it is open.
    pub(crate) fn reader(&self, store: StoreId) -> Option<Reader> {
        let replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        replicas.get(&store).map(|replica| replica.reader.clone())
    }

    /// Keeps one replica per living store from now on.
    pub(crate) fn follow(
        self: &Arc<Self>,
        parts: &NodeParts,
        catalog: Arc<CatalogFollower>,
        writer: Arc<Writer>,
    ) {
        let (replicas, parts) = (Arc::downgrade(self), parts.clone());
        let task = tokio::spawn(async move {
            loop {
                let Some(replicas) = replicas.upgrade() else { return };
                let changed = catalog.changes();
                let complete = replicas.refresh(&parts, &catalog, &writer).await;
                drop(replicas);
                if !complete {
                    tokio::time::sleep(REOPEN_WAIT).await;
                } else if !changed.await {
                    return;
                }
            }
        });
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Opens what is new and closes what is gone; whether all of it worked.
    async fn refresh(
        &self,
        parts: &NodeParts,
        catalog: &Arc<CatalogFollower>,
        writer: &Arc<Writer>,
    ) -> bool {
        let now = catalog.catalog();
        let living: BTreeMap<_, _> =
            now.living().map(|schema| (schema.definition.store, Arc::clone(schema))).collect();
        let gone: Vec<Replica> = {
            let mut replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
            let gone: Vec<_> =
                replicas.keys().filter(|store| !living.contains_key(store)).copied().collect();
            gone.iter().filter_map(|store| replicas.remove(store)).collect()
        };
        for replica in gone {
            replica.end();
        }
        let mut complete = true;
        for (store, schema) in living {
            if self.reader(store).is_some() {
                continue;
            }
            let name = &schema.definition.name;
            match open(parts, catalog, name).await {
                Ok(reader) => {
                    let heartbeats =
                        tokio::spawn(heartbeat::beat(reader.clone(), Arc::clone(writer), schema));
                    let mut replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
                    replicas.insert(store, Replica { reader, heartbeats });
                }
                Err(error) => {
                    warn!(store = %name, %error, "the node's own replica is not open yet");
                    complete = false;
                }
            }
        }
        complete
    }

    /// Closes every replica.
    pub(crate) fn stop(&self) {
        let follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(follower) = follower {
            follower.abort();
        }
        let replicas =
            std::mem::take(&mut *self.replicas.lock().unwrap_or_else(PoisonError::into_inner));
        for replica in replicas.into_values() {
            replica.end();
        }
    }
}

async fn open(
    parts: &NodeParts,
    catalog: &Arc<CatalogFollower>,
    name: &str,
) -> forebay_core::Result<Reader> {
    let mut options = ReaderOptions::new(name);
    options.keep_outcomes = true;
    let parts = ReaderParts {
        log: Arc::clone(&parts.log),
        catalog: Arc::clone(catalog),
        clock: Arc::clone(&parts.clock),
        entropy: Arc::clone(&parts.entropy),
        barriers: Arc::new(LogBarriers(Arc::clone(&parts.log))),
        on_skipped: None,
        disk: None,
    };
    Reader::open(options, parts).await
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.stop();
    }
}
