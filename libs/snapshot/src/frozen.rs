//! A shard that a replicator has frozen, read over the copy protocol (`proto/spec/copy.md`): what
//! images are made of.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::id::{LogId, PartitionId, PartitionRef, Position, StoreId};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::{HEAD, Head, Resumed, STATE_FROM};
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::shard_copy::{block_of, block_rows};
use forebay_wire::status::error_of_status;
use forebay_wire::v1;
use forebay_wire::v1::shard_copies_client::ShardCopiesClient;
use tonic::Streaming;
use tonic::transport::Channel;

/// Longest wait for an answer that is no stream.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Longest silence of a stream.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How often a stream may break off between two parts that come through.
const BREAKS_MAX: u32 = 5;
/// Wait behind a break.
const BREAK_WAIT: Duration = Duration::from_millis(200);

/// A frozen shard.
pub struct FrozenShard {
    client: ShardCopiesClient<Channel>,
    plan: v1::CopyPlan,
    bytes_per_second: u64,
}

impl FrozenShard {
    /// Freezes the shard of a partition at the replicator of this connection: of the version of the
    /// store's documents that is kept as this, or of the one that answers reads. It sends so many
    /// bytes in a second at most; 0: as fast as it goes.
    ///
    /// # Errors
    /// `Unavailable` where it is not to be had now, `NotFound` for a store that is not there.
    pub async fn freeze(
        channel: Channel,
        store: &str,
        kept_as: Option<StoreId>,
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
            kept_as: kept_as.map(|id| id.0),
        };
        let begun = in_time(ANSWER_WAIT, client.begin(request)).await?;
        Ok(Self { client, plan: begun.into_inner(), bytes_per_second })
    }

    /// Which partition it is of.
    pub fn partition(&self) -> PartitionRef {
        let (store, partition) = (StoreId(self.plan.store_id), PartitionId(self.plan.partition));
        PartitionRef { store, partition }
    }

    /// The log that it follows.
    pub fn log_id(&self) -> LogId {
        LogId(self.plan.log_id)
    }

    /// Where it stands.
    ///
    /// # Errors
    /// `Corrupt` for a plan that does not say it.
    pub fn position(&self) -> Result<Position> {
        let position = self.plan.position.map(Position::try_from).transpose()?;
        position.ok_or_else(|| Error::corrupt("a frozen shard has no position"))
    }

    /// Reads all rows, in the order of their keys; `take` gets them, some of them twice, and those
    /// of what cannot be proved before an error says so.
    ///
    /// # Errors
    /// Those of `take`; `Unavailable` where the replicator does not answer, `Corrupt` for rows that
    /// are not what it says.
    pub async fn read(
        &mut self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<()> + Send,
    ) -> Result<()> {
        for range in 0..self.plan.ranges.len() {
            self.read_range(range, None, &mut take).await?;
        }
        Ok(())
    }

    /// The state that stands beside the documents.
    ///
    /// # Errors
    /// As [`FrozenShard::read`].
    pub async fn state(&mut self) -> Result<Resumed> {
        let mut rows = ShardState::default();
        for number in 0..self.plan.ranges.len() {
            let range = &self.plan.ranges[number];
            if range.to.as_ref().is_some_and(|to| &to[..] <= STATE_FROM) {
                continue;
            }
            // No row has this key itself.
            let behind = (&range.from[..] < STATE_FROM).then(|| STATE_FROM.to_vec());
            let take = &mut |key: &[u8], row: &[u8]| {
                rows.take(key, row);
                Ok(())
            };
            self.read_range(number, behind, take).await?;
        }
        rows.decode()
    }

    /// The rows of the first of these keys, as they are stored, in a block (`block_rows`), and for
    /// how many of the keys that is the answer: one at least. Nothing comes for those that are not
    /// there.
    ///
    /// # Errors
    /// As [`FrozenShard::read`].
    pub async fn rows_of(&mut self, keys: &[Vec<u8>]) -> Result<(usize, Bytes)> {
        let asked: Vec<_> = keys.iter().take(KEYS_AT_ONCE).map(|key| key.clone().into()).collect();
        let most = asked.len();
        let request = v1::CopyRowsOfRequest { copy_id: self.plan.copy_id, keys: asked };
        let answer = in_time(ANSWER_WAIT, self.client.rows_of(request)).await?.into_inner();
        let answered = answer.keys as usize;
        if answered == 0 || answered > most {
            return Err(Error::corrupt("a replicator answers for other keys than asked"));
        }
        Ok((answered, block_of(&answer.rows.unwrap_or_default())?))
    }

    /// Lets go of it. It goes by itself, if this does not come through.
    pub async fn end(mut self) {
        let request = v1::EndCopyRequest { copy_id: self.plan.copy_id };
        drop(in_time(ANSWER_WAIT, self.client.end(request)).await);
    }

    async fn read_range(
        &mut self,
        range: usize,
        mut behind: Option<Vec<u8>>,
        take: &mut TakeRow<'_>,
    ) -> Result<()> {
        let mut breaks = 0;
        loop {
            let before = behind.clone();
            match self.read_parts(range, &mut behind, take).await {
                Err(error) if error.code() == ErrorCode::Unavailable && breaks < BREAKS_MAX => {
                    breaks = if behind == before { breaks + 1 } else { 0 };
                    tracing::debug!(%error, "a stream of rows broke off");
                    tokio::time::sleep(BREAK_WAIT).await;
                }
                done => return done,
            }
        }
    }

    /// Reads until the range ends or the stream breaks off; `behind` is the last key of the last
    /// part that is proved.
    async fn read_parts(
        &mut self,
        range: usize,
        behind: &mut Option<Vec<u8>>,
        take: &mut TakeRow<'_>,
    ) -> Result<()> {
        let request = v1::CopyRowsRequest {
            copy_id: self.plan.copy_id,
            range: range as u32,
            behind: behind.clone().map(Into::into),
            bytes_per_second: self.bytes_per_second,
            behind_bytes: 0,
        };
        let mut rows = in_time(ANSWER_WAIT, self.client.rows(request)).await?.into_inner();
        let (mut part, mut last_key) = (RowsDigest::default(), behind.clone());
        loop {
            let message = next(&mut rows).await?;
            for row in block_rows(&block_of(&message)?) {
                let (key, row) = row?;
                if last_key.as_deref().is_some_and(|last| last >= key) {
                    return Err(Error::corrupt("a replicator sends rows out of their order"));
                }
                part.add(key, row);
                take(key, row)?;
                let last = last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            let Some(end) = message.part_end else { continue };
            if std::mem::take(&mut part) != RowsDigest::of(end.rows, &end.digest)? {
                return Err(Error::corrupt("other rows came than the replicator has"));
            }
            behind.clone_from(&last_key);
            if end.is_range_end {
                return Ok(());
            }
        }
    }
}

/// Takes the key and the stored bytes of each row.
type TakeRow<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + Send + 'a;

/// Keys that are asked for in one call.
const KEYS_AT_ONCE: usize = 4_096;

/// The rows of the state, of which the head need not come first.
#[derive(Default)]
pub struct ShardState(BTreeMap<Vec<u8>, Vec<u8>>);

impl ShardState {
    /// Keeps a row.
    pub fn take(&mut self, key: &[u8], row: &[u8]) {
        // A stream that broke off sends rows again.
        self.0.insert(key.to_vec(), row.to_vec());
    }

    /// The state that they are.
    ///
    /// # Errors
    /// `Corrupt` where they are none.
    pub fn decode(self) -> Result<Resumed> {
        let head = self.0.get(HEAD).ok_or_else(|| Error::corrupt("a shard without a head"))?;
        let mut resumed = Head::decode(head)?.into_resumed();
        self.0.iter().try_for_each(|(key, row)| resumed.take_row(key, row))?;
        Ok(resumed)
    }
}

async fn next(rows: &mut Streaming<v1::CopyRows>) -> Result<v1::CopyRows> {
    let message = in_time(SILENCE_MAX, rows.message()).await?;
    message.ok_or_else(|| Error::unavailable("a stream of rows has ended inside a part"))
}

async fn in_time<T>(
    wait_max: Duration,
    call: impl Future<Output = std::result::Result<T, tonic::Status>>,
) -> Result<T> {
    match tokio::time::timeout(wait_max, call).await {
        Ok(answer) => answer.map_err(|status| error_of_status(&status)),
        Err(_) => Err(Error::unavailable("a replicator did not answer in time; it is tried again")),
    }
}
