//! The log on Kafka: one topic per store, one Kafka partition per partition.
//!
//! An acknowledged entry is on all in-sync replicas, at least two of three. The entry survives the
//! loss of one replica, but not a power cut of all. The log checks brokers and topics before it
//! uses them (`settings.rs`), because Kafka with other settings does not give these guarantees.
//!
//! Appends go through one idempotent producer (`appender.rs`). Reads near the end are served from
//! memory, which one consumer fills for all readers (`follower.rs`, `tail.rs`). Reads far behind
//! the end borrow a consumer from a small pool (`catch_up.rs`). Idle tails and consumers are closed
//! after a while.

mod admin;
mod appender;
mod assignments;
mod catch_up;
mod client;
mod follower;
mod group;
mod options;
mod readers;
mod settings;
mod tail;
mod topic_incarnations;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, ErrorCode, Result};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use self::appender::{Appender, Failure, SentEntry, unacknowledged_error, with_location};
use self::catch_up::CatchUp;
use self::client::unavailable;
pub use self::group::{KafkaGroup, KafkaOwners};
pub use self::options::KafkaOptions;
use self::readers::{OpenTail, Opening, Readers};
use self::tail::{PartitionTail, TailLookup};
use self::topic_incarnations::TopicIncarnations;
use self::topics::{Topic, Topics};
use crate::change_log::{
    AppendReceipt, Bounds, ChangeLog, ReadLimit, Records, check_entry, check_not_control,
    no_such_log, trim_above_end,
};
use crate::remote::now;

/// Interval between requests to a partition that has no leader at the moment.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// Longest wait of one read: longer than any caller waits, short enough to be added to any time.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Time for which a waiting reader trusts a silent follower before it asks the brokers.
const DOUBT_AFTER: Duration = Duration::from_secs(10);

/// A log on Kafka.
///
/// Append times are the brokers' own (`LogAppendTime`), in whole milliseconds. Other programs may
/// produce any record into a topic; the log returns such a record, and its readers skip it.
pub struct KafkaLog {
    shared: Arc<KafkaState>,
    /// Task that closes idle tails and consumers.
    sweeper: AbortHandle,
}

struct KafkaState {
    topics: Topics,
    appender: Appender,
    readers: Readers,
    catch_up: Arc<CatchUp>,
    incarnations: TopicIncarnations,
}

impl KafkaLog {
    /// Opens the log: checks the brokers and the topic of the control log, and creates the topic if
    /// it is missing.
    ///
    /// # Errors
    /// - `Unsupported`: brokers or topics have settings that would lose acknowledged entries; the
    ///   error names the setting, its value, and the fix.
    /// - `Unavailable`: the brokers do not answer or are too few.
    pub async fn open(options: KafkaOptions) -> Result<Self> {
        let idle_timeout = options.idle_timeout;
        let topics = Topics::open(options.clone()).await?;
        let incarnations = TopicIncarnations::default();
        let shared = Arc::new(KafkaState {
            topics,
            appender: Appender::new(options.clone(), incarnations.clone()),
            readers: Readers::new(options.clone(), incarnations.clone()),
            catch_up: Arc::new(CatchUp::new(options, incarnations.clone())),
            incarnations,
        });
        let weak_shared = Arc::downgrade(&shared);
        let sweeper = tokio::spawn(async move {
            loop {
                tokio::time::sleep(idle_timeout / 2).await;
                let Some(shared) = weak_shared.upgrade() else { return };
                shared.readers.sweep(idle_timeout);
                shared.catch_up.sweep(idle_timeout);
            }
        });
        Ok(Self { shared, sweeper: sweeper.abort_handle() })
    }
}

impl Drop for KafkaLog {
    fn drop(&mut self) {
        self.sweeper.abort();
    }
}

impl KafkaState {
    /// Hands an entry over; entries of one store are handed over in call order.
    async fn send(&self, at: PartitionRef, entry: &Bytes) -> Result<(SentEntry, u64), Failure> {
        let lookup = self.topics.lookup(at.store);
        let mut found = lookup.lock().await;
        let topic = self.topics.find(at, &mut found).await.map_err(Failure::Final)?;
        let number = topic.number(at).map_err(Failure::Final)?;
        let room = self.appender.room(entry).await.map_err(Failure::Final)?;
        let incarnation = self.incarnations.begin(at, &topic.name).map_err(Failure::Final)?;
        Ok((self.appender.send(&topic.name, number, entry, room)?, incarnation))
    }

    async fn append(&self, at: PartitionRef, entry: &Bytes) -> Result<AppendReceipt> {
        check_entry(at, entry)?;
        let sending = timeout(self.topics.options().call_timeout, self.send(at, entry));
        let (entry_in_flight, incarnation) = match sending.await {
            Ok(Ok(entry_in_flight)) => entry_in_flight,
            Ok(Err(Failure::Final(error))) => return Err(error),
            Ok(Err(Failure::UnknownPartition(error))) => {
                return Err(self.missing_partition_error(at, unavailable("append", &error)).await);
            }
            Err(_) => return Err(self.topics.silence_error(at)),
        };
        match self.appender.await_delivery(entry_in_flight, entry).await {
            Ok(_) if !self.incarnations.is_same(&self.topics.name(at.store), incarnation) => {
                Err(unacknowledged_error("the topic was deleted and recreated"))
            }
            Ok(receipt) => {
                if let Some(tail) = self.readers.tail(at) {
                    tail.learn_end(receipt.offset.next());
                }
                Ok(receipt)
            }
            Err(Failure::Final(error)) => {
                // After any error the topic is looked up again before its next use.
                self.topics.forget(at.store);
                Err(error)
            }
            Err(Failure::UnknownPartition(error)) => {
                let otherwise = unacknowledged_error(&error.to_string());
                Err(self.missing_partition_error(at, otherwise).await)
            }
        }
    }

    /// Returns the error for a partition that a broker does not know: `NotFound` if a second lookup
    /// confirms it, else the given error, because a broker that has just started may know less than
    /// others.
    async fn missing_partition_error(&self, at: PartitionRef, otherwise: Error) -> Error {
        self.topics.forget(at.store);
        let number = self.topics.get(at).await.and_then(|topic| topic.number(at));
        number.err().filter(|error| error.code() == ErrorCode::NotFound).unwrap_or(otherwise)
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        let topic = self.topics.get(at).await?;
        let tail = self.readers.tail(at);
        let next = tail.as_ref().map(|tail| tail.next());
        let bounds = self.watermarks(at, &topic).await?;
        if let (Some(tail), Some(next)) = (tail, next) {
            tail.learn(bounds, next)?;
        }
        Ok(bounds)
    }

    /// Asks the partition's leader for the bounds, and retries while a new leader takes over.
    async fn watermarks(&self, at: PartitionRef, topic: &Topic) -> Result<Bounds> {
        let number = topic.number(at)?;
        let deadline = now() + self.topics.options().call_timeout;
        loop {
            let error = match self.topics.admin().watermarks(&topic.name, number).await? {
                Ok((start, end)) if start >= 0 && end >= start => {
                    let (start, end) = (Offset(start as u64), Offset(end as u64));
                    return Ok(Bounds { start, end, server_time: None });
                }
                Ok(_) => KafkaError::MetadataFetch(RDKafkaErrorCode::NoOffset),
                Err(error) => error,
            };
            let error = unavailable(&format!("find the bounds of log {at}"), &error);
            if now() >= deadline {
                return Err(error.with_partition(at.partition));
            }
            let error = self.missing_partition_error(at, error).await;
            if error.code() == ErrorCode::NotFound {
                return Err(error);
            }
            sleep(RETRY_EVERY).await;
        }
    }

    async fn read(
        self: &Arc<Self>,
        at: PartitionRef,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Records> {
        let mut place = self.open_place(at, from).await?;
        let mut read = self.read_place(&place, at, from, limit).await;
        if read.is_err() && self.spend_if_outrun(&place, at).await {
            place = self.open_place(at, from).await?;
            read = self.read_place(&place, at, from, limit).await;
        }
        match read {
            Ok(records) => Ok(records),
            Err(error) => Err(self.explain(at, from, error).await),
        }
    }

    /// Returns the slot of a partition's tail, and opens the tail if needed.
    async fn open_place(self: &Arc<Self>, at: PartitionRef, from: Offset) -> Result<Arc<Opening>> {
        let place = self.readers.place(at);
        if place.get().is_none() {
            let (shared, place) = (self.clone(), place.clone());
            // If the caller gives up, the opening continues, and the caller's next attempt finds
            // the tail open.
            let opening = tokio::spawn(async move {
                let result = place.get_or_try_init(|| shared.open(at)).await.map(|_| ());
                result.inspect_err(|_| shared.readers.abandon(at))
            });
            let join_error =
                |error| Error::internal(format!("the task that opens a log's tail ended: {error}"));
            if let Err(error) = opening.await.map_err(join_error)? {
                return Err(self.explain(at, from, error).await);
            }
        }
        Ok(place)
    }

    async fn read_place(
        &self,
        place: &Opening,
        at: PartitionRef,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Records> {
        let Some(open) = place.get() else { return Err(self.topics.silence_error(at)) };
        let _reading = open.tail.reading();
        match self.read_tail(open, from, limit).await? {
            Some(records) => Ok(records),
            None => self.read_behind(&open.tail, from, limit.bytes_max).await,
        }
    }

    /// Returns whether the log was trimmed past the records that the tail's follower had received;
    /// if so, the next access opens another tail in the same slot.
    async fn spend_if_outrun(&self, place: &Opening, at: PartitionRef) -> bool {
        let lost_place = place.get().filter(|open| open.tail.has_lost_place());
        let Some(open) = lost_place else { return false };
        let lookup = async {
            let topic = self.topics.get(at).await?;
            self.watermarks(at, &topic).await
        };
        lookup.await.is_ok_and(|bounds| open.tail.spend_if_outrun(bounds.start))
    }

    async fn open(&self, at: PartitionRef) -> Result<OpenTail> {
        let topic = self.topics.get(at).await?;
        let bounds = self.watermarks(at, &topic).await?;
        self.readers.open(at, &topic, bounds).await
    }

    /// Returns records that the tail stores or receives in time; `None` if they are older.
    async fn read_tail(
        &self,
        open: &OpenTail,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Option<Records>> {
        let tail = &open.tail;
        let deadline = now() + limit.wait_max.min(WAIT_MAX);
        match tail.find(from, limit.bytes_max)? {
            TailLookup::Here(records) => return Ok(Some(records)),
            TailLookup::Below => return Ok(None),
            TailLookup::Ahead { end } => {
                // Only the brokers know what others have just appended.
                if limit.wait_max.is_zero() || from > end {
                    self.bounds(tail.at).await?.check(tail.at, from)?;
                }
            }
        }
        loop {
            let is_known = from < tail.bounds().end;
            let wait_max = match is_known {
                true => self.topics.options().call_timeout,
                false => deadline.saturating_duration_since(now()).min(DOUBT_AFTER),
            };
            tail.wait_past(from, wait_max).await;
            match tail.find(from, limit.bytes_max)? {
                TailLookup::Here(records) => return Ok(Some(records)),
                TailLookup::Below => return Ok(None),
                TailLookup::Ahead { .. } if is_known => return Err(self.replace_follower(open)),
                TailLookup::Ahead { end } => {
                    let is_over = now() >= deadline;
                    if is_over && !open.follower().is_down() {
                        return Ok(Some(Records { records: Vec::new(), end }));
                    }
                    // No record arrived, and only the brokers know whether there is one.
                    let end = self.bounds(tail.at).await?.end;
                    open.follower().is_up();
                    if is_over {
                        return Ok(Some(Records { records: Vec::new(), end }));
                    }
                }
            }
        }
    }

    /// Breaks a tail whose follower does not deliver records that the log contains. A consumer may
    /// stay silent forever after its broker was away (librdkafka 5153); only a new consumer
    /// receives more.
    fn replace_follower(&self, open: &OpenTail) -> Error {
        let error = self.topics.silence_error(open.tail.at);
        self.readers.retire(open.follower());
        open.tail.break_off(error.clone());
        error
    }

    async fn read_behind(
        &self,
        tail: &PartitionTail,
        from: Offset,
        bytes_max: usize,
    ) -> Result<Records> {
        let at = tail.at;
        let topic = self.topics.get(at).await?;
        let place = (topic.name.clone(), topic.number(at)?);
        let records = self.catch_up.read(at, place, from, bytes_max).await?;
        let next = records.last().map_or(from, |record| record.offset.next());
        Ok(Records { records, end: tail.bounds().end.max(next) })
    }

    /// Finds the actual cause of a failed read: the log is gone, the log does not cover the offset,
    /// or else the given error.
    async fn explain(&self, at: PartitionRef, from: Offset, error: Error) -> Error {
        if error.code() == ErrorCode::NotFound {
            return error;
        }
        self.topics.forget(at.store);
        let lookup = async {
            let topic = self.topics.get(at).await?;
            self.watermarks(at, &topic).await?.check(at, from)
        };
        match lookup.await {
            Err(found) if found.code() != ErrorCode::Unavailable => found,
            _ => error,
        }
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        let bounds = self.bounds(at).await?;
        if before > bounds.end {
            return Err(trim_above_end(at, before, bounds.end));
        }
        if before <= bounds.start {
            return Ok(());
        }
        let topic = self.topics.get(at).await?;
        self.topics.admin().trim(&topic.name, topic.number(at)?, before.0 as i64).await?;
        self.bounds(at).await.map(|_| ())
    }
}

#[async_trait]
impl ChangeLog for KafkaLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        check_not_control(store)?;
        let partitions = PartitionCount::new(partitions.0)?;
        self.shared.topics.make(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        check_not_control(store)?;
        self.shared.incarnations.remove(&self.shared.topics.name(store));
        let result = self.shared.topics.remove(store).await;
        self.shared.catch_up.forget(|at| at.store == store);
        self.shared.readers.break_off(store, no_such_log);
        result
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        self.shared.append(at, &entry).await.map_err(|error| with_location(error, at))
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.shared.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.shared.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.shared.trim(at, before).await
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::PartitionId;
    use forebay_testkit::brokers::Brokers;

    use super::settings::of_new_topic;
    use super::*;

    const AT: PartitionRef = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
    const NONE: ReadLimit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };

    /// Returns a log of one partition on a dedicated broker, and the options to open it again.
    async fn log(name: &str, call_timeout: Duration) -> (Brokers, KafkaLog, KafkaOptions) {
        let brokers = tokio::task::spawn_blocking(|| Brokers::start(1)).await.unwrap().unwrap();
        let mut options = KafkaOptions::dev(brokers.bootstrap(), name);
        options.call_timeout = call_timeout;
        let log = KafkaLog::open(options.clone()).await.unwrap();
        log.create(AT.store, PartitionCount(1)).await.unwrap();
        (brokers, log, options)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn silent_follower_is_replaced_and_its_readers_continue() {
        let (_brokers, log, options) = log("silent", Duration::from_secs(2)).await;
        assert_eq!(log.read(AT, Offset(0), NONE).await.unwrap().end, Offset(0));
        let place = log.shared.readers.place(AT);
        place.get().unwrap().follower().fall_silent();
        let other = KafkaLog::open(options).await.unwrap();
        other.append(AT, Bytes::from_static(b"unheard")).await.unwrap();
        let limit = ReadLimit { wait_max: Duration::from_secs(1_000), ..NONE };
        let read = tokio::time::timeout(Duration::from_secs(100), async {
            loop {
                match log.read(AT, Offset(0), limit).await {
                    Ok(records) => return records,
                    Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
                }
            }
        });
        assert_eq!(read.await.unwrap().records[0].entry, &b"unheard"[..]);
        assert!(!Arc::ptr_eq(&place, &log.shared.readers.place(AT)), "the old tail goes on");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn silent_catch_up_consumer_is_replaced_within_the_read() {
        let (_brokers, writing, options) = log("behind", Duration::from_secs(8)).await;
        for entry in [&b"first"[..], b"second", b"third"] {
            writing.append(AT, Bytes::from_static(entry)).await.unwrap();
        }
        // The new log's tail starts at the end, so that both records are behind it.
        let log = KafkaLog::open(options).await.unwrap();
        assert_eq!(log.read(AT, Offset(0), NONE).await.unwrap().records[0].entry, &b"first"[..]);
        assert_eq!(log.shared.catch_up.fall_silent(), 1);
        assert_eq!(log.read(AT, Offset(1), NONE).await.unwrap().records[0].entry, &b"second"[..]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn catch_up_consumer_does_not_report_an_outdated_end() {
        let (_brokers, log, _) = log("moved", Duration::from_secs(8)).await;
        log.append(AT, Bytes::from_static(b"first")).await.unwrap();
        let place = (log.shared.topics.get(AT).await.unwrap().name, 0);
        let read = |from| log.shared.catch_up.read(AT, place.clone(), Offset(from), 1);
        assert_eq!(read(0).await.unwrap()[0].entry, &b"first"[..]);
        // The consumer now reports that the log ends after the first record.
        sleep(Duration::from_millis(300)).await;
        log.append(AT, Bytes::from_static(b"second")).await.unwrap();
        assert_eq!(read(1).await.unwrap()[0].entry, &b"second"[..]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn log_trimmed_past_its_follower_is_not_lost_to_later_readers() {
        let (_brokers, log, _) = log("outrun", Duration::from_secs(8)).await;
        for entry in [&b"first"[..], b"second", b"third"] {
            log.append(AT, Bytes::from_static(entry)).await.unwrap();
        }
        log.trim(AT, Offset(2)).await.unwrap();
        // The follower starts at offset 0, as a slow one would under load.
        let topic = log.shared.topics.get(AT).await.unwrap();
        let bounds = Bounds { start: Offset(0), end: Offset(0), server_time: None };
        let place = log.shared.readers.place(AT);
        place.get_or_try_init(|| log.shared.readers.open(AT, &topic, bounds)).await.unwrap();
        assert_eq!(log.read(AT, Offset(2), NONE).await.unwrap().records[0].entry, &b"third"[..]);
        let error = log.read(AT, Offset(1), NONE).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenLost, "{error}");
    }

    /// Proves that a recreated topic gets another consumer: the old one continues with the leaders
    /// of the old topic, and may stay silent.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn recreated_topic_is_followed_by_another_consumer() {
        let (_brokers, log, _) = log("anew", Duration::from_secs(8)).await;
        log.append(AT, Bytes::from_static(b"old")).await.unwrap();
        log.read(AT, Offset(1), NONE).await.unwrap();
        let place = log.shared.readers.place(AT);
        let (topics, name) = (&log.shared.topics, log.shared.topics.name(AT.store));
        topics.admin().remove_topic(&name).await.unwrap();
        let settings = of_new_topic(topics.options());
        topics.admin().make_topic(&name, 1, 1, &settings).await.unwrap();
        let read = tokio::time::timeout(Duration::from_secs(100), async {
            while log.read(AT, Offset(1), NONE).await.is_ok() {
                sleep(RETRY_EVERY).await;
            }
            while log.read(AT, Offset(0), NONE).await.is_err() {
                sleep(RETRY_EVERY).await;
            }
        });
        read.await.expect("the new log is never followed");
        let place_new = log.shared.readers.place(AT);
        let [before, after] = [&place, &place_new].map(|place| place.get().unwrap().follower());
        assert!(!std::ptr::eq(before, after), "the old consumer follows the new topic");
    }
}
