//! How a log on Kafka is opened.

use std::time::Duration;

/// How a log on Kafka is opened.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// Addresses of some of the brokers, joined by commas.
    pub bootstrap_servers: String,
    /// Every topic of this log starts with it: `PREFIX.control`, `PREFIX.store-7`.
    pub topic_prefix: String,
    /// For development: one replica is enough, so that an acknowledged entry may be lost with one
    /// broker.
    pub dev: bool,
    /// Replicas of the topics that this log makes: 3 unless set, 1 for development.
    pub replication_factor: u16,
    /// An entry that is not acknowledged after this time ends with an unknown outcome; 10 s unless
    /// set.
    pub append_timeout: Duration,
    /// Longest wait for any other answer of the brokers; 8 s unless set, below what readers give
    /// their log.
    pub call_timeout: Duration,
    /// Readers, connections and cached entries that nobody uses are let go of after this time;
    /// 30 s unless set.
    pub idle_timeout: Duration,
    /// Newest entries that one partition keeps in memory for readers at its tail, in bytes; 1 MiB
    /// unless set.
    pub tail_cache_bytes: usize,
    /// The same for all partitions together, in bytes; 64 MiB unless set.
    pub tail_cache_total_bytes: usize,
}

impl KafkaOptions {
    /// The options of production: three replicas, of which two acknowledge.
    pub fn new(bootstrap_servers: impl Into<String>, topic_prefix: impl Into<String>) -> Self {
        Self {
            bootstrap_servers: bootstrap_servers.into(),
            topic_prefix: topic_prefix.into(),
            dev: false,
            replication_factor: 3,
            append_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(8),
            idle_timeout: Duration::from_secs(30),
            tail_cache_bytes: 1024 * 1024,
            tail_cache_total_bytes: 64 * 1024 * 1024,
        }
    }

    /// The options of development: one broker is enough.
    pub fn dev(bootstrap_servers: impl Into<String>, topic_prefix: impl Into<String>) -> Self {
        let production = Self::new(bootstrap_servers, topic_prefix);
        Self { dev: true, replication_factor: 1, ..production }
    }

    /// Replicas that must have an entry before it is acknowledged.
    pub(super) fn in_sync_min(&self) -> u16 {
        if self.dev { 1 } else { 2 }
    }
}
