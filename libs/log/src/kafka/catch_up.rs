//! A few consumers for those who read far behind the tail.
//!
//! A consumer stays where a read ended, and the read that goes on from there finds what was fetched
//! meanwhile. There are at most [`CURSORS_MAX`]; beyond that reads wait for their turn. A read that
//! is given up leaves its consumer in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{Offset, PartitionRef};
use forebay_core::{Error, Result};
use futures::FutureExt;
use parking_lot::Mutex;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::KafkaOptions;
use super::client::{Consumer, Context, Ending, blocking, consumer_config, not_made, unavailable};
use super::follower::record;
use crate::LogRecord;
use crate::remote::now;

/// Consumers that read behind the tail at once.
const CURSORS_MAX: usize = 4;

/// The consumers, and turns to use them.
pub(super) struct CatchUp {
    options: KafkaOptions,
    idle: Mutex<Vec<Cursor>>,
    turns: Semaphore,
}

/// One consumer and where it stands.
struct Cursor {
    consumer: Arc<Ending<Consumer>>,
    /// `None` when it must be assigned before it is read.
    place: Option<Place>,
    /// Received and not returned yet.
    received: VecDeque<LogRecord>,
    /// It was told that the log ends here, and is not told again.
    is_ended: bool,
    used: Instant,
}

struct Place {
    at: PartitionRef,
    number: i32,
    topic: Arc<str>,
    next: Offset,
}

/// A cursor in use; goes back when it is dropped in order.
struct Taken<'a> {
    pool: &'a CatchUp,
    cursor: Option<Cursor>,
}

impl CatchUp {
    pub(super) fn new(options: KafkaOptions) -> Self {
        Self { options, idle: Mutex::default(), turns: Semaphore::new(CURSORS_MAX) }
    }

    /// Records from an offset on, as many as have come and fit, and at least one; none when the log
    /// ends there.
    ///
    /// # Errors
    /// `TokenLost` when the log does not hold the offset; `Unavailable`.
    pub(super) async fn read(
        &self,
        at: PartitionRef,
        (topic, number): (Arc<str>, i32),
        from: Offset,
        bytes_max: usize,
    ) -> Result<Vec<LogRecord>> {
        let turn = timeout(self.options.call_timeout, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            let message = "too many readers are far behind the log's end; try again";
            return Err(Error::unavailable(message).with_partition(at.partition));
        };
        let mut taken = Taken { pool: self, cursor: Some(self.take(at, from)?) };
        let read = taken.read(Place { at, number, topic, next: from }, bytes_max).await;
        if read.is_err() {
            taken.cursor = None;
        }
        read
    }

    /// The cursor that stands there, or one that may be moved.
    fn take(&self, at: PartitionRef, from: Offset) -> Result<Cursor> {
        let mut idle = self.idle.lock();
        if let Some(number) = idle.iter().position(|cursor| cursor.stands_at(at, from)) {
            return Ok(idle.swap_remove(number));
        }
        // Those in use are not in the list, and each of them has a turn.
        if idle.len() + CURSORS_MAX - self.turns.available_permits() <= CURSORS_MAX {
            return self.make();
        }
        let oldest = (0..idle.len()).min_by_key(|number| idle[*number].used);
        oldest.map_or_else(|| self.make(), |number| Ok(idle.swap_remove(number)))
    }

    fn make(&self) -> Result<Cursor> {
        let mut config = consumer_config(&self.options);
        // A partition that is assigned waits for the fetch that is under way.
        config.set("fetch.wait.max.ms", "20");
        config.set("enable.partition.eof", "true");
        let consumer: Consumer = config
            .create_with_context(Context::default())
            .map_err(|error| not_made("consumer", &error))?;
        let consumer = Arc::new(Ending::new(consumer));
        Ok(Cursor {
            consumer,
            place: None,
            received: VecDeque::new(),
            is_ended: false,
            used: now(),
        })
    }

    /// Ends the consumers that nobody came back for.
    pub(super) fn sweep(&self, idle_timeout: Duration) {
        self.idle.lock().retain(|cursor| cursor.used.elapsed() <= idle_timeout);
    }

    /// Ends the consumers of a store's logs.
    pub(super) fn forget(&self, is_meant: impl Fn(PartitionRef) -> bool) {
        let stays = |cursor: &Cursor| !cursor.place.as_ref().is_some_and(|at| is_meant(at.at));
        self.idle.lock().retain(stays);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // One without a place may be under way to one.
        if let Some(mut cursor) = self.cursor.take().filter(|cursor| cursor.place.is_some()) {
            cursor.used = now();
            self.pool.idle.lock().push(cursor);
        }
    }
}

impl Taken<'_> {
    async fn read(&mut self, place: Place, bytes_max: usize) -> Result<Vec<LogRecord>> {
        let call_timeout = self.pool.options.call_timeout;
        let Some(cursor) = &mut self.cursor else { return Ok(Vec::new()) };
        let at = place.at;
        if !cursor.stands_at(at, place.next) {
            cursor.move_to(place).await?;
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        loop {
            let received = if records.is_empty() {
                let waited = timeout(call_timeout, cursor.receive()).await;
                waited.unwrap_or_else(|_| {
                    let message = "the brokers send no records; see whether they run";
                    Err(Error::unavailable(message).with_partition(at.partition))
                })?
            } else {
                cursor.receive().now_or_never().transpose()?.flatten()
            };
            let Some(record) = received else { return Ok(records) };
            bytes += record.entry.len();
            if bytes > bytes_max && !records.is_empty() {
                cursor.received.push_front(record);
                return Ok(records);
            }
            cursor.stand_behind(&record);
            records.push(record);
            if bytes >= bytes_max {
                return Ok(records);
            }
        }
    }
}

impl Cursor {
    fn stands_at(&self, at: PartitionRef, from: Offset) -> bool {
        let stands = |place: &Place| place.at == at && place.next == from;
        !self.is_ended && self.place.as_ref().is_some_and(stands)
    }

    fn stand_behind(&mut self, record: &LogRecord) {
        if let Some(place) = &mut self.place {
            place.next = record.offset.next();
        }
    }

    /// Assigns another place; given up in between, this cursor is not used again.
    async fn move_to(&mut self, place: Place) -> Result<()> {
        self.place = None;
        self.received.clear();
        self.is_ended = false;
        let consumer = self.consumer.clone();
        let (topic, number, next) = (place.topic.clone(), place.number, place.next);
        let assigned = blocking(move || {
            let mut list = TopicPartitionList::new();
            let next = i64::try_from(next.0).unwrap_or(i64::MAX);
            list.add_partition_offset(&topic, number, rdkafka::Offset::Offset(next))?;
            consumer.assign(&list)
        });
        let doing = format!("read log {}", place.at);
        assigned.await?.map_err(|error| unavailable(&doing, &error))?;
        self.place = Some(place);
        Ok(())
    }

    /// The next record; `None` at the log's end. Given up, it has received nothing.
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
                    if is_ours {
                        return Ok(Some(record(&message)));
                    }
                }
                Err(error) => match failure(&error, place.at) {
                    Failure::Ended => {
                        self.is_ended = true;
                        return Ok(None);
                    }
                    Failure::Passing => {}
                    Failure::Lasting(error) => return Err(error.with_partition(place.at.partition)),
                },
            }
        }
    }
}

/// What an error of a consumer means to a read.
enum Failure {
    /// The log ends here.
    Ended,
    /// librdkafka goes on by itself.
    Passing,
    Lasting(Error),
}

fn failure(error: &KafkaError, at: PartitionRef) -> Failure {
    use RDKafkaErrorCode as Code;
    if matches!(error, KafkaError::PartitionEOF(_)) {
        return Failure::Ended;
    }
    match error.rdkafka_error_code() {
        Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut) => {
            Failure::Passing
        }
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => {
            let message = format!("the place in log {at} is lost ({error}); bootstrap anew");
            Failure::Lasting(Error::token_lost(message))
        }
        _ => Failure::Lasting(unavailable(&format!("read log {at}"), error)),
    }
}
