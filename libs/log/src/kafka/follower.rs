//! A consumer that follows the tails of all partitions with readers.
//!
//! Each partition has its own queue and task, so that an error is attributed to its partition; the
//! consumer's main queue carries only events of the whole client. A queue must be split off before
//! its partition is assigned: librdkafka then keeps the split, while a later split could miss
//! records.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::id::{Offset, PartitionRef};
use forebay_core::{Error, Result};
use futures::FutureExt as _;
use parking_lot::Mutex;
use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::stream_consumer::StreamPartitionQueue;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientContext as _, TopicPartitionList};
use tokio::task::AbortHandle;

use super::KafkaOptions;
use super::client::{
    Consumer, Context, Ending, blocking, consumer_config, creation_error, is_passing, time_of,
    unavailable,
};
use super::tail::{OPENED_ANEW, PartitionTail};
use super::topic_incarnations::TopicIncarnations;
use super::topics::Topic;
use crate::LogRecord;

/// Most records that go to a tail at once.
const RECEIVED_MAX: usize = 64;

/// Kafka's name of a partition.
type Place = (Arc<str>, i32);

/// The consumer and the partitions that it follows; ends when its last tail is dropped.
pub(super) struct Follower {
    main: Arc<Main>,
    serving: AbortHandle,
}

/// State that all partitions share.
struct Main {
    consumer: Ending<Arc<Consumer>>,
    context: Context,
    /// Whether a topic was recreated while the consumer followed it.
    is_outdated: AtomicBool,
    /// Held while the main queue is polled and its events are handled.
    looking: Mutex<()>,
    /// Held over librdkafka's calls, on blocking threads only, so that a late removal never affects
    /// a newer assignment of the same partition.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    assigned: BTreeMap<Place, (u64, Weak<PartitionTail>)>,
    assignments: u64,
    /// Number of the last lookup of each topic after which the consumer refreshed its metadata,
    /// too.
    lookups: BTreeMap<Arc<str>, u64>,
}

/// A followed partition; dropping it ends the following.
pub(super) struct TopicSubscription {
    follower: Arc<Follower>,
    place: Place,
    number: u64,
    task: Option<AbortHandle>,
}

type Queue = Ending<StreamPartitionQueue<Context>>;

impl Follower {
    pub(super) fn start(
        options: &KafkaOptions,
        incarnations: TopicIncarnations,
    ) -> Result<Arc<Self>> {
        let context = Context::new(incarnations);
        let mut config = consumer_config(options);
        // A newly followed partition waits for the fetch in progress.
        config.set("fetch.wait.max.ms", "100");
        let consumer: Consumer = config
            .create_with_context(context.clone())
            .map_err(|error| creation_error("consumer", &error))?;
        let consumer = Ending::new(Arc::new(consumer));
        let (looking, table) = (Mutex::default(), Mutex::default());
        let is_outdated = AtomicBool::new(false);
        let main = Arc::new(Main { consumer, context, is_outdated, looking, table });
        let serving = tokio::spawn(serve(main.clone())).abort_handle();
        Ok(Arc::new(Self { main, serving }))
    }

    /// Follows a partition from the start of its tail; returns `None` if this follower is outdated
    /// and a new one is needed.
    pub(super) async fn follow(
        self: &Arc<Self>,
        topic: &Topic,
        partition: i32,
        tail: &Arc<PartitionTail>,
        call_timeout: Duration,
    ) -> Result<Option<TopicSubscription>> {
        let (follower, weak_tail) = (self.clone(), Arc::downgrade(tail));
        let (topic, from) = (topic.clone(), tail.next());
        let assignment = blocking(move || {
            follower.main.look_at(&topic, call_timeout)?;
            if follower.is_outdated() {
                return Ok(None);
            }
            follower.assign((topic.name, partition), from, weak_tail).map(Some)
        });
        let assignment =
            assignment.await?.map_err(|error| unavailable("follow a partition", &error))?;
        let Some((mut following, queue)) = assignment else { return Ok(None) };
        let task = tokio::spawn(receive(queue, self.main.clone(), tail.clone()));
        following.task = Some(task.abort_handle());
        Ok(Some(following))
    }

    /// Returns whether a topic was recreated under the consumer. librdkafka then continues with the
    /// leader epochs of the deleted topic, which the brokers refuse, and reports no error
    /// (librdkafka 4898).
    pub(super) fn is_outdated(&self) -> bool {
        self.main.is_outdated.load(Ordering::Relaxed)
    }

    fn assign(
        self: Arc<Self>,
        place: Place,
        from: Offset,
        tail: Weak<PartitionTail>,
    ) -> Result<(TopicSubscription, Queue), KafkaError> {
        let consumer = &self.main.consumer;
        let mut table = self.main.table.lock();
        if let Some((_, before)) = table.assigned.remove(&place) {
            consumer.incremental_unassign(&list(&place, None)?)?;
            // Readers of the previous tail must not wait for records that only the new tail
            // receives.
            if let Some(before) = before.upgrade() {
                let error = Error::unavailable(OPENED_ANEW).with_partition(before.at.partition);
                before.break_off(error);
            }
        }
        let queue = consumer.split_partition_queue(&place.0, place.1);
        let queue = queue.ok_or(KafkaError::Subscription("no such partition".to_owned()))?;
        let queue = Ending::new(queue);
        consumer.incremental_assign(&list(&place, Some(from))?)?;
        table.assignments += 1;
        let number = table.assignments;
        table.assigned.insert(place.clone(), (number, tail));
        drop(table);
        Ok((TopicSubscription { follower: self, place, number, task: None }, queue))
    }

    /// Returns whether no broker is reachable, as far as the client has reported.
    pub(super) fn is_down(&self) -> bool {
        self.main.context.events().is_down()
    }

    /// Simulates the worst case of librdkafka: the partition is assigned as far as any caller can
    /// see, and no records arrive.
    #[cfg(test)]
    pub(super) fn fall_silent(&self) {
        self.main.consumer.unassign().expect("a consumer unassigns its partitions");
    }

    /// Notes that a broker has answered.
    pub(super) fn is_up(&self) {
        self.main.context.events().set_down(false);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TopicSubscription {
    pub(super) fn follower(&self) -> &Follower {
        &self.follower
    }
}

impl Drop for TopicSubscription {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        let (main, place, number) = (self.follower.main.clone(), self.place.clone(), self.number);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn_blocking(move || main.unassign(&place, number)));
        }
    }
}

fn list(place: &Place, from: Option<Offset>) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    match from {
        Some(from) => {
            let from = i64::try_from(from.0).unwrap_or(i64::MAX);
            list.add_partition_offset(&place.0, place.1, rdkafka::Offset::Offset(from))?;
        }
        None => drop(list.add_partition(&place.0, place.1)),
    }
    Ok(list)
}

/// Handles the events of the whole client.
async fn serve(main: Arc<Main>) {
    loop {
        let mut received = pin!(main.consumer.recv());
        std::future::poll_fn(|context| {
            let _looking = main.looking.lock();
            received.as_mut().poll(context).map(|received| main.take(received))
        })
        .await;
        main.look();
        tokio::task::yield_now().await;
    }
}

impl Main {
    /// Handles the waiting events of the whole client. When this returns, every event that
    /// librdkafka reported before a record was received has taken effect: librdkafka reports that a
    /// topic was recreated before it fetches from the new one.
    fn look(&self) {
        let _looking = self.looking.lock();
        while let Some(received) = self.consumer.recv().now_or_never() {
            self.take(received);
        }
        for topic in self.context.events().take_remade() {
            self.is_outdated.store(true, Ordering::Relaxed);
            self.break_off(&topic, None);
        }
    }

    fn take(&self, message: KafkaResult<BorrowedMessage<'_>>) {
        match message {
            // The record bypassed its partition's queue, so its tail would have a gap.
            Ok(message) => self.break_off(message.topic(), Some(message.partition())),
            Err(error) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
                    self.context.events().set_down(true);
                }
                self.context.error(error, "follower");
            }
        }
    }

    /// Makes the consumer refresh the metadata of a topic after a new lookup, so that it does not
    /// mistake the topic for a recreated one later. Blocks.
    fn look_at(&self, topic: &Topic, call_timeout: Duration) -> KafkaResult<()> {
        if self.table.lock().lookups.get(&topic.name) == Some(&topic.look) {
            return Ok(());
        }
        self.consumer.client().fetch_metadata(Some(&topic.name), call_timeout)?;
        self.look();
        self.table.lock().lookups.insert(topic.name.clone(), topic.look);
        Ok(())
    }

    fn unassign(&self, place: &Place, number: u64) {
        let mut table = self.table.lock();
        if table.assigned.get(place).is_none_or(|(assigned_number, _)| *assigned_number != number) {
            return;
        }
        table.assigned.remove(place);
        let unassigned =
            list(place, None).and_then(|list| self.consumer.incremental_unassign(&list));
        if let Err(error) = unassigned {
            tracing::warn!(%error, topic = &*place.0, "partition not unassigned");
        }
    }

    /// Breaks the tails of a topic, or of one partition of it.
    fn break_off(&self, topic: &str, partition: Option<i32>) {
        let table = self.table.lock();
        for ((name, number), (_, tail)) in &table.assigned {
            let is_meant = &**name == topic
                && partition.is_none_or(|partition_number| partition_number == *number);
            if let Some(tail) = tail.upgrade().filter(|_| is_meant) {
                tail.break_off(recreation_error(tail.at));
            }
        }
    }
}

/// Returns the error for readers of a recreated topic.
pub(super) fn recreation_error(at: PartitionRef) -> Error {
    let message = format!("log {at} was recreated under its readers; bootstrap again");
    Error::token_lost(message).with_partition(at.partition)
}

/// Fills a partition's tail until its queue reports a permanent error.
async fn receive(queue: Queue, main: Arc<Main>, tail: Arc<PartitionTail>) {
    let mut received = Vec::new();
    loop {
        let mut next = Some(queue.recv().await);
        let mut failed = None;
        while let Some(message) = next {
            match message {
                Ok(message) => received.push(record(&message)),
                Err(error) if is_passing(&error) => {
                    tracing::debug!(%error, "partition queue failed");
                }
                Err(error) => failed = Some(error),
            }
            let is_full = received.len() == RECEIVED_MAX || failed.is_some();
            next = if is_full { None } else { queue.recv().now_or_never() };
        }
        main.look();
        tail.push(received.drain(..));
        if let Some(error) = failed {
            return end(&tail, &error);
        }
        tokio::task::yield_now().await;
    }
}

/// Ends a tail after a permanent error.
fn end(tail: &PartitionTail, error: &KafkaError) {
    use RDKafkaErrorCode as Code;
    let at = tail.at;
    let move_error = || {
        let message = format!("log {at} moved under its readers ({error}); bootstrap again");
        Error::token_lost(message).with_partition(at.partition)
    };
    match error.rdkafka_error_code() {
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => tail.lose_place(move_error()),
        Some(Code::LogTruncation) => tail.break_off(move_error()),
        _ => {
            let error = unavailable(&format!("follow log {at}"), error);
            tail.break_off(error.with_partition(at.partition));
        }
    }
}

/// Converts a message to a record. Messages of other producers are records, too; readers skip them.
pub(super) fn record(message: &BorrowedMessage<'_>) -> LogRecord {
    LogRecord {
        offset: Offset(u64::try_from(message.offset()).unwrap_or(0)),
        append_time: time_of(message.timestamp()),
        entry: message.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
    }
}
