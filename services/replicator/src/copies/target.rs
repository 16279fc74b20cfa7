//! The target of a copy: reads the ranges of a frozen shard side by side, makes files of their
//! parts, and a shard of the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::backoff::Backoff;
use forebay_core::entropy::Entropy;
use forebay_core::id::PartitionId;
use forebay_core::limits::{COPY_STREAM_BYTES, MESSAGE_BYTES_MAX};
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, ErrorCode, Result};
use forebay_shard::{Import, PartEnd, PartSource, ShardDirectory};
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::shard_copies_client::ShardCopiesClient;
use futures::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tracing::{info, warn};

use super::compression::unpack;
use super::progress::{CopyProgress, Meter};
use crate::blocking::blocking;

/// Blocks that wait to be written, for each stream.
const BLOCKS_WAITING: usize = 2;
/// Longest wait for a connection, and for an answer that is no stream.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Waits between attempts.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How often it is told how far a copy is.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often a copy may begin anew because its source holds it no longer.
const BEGUN_MAX: u32 = 3;

/// How a shard is copied.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Ranges that are read side by side, each over a connection of its own. Each takes a
    /// thread, and some 8 MiB of memory where rows are small.
    pub streams: usize,
    /// Most bytes of keys and values in a second; 0: as fast as it goes.
    pub bytes_per_second: u64,
    /// How long it goes on asking while nothing becomes durable.
    pub patience: Duration,
}

impl Default for CopyOptions {
    /// Two streams, as fast as they go; a minute of patience.
    fn default() -> Self {
        Self { streams: 2, bytes_per_second: 0, patience: Duration::from_secs(60) }
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
    /// `Corrupt` for rows that are not what their source says. What is durable stays for the next
    /// attempt, but after `Corrupt`.
    pub async fn copy(
        &self,
        source: &str,
        store: &str,
        partition: PartitionId,
        progress: &watch::Sender<CopyProgress>,
    ) -> Result<CopyProgress> {
        let endpoint = Endpoint::from_shared(format!("http://{source}"))
            .map_err(|_| Error::invalid_argument(format!("`{source}` is no host:port")))?
            .connect_timeout(CONNECT_WAIT)
            .initial_stream_window_size(COPY_STREAM_BYTES)
            .initial_connection_window_size(COPY_STREAM_BYTES);
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
        let (store, partition) = (store.to_owned(), partition.0);
        let request = v1::BeginCopyRequest { store, partition, copy_id };
        let mut client = ShardCopiesClient::new(endpoint.connect_lazy());
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
        let import = match resumed.filter(|import| *import.plan() == plan) {
            Some(import) => import,
            None => {
                let directory = self.directory.clone();
                blocking(move || directory.begin_import(plan)).await?
            }
        };
        let (target, endpoint) = (self.clone(), endpoint.clone());
        let (import, received) = (Arc::new(import), Arc::default());
        Ok(Copy { target, endpoint, import, received })
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
    /// Bytes of rows that have come, what was lost with a part that broke off too.
    received: Arc<AtomicU64>,
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
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        loop {
            let Some(range) = left.lock().pop() else { return Ok(()) };
            self.range(&mut client, range).await?;
        }
    }

    /// Copies what is left of a range, over broken connections.
    async fn range(&self, client: &mut ShardCopiesClient<Channel>, range: usize) -> Result<()> {
        let mut backoff = self.target.backoff();
        let mut durable = self.import.ranges()[range].bytes;
        let mut deadline = Instant::now() + self.target.options.patience;
        loop {
            let Err(error) = self.read(client, range).await else { return Ok(()) };
            let now_durable = self.import.ranges()[range].bytes;
            if now_durable > durable {
                (durable, deadline) = (now_durable, Instant::now() + self.target.options.patience);
                backoff.reset();
            }
            if !is_passing(&error) || Instant::now() > deadline {
                return Err(error);
            }
            info!(range, %error, "goes on with a range of a copy");
            tokio::time::sleep(backoff.next_wait(&*self.target.entropy)).await;
        }
    }

    async fn read(&self, client: &mut ShardCopiesClient<Channel>, range: usize) -> Result<()> {
        let behind = self.import.ranges()[range].last_key.clone();
        let request = v1::CopyRowsRequest {
            copy_id: self.import.plan().copy_id,
            range: range as u32,
            behind: behind.map(Into::into),
            bytes_per_second: self.target.options.bytes_per_second,
        };
        let told = |status: tonic::Status| error_of_status(&status);
        let mut rows = client.rows(request).await.map_err(told)?.into_inner();
        let (sender, receiver) = mpsc::channel(BLOCKS_WAITING);
        let (import, received) = (Arc::clone(&self.import), Arc::clone(&self.received));
        let writing = blocking(move || {
            let mut blocks = Blocks { receiver, received };
            while !import.write_part(range, &mut blocks)? {}
            Ok(())
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
        let digest = self.import.digest();
        let directory = self.target.directory.clone();
        let import = Arc::into_inner(self.import)
            .ok_or_else(|| Error::internal("a part of a copy is still written"))?;
        let partition = import.partition();
        blocking(move || directory.take_in(import)).await?;
        info!(at = %partition, rows = digest.rows, "copied a shard");
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

/// The blocks of a stream, for the thread that writes them.
struct Blocks {
    receiver: mpsc::Receiver<v1::CopyRows>,
    received: Arc<AtomicU64>,
}

impl PartSource for Blocks {
    type Block = Bytes;

    fn next_block(&mut self) -> Result<(Bytes, Option<PartEnd>)> {
        let rows = self.receiver.blocking_recv().ok_or_else(|| {
            Error::unavailable("the source of the copy has ended the stream inside a part")
        })?;
        if crc32c::crc32c(&rows.block) != rows.crc32c {
            return Err(Error::corrupt("a block of rows was damaged on its way; copy again"));
        }
        self.received.fetch_add(rows.raw_bytes.into(), Ordering::Relaxed);
        let end = rows.part_end.as_ref().map(part_end).transpose()?;
        Ok((unpack(rows.block, rows.raw_bytes)?, end))
    }
}

fn part_end(end: &v1::CopyPartEnd) -> Result<PartEnd> {
    let digest = RowsDigest::of(end.rows, &end.digest)?;
    Ok(PartEnd { digest, is_range_end: end.is_range_end })
}

/// Whether the same attempt may succeed later.
fn is_passing(error: &Error) -> bool {
    use ErrorCode::{DeadlineExceeded, Unavailable, UnknownOutcome};
    matches!(error.code(), Unavailable | UnknownOutcome | DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a target makes of one message that is damaged on its way.
    fn refused(damage: impl FnOnce(&mut v1::CopyRows)) -> ErrorCode {
        let block = Bytes::from_static(b"some rows");
        let (crc32c, raw_bytes) = (crc32c::crc32c(&block), block.len() as u32);
        let mut rows = v1::CopyRows { block, raw_bytes, crc32c, part_end: None };
        damage(&mut rows);
        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(rows).unwrap();
        let mut blocks = Blocks { receiver, received: Arc::default() };
        blocks.next_block().unwrap_err().code()
    }

    #[test]
    fn rows_that_are_damaged_on_their_way_are_refused() {
        let corrupt = ErrorCode::Corrupt;
        assert_eq!(refused(|rows| rows.block = Bytes::from_static(b"some rowS")), corrupt);
        assert_eq!(refused(|rows| rows.crc32c ^= 1), corrupt);
        assert_eq!(refused(|rows| rows.raw_bytes += 1), corrupt);
        assert_eq!(refused(|rows| rows.part_end = Some(v1::CopyPartEnd::default())), corrupt);
    }
}
