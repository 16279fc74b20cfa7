//! The state that the tails, the reads and the waits of one replica share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::Entry;
use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::READER_FETCHES_AT_ONCE;
use forebay_core::replica_state::Phase;
use forebay_core::schema::Definition;
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, Result};
use forebay_entries::follow_version;
use forebay_log::AppendReceipt;
use forebay_wire::entry::encode_entry;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::close_signal::CloseSignal;
use crate::connect::in_time;
use crate::options::{ReplicaOptions, ReplicaParts};
use crate::partition::Partition;
use crate::readiness::{Readiness, ReadinessState};
use crate::storage::Storage;

/// A callback that receives each definition that the replica reaches, in order.
pub type OnSchemaChange = Arc<dyn Fn(&Arc<Definition>) + Send + Sync>;

/// The state that all parts of the replica of one store version share.
pub struct ReplicaContext {
    /// Name of the store.
    pub name: String,
    /// Id of the store.
    pub home: StoreId,
    /// Logs that the replica follows.
    pub logs: StoreLogs,
    /// Storage id of the followed store version.
    pub store: StoreId,
    /// Number of partitions of the store version.
    pub count: PartitionCount,
    /// The options of the replica.
    pub options: ReplicaOptions,
    /// The parts that the replica is built from; the log is that of the store version.
    pub parts: ReplicaParts,
    /// The storage of the documents.
    pub storage: Arc<dyn Storage>,
    /// Partitions by partition id; `None` for a partition that is not followed.
    pub partitions: Vec<Option<Arc<Partition>>>,
    /// The close of the replica.
    pub close_signal: Arc<CloseSignal>,
    /// Time at which the replica was opened.
    pub opened_at: Timestamp,
    /// The readiness of all followed partitions together.
    pub readiness: Mutex<Readiness>,
    /// Notified whenever a tail advances.
    pub progressed: Notify,
    /// Permits to fetch an image.
    pub fetches: Semaphore,
    /// Whether the store version is no longer followed: its files are removed.
    pub is_gone: AtomicBool,
    /// Whether the replica must stop sharing another version's records.
    pub must_detach: AtomicBool,
    /// Lock of the partition that detaches: several at a time would take twice the memory.
    pub detaching: Mutex<()>,
    /// The newest schema version, and the callbacks for new ones.
    pub schema: SchemaChanges,
}

/// The newest schema version of a replica, and the callbacks for new ones.
#[derive(Default)]
pub struct SchemaChanges {
    newest: Mutex<SchemaVersion>,
    callbacks: Mutex<Vec<OnSchemaChange>>,
}

impl SchemaChanges {
    /// Calls `callback` with each later schema version.
    pub fn register(&self, callback: OnSchemaChange) {
        self.callbacks.lock().push(callback);
    }

    /// Takes over the callbacks of an older store version, and the newest schema version that they
    /// received.
    pub fn continue_from(&self, before: &Self) {
        let mut newest = self.newest.lock();
        *newest = (*newest).max(*before.newest.lock());
        self.callbacks.lock().append(&mut before.callbacks.lock());
    }
}

impl ReplicaContext {
    /// Returns the shared state of a replica that follows these partitions of a store into this
    /// storage.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for options that this store cannot fulfil.
    pub fn new(
        options: ReplicaOptions,
        mut parts: ReplicaParts,
        definition: &Definition,
        storage: Arc<dyn Storage>,
    ) -> Result<Self> {
        options.check(definition)?;
        parts.log = follow_version(parts.log, definition);
        let (home, store) = (definition.versions.home(), definition.store);
        let (logs, count) = (definition.logs(), definition.partitions);
        let partition = |partition: PartitionId| {
            let at = PartitionRef { store, partition };
            let follows = options.partitions.follows(partition);
            let ReplicaOptions { keep_outcomes, allow_incomplete_reads, .. } = options;
            follows.then(|| Arc::new(Partition::new(at, keep_outcomes, allow_incomplete_reads)))
        };
        Ok(Self {
            name: options.store.clone(),
            home,
            logs,
            store,
            count,
            storage,
            partitions: count.partitions().map(partition).collect(),
            close_signal: Arc::new(CloseSignal::new()),
            opened_at: parts.clock.now(),
            readiness: Mutex::new(Readiness::new(options.ready_max_staleness)),
            progressed: Notify::new(),
            fetches: Semaphore::new(READER_FETCHES_AT_ONCE),
            is_gone: AtomicBool::new(false),
            must_detach: AtomicBool::new(false),
            detaching: Mutex::new(()),
            schema: SchemaChanges::default(),
            options,
            parts,
        })
    }

    /// Returns the definition at the newest schema version that any partition has seen; before the
    /// first entry, the newest known definition.
    pub fn schema(&self) -> Arc<SchemaAt> {
        let schemas = self.storage.schemas();
        let current_schema = schemas.get(self.schema_version());
        self.of_home(current_schema.unwrap_or_else(|| schemas.newest()))
    }

    /// Returns a definition as the store's own, regardless of the storage id of its store version.
    fn of_home(&self, schema: &Arc<SchemaAt>) -> Arc<SchemaAt> {
        if self.store == self.home {
            return Arc::clone(schema);
        }
        let catalog = self.parts.catalog.catalog();
        let home_schema = catalog
            .store(self.home)
            .and_then(|home_schema| home_schema.at(schema.definition.version));
        Arc::clone(home_schema.unwrap_or(schema))
    }

    /// Returns whether any partition is starting from an image.
    pub fn is_fetching(&self) -> bool {
        self.fetches.available_permits() < READER_FETCHES_AT_ONCE
    }

    /// Closes the replica, and waits until all its tails have ended.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if the tails have not ended within `timeout`.
    pub fn shut_down(&self, timeout: Duration) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.close_signal.close();
            let end = tokio::time::timeout(timeout, self.close_signal.ended()).await;
            end.map_err(|_| {
                let message = "the reader is closed, but its last checkpoints are not written yet; \
                wait longer before you use the directory again";
                Error::deadline_exceeded(message).with_store(&self.name)
            })
        })
    }

    /// Returns the followed partitions, in order.
    pub fn followed(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }

    /// Returns a followed partition.
    ///
    /// # Errors
    /// Returns `InvalidArgument`, with partition and filter, for any other partition.
    pub fn partition(&self, partition: PartitionId) -> Result<&Arc<Partition>> {
        let found = self.partitions.get(partition.0 as usize).and_then(Option::as_ref);
        found.ok_or_else(|| {
            let message = format!(
                "this reader follows {}; ask a reader that follows the partition, or open one \
                 with another filter",
                self.options.partitions
            );
            Error::invalid_argument(message).with_store(&self.name).with_partition(partition)
        })
    }

    /// Takes over the catalog's definitions of the store; returns whether they include this
    /// version.
    pub fn learn_definitions(&self, version: SchemaVersion) -> Result<bool> {
        let catalog = self.parts.catalog.catalog();
        let Some(history) = catalog.store(self.store) else { return Ok(false) };
        for schema in history.versions() {
            self.storage.schemas().add(Arc::clone(schema))?;
        }
        Ok(history.at(version).is_some())
    }

    /// Waits for a definition, then takes over the catalog's definitions.
    ///
    /// # Errors
    /// Returns `Unavailable` if the version is still unknown after `wait_max`; `UpgradeNeeded` if
    /// the control log holds an entry that this build does not know.
    pub async fn await_definition(&self, version: SchemaVersion, wait_max: Duration) -> Result<()> {
        self.parts.catalog.definition(self.store, version, wait_max).await?;
        self.learn_definitions(version).map(|_| ())
    }

    /// Appends a barrier entry, with a bound on the duration.
    pub async fn append_barrier(&self, at: PartitionRef, barrier: &Entry) -> Result<AppendReceipt> {
        let at = self.logs.at(at.partition);
        in_time(Duration::ZERO, self.parts.barriers.append_barrier(at, encode_entry(barrier)?))
            .await
    }

    /// Notifies all waits that a tail advanced to this schema version.
    pub fn note_progress(&self, version: SchemaVersion) {
        self.progressed.notify_waiters();
        let mut newest = self.schema.newest.lock();
        if version <= *newest {
            return;
        }
        *newest = version;
        // The lock is held while the callbacks run, so that they receive the versions in order.
        let callbacks = self.schema.callbacks.lock().clone();
        if let Some(schema) = self.storage.schemas().get(version) {
            let schema = &self.of_home(schema);
            for callback in callbacks {
                call_back("on_schema_change", || callback(&schema.definition));
            }
        }
    }

    /// Returns the newest schema version that any partition has seen; 0 before the first.
    pub fn schema_version(&self) -> SchemaVersion {
        let versions = self.followed().map(|partition| partition.board.schema_version());
        versions.max().unwrap_or_default()
    }

    /// Returns the error for which a partition halted, if one has.
    pub fn fatal_error(&self) -> Option<Error> {
        self.followed().find_map(|partition| partition.board.current().fatal_error)
    }

    /// Notes the state of the worst partition; returns whether the replica is ready.
    pub fn observe_readiness(&self, now: Timestamp) -> bool {
        let state = |partition: &Arc<Partition>| match partition.board.phase() {
            Phase::Serving => partition
                .board
                .freshness()
                .age(now)
                .map_or(ReadinessState::Unavailable, ReadinessState::Serving),
            _ => ReadinessState::Unavailable,
        };
        let worst = self.followed().map(state).reduce(ReadinessState::worse);
        self.readiness.lock().observe(now, worst.unwrap_or(ReadinessState::Unavailable))
    }
}

/// Calls a callback of the caller; a panic in it is logged and stops no task of the replica.
pub(crate) fn call_back(name: &str, callback: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
        let error = Error::of_panic(panic.as_ref());
        tracing::error!(callback = name, %error, "callback panicked");
    }
}
