//! The log on the disk of one process: append-only segment files with group commit. Format:
//! `proto/spec/embedded-log.md`.
//!
//! An append waits in the queue of its partition's committer (`commit.rs`). The committer writes
//! all waiting appends as one group, makes the group durable by one sync of its only segment or of
//! the journal (`journal/`), and only then shows the records to readers and acknowledges the
//! appends. A failed sync stops the log permanently ([`EmbeddedLog::failed`]). The log never
//! retries a sync, because the kernel forgets pages whose write-back failed.

mod commit;
mod errors;
mod files;
mod format;
mod journal;
mod options;
mod partition;
mod paths;
mod recover;
mod scan;
mod segment_read;
mod segment_write;
mod state;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::Clock;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::limits::{COMMIT_QUEUE_BYTES_MAX, COMMIT_QUEUE_ENTRIES_MAX};
use forebay_core::partition::xxh3_64;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::commit::Committer;
pub use self::options::{CommitMode, Durability, EmbeddedOptions, OpenVerification};
use self::partition::ReadSource;
use self::segment_write::PendingAppend;
use self::state::{LogState, closed_error};
use crate::change_log::{AppendReceipt, Bounds, ChangeLog, ReadLimit, Records, check_entry};
use crate::disk::Disk;

/// A log on the disk of one process. `proto/spec/embedded-log.md` specifies its guarantees.
pub struct EmbeddedLog {
    shared: Arc<LogState>,
    /// Queues, one per committer; `None` once the log is closed.
    queues: Mutex<Option<Vec<mpsc::Sender<PendingAppend>>>>,
    /// Receivers that end when the committers have ended.
    committers: Mutex<Vec<oneshot::Receiver<()>>>,
    /// Budget for bytes that wait in the queues.
    room: Arc<Semaphore>,
}

impl EmbeddedLog {
    /// Opens the log in a data directory, and creates the directory if needed.
    /// [`EmbeddedOptions::open_verification`] decides whether every segment or only the last
    /// segment of each partition is read.
    ///
    /// # Errors
    /// - `Conflict`: another process, or this one, has the directory open.
    /// - `Corrupt`, with file and byte: damage that cannot be a torn write.
    /// - `UpgradeNeeded`: a newer format.
    /// - `Unavailable`: the disk refuses an operation.
    /// - `LimitExceeded`: the disk is full.
    pub async fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: EmbeddedOptions,
    ) -> Result<Self> {
        let mode = options.commit;
        let open = move || LogState::open(disk, clock, options).map(Arc::new);
        let shared = run(mode, open).await?;
        let mut log = Self {
            shared,
            queues: Mutex::new(None),
            committers: Mutex::default(),
            room: Arc::new(Semaphore::new(COMMIT_QUEUE_BYTES_MAX)),
        };
        log.start_committers()?;
        Ok(log)
    }

    fn start_committers(&mut self) -> Result<()> {
        let mut queues = Vec::new();
        let mut committers = Vec::new();
        let count = match self.shared.options.commit {
            CommitMode::Threads(count) => count.max(1),
            CommitMode::Task => 1,
        };
        for number in 0..count {
            let (queue, receiver) = mpsc::channel(COMMIT_QUEUE_ENTRIES_MAX);
            let (end_sender, end) = oneshot::channel::<()>();
            let committer = Committer::new(self.shared.clone(), number, receiver);
            match self.shared.options.commit {
                CommitMode::Task => drop(tokio::spawn(async move {
                    committer.run_as_task().await;
                    drop(end_sender);
                })),
                CommitMode::Threads(_) => {
                    let name = format!("log-commit-{number}");
                    let run = move || {
                        committer.run_on_thread();
                        drop(end_sender);
                    };
                    let spawned = std::thread::Builder::new().name(name).spawn(run);
                    spawned.map_err(|error| {
                        Error::unavailable(format!("could not start a committer: {error}"))
                    })?;
                }
            }
            queues.push(queue);
            committers.push(end);
        }
        *self.queues.get_mut() = Some(queues);
        *self.committers.get_mut() = committers;
        Ok(())
    }

    /// Waits until the log has stopped, because a sync failed or a read found damage, and returns
    /// the cause. The service then stops. A stopped log refuses appends; reads of acknowledged
    /// records continue.
    pub async fn failed(&self) -> Error {
        self.shared.poison.wait().await
    }

    /// Commits the waiting appends, makes them durable, and releases the data directory. Later
    /// calls and waiting readers get `Closed`; closing again changes nothing.
    pub async fn close(&self) {
        drop(self.queues.lock().take());
        let committers = std::mem::take(&mut *self.committers.lock());
        for committer in committers {
            // The channel closes when the committer ends for any reason.
            let _ = committer.await;
        }
        let stores = self.shared.stores.write().take();
        for partition in stores.into_iter().flat_map(BTreeMap::into_values).flatten() {
            partition.mark_deleted();
        }
        self.shared.lock.lock().take();
    }

    /// Returns the queue of a partition's committer, which is always the same one.
    fn queue(&self, at: PartitionRef) -> Result<mpsc::Sender<PendingAppend>> {
        let mut name = at.store.0.to_le_bytes().to_vec();
        name.extend(at.partition.0.to_le_bytes());
        let queues = self.queues.lock();
        let queues = queues.as_ref().ok_or_else(closed_error)?;
        let index = xxh3_64(&name) % queues.len() as u64;
        queues.get(index as usize).cloned().ok_or_else(closed_error)
    }

    /// Runs work that blocks on the disk on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<LogState>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        run(self.shared.options.commit, move || work(&shared)).await
    }
}

async fn run<T: Send + 'static>(
    mode: CommitMode,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match mode {
        CommitMode::Task => work(),
        CommitMode::Threads(_) => match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(Error::internal(format!("a task on the log's disk ended: {error}"))),
        },
    }
}

#[async_trait]
impl ChangeLog for EmbeddedLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.on_disk(move |shared| shared.create(store, partitions)).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.on_disk(move |shared| shared.delete(store)).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        check_entry(at, &entry)?;
        self.shared.poison.check()?;
        let partition = self.shared.partition(at)?;
        let queue = self.queue(at)?;
        let room = self.room.clone().acquire_many_owned(entry.len() as u32).await;
        let _room = room.map_err(|_| closed_error())?;
        let (reply, answer) = oneshot::channel();
        let pending = PendingAppend { partition, entry, reply, _room };
        queue.send(pending).await.map_err(|_| closed_error())?;
        drop(queue);
        answer.await.unwrap_or_else(|_| {
            Err(Error::unknown_outcome(
                "the log's committer ended while the entry was being appended; restart the \
                 service and send the same write again",
            ))
        })
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        let partition = self.shared.partition(at)?;
        let mut found = partition.find(from, limit.bytes_max)?;
        if let ReadSource::Memory(Records { records, .. }) = &found
            && records.is_empty()
            && !limit.wait_max.is_zero()
        {
            partition.end.wait_past(from, limit.wait_max).await;
            // The log may have been closed or deleted during the wait.
            self.shared.partition(at)?;
            found = partition.find(from, limit.bytes_max)?;
        }
        match found {
            ReadSource::Memory(records) => Ok(records),
            ReadSource::Segment => {
                let bytes_max = limit.bytes_max;
                self.on_disk(move |shared| shared.read_segment(&partition, from, bytes_max)).await
            }
        }
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        let bounds = self.shared.partition(at)?.bounds()?;
        Ok(Bounds { server_time: bounds.server_time.max(Some(self.shared.clock.now())), ..bounds })
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.on_disk(move |shared| shared.trim(at, before)).await
    }
}
