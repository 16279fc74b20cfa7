//! The catalog follower folds the control log and lets callers wait for catalog changes.
//!
//! Every process that uses stores runs one follower. The follower reads the control log through
//! [`ChangeLog`], like every other reader, so the follower works over the embedded log, Kafka and
//! the change stream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay_core::backoff::Backoff;
use forebay_core::catalog::{Catalog, SchemaAt};
use forebay_core::change::EntryBody;
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::{CATALOG_BACKOFF_MS_MAX, CATALOG_BACKOFF_MS_MIN};
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::{ChangeLog, LogRecord, ReadLimit, Records};
use forebay_wire::entry::{decode_entry, peek_log_id};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, warn};

const READ: ReadLimit = ReadLimit { bytes_max: 4 << 20, wait_max: Duration::from_secs(1) };

/// Progress of the follower, as seen by waiters.
#[derive(Clone, Debug, Default)]
struct Progress {
    offset_applied: Offset,
    /// Cause of a permanent stop, if the follower has stopped.
    fatal_error: Option<Error>,
}

struct CatalogState {
    catalog: ArcSwap<Catalog>,
    progress: watch::Sender<Progress>,
}

/// A follower of the control log, which runs until it is dropped.
pub struct CatalogFollower {
    shared: Arc<CatalogState>,
    /// `None` if there is nothing to follow.
    task: Option<JoinHandle<()>>,
}

impl Drop for CatalogFollower {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl CatalogFollower {
    /// Starts to follow on the current runtime. The follower retries log errors with back-off.
    pub fn start(log: Arc<dyn ChangeLog>, entropy: Arc<dyn Entropy>) -> Self {
        let shared = Arc::new(CatalogState {
            catalog: ArcSwap::from_pointee(Catalog::default()),
            progress: watch::Sender::new(Progress::default()),
        });
        let tail = Tail {
            log,
            entropy,
            shared: Arc::downgrade(&shared),
            catalog: Catalog::default(),
            log_id: None,
            next: None,
            is_sure: true,
            is_published: true,
            backoff: Backoff::new(
                Duration::from_millis(CATALOG_BACKOFF_MS_MIN),
                Duration::from_millis(CATALOG_BACKOFF_MS_MAX),
            ),
        };
        Self { shared, task: Some(tokio::spawn(tail.run())) }
    }

    /// Returns a follower with a fixed catalog, for readers in memory, which have no control log.
    /// Needs no runtime.
    pub fn standing(catalog: Catalog) -> Self {
        let catalog = ArcSwap::from_pointee(catalog);
        let progress = watch::Sender::new(Progress::default());
        Self { shared: Arc::new(CatalogState { catalog, progress }), task: None }
    }

    /// Returns the catalog as folded so far. A call costs two atomic operations.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog.load_full()
    }

    /// Returns the first offset of the control log that is not folded yet.
    pub fn offset_applied(&self) -> Offset {
        self.shared.progress.borrow().offset_applied
    }

    /// Returns a future that resolves when the catalog may have changed, and to `false` once the
    /// follower is gone.
    pub fn changes(&self) -> impl Future<Output = bool> + use<> {
        let mut receiver = self.shared.progress.subscribe();
        receiver.mark_unchanged();
        async move { receiver.changed().await.is_ok() }
    }

    /// Waits until everything below `offset` is folded.
    ///
    /// # Errors
    /// `Unavailable` if that takes longer than `wait_max`; `UpgradeNeeded` if the control log
    /// contains entries that this build does not know.
    pub async fn wait_applied(&self, offset: Offset, wait_max: Duration) -> Result<()> {
        self.wait(wait_max, |_, applied| (applied >= offset).then_some(())).await
    }

    /// Waits until this version of a store's definition is in the catalog.
    ///
    /// # Errors
    /// As [`CatalogFollower::wait_applied`].
    pub async fn definition(
        &self,
        store: StoreId,
        version: SchemaVersion,
        wait_max: Duration,
    ) -> Result<Arc<SchemaAt>> {
        self.wait(wait_max, |catalog, _| catalog.store(store)?.at(version).cloned()).await
    }

    async fn wait<T>(
        &self,
        wait_max: Duration,
        found: impl Fn(&Catalog, Offset) -> Option<T>,
    ) -> Result<T> {
        let mut progress = self.shared.progress.subscribe();
        let wait = async {
            loop {
                let Progress { offset_applied, fatal_error } = progress.borrow_and_update().clone();
                if let Some(found) = found(&self.catalog(), offset_applied) {
                    return Ok(found);
                }
                if let Some(fatal_error) = fatal_error {
                    return Err(fatal_error);
                }
                if progress.changed().await.is_err() {
                    return Err(Error::closed(
                        "the catalog follower has stopped; restart the process",
                    ));
                }
            }
        };
        tokio::time::timeout(wait_max, wait).await.unwrap_or_else(|_| {
            let message = "the control log was not read far enough in time; check that the log is \
                reachable, then retry";
            Err(Error::unavailable(message))
        })
    }
}

/// The task that reads and folds the control log.
struct Tail {
    log: Arc<dyn ChangeLog>,
    entropy: Arc<dyn Entropy>,
    shared: Weak<CatalogState>,
    catalog: Catalog,
    log_id: Option<LogId>,
    /// First offset that is not folded; `None` if the follower must look up the start of the log.
    next: Option<Offset>,
    /// Whether no call has failed since the follower last verified the id of the log.
    is_sure: bool,
    /// Whether the published catalog contains everything that was folded.
    is_published: bool,
    backoff: Backoff,
}

impl Tail {
    async fn run(mut self) {
        loop {
            match self.step().await {
                Ok(true) => self.backoff.reset(),
                Ok(false) => return,
                Err(error) if error.code() == ErrorCode::UpgradeNeeded => {
                    error!(%error, "catalog halted");
                    self.publish(Some(error));
                    return;
                }
                Err(error) => {
                    if error.code() == ErrorCode::TokenLost {
                        warn!(%error, "control log replaced; replaying it from the start");
                        self.start_over();
                    }
                    self.is_sure = false;
                    tokio::time::sleep(self.backoff.next_wait(&*self.entropy)).await;
                }
            }
        }
    }

    fn start_over(&mut self) {
        self.catalog = Catalog::default();
        self.log_id = None;
        self.next = None;
        self.is_published = false;
    }

    /// Reads and folds some records; returns `false` if the follower was dropped.
    async fn step(&mut self) -> Result<bool> {
        if !self.is_sure {
            self.check_log_id().await?;
            self.is_sure = true;
        }
        let (from, read) = match self.next {
            Some(next) => (next, self.log.read(PartitionRef::CONTROL, next, READ).await?),
            None => self.read_first().await?,
        };
        self.next = Some(from);
        for record in &read.records {
            self.fold(record)?;
            self.next = Some(record.offset.next());
            self.is_published = false;
        }
        Ok(self.publish(None))
    }

    /// Reads from the start of the log, which is offset 0, because the control log is retained
    /// forever. Only if offset 0 is gone, the task looks up the start, which costs the process that
    /// opens a reader one more round trip.
    async fn read_first(&self) -> Result<(Offset, Records)> {
        let first = Offset(0);
        match self.log.read(PartitionRef::CONTROL, first, READ).await {
            Err(error) if error.code() == ErrorCode::TokenLost => {
                let start = self.log.bounds(PartitionRef::CONTROL).await?.start;
                Ok((start, self.log.read(PartitionRef::CONTROL, start, READ).await?))
            }
            read => Ok((first, read?)),
        }
    }

    /// Starts over if the log header entry shows that the log is a different one. After an error,
    /// the service that serves the log may have come back with other data.
    async fn check_log_id(&mut self) -> Result<()> {
        let Some(expected) = self.log_id else { return Ok(()) };
        let start = self.log.bounds(PartitionRef::CONTROL).await?.start;
        let mut from = start;
        let limit = ReadLimit { wait_max: Duration::ZERO, ..READ };
        loop {
            let read = self.log.read(PartitionRef::CONTROL, from, limit).await?;
            let found = read.records.iter().find_map(|record| peek_log_id(&record.entry, start));
            match (found, read.records.last()) {
                (Some(found), _) if found == expected => return Ok(()),
                (None, Some(last)) => from = last.offset.next(),
                // The log is a different one, or has no log header entry.
                _ => {
                    warn!("control log replaced; replaying it from the start");
                    self.start_over();
                    return Ok(());
                }
            }
        }
    }

    fn fold(&mut self, record: &LogRecord) -> Result<()> {
        let entry = match decode_entry(&record.entry) {
            Ok(entry) => entry,
            Err(error) if error.code() == ErrorCode::UpgradeNeeded => return Err(error),
            Err(error) => {
                warn!(offset = %record.offset, %error, "control record skipped");
                return Ok(());
            }
        };
        if matches!(entry.body, EntryBody::LogHeader) {
            self.log_id.get_or_insert(entry.log_id);
        }
        if self.log_id != Some(entry.log_id) {
            warn!(offset = %record.offset, "control record of another log skipped");
            return Ok(());
        }
        if let EntryBody::Control(control) = entry.body {
            self.catalog.apply(control);
        }
        Ok(())
    }

    /// Publishes the catalog and the offset applied; returns `false` if the follower was dropped.
    fn publish(&mut self, fatal_error: Option<Error>) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        if !self.is_published || fatal_error.is_some() {
            shared.catalog.store(Arc::new(self.catalog.clone()));
            let offset_applied = self.next.unwrap_or_default();
            shared.progress.send_replace(Progress { offset_applied, fatal_error });
            self.is_published = true;
        }
        true
    }
}
