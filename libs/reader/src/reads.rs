//! Reads: their waits, and the views that they answer from.
//!
//! A read is local: it goes directly to the index. Read options add a wait before the read (until a
//! token or a barrier is applied) and checks per key (whether the partition has caught up, and
//! whether it is fresh enough). A refusal gives the reason, with the partition's progress or age.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use forebay_core::id::PartitionId;
use forebay_core::limits::READER_COPY_POLL_INTERVAL_ACTIVE_MS;
use forebay_core::value::FieldType;
use forebay_core::{Error, Result};
use forebay_index::{
    Conversion, DocumentKey, Element, FieldHandle, GatherField, GatherPlan, KeyList, Scan,
    ScannedDocument, View,
};
use forebay_replica::{ReadOptions, ReadWait, ReplicaContext};
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::followed_version::FollowedVersion;
use crate::reader::Reader;

impl Reader {
    /// Waits for what `read` requests and then calls `visit` with a view that enforces the age
    /// bound. `partitions` are the partitions of the keys that `visit` reads (see
    /// [`Reader::partition_of`]); the call does not wait for others.
    ///
    /// # Errors
    /// - `Closed` after the close.
    /// - `InvalidArgument` for a partition that the reader does not follow, a token of another
    ///   store or a bound below twice the heartbeat interval.
    /// - `TokenLost` if a log of the token is no longer served.
    /// - `DeadlineExceeded` or `Unavailable` if the wait takes too long.
    /// - The errors of the barrier's append.
    /// - `Stale` beyond the bound.
    /// - The errors of `visit`.
    pub async fn read<T>(
        &self,
        read: &ReadOptions,
        partitions: &[PartitionId],
        visit: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        self.wait(read, partitions).await?;
        self.read_local(read.staleness_bound(), visit)
    }

    /// Performs only the wait of [`Reader::read`], for callers that read elsewhere.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read`].
    pub fn wait<'a>(
        &'a self,
        read: &'a ReadOptions,
        partitions: &'a [PartitionId],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let began = Instant::now();
            loop {
                let version = self.version();
                let context = &version.context;
                let timeout = read.timeout().saturating_sub(began.elapsed());
                let read = read.clone().with_timeout(timeout);
                let all: Vec<_> =
                    context.followed().map(|followed| followed.at.partition).collect();
                // After a repartition the caller's partitions may be those of the previous
                // partitioning.
                let partitions = if self.is_just_repartitioned() { &all } else { partitions };
                let outcome = context.wait_for_read(&read, partitions).await;
                let is_left = version.is_left(&read, partitions, &outcome).await;
                let timeout = read.timeout().saturating_sub(began.elapsed());
                if is_left {
                    self.wait_moved(context, timeout).await?;
                }
                if self.current().context.logs != context.logs {
                    continue;
                }
                outcome?;
                return match read.wait() {
                    // The barrier is after the entry that announces a live version.
                    ReadWait::Latest => self.wait_version(partitions, timeout).await,
                    ReadWait::Nothing | ReadWait::Token(_) => Ok(()),
                };
            }
        })
    }

    /// Waits until the reader answers from logs other than these, because a repartition redirected
    /// the writes.
    async fn wait_moved(&self, left_context: &ReplicaContext, wait_max: Duration) -> Result<()> {
        let wait = async {
            while self.current().context.logs == left_context.logs {
                left_context.close_signal.check()?;
                tokio::time::sleep(Duration::from_millis(READER_COPY_POLL_INTERVAL_ACTIVE_MS))
                    .await;
            }
            Ok(())
        };
        tokio::time::timeout(wait_max, wait).await.unwrap_or_else(|_| Err(self.not_moved()))
    }

    fn not_moved(&self) -> Error {
        let message = "the reader has not caught up with the live version; wait longer, or look at \
            the reader's status";
        Error::deadline_exceeded(message).with_store(self.store())
    }

    /// Waits until the reader answers from the live store version, as far as these partitions know
    /// it.
    async fn wait_version(&self, partitions: &[PartitionId], wait_max: Duration) -> Result<()> {
        let wait = async {
            loop {
                let version = self.version();
                let live = version.live_in(partitions)?;
                if live.is_none_or(|live| live == version.context.store) {
                    return Ok(());
                }
                version.context.close_signal.check()?;
                drop(version);
                tokio::time::sleep(Duration::from_millis(READER_COPY_POLL_INTERVAL_ACTIVE_MS))
                    .await;
            }
        };
        tokio::time::timeout(wait_max, wait).await.unwrap_or_else(|_| Err(self.not_moved()))
    }

    /// Calls `visit` with a view of the data that is applied here. Waits for nothing except disk
    /// I/O of a spilled document, takes no lock and needs no runtime; any thread may call it. The
    /// view is valid only within this call.
    ///
    /// # Errors
    /// Returns `Closed`; `InvalidArgument` for a bound below twice the heartbeat interval; the
    /// errors of `visit`, where `Unavailable` includes the partition's progress and `Stale` its
    /// age.
    pub fn read_local<T>(
        &self,
        max_staleness: Option<Duration>,
        visit: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        self.current().read_local(max_staleness, visit)
    }

    /// Calls `visit` as [`Reader::read_local`] does without a bound, for callers that must not wait
    /// for disk I/O: a spilled document is `Unavailable`.
    ///
    /// # Errors
    /// Returns `Closed`, `Unavailable` and the errors of `visit`.
    pub fn read_in_memory<T>(&self, visit: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        let version = self.current();
        version.with_admission(None, |at| visit(&version.index.view(at.only_memory())))
    }

    /// Returns the partition that a key belongs to, followed or not.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a key of another type, `LimitExceeded` for a key that is too
    /// long, and `Closed`.
    pub fn partition_of<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<PartitionId> {
        self.open_version()?.index.partition_of(key)
    }

    /// Returns the partitions that these keys belong to, each once, in order.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::partition_of`].
    pub fn partitions_of<K: KeyList + ?Sized>(&self, keys: &K) -> Result<Vec<PartitionId>> {
        let partitions = (0..keys.count()).map(|place| self.partition_of(keys.key(place)));
        let mut partitions = partitions.collect::<Result<Vec<_>>>()?;
        partitions.sort_unstable();
        partitions.dedup();
        Ok(partitions)
    }

    /// Resolves a field by name or alias, to be read as a type; see [`Index::field_as`].
    ///
    /// # Errors
    /// Returns `NotFound` for a field that the store does not have, `InvalidArgument` for another
    /// type, and `Closed`.
    ///
    /// [`Index::field_as`]: forebay_index::Index::field_as
    pub fn field_as(&self, name: &str, field_type: FieldType) -> Result<FieldHandle> {
        let version = self.open_version()?;
        version.index.field_as(name, field_type).map_err(|error| error.with_store(self.store()))
    }

    /// Resolves a field by name or alias, to be read as its own current type.
    ///
    /// # Errors
    /// Returns `NotFound` for a field that the store does not have, and `Closed`.
    pub fn field(&self, name: &str) -> Result<FieldHandle> {
        let version = self.open_version()?;
        version.index.field(name).map_err(|error| error.with_store(self.store()))
    }

    /// Plans a gather of these fields into a matrix; see [`GatherPlan`].
    ///
    /// # Errors
    /// Returns the errors of [`Index::plan_gather`](forebay_index::Index::plan_gather), and
    /// `Closed`.
    pub fn plan_gather<E: Element>(
        &self,
        fields: &[GatherField<'_>],
        conversion: Conversion,
    ) -> Result<GatherPlan<E>> {
        let version = self.open_version()?;
        version.index.plan_gather(fields, conversion).map_err(|e| e.with_store(self.store()))
    }

    /// Returns the store version that the reader answers from, unless the reader is closed.
    pub(crate) fn open_version(&self) -> Result<Guard<Arc<FollowedVersion>>> {
        let version = self.current();
        version.check_open()?;
        Ok(version)
    }

    /// Starts a scan of all followed partitions; see [`Reader::scan_next`].
    pub fn scan(&self) -> Scan {
        self.current().index.scan()
    }

    /// Visits up to `documents_max` more documents of a scan and returns their number; 0 is the
    /// end. [`Scan`] documents what a scan sees.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_local`], and the first error of `visit`.
    pub fn scan_next(
        &self,
        scan: &mut Scan,
        max_staleness: Option<Duration>,
        documents_max: usize,
        visit: impl FnMut(ScannedDocument<'_>) -> Result<()>,
    ) -> Result<usize> {
        self.current().with_admission(max_staleness, |at| scan.next_batch(at, documents_max, visit))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use forebay_core::ErrorCode;
    use forebay_core::clock::Timestamp;
    use forebay_core::entropy::SeededEntropy;
    use forebay_core::id::StoreId;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;

    use super::*;
    use crate::memory::MemoryReader;

    #[test]
    fn removed_version_answers_its_last_call() {
        let users = StoreSpec::documents("users", KeyType::String)
            .partitions(2)
            .define(StoreId(1))
            .unwrap();
        let memory =
            MemoryReader::open(users, Timestamp::default(), Arc::new(SeededEntropy::new(1)));
        let memory = memory.unwrap();
        let version = memory.reader().current();
        version.context.close_signal.close();
        let code = |result: Result<()>| result.map_err(|error| error.code());
        assert_eq!(code(version.with_admission(None, |_| Ok(()))), Err(ErrorCode::Closed));
        version.context.is_gone.store(true, Ordering::Relaxed);
        assert_eq!(code(version.with_admission(None, |_| Ok(()))), Ok(()));
    }
}
