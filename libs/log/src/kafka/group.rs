//! A group of processes among which the brokers divide the partitions of stores.
//!
//! The group is a Kafka consumer group whose consumers read nothing: the assignment of a consumer
//! is the set of partitions that its process owns. Before a partition moves to another process,
//! this process releases it, unless that takes too long. Two owners of one partition for a moment
//! do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::partition::xxh3_64;
use forebay_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::KafkaOptions;
use super::assignments::assigned_to;
use super::client::{base_config, blocking, creation_error, unavailable};
use super::topics::{store_of, topic_of};
use crate::membership::{Membership, PartitionAssignment};

/// Interval between two checks for the end of the process's membership.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for which the brokers' answer about owners is cached.
const OWNERS_FRESH: Duration = Duration::from_millis(500);
/// Longest wait for the release of a partition that moves to another process.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// A member of a group. Dropping it leaves the group.
pub struct KafkaGroup {
    shared: Arc<GroupState>,
    consumer: Arc<BaseConsumer<Member>>,
    owners: KafkaOwners,
    /// Thread that polls the client and runs its rebalance callbacks.
    thread: Option<JoinHandle<()>>,
}

/// A client that asks the brokers which members of a group own which partitions.
pub struct KafkaOwners {
    consumer: Arc<BaseConsumer<Member>>,
    topic_prefix: String,
    group: String,
    call_timeout: Duration,
    /// Last answer of the brokers.
    answer: tokio::sync::Mutex<KnownOwners>,
}

#[derive(Default)]
struct KnownOwners {
    requested_at: Option<Instant>,
    owners: BTreeMap<PartitionRef, String>,
}

impl KafkaOwners {
    /// Returns the name of the member that owns a partition; `None` if the partition has no owner
    /// now.
    ///
    /// # Errors
    /// `Unavailable` if the brokers do not answer.
    pub async fn owner(&self, at: PartitionRef) -> Result<Option<String>> {
        let mut answer = self.answer.lock().await;
        if answer.requested_at.is_none_or(|requested_at| requested_at.elapsed() >= OWNERS_FRESH) {
            let (consumer, prefix) = (Arc::clone(&self.consumer), self.topic_prefix.clone());
            let (group, wait_max) = (self.group.clone(), self.call_timeout);
            let asking = blocking(move || ask_owners(&consumer, &group, &prefix, wait_max));
            *answer = KnownOwners { requested_at: Some(Instant::now()), owners: asking.await?? };
        }
        Ok(answer.owners.get(&at).cloned())
    }
}

struct GroupState {
    topic_prefix: String,
    assignment: watch::Sender<PartitionAssignment>,
    /// Partitions whose duties the process still has, as last acknowledged.
    acknowledged: Mutex<PartitionAssignment>,
    acknowledged_changed: Condvar,
    /// Stores that the process has subscribed to.
    stores: Mutex<BTreeSet<StoreId>>,
    is_over: AtomicBool,
}

/// Callbacks of the brokers' client.
struct Member(Arc<GroupState>);

impl KafkaGroup {
    /// Joins the group of this name among the processes of a log. Other members see this member
    /// under `name`. `instance` is stable over restarts: a member that returns in time under the
    /// same name keeps its partitions, and no other partition moves.
    ///
    /// # Errors
    /// `Internal` if the client cannot be created.
    pub fn join(options: &KafkaOptions, group: &str, name: &str, instance: &str) -> Result<Self> {
        let shared = Arc::new(GroupState {
            topic_prefix: options.topic_prefix.clone(),
            assignment: watch::Sender::new(PartitionAssignment::Only(BTreeSet::new())),
            acknowledged: Mutex::new(PartitionAssignment::Only(BTreeSet::new())),
            acknowledged_changed: Condvar::new(),
            stores: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let mut config = base_config(options);
        let group_id = group_id(&options.topic_prefix, group);
        // The brokers keep the name that an instance joined with first; a process that moved to
        // another address must therefore be another instance.
        let instance = format!("{instance}-{:016x}", xxh3_64(name.as_bytes()));
        for (name, value) in [
            ("group.id", group_id.as_str()),
            ("client.id", name),
            ("group.instance.id", instance.as_str()),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("session.timeout.ms", "6000"),
            ("heartbeat.interval.ms", "1000"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "latest"),
            ("fetch.message.max.bytes", "1024"),
            ("queued.min.messages", "1"),
            // A short interval finds recently created stores.
            ("topic.metadata.refresh.interval.ms", "1000"),
        ] {
            config.set(name, value);
        }
        let member = Member(Arc::clone(&shared));
        let consumer = config.create_with_context::<_, BaseConsumer<Member>>(member);
        let consumer = Arc::new(consumer.map_err(|error| creation_error("group member", &error))?);
        let (polled_consumer, polled_shared) = (Arc::clone(&consumer), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("forebay-group".to_owned());
        let thread =
            thread.spawn(move || poll(&polled_consumer, &polled_shared)).map_err(|error| {
                Error::internal(format!("the thread of a group member did not start: {error}"))
            })?;
        let owners = KafkaOwners {
            consumer: Arc::clone(&consumer),
            topic_prefix: options.topic_prefix.clone(),
            group: group_id,
            call_timeout: options.call_timeout,
            answer: tokio::sync::Mutex::default(),
        };
        Ok(Self { shared, consumer, owners, thread: Some(thread) })
    }

    /// Returns the owners of the partitions in another group of the same log.
    pub fn owners_of(&self, group: &str) -> KafkaOwners {
        KafkaOwners {
            consumer: Arc::clone(&self.consumer),
            topic_prefix: self.owners.topic_prefix.clone(),
            group: group_id(&self.owners.topic_prefix, group),
            call_timeout: self.owners.call_timeout,
            answer: tokio::sync::Mutex::default(),
        }
    }
}

#[async_trait]
impl Membership for KafkaGroup {
    fn assignment(&self) -> watch::Receiver<PartitionAssignment> {
        self.shared.assignment.subscribe()
    }

    fn subscribe(&self, stores: &BTreeSet<StoreId>) -> Result<()> {
        let mut subscribed = self.shared.stores.lock();
        if *subscribed == *stores {
            return Ok(());
        }
        let prefix = &self.shared.topic_prefix;
        let topics: Vec<_> = stores.iter().map(|store| topic_of(prefix, *store)).collect();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let result = match topics.is_empty() {
            true => {
                self.consumer.unsubscribe();
                Ok(())
            }
            false => self.consumer.subscribe(&topics),
        };
        result.map_err(|error| unavailable("join the group of the stores", &error))?;
        subscribed.clone_from(stores);
        Ok(())
    }

    async fn owner(&self, at: PartitionRef) -> Result<Option<String>> {
        self.owners.owner(at).await
    }

    fn acknowledge_assignment(&self, assignment: &PartitionAssignment) {
        *self.shared.acknowledged.lock() = assignment.clone();
        self.shared.acknowledged_changed.notify_all();
    }
}

impl Drop for KafkaGroup {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.acknowledged_changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("group member thread panicked");
        }
    }
}

fn group_id(topic_prefix: &str, group: &str) -> String {
    format!("{topic_prefix}.{group}")
}

/// Returns the owner of each partition.
fn ask_owners(
    consumer: &BaseConsumer<Member>,
    group: &str,
    topic_prefix: &str,
    wait_max: Duration,
) -> Result<BTreeMap<PartitionRef, String>> {
    let found = consumer.fetch_group_list(Some(group), wait_max);
    let found = found.map_err(|error| unavailable("find the owner of a partition", &error))?;
    let mut owners = BTreeMap::new();
    for member in found.groups().iter().flat_map(|group| group.members()) {
        let assigned = member.assignment().and_then(|bytes| assigned_to(topic_prefix, bytes));
        let name = member.client_id();
        owners.extend(assigned.into_iter().flatten().map(|at| (at, name.to_owned())));
    }
    Ok(owners)
}

fn poll(consumer: &BaseConsumer<Member>, shared: &GroupState) {
    while !shared.is_over.load(Ordering::Acquire) {
        match consumer.poll(LOOK_EVERY) {
            None | Some(Ok(_)) => {}
            Some(Err(error)) => debug!(%error, "group member received an error"),
        }
    }
    consumer.unsubscribe();
}

impl GroupState {
    /// Returns the partitions of a list.
    fn partitions(&self, list: &TopicPartitionList) -> BTreeSet<PartitionRef> {
        let elements = list.elements();
        let partitions = elements.iter().filter_map(|element| {
            let store = store_of(&self.topic_prefix, element.topic())?;
            let partition = PartitionId(u32::try_from(element.partition()).ok()?);
            Some(PartitionRef { store, partition })
        });
        partitions.collect()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<PartitionRef>)) -> BTreeSet<PartitionRef> {
        let mut now = BTreeSet::new();
        self.assignment.send_modify(|assignment| {
            if let PartitionAssignment::Only(partitions) = assignment {
                change(partitions);
                now.clone_from(partitions);
            }
        });
        now
    }

    /// Waits until the process has released these partitions.
    fn await_release(&self, revoked: &BTreeSet<PartitionRef>) {
        let deadline = Instant::now() + RELEASE_WAIT;
        let mut acknowledged = self.acknowledged.lock();
        let is_held = |acknowledged: &PartitionAssignment| match acknowledged {
            PartitionAssignment::All => true,
            PartitionAssignment::Only(acknowledged) => {
                acknowledged.intersection(revoked).next().is_some()
            }
        };
        while is_held(&acknowledged) && !self.is_over.load(Ordering::Acquire) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if self.acknowledged_changed.wait_for(&mut acknowledged, remaining).timed_out() {
                warn!("partitions reassigned before their duties ended here");
                return;
            }
        }
    }
}

impl ClientContext for Member {
    fn error(&self, error: KafkaError, reason: &str) {
        debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        let revoked = self.0.partitions(list);
        let remaining = self.0.change(|assigned| assigned.retain(|at| !revoked.contains(at)));
        info!(revoked = revoked.len(), remaining = remaining.len(), "partitions revoked");
        self.0.await_release(&revoked);
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let list = match rebalance {
            Rebalance::Assign(list) => list,
            Rebalance::Revoke(_) => return,
            Rebalance::Error(error) => {
                warn!(%error, "partition reassignment failed");
                return;
            }
        };
        // Other consumers read the records of these partitions.
        if let Err(error) = consumer.pause(list) {
            debug!(%error, "fetched partitions of a group not paused");
        }
        let added = self.0.partitions(list);
        let now = self.0.change(|assigned| assigned.extend(added.iter().copied()));
        info!(added = added.len(), now = now.len(), "partitions assigned");
    }
}
