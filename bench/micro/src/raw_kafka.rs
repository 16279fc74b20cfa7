//! Kafka without Forebay: a producer that waits for all in-sync replicas, on a separate topic.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::future_producer::OwnedDeliveryResult;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::nanos;
use crate::data::PARTITIONS;
use crate::latency::Latency;

/// Name of the topic.
const TOPIC: &str = "bench-raw";
/// Longest wait for the broker.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of records for each timed record, while many are in flight.
const TIMED_ONE_IN: u64 = 16;

/// A producer, and the record that it produces.
pub struct RawProducer {
    /// Producer that sends at once.
    eager: FutureProducer,
    /// Producer that waits a little to send more together, as librdkafka does by default.
    patient: FutureProducer,
    topic: String,
    record: Vec<u8>,
}

impl RawProducer {
    /// Connects, and creates the topic.
    ///
    /// # Errors
    /// Fails if the broker refuses or does not answer.
    pub async fn start(brokers: &str, record: &[u8]) -> Result<Self, String> {
        Self::start_on(brokers, (TOPIC, 1), record).await
    }

    /// Connects, and creates a topic of this name, with each partition on `replicas` brokers.
    ///
    /// # Errors
    /// Errors of [`RawProducer::start`].
    pub async fn start_on(
        brokers: &str,
        (topic, replicas): (&str, i32),
        record: &[u8],
    ) -> Result<Self, String> {
        let error_text = |error| format!("raw Kafka producer: {error}");
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("acks", "all");
        let admin: AdminClient<DefaultClientContext> = config.create().map_err(error_text)?;
        let new = NewTopic::new(topic, PARTITIONS as i32, TopicReplication::Fixed(replicas));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let topics = admin.create_topics([&new], &options).await.map_err(error_text)?;
        if let Some(Err((name, code))) = topics.into_iter().next() {
            return Err(format!("create the topic {name}: {code}"));
        }
        config.set("queue.buffering.max.messages", "1000000");
        let patient = config.create().map_err(error_text)?;
        let eager = config.set("linger.ms", "0").create().map_err(error_text)?;
        Ok(Self { eager, patient, topic: topic.to_owned(), record: record.to_vec() })
    }

    /// Produces for `turn`, at least once, each record after the previous one is acknowledged.
    ///
    /// # Errors
    /// Fails if a record is not acknowledged.
    pub async fn one_by_one(&self, turn: Duration) -> Result<(f64, Latency), String> {
        let mut latency = Latency::new()?;
        let (began, turn_nanos) = (nanos(), turn.as_nanos() as u64);
        let mut last = began;
        while latency.count() == 0 || last - began < turn_nanos {
            let sent = self.send(&self.eager, latency.count())?;
            delivered(sent.await.map_err(|_| CANCELED.to_owned())?)?;
            let now = nanos();
            latency.record(now - last);
            last = now;
        }
        Ok((latency.count() as f64 * 1e9 / (last - began).max(1) as f64, latency))
    }

    /// Produces for `turn`, at least once, with `in_flight` records in flight; then waits for all.
    ///
    /// # Errors
    /// Fails if a record is not acknowledged.
    pub async fn many(&self, in_flight: usize, turn: Duration) -> Result<(f64, Latency), String> {
        let room = Arc::new(Semaphore::new(in_flight));
        let latency = Arc::new(Mutex::new(Latency::new()?));
        let mut waiting = FuturesUnordered::new();
        let (began, turn_nanos) = (nanos(), turn.as_nanos() as u64);
        let mut count = 0;
        while count == 0 || nanos() - began < turn_nanos {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
            let sent = self.send(&self.patient, count)?;
            let timed = (count % TIMED_ONE_IN == 0).then(|| (nanos(), Arc::clone(&latency)));
            waiting.push(tokio::spawn(await_delivery(sent, permit, timed)));
            count += 1;
            while let Some(Some(delivery)) = futures::FutureExt::now_or_never(waiting.next()) {
                delivery.map_err(|error| error.to_string())??;
            }
        }
        while let Some(delivery) = waiting.next().await {
            delivery.map_err(|error| error.to_string())??;
        }
        let rate = count as f64 * 1e9 / (nanos() - began).max(1) as f64;
        let latency = latency.lock().clone();
        Ok((rate, latency))
    }

    /// Makes calls from `clients` clients for `turn`, at least one each. A call is a number of
    /// records at once, each to the next partition, and ends when all are acknowledged. The rate is
    /// of calls.
    ///
    /// # Errors
    /// Fails if a record is not acknowledged.
    pub async fn calls(
        &self,
        clients: usize,
        records: u64,
        turn: Duration,
    ) -> Result<(f64, Latency), String> {
        Latency::of_clients(clients as u64, turn, async |place, count| {
            let first = place + count * records;
            let call = (0..records).map(|record| self.send(&self.eager, first + record));
            for sent in call.collect::<Result<Vec<_>, _>>()? {
                delivered(sent.await.map_err(|_| CANCELED.to_owned())?)?;
            }
            Ok(())
        })
        .await
    }

    fn send(&self, producer: &FutureProducer, number: u64) -> Result<DeliveryFuture, String> {
        let record = FutureRecord::<(), [u8]>::to(&self.topic)
            .partition((number % u64::from(PARTITIONS)) as i32)
            .payload(self.record.as_slice());
        producer.send_result(record).map_err(|(error, _)| format!("produce: {error}"))
    }
}

const CANCELED: &str = "the producer ended before the record was acknowledged";

async fn await_delivery(
    sent: DeliveryFuture,
    _room: OwnedSemaphorePermit,
    timed: Option<(u64, Arc<Mutex<Latency>>)>,
) -> Result<(), String> {
    delivered(sent.await.map_err(|_| CANCELED.to_owned())?)?;
    if let Some((began, latency)) = timed {
        latency.lock().record(nanos() - began);
    }
    Ok(())
}

fn delivered(result: OwnedDeliveryResult) -> Result<(), String> {
    result.map(|_| ()).map_err(|(error, _)| format!("produce: {error}"))
}
