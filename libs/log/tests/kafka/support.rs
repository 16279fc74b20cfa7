//! The broker that the tests share, a separate log for each test, and Kafka clients of other users.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::ManualClock;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_log::conformance::Fixture;
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions, LogRecord, ReadLimit};
use forebay_testkit::brokers::Brokers;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::FutureProducer;

pub const STORE: StoreId = StoreId(7);
pub const AT: PartitionRef = PartitionRef { store: STORE, partition: PartitionId(0) };
/// Longest wait for something that must happen: a guard against hanging, never a measurement.
pub const HANG_GUARD: Duration = Duration::from_secs(120);

/// Settings that the log requires of a topic.
pub const TOPIC_SETTINGS: [(&str, &str); 8] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("unclean.leader.election.enable", "false"),
    ("message.timestamp.type", "LogAppendTime"),
    ("max.message.bytes", "25165824"),
    ("compression.type", "uncompressed"),
    ("min.insync.replicas", "1"),
];

/// Returns the broker that the tests of this binary share.
pub fn broker() -> &'static Brokers {
    static BROKER: OnceLock<Brokers> = OnceLock::new();
    BROKER.get_or_init(|| Brokers::start(1).unwrap())
}

/// Returns options with a prefix that no other test uses.
pub fn options() -> KafkaOptions {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    KafkaOptions::dev(broker().bootstrap(), format!("test-{number}"))
}

pub struct KafkaFixture {
    pub options: KafkaOptions,
    pub log: Arc<KafkaLog>,
}

pub async fn fixture() -> KafkaFixture {
    let options = options();
    let log = Arc::new(KafkaLog::open(options.clone()).await.unwrap());
    KafkaFixture { options, log }
}

/// Returns a log with a store of one partition, and the name of its topic.
pub async fn store() -> (KafkaFixture, String) {
    let fixture = fixture().await;
    fixture.log.create(STORE, PartitionCount(1)).await.unwrap();
    let topic = format!("{}.store-7", fixture.options.topic_prefix);
    (fixture, topic)
}

#[async_trait]
impl Fixture for KafkaFixture {
    fn log(&self) -> Arc<dyn ChangeLog> {
        self.log.clone()
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        None
    }

    async fn reopen(&mut self) -> bool {
        self.log = Arc::new(KafkaLog::open(self.options.clone()).await.unwrap());
        true
    }
}

/// Kafka's own administration client, on the shared broker.
pub struct Admin(AdminClient<DefaultClientContext>);

impl Admin {
    pub fn new() -> Self {
        Self(client_config().create().unwrap())
    }

    /// Creates a topic with the settings that the log requires, except for `otherwise`.
    pub async fn make(&self, topic: &str, otherwise: &[(&str, &str)]) {
        let mut new_topic = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        for (name, value) in TOPIC_SETTINGS {
            let other = otherwise.iter().find(|other| other.0 == name);
            new_topic = new_topic.set(name, other.map_or(value, |other| other.1));
        }
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)));
        let results = self.0.create_topics([&new_topic], &options).await.unwrap();
        results.into_iter().next().unwrap().unwrap();
        // The controller has created the topic; the broker learns of it a moment later.
        let is_known = || {
            let metadata = self.0.inner().fetch_metadata(Some(topic), HANG_GUARD).unwrap();
            metadata.topics()[0].error().is_none()
        };
        while !is_known() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn remove(&self, topic: &str) {
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)));
        let results = self.0.delete_topics(&[topic], &options).await.unwrap();
        results.into_iter().next().unwrap().unwrap();
    }
}

pub fn client_config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker().bootstrap());
    config
}

/// Returns Kafka's own producer, on the shared broker.
pub fn producer(settings: &[(&str, &str)]) -> FutureProducer {
    let mut config = client_config();
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config.create().unwrap()
}

pub fn entry(number: u64) -> Bytes {
    Bytes::from(format!("entry {number}"))
}

pub fn at_once() -> ReadLimit {
    ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO }
}

/// Returns a limit that waits long enough for anything.
pub fn patient_limit() -> ReadLimit {
    ReadLimit { bytes_max: 1 << 20, wait_max: Duration::from_secs(100_000) }
}

/// Reads every record from an offset to the end.
pub async fn read_all(log: &dyn ChangeLog, from: Offset) -> Vec<LogRecord> {
    let mut records: Vec<LogRecord> = Vec::new();
    loop {
        let next = records.last().map_or(from, |record| record.offset.next());
        let read = log.read(AT, next, at_once()).await.unwrap();
        if read.records.is_empty() {
            return records;
        }
        records.extend(read.records);
    }
}
