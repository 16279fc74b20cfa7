//! Which topic holds a store's logs, and whether it is what the change log needs.
//!
//! A topic is looked at when it is first used and again after anything that went wrong with it;
//! in between, what was found is remembered.

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
use super::admin::{Admin, TopicSeen};
use super::settings::{check_broker, check_topic, of_new_topic};
use crate::change_log::{check_same_count, no_such_log};

/// Time between two looks at a topic that is being made or removed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for a topic to appear with all its leaders, or to be gone.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the brokers must go on not knowing a topic that this process has found before, until
/// it counts as gone: a broker that has just started answers before it knows all topics.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// The topics of this log.
pub(super) struct Topics {
    admin: Admin,
    options: KafkaOptions,
    stores: Mutex<BTreeMap<StoreId, Arc<Lookup>>>,
    /// Stores whose topic was found, and since when the brokers have not known it.
    found: Mutex<BTreeMap<StoreId, Option<Instant>>>,
    looks: AtomicU64,
}

/// What was found about a store's topic. Whoever holds the lock keeps the others out in the order
/// of their coming, which is how appends keep theirs.
pub(super) type Lookup = tokio::sync::Mutex<Option<Topic>>;

/// A topic that was looked at and is as it must be.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// Number of the look that found it: another one may have found another topic.
    pub(super) look: u64,
    partitions: u32,
}

impl Topic {
    /// Kafka's number of a partition that the topic has.
    pub(super) fn number(&self, at: PartitionRef) -> Result<i32> {
        let number = i32::try_from(at.partition.0).ok();
        let number = number.filter(|_| at.partition.0 < self.partitions);
        number.ok_or_else(|| no_such_log(at))
    }
}

/// The store of a topic of a log; `None` for the control log's, and for others.
pub(super) fn store_of(topic_prefix: &str, topic: &str) -> Option<StoreId> {
    let number = topic.strip_prefix(topic_prefix)?.strip_prefix(".store-")?;
    number.parse().ok().map(StoreId)
}

/// The topic of a store.
pub(super) fn topic_of(topic_prefix: &str, store: StoreId) -> String {
    format!("{topic_prefix}.store-{}", store.0)
}

impl Topics {
    /// Checks brokers and control log, making the latter when it is not there.
    pub(super) async fn open(options: KafkaOptions) -> Result<Self> {
        let admin = Admin::new(&options)?;
        let (stores, found) = (Mutex::default(), Mutex::default());
        let topics = Self { admin, options, stores, found, looks: AtomicU64::new(0) };
        let control = PartitionRef::CONTROL.store;
        let seen = topics.admin.look(&topics.name(control)).await?;
        let brokers = seen.brokers.iter().map(|broker| async {
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

    /// Where what is known of a store's topic is kept.
    pub(super) fn lookup(&self, store: StoreId) -> Arc<Lookup> {
        self.stores.lock().entry(store).or_default().clone()
    }

    /// The topic of a partition's store, checked.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported` for a topic with other settings, `Unavailable`, also in the first
    /// seconds of the absence of a topic that was there.
    pub(super) async fn get(&self, at: PartitionRef) -> Result<Topic> {
        let lookup = self.lookup(at.store);
        let found = timeout(self.options.call_timeout, async {
            let mut found = lookup.lock().await;
            self.find(at, &mut found).await
        });
        found.await.unwrap_or_else(|_| Err(self.silent(at)))
    }

    /// As [`Topics::get`], with the lookup held by the caller.
    pub(super) async fn find(&self, at: PartitionRef, found: &mut Option<Topic>) -> Result<Topic> {
        if let Some(topic) = found {
            return Ok(topic.clone());
        }
        let name = self.name(at.store);
        let Some(seen) = self.admin.look(&name).await?.topic else {
            self.forget(at.store);
            return Err(self.absent(at));
        };
        self.check(&name, &seen).await?;
        self.found.lock().insert(at.store, None);
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let topic = Topic { name: name.into(), look, partitions: seen.partitions };
        Ok(found.insert(topic).clone())
    }

    /// What it means that the brokers do not know a store's topic now.
    fn absent(&self, at: PartitionRef) -> Error {
        let mut found = self.found.lock();
        let Some(absent_since) = found.get_mut(&at.store) else { return no_such_log(at) };
        let since = *absent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= GONE_AFTER {
            found.remove(&at.store);
            return no_such_log(at);
        }
        let message = "the brokers do not know the log that was there; try again: one of them may \
            have started just now";
        Error::unavailable(message).with_partition(at.partition)
    }

    /// Looks anew at a store's topic the next time that it is used.
    pub(super) fn forget(&self, store: StoreId) {
        self.stores.lock().remove(&store);
    }

    pub(super) fn silent(&self, at: PartitionRef) -> Error {
        let message = "the brokers did not answer in time; see whether they run, then try again";
        Error::unavailable(message).with_partition(at.partition)
    }

    async fn check(&self, name: &str, seen: &TopicSeen) -> Result<()> {
        let settings = self.admin.topic_settings(name).await?;
        check_topic(name, seen.replicas, &settings, &self.options)
    }

    /// Makes a store's topic and waits until every partition has a leader. One that is there must
    /// have the same count.
    pub(super) async fn make(&self, store: StoreId, count: PartitionCount) -> Result<()> {
        self.forget(store);
        let name = self.name(store);
        if self.admin.look(&name).await?.topic.is_none() {
            let settings = of_new_topic(&self.options);
            let replicas = self.options.replication_factor;
            self.admin.make_topic(&name, count.0, replicas, &settings).await?;
        }
        let made = timeout(CHANGE_TIMEOUT, async {
            loop {
                let seen = self.admin.look(&name).await?.topic;
                if let Some(seen) = seen.filter(|seen| seen.is_ready) {
                    check_same_count(store, PartitionCount(seen.partitions), count)?;
                    match self.check(&name, &seen).await {
                        // The broker that was asked does not know the topic yet.
                        Err(error) if error.code() == ErrorCode::Unavailable => {}
                        checked => return checked,
                    }
                }
                sleep(LOOK_EVERY).await;
            }
        });
        made.await.unwrap_or_else(|_| {
            let message = format!("topic {name} is not ready yet; see whether the brokers run");
            Err(Error::unavailable(message))
        })?;
        // Another broker than the one that told this may not know the topic yet.
        self.found.lock().insert(store, None);
        Ok(())
    }

    /// Removes a store's topic and waits until the brokers no longer know it.
    pub(super) async fn remove(&self, store: StoreId) -> Result<()> {
        let name = self.name(store);
        // From here on its absence surprises nobody: who waits in it hears that it is gone.
        self.found.lock().remove(&store);
        self.admin.remove_topic(&name).await?;
        let gone = timeout(CHANGE_TIMEOUT, async {
            while self.admin.look(&name).await?.topic.is_some() {
                sleep(LOOK_EVERY).await;
            }
            Ok(())
        });
        let gone = gone.await.unwrap_or_else(|_| {
            let message = format!("topic {name} is being removed and not gone yet; try again");
            Err(Error::unavailable(message))
        });
        self.forget(store);
        self.found.lock().remove(&store);
        gone
    }
}
