//! Shared parts of the tests on Kafka: brokers, topics of each test, and direct administration of
//! Kafka.

use std::sync::OnceLock;
use std::time::Duration;

use forebay::schema::StoreId;
use forebay_testkit::brokers::Brokers;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::daemon::{Daemon, LONG};

/// The smallest staleness bound of a read: the default heartbeat interval is one second.
pub const HEARTBEATS_TWO: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

static SHARED: OnceLock<Brokers> = OnceLock::new();

/// Topics of one test.
pub struct World {
    pub brokers: String,
    pub prefix: String,
    /// Folder of the node's shards.
    data: tempfile::TempDir,
}

impl World {
    /// Creates a world on the broker that all tests share.
    pub fn new(prefix: &str) -> Self {
        let brokers = SHARED.get_or_init(|| Brokers::start(1).unwrap());
        Self::on(brokers, prefix)
    }

    /// Creates a world on the test's own broker.
    pub fn on(brokers: &Brokers, prefix: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        Self { brokers: brokers.bootstrap(), prefix: prefix.to_owned(), data }
    }

    pub fn arguments(&self) -> [&str; 8] {
        let data_dir = self.data.path().to_str().unwrap();
        let (brokers, prefix) = (self.brokers.as_str(), self.prefix.as_str());
        [
            "--change-log",
            "kafka",
            "--brokers",
            brokers,
            "--topic-prefix",
            prefix,
            "--data-dir",
            data_dir,
        ]
    }

    pub fn forebayd(&self, listen: &str) -> Daemon {
        Daemon::start(&self.arguments(), listen)
    }

    pub fn topic(&self, store: StoreId) -> String {
        format!("{}.store-{}", self.prefix, store.0)
    }

    /// Produces a record directly into a topic; `None` is a record without a value.
    pub async fn produce(&self, topic: &str, partition: u32, value: Option<&[u8]>) {
        let producer: FutureProducer = self.config().create().unwrap();
        let mut record = FutureRecord::<(), [u8]>::to(topic).partition(partition as i32);
        record.payload = value;
        producer.send(record, LONG).await.map_err(|(error, _)| error).unwrap();
    }

    /// Creates a topic with the settings of the change log, and these overrides.
    pub async fn make_topic(&self, topic: &str, partitions: u32, overrides: &[(&str, &str)]) {
        let mut wanted = NewTopic::new(topic, partitions as i32, TopicReplication::Fixed(1))
            .set("message.timestamp.type", "LogAppendTime")
            .set("retention.ms", "-1")
            .set("retention.bytes", "-1")
            .set("compression.type", "uncompressed");
        for (name, value) in overrides {
            wanted = wanted.set(name, value);
        }
        let made = self.admin().create_topics([&wanted], &AdminOptions::new()).await.unwrap();
        made[0].as_ref().unwrap();
    }

    pub async fn delete_topic(&self, topic: &str) {
        let gone = self.admin().delete_topics(&[topic], &AdminOptions::new()).await.unwrap();
        gone[0].as_ref().unwrap();
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().unwrap()
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }
}

/// Waits until a condition is true.
pub async fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}
