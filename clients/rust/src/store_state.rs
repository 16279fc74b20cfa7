//! A client's state of one store: its definition as last seen, and its partitions' sequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::schema::Definition;
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, ErrorCode, Result};
use parking_lot::RwLock;

use crate::change_spec::{ChangeSpec, RoutedChange, resolve_all};
use crate::coalescer::WriteCoalescer;
use crate::connection::Connection;
use crate::sequence::SequenceWindow;

/// A client's state of a store, with the connection and the coalescer that its writes go through.
pub(crate) struct StoreState {
    connection: Arc<Connection>,
    coalescer: Arc<WriteCoalescer>,
    known_store: Arc<KnownStore>,
}

/// A client's state of a store; it outlives the handles, and does not keep the client alive.
pub(crate) struct KnownStore {
    id: StoreId,
    name: String,
    definition: RwLock<Arc<Definition>>,
    /// The newest version that the writer has mentioned.
    newest_seen: AtomicU32,
    windows: RwLock<Windows>,
}

/// The sequences of all partitions of the logs that writes go to.
struct Windows {
    logs: StoreLogs,
    partitions: Vec<Arc<SequenceWindow>>,
}

impl Windows {
    fn new(logs: StoreLogs) -> Self {
        Self { logs, partitions: logs.all().map(|_| Arc::default()).collect() }
    }
}

impl KnownStore {
    pub(crate) fn new(definition: Definition) -> Self {
        let windows = RwLock::new(Windows::new(definition.write_logs()));
        Self {
            id: definition.store,
            name: definition.name.clone(),
            newest_seen: AtomicU32::new(definition.version.0),
            definition: RwLock::new(Arc::new(definition)),
            windows,
        }
    }

    /// Stores a definition if it is newer.
    pub(crate) fn learn(&self, definition: Definition) {
        self.notice_version(definition.version.0);
        let mut newest = self.definition.write();
        if definition.version > newest.version {
            let mut windows = self.windows.write();
            if windows.logs != definition.write_logs() {
                *windows = Windows::new(definition.write_logs());
            }
            *newest = Arc::new(definition);
        }
    }

    fn notice_version(&self, version: u32) {
        self.newest_seen.fetch_max(version, Ordering::Relaxed);
    }
}

impl StoreState {
    pub(crate) fn new(
        connection: Arc<Connection>,
        coalescer: Arc<WriteCoalescer>,
        known_store: Arc<KnownStore>,
    ) -> Self {
        Self { connection, coalescer, known_store }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(crate) fn coalescer(&self) -> &Arc<WriteCoalescer> {
        &self.coalescer
    }

    pub(crate) fn id(&self) -> StoreId {
        self.known_store.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.known_store.name
    }

    pub(crate) fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.known_store.definition.read())
    }

    /// Returns the logs that writes go to.
    pub(crate) fn logs(&self) -> StoreLogs {
        self.known_store.windows.read().logs
    }

    /// Returns the sequences of a partition of these logs; `None` if writes have moved to other
    /// logs.
    pub(crate) fn window(
        &self,
        logs: StoreLogs,
        partition: PartitionId,
    ) -> Option<Arc<SequenceWindow>> {
        let windows = self.known_store.windows.read();
        let of_logs = (windows.logs == logs).then_some(&windows.partitions)?;
        of_logs.get(partition.0 as usize).cloned()
    }

    /// Stores a definition if it is newer.
    pub(crate) fn learn(&self, definition: Definition) {
        self.known_store.learn(definition);
    }

    /// Notes that the store has this version; a newer definition is fetched before the next write.
    pub(crate) fn notice_version(&self, version: u32) {
        self.known_store.notice_version(version);
    }

    pub(crate) async fn refresh(&self) -> Result<Arc<Definition>> {
        let definition = self.connection.describe(self.name(), 0).await?;
        if definition.store != self.id() {
            let message = "the store was deleted, and another store has its name; open that store";
            return Err(Error::not_found(message).with_store(self.name()));
        }
        self.learn(definition);
        Ok(self.definition())
    }

    /// Resolves specs with the newest known definition. A field that the definition does not have
    /// may be new: then the client fetches the definition once more.
    ///
    /// # Errors
    /// The error of the first invalid spec.
    pub(crate) async fn resolve(
        &self,
        specs: &[ChangeSpec],
    ) -> Result<(Arc<Definition>, Vec<RoutedChange>)> {
        let mut definition = self.definition();
        if self.known_store.newest_seen.load(Ordering::Relaxed) > definition.version.0 {
            // An older definition still writes the fields that it knows, so a failed refresh is
            // ignored.
            definition = self.refresh().await.unwrap_or(definition);
        }
        match resolve_all(specs, &definition) {
            Err(error) if error.code() == ErrorCode::NotFound => {
                definition = self.refresh().await?;
                let routed = resolve_all(specs, &definition)?;
                Ok((definition, routed))
            }
            routed => Ok((definition, routed?)),
        }
    }
}
