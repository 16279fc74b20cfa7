//! The state that the tails, the reads and the waits of one reader share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::Entry;
use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::{READER_FETCHES_AT_ONCE, READER_LOG_TIMEOUT_MS};
use forebay_core::schema::Definition;
use forebay_core::versions::StoreLogs;
use forebay_core::{Error, Result};
use forebay_log::{Appended, follow_version};
use forebay_wire::entry::encode_entry;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::callback::call_back;
use crate::closing::Closing;
use crate::options::{ReaderOptions, ReaderParts};
use crate::partition::Partition;
use crate::progress::Phase;
use crate::ready::{Readiness, Standing};
use crate::storage::Storage;

/// A callback that receives each schema version that the reader reaches, in order.
pub type OnSchemaChange = Arc<dyn Fn(&Arc<SchemaAt>) + Send + Sync>;

/// The state that all parts of one reader share.
pub(crate) struct Shared {
    pub name: String,
    /// Id of the store.
    pub home: StoreId,
    /// Logs that the reader follows.
    pub logs: StoreLogs,
    /// Storage id of the followed store version.
    pub store: StoreId,
    pub count: PartitionCount,
    pub options: ReaderOptions,
    pub parts: ReaderParts,
    pub storage: Arc<dyn Storage>,
    /// Partitions by partition id; `None` for a partition that the reader does not follow.
    pub partitions: Vec<Option<Arc<Partition>>>,
    pub closing: Arc<Closing>,
    pub opened_at: Timestamp,
    pub readiness: Mutex<Readiness>,
    /// Notified whenever a tail advances.
    pub progressed: Notify,
    /// Permits to fetch an image.
    pub fetches: Semaphore,
    /// Storage id of the store version that readers use until this version replaces it.
    pub beside: Option<StoreId>,
    /// Whether the reader no longer follows this store version: its files are removed.
    pub is_gone: AtomicBool,
    /// Whether the replicas must stop sharing another version's records.
    pub stands_alone: AtomicBool,
    /// Lock of the partition that detaches: several at a time would take twice the memory.
    pub leaving: Mutex<()>,
    pub schema: SchemaChanges,
}

/// The newest schema version of a reader, and the callbacks for new ones.
pub(crate) struct SchemaChanges {
    newest: Mutex<SchemaVersion>,
    callbacks: Mutex<Vec<OnSchemaChange>>,
}

impl SchemaChanges {
    pub(crate) fn new() -> Self {
        Self { newest: Mutex::default(), callbacks: Mutex::default() }
    }

    pub(crate) fn register(&self, callback: OnSchemaChange) {
        self.callbacks.lock().push(callback);
    }

    /// Takes over the callbacks of an older store version, and the newest schema version that they
    /// received.
    pub(crate) fn go_on_from(&self, before: &Self) {
        let mut newest = self.newest.lock();
        *newest = (*newest).max(*before.newest.lock());
        self.callbacks.lock().append(&mut before.callbacks.lock());
    }
}

impl Shared {
    /// Returns the shared state of a reader that follows these partitions of a store into this
    /// storage.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for options that this store cannot fulfil.
    pub(crate) fn over(
        options: ReaderOptions,
        mut parts: ReaderParts,
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
            let ReaderOptions { keep_outcomes, serve_partial, .. } = options;
            follows.then(|| Arc::new(Partition::new(at, keep_outcomes, serve_partial)))
        };
        Ok(Self {
            name: options.store.clone(),
            home,
            logs,
            store,
            count,
            storage,
            partitions: count.partitions().map(partition).collect(),
            closing: Arc::new(Closing::new()),
            opened_at: parts.clock.now(),
            readiness: Mutex::new(Readiness::new(options.ready_age_max)),
            progressed: Notify::new(),
            fetches: Semaphore::new(READER_FETCHES_AT_ONCE),
            beside: None,
            is_gone: AtomicBool::new(false),
            stands_alone: AtomicBool::new(false),
            leaving: Mutex::new(()),
            schema: SchemaChanges::new(),
            options,
            parts,
        })
    }

    /// Returns the definition at the newest schema version that any partition has seen; before the
    /// first entry, the newest known definition.
    pub(crate) fn schema(&self) -> Arc<SchemaAt> {
        let schemas = self.storage.schemas();
        let seen = schemas.get(self.schema_version());
        self.of_home(seen.unwrap_or_else(|| schemas.newest()))
    }

    /// Returns a definition as the store's own, regardless of the storage id of its store version.
    fn of_home(&self, schema: &Arc<SchemaAt>) -> Arc<SchemaAt> {
        if self.store == self.home {
            return Arc::clone(schema);
        }
        let catalog = self.parts.catalog.catalog();
        let own = catalog.store(self.home).and_then(|own| own.at(schema.definition.version));
        Arc::clone(own.unwrap_or(schema))
    }

    /// Returns whether any partition is starting from an image.
    pub(crate) fn is_fetching(&self) -> bool {
        self.fetches.available_permits() < READER_FETCHES_AT_ONCE
    }

    /// Closes the reader, and waits until all its tails have ended.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if the tails have not ended within `timeout`.
    pub(crate) async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.closing.close();
        let ended = tokio::time::timeout(timeout, self.closing.ended()).await;
        ended.map_err(|_| {
            let message = "the reader is closed, but its last checkpoints are not written yet; \
                wait longer before you use the directory again";
            Error::deadline_exceeded(message).with_store(&self.name)
        })
    }

    /// Returns the followed partitions, in order.
    pub(crate) fn followed(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }

    /// Returns a followed partition.
    ///
    /// # Errors
    /// Returns `InvalidArgument`, with partition and filter, for any other partition.
    pub(crate) fn partition(&self, partition: PartitionId) -> Result<&Arc<Partition>> {
        let found = self.partitions.get(partition.0 as usize).and_then(Option::as_ref);
        found.ok_or_else(|| {
            let message = format!(
                "this reader follows {}; ask a reader that follows the partition, or open one with \
                 another filter",
                self.options.partitions
            );
            Error::invalid_argument(message).with_store(&self.name).with_partition(partition)
        })
    }

    /// Takes over the catalog's definitions of the store; returns whether they include this
    /// version.
    pub(crate) fn learn_definitions(&self, version: SchemaVersion) -> Result<bool> {
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
    pub(crate) async fn await_definition(
        &self,
        version: SchemaVersion,
        wait_max: Duration,
    ) -> Result<()> {
        self.parts.catalog.definition(self.store, version, wait_max).await?;
        self.learn_definitions(version).map(|_| ())
    }

    /// Appends a barrier entry, with a bound on the duration.
    pub(crate) async fn append_barrier(
        &self,
        at: PartitionRef,
        barrier: &Entry,
    ) -> Result<Appended> {
        let at = self.logs.at(at.partition);
        let append = self.parts.barriers.append_barrier(at, encode_entry(barrier)?);
        tokio::time::timeout(Duration::from_millis(READER_LOG_TIMEOUT_MS), append)
            .await
            .unwrap_or_else(|_| {
                Err(Error::unavailable("the log did not answer in time; try again"))
            })
    }

    /// Notifies all waits that a tail advanced to this schema version.
    pub(crate) fn note_progress(&self, version: SchemaVersion) {
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
                call_back("on_schema_change", || callback(schema));
            }
        }
    }

    /// Returns the newest schema version that any partition has seen; 0 before the first.
    pub(crate) fn schema_version(&self) -> SchemaVersion {
        let versions = self.followed().map(|partition| partition.board.schema_version());
        versions.max().unwrap_or_default()
    }

    /// Returns the error for which a partition halted, if one has.
    pub(crate) fn halted(&self) -> Option<Error> {
        self.followed().find_map(|partition| partition.board.picture().halted)
    }

    /// Notes the state of the worst partition; returns whether the reader is ready.
    pub(crate) fn observe_readiness(&self, now: Timestamp) -> bool {
        let standing = |partition: &Arc<Partition>| match partition.board.phase() {
            Phase::Serving => {
                partition.board.freshness().age(now).map_or(Standing::Out, Standing::Aged)
            }
            _ => Standing::Out,
        };
        let worst = self.followed().map(standing).reduce(Standing::worse);
        self.readiness.lock().observe(now, worst.unwrap_or(Standing::Out))
    }
}
