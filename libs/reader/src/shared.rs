//! What the tails, the reads and the waits of one reader share.

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

/// Told of each schema version that the reader comes to, in their order.
pub type OnSchemaChange = Arc<dyn Fn(&Arc<SchemaAt>) + Send + Sync>;

/// What all parts of one reader share.
pub(crate) struct Shared {
    pub name: String,
    /// The store whose documents they are.
    pub home: StoreId,
    /// The logs that are followed.
    pub logs: StoreLogs,
    /// What the version of its documents that is followed is kept as.
    pub store: StoreId,
    pub count: PartitionCount,
    pub options: ReaderOptions,
    pub parts: ReaderParts,
    pub storage: Arc<dyn Storage>,
    /// By partition id; `None` where the reader does not follow it.
    pub partitions: Vec<Option<Arc<Partition>>>,
    pub closing: Arc<Closing>,
    pub opened_at: Timestamp,
    pub readiness: Mutex<Readiness>,
    /// Notified whenever a tail got further.
    pub progressed: Notify,
    /// Turns of those who fetch an image.
    pub fetches: Semaphore,
    /// The version of the documents that readers have until this one takes its place.
    pub beside: Option<StoreId>,
    /// Whether this is a version of the documents that is followed no more: nothing of it stays.
    pub is_gone: AtomicBool,
    /// Whether the copies are to use no other version's memory any more.
    pub stands_alone: AtomicBool,
    /// The turn of the one that leaves that memory: together they would take twice as much.
    pub leaving: Mutex<()>,
    pub schema: SchemaChanges,
}

/// The newest schema version of a reader, and who wants to know.
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

    /// Takes over who wants to know, and what they know.
    pub(crate) fn go_on_from(&self, before: &Self) {
        let mut newest = self.newest.lock();
        *newest = (*newest).max(*before.newest.lock());
        self.callbacks.lock().append(&mut before.callbacks.lock());
    }
}

impl Shared {
    /// What those share who follow these partitions of a store into this storage.
    ///
    /// # Errors
    /// `InvalidArgument` for options that this store cannot fulfil.
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

    /// The definition at the newest schema version that any partition has seen; before the first
    /// entry the newest that is known.
    pub(crate) fn schema(&self) -> Arc<SchemaAt> {
        let schemas = self.storage.schemas();
        let seen = schemas.get(self.schema_version());
        self.of_home(seen.unwrap_or_else(|| schemas.newest()))
    }

    /// A definition as the store's own, whatever its version of the documents is kept as.
    fn of_home(&self, schema: &Arc<SchemaAt>) -> Arc<SchemaAt> {
        if self.store == self.home {
            return Arc::clone(schema);
        }
        let catalog = self.parts.catalog.catalog();
        let own = catalog.store(self.home).and_then(|own| own.at(schema.definition.version));
        Arc::clone(own.unwrap_or(schema))
    }

    /// Whether any partition begins with an image at the moment.
    pub(crate) fn is_fetching(&self) -> bool {
        self.fetches.available_permits() < READER_FETCHES_AT_ONCE
    }

    /// Closes, and waits until all that follows has ended.
    ///
    /// # Errors
    /// `DeadlineExceeded` when it has not in this time.
    pub(crate) async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.closing.close();
        let ended = tokio::time::timeout(timeout, self.closing.ended()).await;
        ended.map_err(|_| {
            let message = "the reader is closed, but its last checkpoints are not written yet; \
                           wait longer before its directory is used again";
            Error::deadline_exceeded(message).with_store(&self.name)
        })
    }

    /// The followed partitions, in order.
    pub(crate) fn followed(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }

    /// A partition that the reader follows.
    ///
    /// # Errors
    /// `InvalidArgument`, naming partition and filter.
    pub(crate) fn partition(&self, partition: PartitionId) -> Result<&Arc<Partition>> {
        let found = self.partitions.get(partition.0 as usize).and_then(Option::as_ref);
        found.ok_or_else(|| {
            let message = format!(
                "this reader follows {}; ask one that follows the partition, or open with another \
                 filter",
                self.options.partitions
            );
            Error::invalid_argument(message).with_store(&self.name).with_partition(partition)
        })
    }

    /// Takes over what the catalog knows of the store; answers whether it knows this version now.
    pub(crate) fn learn_definitions(&self, version: SchemaVersion) -> Result<bool> {
        let catalog = self.parts.catalog.catalog();
        let Some(history) = catalog.store(self.store) else { return Ok(false) };
        for schema in history.versions() {
            self.storage.schemas().add(Arc::clone(schema))?;
        }
        Ok(history.at(version).is_some())
    }

    /// Waits for a definition, then takes over what the catalog knows.
    ///
    /// # Errors
    /// `Unavailable` when the version is still not known; `UpgradeNeeded` when the control log
    /// holds what this build does not know.
    pub(crate) async fn await_definition(
        &self,
        version: SchemaVersion,
        wait_max: Duration,
    ) -> Result<()> {
        self.parts.catalog.definition(self.store, version, wait_max).await?;
        self.learn_definitions(version).map(|_| ())
    }

    /// Appends a barrier entry, with a bound on how long that may take.
    pub(crate) async fn append_barrier(
        &self,
        at: PartitionRef,
        barrier: &Entry,
    ) -> Result<Appended> {
        let at = self.logs.at(at.partition);
        let append = self.parts.barriers.append_barrier(at, encode_entry(barrier)?);
        tokio::time::timeout(Duration::from_millis(READER_LOG_TIMEOUT_MS), append)
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("the log did not answer in time")))
    }

    /// Tells everyone who waits that a tail got further, to this schema version.
    pub(crate) fn note_progress(&self, version: SchemaVersion) {
        self.progressed.notify_waiters();
        let mut newest = self.schema.newest.lock();
        if version <= *newest {
            return;
        }
        *newest = version;
        // Held while the callbacks run, so that they hear the versions in their order.
        let callbacks = self.schema.callbacks.lock().clone();
        if let Some(schema) = self.storage.schemas().get(version) {
            let schema = &self.of_home(schema);
            for callback in callbacks {
                call_back("on_schema_change", || callback(schema));
            }
        }
    }

    /// Newest schema version that any partition has seen; 0 before the first.
    pub(crate) fn schema_version(&self) -> SchemaVersion {
        let versions = self.followed().map(|partition| partition.board.schema_version());
        versions.max().unwrap_or_default()
    }

    /// Why a partition halted, if one has.
    pub(crate) fn halted(&self) -> Option<Error> {
        self.followed().find_map(|partition| partition.board.picture().halted)
    }

    /// Looks at the worst partition; answers whether the reader is ready.
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
