//! Options of a log on Kafka.

use std::time::Duration;

/// Options of a log on Kafka.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// Addresses of some of the brokers, separated by commas.
    pub bootstrap_servers: String,
    /// Prefix of every topic of this log: `PREFIX.control`, `PREFIX.store-7`.
    pub topic_prefix: String,
    /// Development mode: one replica is enough, so that the loss of one broker may lose an
    /// acknowledged entry.
    pub dev: bool,
    /// Replicas of the topics that this log creates; default 3, in development mode 1.
    pub replication_factor: u16,
    /// Time after which an unacknowledged entry ends with an unknown outcome; default 10 s.
    pub append_timeout: Duration,
    /// Longest wait for any other answer of the brokers; default 8 s, below the time that readers
    /// give their log.
    pub call_timeout: Duration,
    /// Time after which idle readers, connections and cached entries are dropped; default 30 s.
    pub idle_timeout: Duration,
    /// Limit of the newest entries that one partition caches in memory for readers at its tail, in
    /// bytes; default 1 MiB.
    pub tail_cache_bytes: usize,
    /// Limit of these caches for all partitions together, in bytes; default 64 MiB.
    pub tail_cache_total_bytes: usize,
}

impl KafkaOptions {
    /// Returns the options for production: three replicas, of which two acknowledge.
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

    /// Returns the options for development: one broker is enough.
    pub fn dev(bootstrap_servers: impl Into<String>, topic_prefix: impl Into<String>) -> Self {
        let production = Self::new(bootstrap_servers, topic_prefix);
        Self { dev: true, replication_factor: 1, ..production }
    }

    /// Returns the number of replicas that must have an entry before it is acknowledged.
    pub(super) fn in_sync_min(&self) -> u16 {
        if self.dev { 1 } else { 2 }
    }
}
