//! A small pool of consumers for readers far behind the tail.
//!
//! A consumer stays at the offset where a read ended, and the read that continues from that offset
//! finds the records fetched in between. The pool has at most [`CURSORS_MAX`] consumers; further
//! reads wait for a turn. A cancelled read leaves its consumer consistent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{Offset, PartitionRef};
use forebay_core::{Error, Result};
use futures::FutureExt;
use parking_lot::Mutex;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::KafkaOptions;
use super::client::{
    Consumer, Context, Ending, consumer_config, creation_error, is_passing, unavailable,
};
use super::follower::{record, recreation_error};
use super::topic_incarnations::TopicIncarnations;
use crate::LogRecord;
use crate::remote::now;

/// Most consumers that read behind the tail at once.
const CURSORS_MAX: usize = 4;
/// Fraction of a call's timeout (one part in four) after which a silent consumer that was used
/// before is replaced.
const SILENCE_PART: u32 = 4;

/// The consumers, and the permits to use them.
pub(super) struct CatchUp {
    options: KafkaOptions,
    incarnations: TopicIncarnations,
    idle: Mutex<Vec<Cursor>>,
    turns: Arc<Semaphore>,
}

/// A consumer and its position.
struct Cursor {
    consumer: Ending<Consumer>,
    context: Context,
    /// `None` if the consumer must be assigned before the next read.
    place: Option<CursorPlace>,
    /// Records that were received and not returned yet.
    received: VecDeque<LogRecord>,
    /// The consumer has reported the end of the log and does not report it again.
    is_ended: bool,
    /// Start of the current wait without an answer.
    silent_since: Option<Instant>,
    used_at: Instant,
}

#[derive(Clone, PartialEq, Eq)]
struct CursorPlace {
    at: PartitionRef,
    number: i32,
    topic: Arc<str>,
    /// Number of topic recreations when the consumer was assigned: records that it fetched before a
    /// later recreation belong to a deleted log.
    recreations: u64,
    next: Offset,
}

/// A cursor in use, with its permit; returns to the pool on drop if it is consistent.
struct CursorLease {
    pool: Arc<CatchUp>,
    cursor: Option<Cursor>,
    _turn: OwnedSemaphorePermit,
}

impl CatchUp {
    pub(super) fn new(options: KafkaOptions, incarnations: TopicIncarnations) -> Self {
        let turns = Arc::new(Semaphore::new(CURSORS_MAX));
        Self { options, incarnations, idle: Mutex::default(), turns }
    }

    /// Returns records from an offset on, as many as have arrived and fit, and at least one; none
    /// if the log ends there.
    ///
    /// # Errors
    /// `TokenLost` if the log does not cover the offset; `Unavailable`.
    pub(super) async fn read(
        self: &Arc<Self>,
        at: PartitionRef,
        (topic, number): (Arc<str>, i32),
        from: Offset,
        bytes_max: usize,
    ) -> Result<Vec<LogRecord>> {
        let turn = timeout(self.options.call_timeout, self.turns.clone().acquire_owned()).await;
        let Ok(Ok(_turn)) = turn else {
            let message = "too many readers are far behind the end of the log; try again";
            return Err(Error::unavailable(message).with_partition(at.partition));
        };
        let deadline = now() + self.options.call_timeout;
        let recreations = self.incarnations.recreations(&topic);
        let place = CursorPlace { at, number, topic, recreations, next: from };
        let cursor = self.take(&place)?;
        let mut lease_deadline = deadline;
        let was_standing = cursor.stands_at(&place);
        if cursor.place.is_some() {
            // The consumer may be silent forever since its broker was away (librdkafka 5153).
            lease_deadline =
                cursor.silent_since.unwrap_or_else(now) + self.options.call_timeout / SILENCE_PART;
        }
        let lease = CursorLease { pool: self.clone(), cursor: Some(cursor), _turn };
        let mut lease = lease.stand_at(&place).await?;
        let mut read = lease.read(bytes_max, lease_deadline).await?;
        if was_standing && read.as_ref().is_some_and(Vec::is_empty) {
            // The consumer reported the end before this read started; the log may have grown since.
            lease = lease.stand_at(&place).await?;
            read = lease.read(bytes_max, lease_deadline).await?;
        }
        if read.is_none() && lease_deadline < deadline {
            lease.cursor = Some(self.make()?);
            lease = lease.stand_at(&place).await?;
            read = lease.read(bytes_max, deadline).await?;
        }
        read.ok_or_else(|| {
            let message = "the brokers send no records; check that the brokers run";
            Error::unavailable(message).with_partition(at.partition)
        })
    }

    /// Takes the cursor at this position, or another one that may be moved.
    fn take(&self, place: &CursorPlace) -> Result<Cursor> {
        let mut idle = self.idle.lock();
        // A consumer of the deleted topic may stay silent in the recreated one.
        idle.retain(|cursor| !cursor.is_outdated(place));
        if let Some(number) = idle.iter().position(|cursor| cursor.stands_at(place)) {
            return Ok(idle.swap_remove(number));
        }
        // Cursors in use are not in the list; each of them holds a permit.
        if idle.len() + CURSORS_MAX - self.turns.available_permits() <= CURSORS_MAX {
            return self.make();
        }
        let oldest = (0..idle.len()).min_by_key(|number| idle[*number].used_at);
        oldest.map_or_else(|| self.make(), |number| Ok(idle.swap_remove(number)))
    }

    fn make(&self) -> Result<Cursor> {
        let mut config = consumer_config(&self.options);
        // A partition that is assigned waits for the fetch in progress.
        config.set("fetch.wait.max.ms", "20");
        config.set("enable.partition.eof", "true");
        let context = Context::new(self.incarnations.clone());
        let consumer: Consumer = config
            .create_with_context(context.clone())
            .map_err(|error| creation_error("consumer", &error))?;
        let consumer = Ending::new(consumer);
        let (received, is_ended, used_at) = (VecDeque::new(), false, now());
        Ok(Cursor {
            consumer,
            context,
            place: None,
            received,
            is_ended,
            silent_since: None,
            used_at,
        })
    }

    /// Ends the consumers that were idle for longer than the timeout.
    pub(super) fn sweep(&self, idle_timeout: Duration) {
        self.idle.lock().retain(|cursor| cursor.used_at.elapsed() <= idle_timeout);
    }

    /// Silences the idle consumers; returns their number.
    #[cfg(test)]
    pub(super) fn fall_silent(&self) -> usize {
        self.idle.lock().iter().map(Cursor::fall_silent).count()
    }

    /// Ends the consumers of a store's logs.
    pub(super) fn forget(&self, is_meant: impl Fn(PartitionRef) -> bool) {
        let stays = |cursor: &Cursor| !cursor.place.as_ref().is_some_and(|at| is_meant(at.at));
        self.idle.lock().retain(stays);
    }
}

impl Drop for CursorLease {
    fn drop(&mut self) {
        if let Some(mut cursor) = self.cursor.take() {
            cursor.used_at = now();
            self.pool.idle.lock().push(cursor);
        }
    }
}

impl CursorLease {
    /// Moves the cursor to a position. If the caller gives up, the move continues, and the cursor
    /// is there for the caller's next attempt.
    async fn stand_at(mut self, place: &CursorPlace) -> Result<Self> {
        if self.cursor.as_ref().is_some_and(|cursor| cursor.stands_at(place)) {
            return Ok(self);
        }
        let doing = format!("read log {}", place.at);
        let place = place.clone();
        let (reply, outcome) = oneshot::channel();
        let assign = move || {
            let assigned = self.cursor.as_mut().map_or(Ok(()), |cursor| cursor.assign(place));
            if assigned.is_err() {
                self.cursor = None;
            }
            // A cursor without a waiting caller returns to the pool on drop.
            let _ = reply.send(assigned.map(|()| self));
        };
        drop(tokio::task::spawn_blocking(assign));
        match outcome.await {
            Ok(assigned) => assigned.map_err(|error| unavailable(&doing, &error)),
            Err(_) => Err(Error::internal("a call of the Kafka client ended")),
        }
    }

    /// Reads like [`CatchUp::read`]; returns `None` if no record arrived by `until`. A cursor that
    /// fails or stays silent is not reused.
    async fn read(
        &mut self,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Option<Vec<LogRecord>>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let read = cursor.read(bytes_max, deadline).await;
        if !matches!(read, Ok(Some(_))) {
            self.cursor = None;
        }
        read
    }
}

impl Cursor {
    fn stands_at(&self, place: &CursorPlace) -> bool {
        !self.is_ended && self.place.as_ref() == Some(place)
    }

    /// Returns whether the cursor reads an earlier topic of the same name.
    fn is_outdated(&self, place: &CursorPlace) -> bool {
        self.place
            .as_ref()
            .is_some_and(|at| at.topic == place.topic && at.recreations < place.recreations)
    }

    async fn read(
        &mut self,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Option<Vec<LogRecord>>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        loop {
            let record = if records.is_empty() {
                self.silent_since.get_or_insert_with(now);
                match timeout_at(deadline, self.receive()).await {
                    Ok(record) => record?,
                    Err(_) => return Ok(None),
                }
            } else {
                self.receive().now_or_never().transpose()?.flatten()
            };
            self.silent_since = None;
            let Some(record) = record else { return Ok(Some(records)) };
            bytes += record.entry.len();
            if bytes > bytes_max && !records.is_empty() {
                self.received.push_front(record);
                return Ok(Some(records));
            }
            self.stand_behind(&record);
            records.push(record);
            if bytes >= bytes_max {
                return Ok(Some(records));
            }
        }
    }

    fn stand_behind(&mut self, record: &LogRecord) {
        if let Some(place) = &mut self.place {
            place.next = record.offset.next();
        }
    }

    /// Assigns another position; blocks.
    fn assign(&mut self, place: CursorPlace) -> KafkaResult<()> {
        self.place = None;
        self.received.clear();
        self.is_ended = false;
        self.silent_since = None;
        let mut list = TopicPartitionList::new();
        let next = i64::try_from(place.next.0).unwrap_or(i64::MAX);
        list.add_partition_offset(&place.topic, place.number, rdkafka::Offset::Offset(next))?;
        self.consumer.assign(&list)?;
        self.place = Some(place);
        Ok(())
    }

    /// Simulates the worst case of librdkafka: the partition is assigned as far as any caller can
    /// see, and no records arrive.
    #[cfg(test)]
    fn fall_silent(&self) {
        self.consumer.unassign().expect("a consumer unassigns its partitions");
    }

    /// Returns the next record; `None` at the end of the log. A cancelled call has received
    /// nothing.
    async fn receive(&mut self) -> Result<Option<LogRecord>> {
        if let Some(record) = self.received.pop_front() {
            return Ok(Some(record));
        }
        let Some(place) = &self.place else { return Ok(None) };
        loop {
            match self.consumer.recv().await {
                Ok(message) => {
                    let is_ours = message.topic() == &*place.topic
                        && message.partition() == place.number
                        && message.offset() >= place.next.0 as i64;
                    // librdkafka logged the recreation on the same queue, before the first record
                    // of the new topic.
                    if self.context.events().take_remade().contains(&*place.topic) {
                        return Err(recreation_error(place.at));
                    }
                    if is_ours {
                        return Ok(Some(record(&message)));
                    }
                }
                Err(error) => match failure(&error, place.at) {
                    CatchUpFailure::Ended => {
                        self.is_ended = true;
                        return Ok(None);
                    }
                    CatchUpFailure::Passing => {}
                    CatchUpFailure::Lasting(error) => {
                        return Err(error.with_partition(place.at.partition));
                    }
                },
            }
        }
    }
}

/// Meaning of a consumer error for a read.
enum CatchUpFailure {
    /// The log ends here.
    Ended,
    /// librdkafka recovers on its own.
    Passing,
    Lasting(Error),
}

fn failure(error: &KafkaError, at: PartitionRef) -> CatchUpFailure {
    use RDKafkaErrorCode as Code;
    if matches!(error, KafkaError::PartitionEOF(_)) {
        return CatchUpFailure::Ended;
    }
    if is_passing(error) {
        return CatchUpFailure::Passing;
    }
    match error.rdkafka_error_code() {
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => {
            let message = format!("the position in log {at} is lost ({error}); bootstrap again");
            CatchUpFailure::Lasting(Error::token_lost(message))
        }
        _ => CatchUpFailure::Lasting(unavailable(&format!("read log {at}"), error)),
    }
}
