//! Reads: their options, their waits and their refusals.
//!
//! A read is local: it goes directly to the index. Read options add a wait before the read (until a
//! token or a barrier is applied) and checks per key (whether the partition has caught up, and
//! whether it is fresh enough). A refusal gives the reason, with the partition's progress or age.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::Guard;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::{ORDERED_READ_WAIT_MS_MAX, READER_COPY_LOOK_SOON_MS};
use forebay_core::value::FieldType;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{
    Admission, Conversion, DocumentKey, Element, FieldHandle, GatherField, GatherPlan, KeyList,
    ReadAt, Scan, ScannedDocument, View,
};
use forebay_wire::token::Token;
use forebay_wire::v1;
use futures::future::try_join_all;
use tokio::time::Instant;

use crate::age::check_bound;
use crate::partition::not_serving;
use crate::reader::Reader;
use crate::shared::Shared;
use crate::versions::Followed;

/// The event that a read waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Wait {
    #[default]
    Nothing,
    Token(Token),
    Latest,
}

/// The options of a read. The default is a local read of the applied data.
///
/// ```
/// use std::time::Duration;
/// use forebay_reader::Read;
/// let fresh = Read::latest(Duration::from_secs(1)).max_age(Duration::from_secs(5));
/// assert_ne!(fresh, Read::local());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    wait: Wait,
    timeout: Duration,
    age_max: Option<Duration>,
}

impl Read {
    /// Reads the data that is applied here.
    pub fn local() -> Self {
        Self::default()
    }

    /// Waits, for at most `timeout`, until the token's positions are applied: read your writes.
    pub fn after_token(token: Token, timeout: Duration) -> Self {
        Self { wait: Wait::Token(token), timeout, age_max: None }
    }

    /// Appends a barrier and waits, for at most `timeout`, until it is applied: linearizable per
    /// partition, at the price of one acknowledged append, which concurrent calls share.
    pub fn latest(timeout: Duration) -> Self {
        Self { wait: Wait::Latest, timeout, age_max: None }
    }

    /// Decodes the read options of a request; absent options mean a local read. Caps the wait at
    /// the longest that a service permits.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an invalid token.
    pub fn asked(wire: Option<v1::ReadOptions>) -> Result<Self> {
        let mut wire = wire.unwrap_or_default();
        wire.wait_ms = wire.wait_ms.min(ORDERED_READ_WAIT_MS_MAX);
        wire.try_into()
    }

    /// Refuses data older than `bound` with `Stale`. The bound must be at least twice the store's
    /// heartbeat interval.
    #[must_use]
    pub fn max_age(mut self, bound: Duration) -> Self {
        self.age_max = Some(bound);
        self
    }

    /// Returns the longest wait that the read permits.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn age_max(&self) -> Option<Duration> {
        self.age_max
    }
}

impl From<&Read> for v1::ReadOptions {
    /// Encodes times above 49 days as 49 days.
    fn from(read: &Read) -> Self {
        let wait = match &read.wait {
            Wait::Nothing => None,
            Wait::Token(token) => Some(v1::read_options::Wait::AfterToken(token.encode())),
            Wait::Latest => Some(v1::read_options::Wait::Latest(v1::read_options::Latest {})),
        };
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Self { wait, wait_ms: ms(read.timeout), age_ms_max: read.age_max.map(ms) }
    }
}

impl TryFrom<v1::ReadOptions> for Read {
    type Error = Error;

    /// Returns `InvalidArgument` for an invalid token.
    fn try_from(wire: v1::ReadOptions) -> Result<Self> {
        let wait = match wire.wait {
            None => Wait::Nothing,
            Some(v1::read_options::Wait::AfterToken(token)) => Wait::Token(Token::decode(&token)?),
            Some(v1::read_options::Wait::Latest(_)) => Wait::Latest,
        };
        let ms = |time: u32| Duration::from_millis(time.into());
        Ok(Self { wait, timeout: ms(wire.wait_ms), age_max: wire.age_ms_max.map(ms) })
    }
}

impl Reader {
    /// Waits for what `read` requests and then calls `with` with a view that enforces the age
    /// bound. `partitions` are the partitions of the keys that `with` reads (see
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
    /// - The errors of `with`.
    pub async fn read<T>(
        &self,
        read: &Read,
        partitions: &[PartitionId],
        with: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        self.wait(read, partitions).await?;
        self.read_local(read.age_max, with)
    }

    /// Performs only the wait of [`Reader::read`], for callers that read elsewhere.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read`].
    pub async fn wait(&self, read: &Read, partitions: &[PartitionId]) -> Result<()> {
        let began = Instant::now();
        loop {
            let shared = self.shared();
            let timeout = read.timeout.saturating_sub(began.elapsed());
            let read = Read { timeout, ..read.clone() };
            let all: Vec<_> = shared.followed().map(|followed| followed.at.partition).collect();
            // After a repartition the caller's partitions may be those of the previous
            // partitioning.
            let partitions = if self.has_just_moved() { &all } else { partitions };
            let waited = shared.wait_for_read(&read, partitions).await;
            let is_left = shared.is_left(&read, partitions, &waited).await;
            let timeout = read.timeout.saturating_sub(began.elapsed());
            if is_left {
                self.wait_moved(&shared, timeout).await?;
            }
            if self.now().shared.logs != shared.logs {
                continue;
            }
            waited?;
            return match read.wait {
                // The barrier is after the entry that announces a live version.
                Wait::Latest => self.wait_version(partitions, timeout).await,
                Wait::Nothing | Wait::Token(_) => Ok(()),
            };
        }
    }

    /// Waits until the reader answers from logs other than these, because a repartition redirected
    /// the writes.
    async fn wait_moved(&self, left: &Shared, wait_max: Duration) -> Result<()> {
        let wait = async {
            while self.now().shared.logs == left.logs {
                left.closing.check()?;
                tokio::time::sleep(Duration::from_millis(READER_COPY_LOOK_SOON_MS)).await;
            }
            Ok(())
        };
        tokio::time::timeout(wait_max, wait).await.unwrap_or_else(|_| Err(self.behind()))
    }

    fn behind(&self) -> Error {
        let message = "the reader has not caught up with the live version; wait longer, or look at \
            the reader's status";
        Error::deadline_exceeded(message).with_store(self.store())
    }

    /// Waits until the reader answers from the live store version, as far as these partitions know
    /// it.
    async fn wait_version(&self, partitions: &[PartitionId], wait_max: Duration) -> Result<()> {
        let wait = async {
            loop {
                let now = self.shared();
                let live = now.live_in(partitions)?;
                if live.is_none_or(|live| live == now.store) {
                    return Ok(());
                }
                now.closing.check()?;
                drop(now);
                tokio::time::sleep(Duration::from_millis(READER_COPY_LOOK_SOON_MS)).await;
            }
        };
        tokio::time::timeout(wait_max, wait).await.unwrap_or_else(|_| Err(self.behind()))
    }

    /// Calls `with` with a view of the data that is applied here. Waits for nothing except disk I/O
    /// of a spilled document, takes no lock and needs no runtime; any thread may call it. The view
    /// is valid only within this call.
    ///
    /// # Errors
    /// Returns `Closed`; `InvalidArgument` for a bound below twice the heartbeat interval; the
    /// errors of `with`, where `Unavailable` includes the partition's progress and `Stale` its age.
    pub fn read_local<T>(
        &self,
        age_max: Option<Duration>,
        with: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        let now = self.now();
        now.shared.admitted(age_max, |at| with(&now.index.view(at)))
    }

    /// Calls `with` as [`Reader::read_local`] does without a bound, for callers that must not wait
    /// for disk I/O: a spilled document is `Unavailable`.
    ///
    /// # Errors
    /// Returns `Closed`, `Unavailable` and the errors of `with`.
    pub fn read_in_memory<T>(&self, with: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        let now = self.now();
        now.shared.admitted(None, |at| with(&now.index.view(at.only_memory())))
    }

    /// Returns the partition that a key belongs to, followed or not.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a key of another type, `LimitExceeded` for a key that is too
    /// long, and `Closed`.
    pub fn partition_of<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<PartitionId> {
        self.open_now()?.index.partition_of(key)
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

    /// Resolves a field by name or alias, to be read as a type; see [`Index::handle`].
    ///
    /// # Errors
    /// Returns `NotFound` for a field that the store does not have, `InvalidArgument` for another
    /// type, and `Closed`.
    ///
    /// [`Index::handle`]: forebay_index::Index::handle
    pub fn handle(&self, field: &str, asked: FieldType) -> Result<FieldHandle> {
        let now = self.open_now()?;
        now.index.handle(field, asked).map_err(|error| error.with_store(self.store()))
    }

    /// Resolves a field by name or alias, to be read as its own current type.
    ///
    /// # Errors
    /// Returns `NotFound` for a field that the store does not have, and `Closed`.
    pub fn handle_of_own_type(&self, field: &str) -> Result<FieldHandle> {
        let now = self.open_now()?;
        now.index.handle_of_own_type(field).map_err(|error| error.with_store(self.store()))
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
        let now = self.open_now()?;
        now.index.plan_gather(fields, conversion).map_err(|e| e.with_store(self.store()))
    }

    /// Returns the store version that the reader answers from, unless the reader is closed.
    fn open_now(&self) -> Result<Guard<Arc<Followed>>> {
        let now = self.now();
        now.shared.check_open()?;
        Ok(now)
    }

    /// Starts a scan of all followed partitions; see [`Reader::scan_next`].
    pub fn scan(&self) -> Scan {
        self.now().index.scan()
    }

    /// Visits up to `documents_max` more documents of a scan and returns their number; 0 is the
    /// end. [`Scan`] documents what a scan sees.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_local`], and the first error of `visit`.
    pub fn scan_next(
        &self,
        scan: &mut Scan,
        age_max: Option<Duration>,
        documents_max: usize,
        visit: impl FnMut(ScannedDocument<'_>) -> Result<()>,
    ) -> Result<usize> {
        self.shared().admitted(age_max, |at| scan.next_batch(at, documents_max, visit))
    }
}

impl Shared {
    /// Returns the storage id of the live store version, by the newest definition that any of these
    /// partitions has seen; `None` before one has.
    fn live_in(&self, partitions: &[PartitionId]) -> Result<Option<StoreId>> {
        let mut newest = SchemaVersion(0);
        for partition in partitions {
            newest = newest.max(self.partition(*partition)?.board.schema_version());
        }
        let schema = self.storage.schemas().get(newest);
        Ok(schema.map(|schema| schema.definition.versions.live().kept_as))
    }

    /// Returns whether writes go to other logs, so that a wait in these partitions of the old logs
    /// says too little, or was refused for this reason.
    async fn is_left(&self, read: &Read, partitions: &[PartitionId], waited: &Result<()>) -> bool {
        let is_elsewhere = |schema: &SchemaAt| schema.definition.written() != self.logs;
        match (&read.wait, waited) {
            (Wait::Nothing, _) => false,
            (Wait::Latest, Ok(())) => {
                let boards = partitions.iter().filter_map(|id| self.partition(*id).ok());
                let seen = boards.map(|partition| partition.board.schema_version()).max();
                let schema = seen.and_then(|seen| self.storage.schemas().get(seen).cloned());
                schema.is_some_and(|schema| is_elsewhere(&schema))
            }
            (Wait::Latest, Err(_)) => self.newest().is_some_and(|newest| is_elsewhere(&newest)),
            (Wait::Token(token), _) => {
                if waited.as_ref().is_err_and(|error| error.code() != ErrorCode::TokenLost)
                    || waited.is_ok() && self.has_logs_of(token)
                {
                    return false;
                }
                // The catalog may not have received the repartition yet.
                let end = self.parts.log.bounds(PartitionRef::CONTROL).await;
                if let Ok(bounds) = end {
                    drop(self.parts.catalog.wait_applied(bounds.end, read.timeout).await);
                }
                self.newest().is_some_and(|newest| is_elsewhere(&newest))
            }
        }
    }

    /// Returns the newest definition of the store.
    fn newest(&self) -> Option<Arc<SchemaAt>> {
        let catalog = self.parts.catalog.catalog();
        catalog.store(self.home).and_then(|history| history.newest()).cloned()
    }

    /// Returns whether a token is of the followed logs, as far as this reader knows.
    fn has_logs_of(&self, token: &Token) -> bool {
        token.positions.iter().all(|(id, (log_id, _))| {
            let followed = self.partitions.get(id.0 as usize);
            followed.is_some_and(|followed| {
                let served = followed.as_ref().and_then(|it| it.board.picture().served.log_id);
                served.is_none_or(|served| served == *log_id)
            })
        })
    }

    /// Waits for what a read of these partitions requests.
    pub(crate) async fn wait_for_read(
        &self,
        read: &Read,
        partitions: &[PartitionId],
    ) -> Result<()> {
        self.closing.check()?;
        for partition in partitions {
            self.partition(*partition)?;
        }
        match &read.wait {
            Wait::Nothing => Ok(()),
            Wait::Token(token) => self.wait_token(token, partitions, read.timeout).await,
            Wait::Latest => {
                let waits = partitions.iter().map(async |partition| {
                    let partition = self.partition(*partition)?;
                    let wait = self.wait_latest(partition);
                    self.bounded(read.timeout, || self.overdue(partition), wait).await
                });
                try_join_all(waits).await.map(|_| ())
            }
        }
    }

    /// Refuses a partition that does not answer, or is older than `age_max`.
    pub(crate) fn check_serves(&self, id: PartitionId, age_max: Option<Duration>) -> Result<()> {
        let at_store = |error: Error| error.with_store(&self.name).with_partition(id);
        let partition = self.partition(id)?;
        let picture = partition.board.picture();
        if !partition.serves(&picture) {
            return Err(not_serving(partition.at, &picture).with_store(&self.name));
        }
        let Some(bound) = age_max else { return Ok(()) };
        check_bound(bound, &self.storage.schemas().newest().definition.options)
            .map_err(at_store)?;
        partition.board.freshness().check(self.parts.clock.now(), bound).map_err(at_store)
    }

    /// Refuses calls after the close. A store version that another one has just replaced still
    /// answers a call that reached it before: its reader is not closed.
    ///
    /// # Errors
    /// Returns `Closed` after the close.
    fn check_open(&self) -> Result<()> {
        // `is_gone` is set before the version closes.
        self.closing.check().or_else(|error| match self.is_gone.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(error),
        })
    }

    /// Runs reads at the present time, under an age bound if there is one.
    fn admitted<T>(
        &self,
        age_max: Option<Duration>,
        reads: impl FnOnce(ReadAt<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_open()?;
        let Some(bound) = age_max else {
            let at = ReadAt::by(&*self.parts.clock).serve_partial(self.options.serve_partial);
            return reads(at).map_err(|error| self.explained(error, None));
        };
        let now = self.parts.clock.now();
        let at = ReadAt::new(now).serve_partial(self.options.serve_partial);
        let options = &self.storage.schemas().newest().definition.options;
        check_bound(bound, options).map_err(|error| error.with_store(&self.name))?;
        let admission = |partition: PartitionId| self.admission(partition, now, bound);
        reads(at.admission(&admission)).map_err(|error| self.explained(error, Some((now, bound))))
    }

    fn admission(&self, partition: PartitionId, now: Timestamp, bound: Duration) -> Admission {
        let followed = self.partitions.get(partition.0 as usize).and_then(Option::as_ref);
        match followed {
            Some(partition) if partition.board.freshness().check(now, bound).is_ok() => {
                Admission::Serve
            }
            _ => Admission::Stale,
        }
    }

    /// Adds to a refusal what this reader knows of its cause, and the store's name.
    fn explained(&self, error: Error, bound: Option<(Timestamp, Duration)>) -> Error {
        let followed = error.context().partition.and_then(|id| self.partition(id).ok());
        let known = followed.and_then(|partition| match error.code() {
            ErrorCode::Unavailable | ErrorCode::Internal => {
                let picture = partition.board.picture();
                (!partition.serves(&picture)).then(|| not_serving(partition.at, &picture))
            }
            ErrorCode::Stale => {
                let (now, age_max) = bound?;
                let stale = partition.board.freshness().check(now, age_max).err()?;
                Some(stale.with_partition(partition.at.partition))
            }
            ErrorCode::Corrupt => {
                // The tail then builds a new replica next to this one.
                partition.board.ask_for_check();
                let message = "a part of this replica is damaged, and the reader rebuilds the \
                    replica from the log; try again";
                Some(Error::unavailable(message).with_partition(partition.at.partition))
            }
            _ => None,
        });
        known.unwrap_or(error).with_store(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::entropy::SeededEntropy;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;

    use super::*;
    use crate::memory::MemoryReader;

    #[test]
    fn a_version_that_has_just_gone_answers_the_call_that_came_to_it() {
        let users = StoreSpec::documents("users", KeyType::String, 2).define(StoreId(1)).unwrap();
        let memory =
            MemoryReader::open(users, Timestamp::default(), Arc::new(SeededEntropy::new(1)));
        let memory = memory.unwrap();
        let now = memory.reader().now();
        now.shared.closing.close();
        let code = |result: Result<()>| result.map_err(|error| error.code());
        assert_eq!(code(now.shared.admitted(None, |_| Ok(()))), Err(ErrorCode::Closed));
        now.shared.is_gone.store(true, Ordering::Relaxed);
        assert_eq!(code(now.shared.admitted(None, |_| Ok(()))), Ok(()));
    }
}
