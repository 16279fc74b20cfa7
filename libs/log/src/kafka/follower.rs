//! One consumer that follows the tails of all partitions that are read.
//!
//! Each partition has a queue and a task of its own, so that an error is known by its partition;
//! the consumer's main queue carries only what concerns the client as a whole. A queue must be
//! split off before its partition is assigned: librdkafka then leaves it alone, while a later split
//! could miss records.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use forebay_core::id::Offset;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::stream_consumer::StreamPartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientContext as _, TopicPartitionList};
use tokio::task::AbortHandle;

use super::client::{Consumer, Context, Ending, blocking, consumer_config, not_made, unavailable};
use super::tail::Tail;
use super::{KafkaOptions, time_of};
use crate::LogRecord;

/// A partition as Kafka names it.
type Place = (Arc<str>, i32);

/// The consumer and what it follows; ends when the last tail that it follows is let go of.
pub(super) struct Follower {
    consumer: Arc<Ending<Arc<Consumer>>>,
    context: Context,
    assigned: Arc<Assigned>,
    main: AbortHandle,
}

/// What is assigned to the consumer. The lock is held over librdkafka's calls, on blocking threads
/// only, so that a late removal never meets a newer assignment of the same partition.
#[derive(Default)]
struct Assigned(Mutex<Table>);

#[derive(Default)]
struct Table {
    places: BTreeMap<Place, (u64, Weak<Tail>)>,
    made: u64,
}

/// One partition that is followed; dropping it ends that.
pub(super) struct Following {
    follower: Arc<Follower>,
    place: Place,
    number: u64,
    task: Option<AbortHandle>,
}

impl Follower {
    pub(super) fn start(options: &KafkaOptions) -> Result<Arc<Self>> {
        let context = Context::default();
        let mut config = consumer_config(options);
        // A partition that is followed from now on waits for the fetch that is under way.
        config.set("fetch.wait.max.ms", "100");
        // The only way to hear that a topic was made anew; see `Context`.
        config.set("debug", "metadata");
        config.set_log_level(rdkafka::config::RDKafkaLogLevel::Debug);
        let consumer: Consumer = config
            .create_with_context(context.clone())
            .map_err(|error| not_made("consumer", &error))?;
        let consumer = Arc::new(consumer);
        let assigned = Arc::new(Assigned::default());
        let main = serve(Ending::new(consumer.clone()), context.clone(), assigned.clone());
        let main = tokio::spawn(main).abort_handle();
        let consumer = Arc::new(Ending::new(consumer));
        Ok(Arc::new(Self { consumer, context, assigned, main }))
    }

    /// Follows a partition from an offset on.
    pub(super) async fn follow(
        self: &Arc<Self>,
        topic: Arc<str>,
        partition: i32,
        tail: &Arc<Tail>,
    ) -> Result<Following> {
        let (follower, held) = (self.clone(), Arc::downgrade(tail));
        let place = (topic, partition);
        let from = tail.next();
        let assigned = blocking(move || follower.assign(place, from, held)).await?;
        let (mut following, queue) =
            assigned.map_err(|error| unavailable("follow a partition", &error))?;
        let task = tokio::spawn(receive(queue, tail.clone()));
        following.task = Some(task.abort_handle());
        Ok(following)
    }

    fn assign(
        self: Arc<Self>,
        place: Place,
        from: Offset,
        tail: Weak<Tail>,
    ) -> Result<(Following, Ending<StreamPartitionQueue<Context>>), KafkaError> {
        let mut table = self.assigned.0.lock();
        if table.places.remove(&place).is_some() {
            self.consumer.incremental_unassign(&list(&place, None)?)?;
        }
        let queue = self.consumer.split_partition_queue(&place.0, place.1);
        let queue = queue.ok_or(KafkaError::Subscription("no such partition".to_owned()))?;
        let queue = Ending::new(queue);
        self.consumer.incremental_assign(&list(&place, Some(from))?)?;
        table.made += 1;
        let number = table.made;
        table.places.insert(place.clone(), (number, tail));
        drop(table);
        Ok((Following { follower: self, place, number, task: None }, queue))
    }

    /// Whether no broker could be reached since somebody last heard of one.
    pub(super) fn is_down(&self) -> bool {
        self.context.said().is_down()
    }

    /// Some broker answered.
    pub(super) fn is_up(&self) {
        self.context.said().set_down(false);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.main.abort();
    }
}

impl Following {
    pub(super) fn follower(&self) -> &Follower {
        &self.follower
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        let (consumer, assigned) = (self.follower.consumer.clone(), self.follower.assigned.clone());
        let (place, number) = (self.place.clone(), self.number);
        let unassign = move || {
            let mut table = assigned.0.lock();
            if table.places.get(&place).is_none_or(|(held, _)| *held != number) {
                return;
            }
            table.places.remove(&place);
            let unassigned =
                list(&place, None).and_then(|list| consumer.incremental_unassign(&list));
            if let Err(error) = unassigned {
                tracing::warn!(%error, topic = &*place.0, "could not stop following a partition");
            }
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn_blocking(unassign));
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

/// Takes what comes for the client as a whole.
async fn serve(consumer: Ending<Arc<Consumer>>, context: Context, assigned: Arc<Assigned>) {
    loop {
        let received = tokio::select! {
            topic = context.said().next_remade() => {
                assigned.break_off(&topic, None);
                continue;
            }
            received = consumer.recv() => received,
        };
        match received {
            // It came past its own queue: its tail would have a hole.
            Ok(message) => assigned.break_off(message.topic(), Some(message.partition())),
            Err(error) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
                    context.said().set_down(true);
                }
                context.error(error, "follower");
            }
        }
        tokio::task::yield_now().await;
    }
}

impl Assigned {
    /// Breaks the tails of a topic, or of one partition of it.
    fn break_off(&self, topic: &str, partition: Option<i32>) {
        let table = self.0.lock();
        for ((name, number), (_, tail)) in &table.places {
            let is_meant = &**name == topic && partition.is_none_or(|wanted| wanted == *number);
            if let Some(tail) = tail.upgrade().filter(|_| is_meant) {
                tail.break_off(remade(&tail));
            }
        }
    }
}

fn remade(tail: &Tail) -> Error {
    let at = tail.at;
    let message = format!("log {at} was made anew under its readers; bootstrap anew");
    Error::token_lost(message).with_partition(at.partition)
}

/// Fills a partition's tail until its queue says that it cannot go on.
async fn receive(queue: Ending<StreamPartitionQueue<Context>>, tail: Arc<Tail>) {
    loop {
        match queue.recv().await {
            Ok(message) => tail.push(record(&message)),
            Err(error) => match broken(&error, &tail) {
                Some(error) => return tail.break_off(error),
                None => tracing::debug!(%error, "a partition's queue"),
            },
        }
        tokio::task::coop::consume_budget().await;
    }
}

/// Why a tail cannot go on after an error; `None` when librdkafka goes on by itself.
fn broken(error: &KafkaError, tail: &Tail) -> Option<Error> {
    use RDKafkaErrorCode as Code;
    let at = tail.at;
    let error = match error.rdkafka_error_code() {
        Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut) => {
            return None;
        }
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => {
            let message = format!("log {at} moved under its readers ({error}); bootstrap anew");
            Error::token_lost(message)
        }
        _ => unavailable(&format!("follow log {at}"), error),
    };
    Some(error.with_partition(at.partition))
}

/// A record of the log; whatever else stands in the topic is one too, and skipped by its readers.
pub(super) fn record(message: &BorrowedMessage<'_>) -> LogRecord {
    LogRecord {
        offset: Offset(u64::try_from(message.offset()).unwrap_or(0)),
        append_time: time_of(message.timestamp()),
        entry: message.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
    }
}
