//! The target of a copy: reads the ranges, or the files, of a frozen shard in parallel and builds a
//! shard from them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::entropy::Entropy;
use forebay_core::id::PartitionId;
use forebay_core::limits::{COPY_MESSAGE_BYTES_MAX, COPY_PARALLELISM_MAX, MESSAGE_BYTES_MAX};
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{Import, ShardDirectory};
use forebay_tasks::run_blocking;
use forebay_wire::shard_copy::copy_endpoint;
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::shard_copies_client::ShardCopiesClient;
use futures::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::{RwLock, mpsc, watch};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tracing::{info, warn};

use super::blocks::Blocks;
use super::progress::{CopyProgress, Meter};

/// Number of blocks that wait to be written, for each stream.
const BLOCKS_WAITING: usize = 2;
/// First and longest wait between two attempts.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Interval between two reports of the progress.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Number of times that a copy may begin, because its source no longer retains the frozen shard.
const BEGUN_MAX: u32 = 3;

/// Options of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Number of ranges or files that are read in parallel, each over its own connection, up to
    /// [`COPY_PARALLELISM_MAX`]. Each takes a thread and 16 MiB of memory, and the memory of six
    /// rows if rows are larger than 1 MiB.
    pub parallelism: usize,
    /// Whether a new copy moves the source's files instead of its rows. A resumed copy keeps its
    /// mode.
    pub are_files_moved: bool,
    /// Maximum number of bytes of keys and values, or of files, per second; 0: no limit.
    pub bytes_per_second: u64,
    /// Time for which the copy retries after a failure while nothing more becomes durable.
    pub patience: Duration,
}

impl Default for CopyOptions {
    /// Returns the defaults: rows over two connections without a rate limit; a minute of patience.
    fn default() -> Self {
        let patience = Duration::from_secs(60);
        Self { parallelism: 2, are_files_moved: false, bytes_per_second: 0, patience }
    }
}

/// A directory into which shards are copied.
#[derive(Clone)]
pub struct CopyTarget {
    /// The directory of the shards.
    pub directory: ShardDirectory,
    /// Source of the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// The options of the copies.
    pub options: CopyOptions,
}

impl CopyTarget {
    /// Copies the shard of a partition of the store of this name from the replicator at
    /// `host:port`; returns the final progress. The shard then exists and can be followed from its
    /// position. A copy that an earlier process began is resumed.
    ///
    /// # Errors
    /// - `Unavailable` if the source fails for longer than the patience.
    /// - `NotFound` if the store does not exist.
    /// - `LimitExceeded` for too many parallel reads, and for a full disk, with the bytes that are
    ///   free and those that are about to arrive.
    /// - `Corrupt` if the content differs from the source's digests.
    ///
    /// Durable parts stay for the next attempt, except after `Corrupt`.
    pub async fn copy(
        &self,
        source: &str,
        store: &str,
        partition: PartitionId,
        progress: &watch::Sender<CopyProgress>,
    ) -> Result<CopyProgress> {
        if self.options.parallelism > COPY_PARALLELISM_MAX {
            let (limit, actual) = (COPY_PARALLELISM_MAX as u64, self.options.parallelism as u64);
            return Err(Error::limit_exceeded(
                "the copy has too many parallel reads; lower the parallelism",
                limit,
                actual,
            ));
        }
        let endpoint = copy_endpoint(source)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let copy = self.begin(&endpoint, store, partition).await?;
            match copy.run(progress).await {
                // The source no longer retains the frozen shard.
                Err(error) if error.code() == ErrorCode::NotFound && attempts < BEGUN_MAX => {
                    warn!(%error, "copy restarted");
                }
                result => return result,
            }
        }
    }

    async fn begin(
        &self,
        endpoint: &Endpoint,
        store: &str,
        partition: PartitionId,
    ) -> Result<ShardCopy> {
        let (directory, name) = (self.directory.clone(), store.to_owned());
        let resumed = run_blocking(move || directory.resume_import(&name, partition)).await?;
        let copy_id = resumed.as_ref().map_or(0, |import| import.plan().copy_id);
        let mode = match self.options.are_files_moved {
            true => v1::CopyMode::Files,
            false => v1::CopyMode::Rows,
        };
        let (store, partition, mode) = (store.to_owned(), partition.0, mode.into());
        let request = v1::BeginCopyRequest { store, partition, copy_id, mode, storage_id: None };
        let mut client = ShardCopiesClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut backoff = self.backoff();
        let deadline = Instant::now() + self.options.patience;
        let plan = loop {
            let error = match client.begin_copy(request.clone()).await {
                Ok(begun) => break begun.into_inner().plan.unwrap_or_default(),
                Err(status) => error_of_status(&status),
            };
            if !is_passing(&error) || Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(backoff.next_wait(&*self.entropy)).await;
        };
        if plan.store != request.store || plan.partition != request.partition {
            return Err(Error::corrupt(
                "the source would copy another shard; check the address of the source",
            ));
        }
        let import = match resumed.filter(|import| *import.plan() == plan) {
            Some(import) => import,
            None => {
                let directory = self.directory.clone();
                run_blocking(move || directory.begin_import(plan)).await?
            }
        };
        let (target, endpoint) = (self.clone(), endpoint.clone());
        let (import, received) = (Arc::new(import), Arc::default());
        Ok(ShardCopy { target, endpoint, import, received, writing: Arc::default() })
    }

    fn backoff(&self) -> Backoff {
        let (first, longest) = RETRY_WAIT;
        Backoff::new(first, longest)
    }
}

/// A copy in progress.
struct ShardCopy {
    target: CopyTarget,
    endpoint: Endpoint,
    import: Arc<Import>,
    /// Received bytes of rows, or of files, including those of parts that were lost when a stream
    /// broke.
    received: Arc<AtomicU64>,
    /// Read-locked by each task that writes parts.
    writing: Arc<RwLock<()>>,
}

impl ShardCopy {
    async fn run(self, progress: &watch::Sender<CopyProgress>) -> Result<CopyProgress> {
        let meter = Meter::start(&self.import, &self.received);
        let ended = self.import.ranges().into_iter().map(|range| range.is_ended);
        let waiting_ranges: Vec<usize> = ended
            .enumerate()
            .filter(|(_, is_ended)| !is_ended)
            .map(|(range, _)| range)
            .rev()
            .collect();
        let waiting_ranges = Mutex::new(waiting_ranges);
        let parallelism = self.target.options.parallelism.max(1);
        let copying = try_join_all((0..parallelism).map(|_| self.stream(&waiting_ranges)));
        let telling = async {
            loop {
                progress.send_replace(meter.look(&self.import));
                tokio::time::sleep(TELL_EVERY).await;
            }
        };
        let copied = tokio::select! {
            copied = copying => copied,
            result = telling => result,
        };
        // The error that ended the streams soon ends the tasks that write; these tasks hold the
        // import.
        drop(self.writing.write().await);
        if let Err(error) = copied {
            if error.code() == ErrorCode::Corrupt {
                // No part of the copy is trusted any more.
                self.give_up().await;
            }
            return Err(error);
        }
        let ended = meter.look(&self.import);
        progress.send_replace(ended);
        self.take_in().await.map(|()| ended)
    }

    /// Copies ranges, one after the other, until none is left.
    async fn stream(&self, waiting_ranges: &Mutex<Vec<usize>>) -> Result<()> {
        let mut client = ShardCopiesClient::new(self.endpoint.connect_lazy())
            .max_decoding_message_size(COPY_MESSAGE_BYTES_MAX);
        loop {
            let Some(range) = waiting_ranges.lock().pop() else { return Ok(()) };
            self.range(&mut client, range).await?;
        }
    }

    /// Copies the rest of a range; reconnects after failures.
    async fn range(&self, client: &mut ShardCopiesClient<Channel>, range: usize) -> Result<()> {
        let (mut backoff, mut deadline) = (self.target.backoff(), None);
        let mut durable = self.import.range(range).bytes;
        loop {
            let Err(error) = self.read(client, range).await else { return Ok(()) };
            let now_durable = self.import.range(range).bytes;
            if now_durable > durable {
                (durable, deadline) = (now_durable, None);
                backoff.reset();
            }
            let now = Instant::now();
            let deadline = *deadline.get_or_insert(now + self.target.options.patience);
            if !is_passing(&error) || now > deadline {
                return Err(error);
            }
            info!(range, %error, "range of a copy resumed");
            tokio::time::sleep(backoff.next_wait(&*self.target.entropy)).await;
        }
    }

    async fn read(&self, client: &mut ShardCopiesClient<Channel>, range: usize) -> Result<()> {
        let progress = self.import.range(range);
        let request = v1::CopyRowsRequest {
            copy_id: self.import.plan().copy_id,
            range: range as u32,
            behind: progress.last_key.map(Into::into),
            bytes_per_second: self.target.options.bytes_per_second,
            // The source ignores this field when it sends rows.
            behind_bytes: progress.bytes,
        };
        let to_error = |status: tonic::Status| error_of_status(&status);
        let mut rows = client.copy_rows(request).await.map_err(to_error)?.into_inner();
        let (sender, receiver) = mpsc::channel(BLOCKS_WAITING);
        let (import, received) = (Arc::clone(&self.import), Arc::clone(&self.received));
        let guard = Arc::clone(&self.writing).read_owned().await;
        // The writing waits for rows that this task receives, so it needs a thread of its own.
        let writing = tokio::task::spawn_blocking(move || {
            let mut blocks = Blocks { receiver, received };
            let written = write_range(&import, range, &mut blocks);
            drop(import);
            drop(guard);
            written
        });
        let receiving = async move {
            while let Some(response) = rows.message().await.map_err(to_error)? {
                if sender.send(response.block.unwrap_or_default()).await.is_err() {
                    // The writing task reports why it has ended.
                    return Ok(());
                }
            }
            Ok(())
        };
        // The error that ended the receiving has ended the writing, too.
        let (received, written) = futures::join!(receiving, writing);
        let broken_off = |_| Err(Error::internal("the writing of a copy panicked; see the log"));
        received.and(written.unwrap_or_else(broken_off))
    }

    async fn take_in(self) -> Result<()> {
        let copy_id = self.import.plan().copy_id;
        let directory = self.target.directory.clone();
        let import = Arc::into_inner(self.import)
            .ok_or_else(|| Error::internal("a part of the copy is still being written"))?;
        let partition = import.partition();
        run_blocking(move || directory.take_in(import)).await?;
        info!(at = %partition, "shard copied");
        // If this call fails, the source removes the frozen shard later.
        let mut client = ShardCopiesClient::new(self.endpoint.connect_lazy());
        drop(client.end_copy(v1::EndCopyRequest { copy_id }).await);
        Ok(())
    }

    async fn give_up(self) {
        let Some(import) = Arc::into_inner(self.import) else { return };
        if let Err(error) = run_blocking(move || import.remove()).await {
            warn!(%error, "abandoned copy not removed");
        }
    }
}

/// Writes parts until the range has ended.
fn write_range(import: &Import, range: usize, blocks: &mut Blocks) -> Result<()> {
    while !import.write_part(range, blocks)? {}
    Ok(())
}

/// Returns whether the same attempt may succeed later.
fn is_passing(error: &Error) -> bool {
    use ErrorCode::{DeadlineExceeded, Unavailable, UnknownOutcome};
    matches!(error.code(), Unavailable | UnknownOutcome | DeadlineExceeded)
}
