//! The tails with readers, each followed while it is read.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::KafkaOptions;
use super::follower::{Follower, TopicSubscription};
use super::tail::PartitionTail;
use super::topic_incarnations::TopicIncarnations;
use super::topics::Topic;
use crate::change_log::Bounds;
use crate::tail_cache::CacheBudget;

/// The tails of all partitions with readers.
pub(super) struct Readers {
    options: KafkaOptions,
    incarnations: TopicIncarnations,
    budget: Arc<CacheBudget>,
    tails: Mutex<BTreeMap<PartitionRef, Arc<Opening>>>,
    /// The follower, which lives as long as a tail that it follows.
    follower: Mutex<Weak<Follower>>,
}

/// Slot of a tail that is open or being opened by one of its readers.
pub(super) type Opening = OnceCell<OpenTail>;

/// An open tail and the subscription that fills it.
pub(super) struct OpenTail {
    pub(super) tail: Arc<PartitionTail>,
    following: TopicSubscription,
}

impl OpenTail {
    pub(super) fn follower(&self) -> &Follower {
        self.following.follower()
    }
}

impl Readers {
    pub(super) fn new(options: KafkaOptions, incarnations: TopicIncarnations) -> Self {
        let budget = CacheBudget::new(options.tail_cache_bytes, options.tail_cache_total_bytes);
        Self {
            options,
            incarnations,
            budget: Arc::new(budget),
            tails: Mutex::default(),
            follower: Mutex::default(),
        }
    }

    /// Returns the slot of a partition's tail, which [`Readers::open`] fills.
    pub(super) fn place(&self, at: PartitionRef) -> Arc<Opening> {
        let mut tails = self.tails.lock();
        let place = tails.entry(at).or_default();
        if place.get().is_some_and(|open| open.tail.is_spent()) {
            *place = Arc::default();
        }
        place.clone()
    }

    /// Follows a partition from the end of its log.
    pub(super) async fn open(
        &self,
        at: PartitionRef,
        topic: &Topic,
        bounds: Bounds,
    ) -> Result<OpenTail> {
        let number = topic.number(at)?;
        let tail = Arc::new(PartitionTail::new(at, bounds, self.budget.clone()));
        let call_timeout = self.options.call_timeout;
        loop {
            let follower = self.follower()?;
            if let Some(following) = follower.follow(topic, number, &tail, call_timeout).await? {
                return Ok(OpenTail { tail, following });
            }
            self.retire(&follower);
        }
    }

    fn follower(&self) -> Result<Arc<Follower>> {
        let mut weak_follower = self.follower.lock();
        if let Some(follower) = weak_follower.upgrade() {
            return Ok(follower);
        }
        let follower = Follower::start(&self.options, self.incarnations.clone())?;
        *weak_follower = Arc::downgrade(&follower);
        Ok(follower)
    }

    /// Assigns no more tails to a follower; its current tails continue.
    pub(super) fn retire(&self, follower: &Follower) {
        let mut weak_follower = self.follower.lock();
        if std::ptr::eq(weak_follower.as_ptr(), follower) {
            *weak_follower = Weak::new();
        }
    }

    /// Returns the tail of a partition, if it is open.
    pub(super) fn tail(&self, at: PartitionRef) -> Option<Arc<PartitionTail>> {
        let tails = self.tails.lock();
        tails.get(&at)?.get().map(|open| open.tail.clone())
    }

    /// Removes a slot whose tail could not be opened.
    pub(super) fn abandon(&self, at: PartitionRef) {
        let mut tails = self.tails.lock();
        if tails.get(&at).is_some_and(|place| place.get().is_none()) {
            tails.remove(&at);
        }
    }

    /// Ends the tails of a store; their readers receive the error.
    pub(super) fn break_off(&self, store: StoreId, error: impl Fn(PartitionRef) -> Error) {
        let mut removed_places = Vec::new();
        self.tails.lock().retain(|at, place| {
            if at.store == store {
                removed_places.push((*at, place.clone()));
            }
            at.store != store
        });
        for (at, place) in removed_places {
            if let Some(open) = place.get() {
                open.tail.break_off(error(at));
            }
        }
    }

    /// Ends the tails that are idle.
    pub(super) fn sweep(&self, idle_timeout: Duration) {
        let mut idle_places = Vec::new();
        self.tails.lock().retain(|_, place| match place.get() {
            Some(open) if open.tail.is_idle(idle_timeout) => {
                idle_places.push(place.clone());
                false
            }
            Some(_) => true,
            // If only the table holds the slot, no task is opening it.
            None => Arc::strong_count(place) > 1,
        });
    }
}
