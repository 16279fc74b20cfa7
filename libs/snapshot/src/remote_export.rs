//! The export of a shard that a replicator has frozen, read over the copy protocol
//! (`proto/spec/copy.md`), as the source of images.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::id::{LogId, PartitionId, PartitionRef, Position, StoreId};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::{HEAD, Head, RestoredState, STATE_FROM};
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::shard_copy::{block_of, block_rows};
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::shard_copies_client::ShardCopiesClient;
use futures::future::BoxFuture;
use tonic::Streaming;
use tonic::transport::Channel;

/// Longest wait for an answer that is not a stream.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Longest silence of a stream.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Most interruptions of a stream between two complete parts.
const BREAKS_MAX: u32 = 5;
/// Wait after an interruption.
const BREAK_WAIT: Duration = Duration::from_millis(200);

/// The export of a frozen shard.
pub struct RemoteShardExport {
    client: ShardCopiesClient<Channel>,
    plan: v1::CopyPlan,
    bytes_per_second: u64,
}

impl RemoteShardExport {
    /// Freezes the shard of a partition at the replicator of this connection: the shard of the
    /// version that is stored as `storage_id`, or of the version that serves reads. The replicator
    /// sends at most `bytes_per_second`; 0 means no limit.
    ///
    /// # Errors
    /// `Unavailable` if the shard is not available now; `NotFound` if the store does not exist.
    pub async fn freeze(
        channel: Channel,
        store: &str,
        storage_id: Option<StoreId>,
        partition: PartitionId,
        bytes_per_second: u64,
    ) -> Result<Self> {
        let mut client =
            ShardCopiesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let request = v1::BeginCopyRequest {
            store: store.to_owned(),
            partition: partition.0,
            copy_id: 0,
            mode: v1::CopyMode::Rows.into(),
            storage_id: storage_id.map(|id| id.0),
        };
        let begun = in_time(ANSWER_WAIT, client.begin_copy(request)).await?.into_inner();
        Ok(Self { client, plan: begun.plan.unwrap_or_default(), bytes_per_second })
    }

    /// Returns the partition of the shard.
    pub fn partition(&self) -> PartitionRef {
        let (store, partition) = (StoreId(self.plan.store_id), PartitionId(self.plan.partition));
        PartitionRef { store, partition }
    }

    /// Returns the id of the log that the shard follows.
    pub fn log_id(&self) -> LogId {
        LogId(self.plan.log_id)
    }

    /// Returns the position of the shard.
    ///
    /// # Errors
    /// `Corrupt` if the plan has none.
    pub fn position(&self) -> Result<Position> {
        let position = self.plan.position.map(Position::try_from).transpose()?;
        position.ok_or_else(|| Error::corrupt("the frozen shard has no position"))
    }

    /// Reads all rows in key order. `take` may receive rows twice, and may receive unverified rows
    /// before the call returns an error.
    ///
    /// # Errors
    /// The errors of `take`; `Unavailable` if the replicator does not answer; `Corrupt` if the rows
    /// do not match the replicator's digest.
    pub async fn read(
        &mut self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<()> + Send,
    ) -> Result<()> {
        for range in 0..self.plan.ranges.len() {
            self.read_range(range, None, &mut take).await?;
        }
        Ok(())
    }

    /// Reads the state of the shard.
    ///
    /// # Errors
    /// As [`RemoteShardExport::read`].
    pub async fn state(&mut self) -> Result<RestoredState> {
        let mut rows = ShardState::default();
        for number in 0..self.plan.ranges.len() {
            let range = &self.plan.ranges[number];
            if range.to.as_ref().is_some_and(|to| &to[..] <= STATE_FROM) {
                continue;
            }
            // No row has exactly this key.
            let after = (&range.from[..] < STATE_FROM).then(|| STATE_FROM.to_vec());
            let take = &mut |key: &[u8], row: &[u8]| {
                rows.take(key, row);
                Ok(())
            };
            self.read_range(number, after, take).await?;
        }
        rows.decode()
    }

    /// Returns the stored rows of the first of these keys as a block (`block_rows`), and the number
    /// of keys that the answer covers, at least one. The block contains no row for a missing key.
    ///
    /// # Errors
    /// As [`RemoteShardExport::read`].
    pub async fn rows_of(&mut self, keys: &[Vec<u8>]) -> Result<(usize, Bytes)> {
        let requested_keys: Vec<_> =
            keys.iter().take(KEYS_AT_ONCE).map(|key| key.clone().into()).collect();
        let keys_max = requested_keys.len();
        let request = v1::GetRowsRequest { copy_id: self.plan.copy_id, keys: requested_keys };
        let answer = in_time(ANSWER_WAIT, self.client.get_rows(request)).await?.into_inner();
        let answered = answer.keys as usize;
        if answered == 0 || answered > keys_max {
            return Err(Error::corrupt("the replicator answered for other keys than requested"));
        }
        Ok((answered, block_of(&answer.rows.unwrap_or_default())?))
    }

    /// Releases the frozen shard. If the request fails, the replicator releases the shard by
    /// itself.
    pub async fn end(mut self) {
        let request = v1::EndCopyRequest { copy_id: self.plan.copy_id };
        drop(in_time(ANSWER_WAIT, self.client.end_copy(request)).await);
    }

    fn read_range<'a>(
        &'a mut self,
        range: usize,
        mut after: Option<Vec<u8>>,
        take: &'a mut TakeRow<'a>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut breaks = 0;
            loop {
                let before = after.clone();
                match self.read_parts(range, &mut after, take).await {
                    Err(error) if error.code() == ErrorCode::Unavailable && breaks < BREAKS_MAX => {
                        breaks = if after == before { breaks + 1 } else { 0 };
                        tracing::debug!(%error, "stream of rows broke off");
                        tokio::time::sleep(BREAK_WAIT).await;
                    }
                    result => return result,
                }
            }
        })
    }

    /// Reads until the range ends or the stream is interrupted; `after` is the last key of the
    /// last verified part.
    async fn read_parts(
        &mut self,
        range: usize,
        after: &mut Option<Vec<u8>>,
        take: &mut TakeRow<'_>,
    ) -> Result<()> {
        let request = v1::CopyRowsRequest {
            copy_id: self.plan.copy_id,
            range: range as u32,
            behind: after.clone().map(Into::into),
            bytes_per_second: self.bytes_per_second,
            behind_bytes: 0,
        };
        let mut rows = in_time(ANSWER_WAIT, self.client.copy_rows(request)).await?.into_inner();
        let (mut part, mut last_key) = (RowsDigest::default(), after.clone());
        loop {
            let message = next(&mut rows).await?;
            for row in block_rows(&block_of(&message)?) {
                let (key, row) = row?;
                if last_key.as_deref().is_some_and(|last| last >= key) {
                    return Err(Error::corrupt("the replicator sent rows out of order"));
                }
                part.add(key, row);
                take(key, row)?;
                let last = last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            let Some(end) = message.part_end else { continue };
            if std::mem::take(&mut part) != RowsDigest::of(end.rows, &end.digest)? {
                return Err(Error::corrupt(
                    "the replicator sent other rows than its digest covers",
                ));
            }
            after.clone_from(&last_key);
            if end.is_range_end {
                return Ok(());
            }
        }
    }
}

/// Callback for the key and the stored bytes of each row.
type TakeRow<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + Send + 'a;

/// Keys per request.
const KEYS_AT_ONCE: usize = 4_096;

/// Rows of the state, in any order.
#[derive(Default)]
pub struct ShardState(BTreeMap<Vec<u8>, Vec<u8>>);

impl ShardState {
    /// Adds a row.
    pub fn take(&mut self, key: &[u8], row: &[u8]) {
        // After an interruption the stream repeats rows.
        self.0.insert(key.to_vec(), row.to_vec());
    }

    /// Decodes the state.
    ///
    /// # Errors
    /// `Corrupt` if the rows are no state.
    pub fn decode(self) -> Result<RestoredState> {
        let head = self.0.get(HEAD).ok_or_else(|| Error::corrupt("the shard has no head"))?;
        let mut restored = Head::decode(head)?.into_restored();
        self.0.iter().try_for_each(|(key, row)| restored.take_row(key, row))?;
        Ok(restored)
    }
}

async fn next(rows: &mut Streaming<v1::CopyRowsResponse>) -> Result<v1::CopyBlock> {
    let message = in_time(SILENCE_MAX, rows.message()).await?;
    let ended = || Error::unavailable("the stream of rows ended inside a part");
    Ok(message.ok_or_else(ended)?.block.unwrap_or_default())
}

async fn in_time<T>(
    wait_max: Duration,
    call: impl Future<Output = std::result::Result<T, tonic::Status>>,
) -> Result<T> {
    match tokio::time::timeout(wait_max, call).await {
        Ok(answer) => answer.map_err(|status| error_of_status(&status)),
        Err(_) => Err(Error::unavailable(
            "the replicator did not answer in time; the service tries again",
        )),
    }
}
