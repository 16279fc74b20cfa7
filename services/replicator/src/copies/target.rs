//! The target of a copy: reads the ranges of a frozen shard side by side, or its files, and makes a
//! shard of what comes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::entropy::Entropy;
use forebay_core::id::PartitionId;
use forebay_core::limits::{COPY_MESSAGE_BYTES_MAX, COPY_STREAMS_MAX, MESSAGE_BYTES_MAX};
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{Import, ShardDirectory};
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
use crate::blocking::blocking;

/// Blocks that wait to be written, for each stream.
const BLOCKS_WAITING: usize = 2;
/// Waits between attempts.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How often it is told how far a copy is.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often a copy may begin anew because its source holds it no longer.
const BEGUN_MAX: u32 = 3;

/// How a shard is copied.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Ranges or files that are read side by side, each over a connection of its own, up to
    /// [`COPY_STREAMS_MAX`]. Each takes a thread and 16 MiB of memory, and six rows more where
    /// those are larger than 1 MiB.
    pub streams: usize,
    /// Whether a copy that begins moves the source's files as they are, instead of its rows. One
    /// that goes on keeps to what it was begun with.
    pub are_files_moved: bool,
    /// Most bytes of keys and values, or of files, in a second; 0: as fast as it goes.
    pub bytes_per_second: u64,
    /// How long it goes on behind a break while nothing more becomes durable.
    pub patience: Duration,
}

impl Default for CopyOptions {
    /// Rows over two streams, as fast as they go; a minute of patience.
    fn default() -> Self {
        let patience = Duration::from_secs(60);
        Self { streams: 2, are_files_moved: false, bytes_per_second: 0, patience }
    }
}

/// A place that copies shards to itself.
#[derive(Clone)]
pub struct CopyTarget {
    /// Where the shards go.
    pub directory: ShardDirectory,
    /// The jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// How.
    pub options: CopyOptions,
}

impl CopyTarget {
    /// Copies the shard of a partition of the store of this name from a replicator at
    /// `host:port`; answers where that has ended. The shard is there then, to be followed from its
    /// position on. What an earlier process has begun is gone on with.
    ///
    /// # Errors
    /// `Unavailable` when its patience is over, `NotFound` for a store that is not there,
    /// `LimitExceeded` for too many streams and for a full disk, with the bytes that are free there
    /// and those that are about to come, `Corrupt` for what is not what its source says. What is
    /// durable stays for the next attempt, but after `Corrupt`.
    pub async fn copy(
        &self,
        source: &str,
        store: &str,
        partition: PartitionId,
        progress: &watch::Sender<CopyProgress>,
    ) -> Result<CopyProgress> {
        if self.options.streams > COPY_STREAMS_MAX {
            let (limit, actual) = (COPY_STREAMS_MAX as u64, self.options.streams as u64);
            return Err(Error::limit_exceeded("copy over fewer streams", limit, actual));
        }
        let endpoint = copy_endpoint(source)?;
        let mut begun = 0;
        loop {
            begun += 1;
            let copy = self.begin(&endpoint, store, partition).await?;
            match copy.run(progress).await {
                // The source has let go of it.
                Err(error) if error.code() == ErrorCode::NotFound && begun < BEGUN_MAX => {
                    warn!(%error, "the copy begins anew");
                }
                done => return done,
            }
        }
    }

    async fn begin(
        &self,
        endpoint: &Endpoint,
        store: &str,
        partition: PartitionId,
    ) -> Result<Copy> {
        let (directory, name) = (self.directory.clone(), store.to_owned());
        let resumed = blocking(move || directory.resume_import(&name, partition)).await?;
        let copy_id = resumed.as_ref().map_or(0, |import| import.plan().copy_id);
        let mode = match self.options.are_files_moved {
            true => v1::CopyMode::Files,
            false => v1::CopyMode::Rows,
        };
        let (store, partition, mode) = (store.to_owned(), partition.0, mode.into());
        let request = v1::BeginCopyRequest { store, partition, copy_id, mode, kept_as: None };
        let mut client = ShardCopiesClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut backoff = self.backoff();
        let deadline = Instant::now() + self.options.patience;
        let plan = loop {
            let error = match client.begin(request.clone()).await {
                Ok(plan) => break plan.into_inner(),
                Err(status) => error_of_status(&status),
            };
            if !is_passing(&error) || Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(backoff.next_wait(&*self.entropy)).await;
        };
        if plan.store != request.store || plan.partition != request.partition {
            return Err(Error::corrupt("the source would copy another shard; look what it is"));
        }
        let import = match resumed.filter(|import| *import.plan() == plan) {
            Some(import) => import,
            None => {
                let directory = self.directory.clone();
                blocking(move || directory.begin_import(plan)).await?
            }
        };
        let (target, endpoint) = (self.clone(), endpoint.clone());
        let (import, received) = (Arc::new(import), Arc::default());
        Ok(Copy { target, endpoint, import, received, writing: Arc::default() })
    }

    fn backoff(&self) -> Backoff {
        let (first, longest) = RETRY_WAIT;
        Backoff::new(first, longest)
    }
}

/// A copy under way.
struct Copy {
    target: CopyTarget,
    endpoint: Endpoint,
    import: Arc<Import>,
    /// Bytes of rows, or of files, that have come, what was lost with a part that broke off too.
    received: Arc<AtomicU64>,
    /// Shared by those who write parts.
    writing: Arc<RwLock<()>>,
}

impl Copy {
    async fn run(self, progress: &watch::Sender<CopyProgress>) -> Result<CopyProgress> {
        let meter = Meter::start(&self.import, &self.received);
        let ended = self.import.ranges().into_iter().map(|range| range.is_ended);
        let left: Vec<usize> = ended
            .enumerate()
            .filter(|(_, is_ended)| !is_ended)
            .map(|(range, _)| range)
            .rev()
            .collect();
        let left = Mutex::new(left);
        let streams = self.target.options.streams.max(1);
        let copying = try_join_all((0..streams).map(|_| self.stream(&left)));
        let telling = async {
            loop {
                progress.send_replace(meter.look(&self.import));
                tokio::time::sleep(TELL_EVERY).await;
            }
        };
        let copied = tokio::select! {
            copied = copying => copied,
            never = telling => never,
        };
        // What has broken off all streams ends those that write soon, and they hold the import.
        drop(self.writing.write().await);
        if let Err(error) = copied {
            if error.code() == ErrorCode::Corrupt {
                // Nothing of it is trusted any more.
                self.give_up().await;
            }
            return Err(error);
        }
        let ended = meter.look(&self.import);
        progress.send_replace(ended);
        self.take_in().await.map(|()| ended)
    }

    /// Copies ranges, one after the other, until none is left.
    async fn stream(&self, left: &Mutex<Vec<usize>>) -> Result<()> {
        let mut client = ShardCopiesClient::new(self.endpoint.connect_lazy())
            .max_decoding_message_size(COPY_MESSAGE_BYTES_MAX);
        loop {
            let Some(range) = left.lock().pop() else { return Ok(()) };
            self.range(&mut client, range).await?;
        }
    }

    /// Copies what is left of a range, over broken connections.
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
            info!(range, %error, "goes on with a range of a copy");
            tokio::time::sleep(backoff.next_wait(&*self.target.entropy)).await;
        }
    }

    async fn read(&self, client: &mut ShardCopiesClient<Channel>, range: usize) -> Result<()> {
        let done = self.import.range(range);
        let request = v1::CopyRowsRequest {
            copy_id: self.import.plan().copy_id,
            range: range as u32,
            behind: done.last_key.map(Into::into),
            bytes_per_second: self.target.options.bytes_per_second,
            // Where rows are moved nobody asks for it.
            behind_bytes: done.bytes,
        };
        let told = |status: tonic::Status| error_of_status(&status);
        let mut rows = client.rows(request).await.map_err(told)?.into_inner();
        let (sender, receiver) = mpsc::channel(BLOCKS_WAITING);
        let (import, received) = (Arc::clone(&self.import), Arc::clone(&self.received));
        let held = Arc::clone(&self.writing).read_owned().await;
        let writing = blocking(move || {
            let mut blocks = Blocks { receiver, received };
            let written = write_range(&import, range, &mut blocks);
            drop(import);
            drop(held);
            written
        });
        let receiving = async move {
            while let Some(rows) = rows.message().await.map_err(told)? {
                if sender.send(rows).await.is_err() {
                    // Whoever writes says why it has ended.
                    return Ok(());
                }
            }
            Ok(())
        };
        // What broke off the receiving is why the writing has ended, too.
        let (received, written) = futures::join!(receiving, writing);
        received.and(written)
    }

    async fn take_in(self) -> Result<()> {
        let copy_id = self.import.plan().copy_id;
        let directory = self.target.directory.clone();
        let import = Arc::into_inner(self.import)
            .ok_or_else(|| Error::internal("a part of a copy is still written"))?;
        let partition = import.partition();
        blocking(move || directory.take_in(import)).await?;
        info!(at = %partition, "copied a shard");
        // It goes by itself, if this does not come through.
        let mut client = ShardCopiesClient::new(self.endpoint.connect_lazy());
        drop(client.end(v1::EndCopyRequest { copy_id }).await);
        Ok(())
    }

    async fn give_up(self) {
        let Some(import) = Arc::into_inner(self.import) else { return };
        if let Err(error) = blocking(move || import.remove()).await {
            warn!(%error, "what was copied in vain stays");
        }
    }
}

/// Writes parts until the range has ended.
fn write_range(import: &Import, range: usize, blocks: &mut Blocks) -> Result<()> {
    while !import.write_part(range, blocks)? {}
    Ok(())
}

/// Whether the same attempt may succeed later.
fn is_passing(error: &Error) -> bool {
    use ErrorCode::{DeadlineExceeded, Unavailable, UnknownOutcome};
    matches!(error.code(), Unavailable | UnknownOutcome | DeadlineExceeded)
}
