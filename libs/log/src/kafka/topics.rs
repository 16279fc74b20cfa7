//! Finds the topic that stores a store's logs, and checks its settings.
//!
//! A topic is looked up at its first use and after every error; in between, the result is cached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::id::{PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, ErrorCode, Result};
use futures::future::try_join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::KafkaOptions;
use super::admin::{Admin, TopicMetadata};
use super::settings::{check_broker, check_topic, of_new_topic};
use crate::change_log::{check_same_count, no_such_log};

/// Interval between lookups of a topic that is being created or removed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for a topic to appear with all its leaders, or to disappear.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which the brokers must not know a topic that this process had found, before the topic
/// counts as deleted: a broker that has just started answers before it knows all topics.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// The topics of this log.
pub(super) struct Topics {
    admin: Admin,
    options: KafkaOptions,
    stores: Mutex<BTreeMap<StoreId, Arc<Lookup>>>,
    /// Stores whose topic was found, with the time since which the brokers have not known it.
    found: Mutex<BTreeMap<StoreId, Option<Instant>>>,
    lookups: AtomicU64,
}

/// Result of the lookup of a store's topic. The lock is fair: tasks get it in the order of their
/// requests, so appends keep their order.
pub(super) type Lookup = tokio::sync::Mutex<Option<Topic>>;

/// A topic that was looked up and has the required settings.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// Number of the lookup; another lookup may have found another topic.
    pub(super) look: u64,
    partitions: u32,
}

impl Topic {
    /// Returns Kafka's number of a partition, if the topic has it.
    pub(super) fn number(&self, at: PartitionRef) -> Result<i32> {
        let number = i32::try_from(at.partition.0).ok();
        let number = number.filter(|_| at.partition.0 < self.partitions);
        number.ok_or_else(|| no_such_log(at))
    }
}

/// Parses the store from a topic's name; returns `None` for the control log and for other topics.
pub(super) fn store_of(topic_prefix: &str, topic: &str) -> Option<StoreId> {
    let number = topic.strip_prefix(topic_prefix)?.strip_prefix(".store-")?;
    number.parse().ok().map(StoreId)
}

/// Returns the topic name of a store.
pub(super) fn topic_of(topic_prefix: &str, store: StoreId) -> String {
    format!("{topic_prefix}.store-{}", store.0)
}

impl Topics {
    /// Checks the brokers and the control log, and creates the control log if it is missing.
    pub(super) async fn open(options: KafkaOptions) -> Result<Self> {
        let admin = Admin::new(&options)?;
        let (stores, found) = (Mutex::default(), Mutex::default());
        let topics = Self { admin, options, stores, found, lookups: AtomicU64::new(0) };
        let control = PartitionRef::CONTROL.store;
        let metadata = topics.admin.look(&topics.name(control)).await?;
        let brokers = metadata.brokers.iter().map(|broker| async {
            let settings = topics.admin.broker_settings(*broker).await?;
            check_broker(*broker, &settings)
        });
        try_join_all(brokers).await?;
        topics.make(control, PartitionCount(1)).await?;
        Ok(topics)
    }

    pub(super) fn admin(&self) -> &Admin {
        &self.admin
    }

    pub(super) fn options(&self) -> &KafkaOptions {
        &self.options
    }

    pub(super) fn name(&self, store: StoreId) -> String {
        let prefix = &self.options.topic_prefix;
        if store == PartitionRef::CONTROL.store {
            format!("{prefix}.control")
        } else {
            topic_of(prefix, store)
        }
    }

    /// Returns the cached lookup of a store's topic.
    pub(super) fn lookup(&self, store: StoreId) -> Arc<Lookup> {
        self.stores.lock().entry(store).or_default().clone()
    }

    /// Returns the topic of a partition's store, with checked settings.
    ///
    /// # Errors
    /// - `NotFound`.
    /// - `Unsupported`: the topic has other settings.
    /// - `Unavailable`: also in the first seconds after a known topic disappears.
    pub(super) async fn get(&self, at: PartitionRef) -> Result<Topic> {
        let lookup = self.lookup(at.store);
        let found = timeout(self.options.call_timeout, async {
            let mut found = lookup.lock().await;
            self.find(at, &mut found).await
        });
        found.await.unwrap_or_else(|_| Err(self.silence_error(at)))
    }

    /// Works like [`Topics::get`] while the caller holds the lookup.
    pub(super) async fn find(&self, at: PartitionRef, found: &mut Option<Topic>) -> Result<Topic> {
        if let Some(topic) = found {
            return Ok(topic.clone());
        }
        let name = self.name(at.store);
        let Some(metadata) = self.admin.look(&name).await?.topic else {
            self.forget(at.store);
            return Err(self.absence_error(at));
        };
        self.check(&name, &metadata).await?;
        self.found.lock().insert(at.store, None);
        let look = self.lookups.fetch_add(1, Ordering::Relaxed);
        let topic = Topic { name: name.into(), look, partitions: metadata.partitions };
        Ok(found.insert(topic).clone())
    }

    /// Returns the error for a store whose topic the brokers do not know now.
    fn absence_error(&self, at: PartitionRef) -> Error {
        let mut found = self.found.lock();
        let Some(absent_since) = found.get_mut(&at.store) else { return no_such_log(at) };
        let first_absent_at = *absent_since.get_or_insert_with(Instant::now);
        if first_absent_at.elapsed() >= GONE_AFTER {
            found.remove(&at.store);
            return no_such_log(at);
        }
        let message = "the brokers do not know a log that existed; try again: a broker may have \
            started just now";
        Error::unavailable(message).with_partition(at.partition)
    }

    /// Drops the cached lookup of a store's topic, so that the next use looks it up again.
    pub(super) fn forget(&self, store: StoreId) {
        self.stores.lock().remove(&store);
    }

    pub(super) fn silence_error(&self, at: PartitionRef) -> Error {
        let message =
            "the brokers did not answer in time; check that the brokers run, then try again";
        Error::unavailable(message).with_partition(at.partition)
    }

    async fn check(&self, name: &str, metadata: &TopicMetadata) -> Result<()> {
        let settings = self.admin.topic_settings(name).await?;
        check_topic(name, metadata.replicas, &settings, &self.options)
    }

    /// Creates a store's topic and waits until every partition has a leader. An existing topic must
    /// have the same partition count.
    pub(super) async fn make(&self, store: StoreId, count: PartitionCount) -> Result<()> {
        self.forget(store);
        let name = self.name(store);
        if self.admin.look(&name).await?.topic.is_none() {
            let settings = of_new_topic(&self.options);
            let replicas = self.options.replication_factor;
            self.admin.make_topic(&name, count.0, replicas, &settings).await?;
        }
        let creation = timeout(CHANGE_TIMEOUT, async {
            loop {
                let metadata = self.admin.look(&name).await?.topic;
                if let Some(metadata) = metadata.filter(|metadata| metadata.is_ready) {
                    check_same_count(store, PartitionCount(metadata.partitions), count)?;
                    match self.check(&name, &metadata).await {
                        // The broker that answered does not know the topic yet.
                        Err(error) if error.code() == ErrorCode::Unavailable => {}
                        checked => return checked,
                    }
                }
                sleep(LOOK_EVERY).await;
            }
        });
        creation.await.unwrap_or_else(|_| {
            let message = format!("topic {name} is not ready yet; check that the brokers run");
            Err(Error::unavailable(message))
        })?;
        // Another broker than the one that answered may not know the topic yet.
        self.found.lock().insert(store, None);
        Ok(())
    }

    /// Removes a store's topic and waits until the brokers no longer know it.
    pub(super) async fn remove(&self, store: StoreId) -> Result<()> {
        let name = self.name(store);
        // From here on the topic's absence is expected: waiting readers receive `NotFound`.
        self.found.lock().remove(&store);
        self.admin.remove_topic(&name).await?;
        let removal = timeout(CHANGE_TIMEOUT, async {
            while self.admin.look(&name).await?.topic.is_some() {
                sleep(LOOK_EVERY).await;
            }
            Ok(())
        });
        let removal = removal.await.unwrap_or_else(|_| {
            let message = format!("topic {name} is still being deleted; try again");
            Err(Error::unavailable(message))
        });
        self.forget(store);
        self.found.lock().remove(&store);
        removal
    }
}
