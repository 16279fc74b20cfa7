//! Detects topics that were recreated under this process. An append must not continue in a
//! recreated topic: its entry would carry the id of the deleted log, and every reader would skip
//! the entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use parking_lot::Mutex;

/// Topic ids as reported by all clients of one log.
#[derive(Clone, Default)]
pub(super) struct TopicIncarnations(Arc<Mutex<ReportedTopics>>);

#[derive(Default)]
struct ReportedTopics {
    topics: BTreeMap<String, TopicIncarnation>,
    /// Number of topic recreations at the last append to each partition.
    appended: BTreeMap<PartitionRef, u64>,
}

#[derive(Default)]
struct TopicIncarnation {
    /// Last id of the topic; each client reports it at its own time.
    id: String,
    recreations: u64,
    /// Whether this process removed the topic, so that the next id is expected.
    is_removed: bool,
}

impl TopicIncarnations {
    /// Notes that a client reports a new id of a topic it knew under another id.
    pub(super) fn note(&self, topic: &str, id: &str) {
        let mut state = self.0.lock();
        let incarnation = state.topics.entry(topic.to_owned()).or_default();
        if incarnation.id != id {
            incarnation.id = id.to_owned();
            incarnation.recreations += u64::from(!std::mem::take(&mut incarnation.is_removed));
        }
    }

    /// Notes that this process is about to remove a topic.
    pub(super) fn remove(&self, topic: &str) {
        self.0.lock().topics.entry(topic.to_owned()).or_default().is_removed = true;
    }

    /// Starts an append. The first append to each partition after a topic was recreated fails, so
    /// that its sender looks at the log again.
    ///
    /// # Errors
    /// `Unavailable`: nothing was appended.
    pub(super) fn begin(&self, at: PartitionRef, topic: &str) -> Result<u64> {
        let mut state = self.0.lock();
        let recreations = state.recreations(topic);
        let previous = state.appended.insert(at, recreations).unwrap_or(recreations);
        if previous == recreations {
            return Ok(recreations);
        }
        let message = "the topic was deleted and recreated, and its records are lost; look up the \
            log's id again, then append";
        Err(Error::unavailable(message).with_partition(at.partition))
    }

    /// Returns whether the topic is still the one that an append started with.
    pub(super) fn is_same(&self, topic: &str, incarnation: u64) -> bool {
        self.recreations(topic) == incarnation
    }

    /// Returns how often a topic was recreated, as far as any client has reported.
    pub(super) fn recreations(&self, topic: &str) -> u64 {
        self.0.lock().recreations(topic)
    }
}

impl ReportedTopics {
    fn recreations(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |incarnation| incarnation.recreations)
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::id::{PartitionId, StoreId};

    use super::*;

    const TOPIC: &str = "a.store-7";
    const AT: PartitionRef = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
    const BESIDE: PartitionRef = PartitionRef { store: StoreId(7), partition: PartitionId(1) };

    #[test]
    fn each_partition_of_a_recreated_topic_is_refused_exactly_once() {
        let incarnations = TopicIncarnations::default();
        let incarnation = incarnations.begin(AT, TOPIC).unwrap();
        incarnations.begin(BESIDE, TOPIC).unwrap();
        incarnations.note(TOPIC, "second");
        assert!(!incarnations.is_same(TOPIC, incarnation));
        for at in [AT, BESIDE] {
            assert_eq!(incarnations.begin(at, TOPIC).unwrap_err().code(), ErrorCode::Unavailable);
            incarnations.note(TOPIC, "second");
            let incarnation = incarnations.begin(at, TOPIC).unwrap();
            assert!(incarnations.is_same(TOPIC, incarnation));
        }
    }

    #[test]
    fn topic_removed_by_this_log_is_no_recreation() {
        let incarnations = TopicIncarnations::default();
        incarnations.begin(AT, TOPIC).unwrap();
        incarnations.remove(TOPIC);
        incarnations.note(TOPIC, "second");
        incarnations.begin(AT, TOPIC).unwrap();
        incarnations.note(TOPIC, "third");
        incarnations.begin(AT, TOPIC).unwrap_err();
    }
}
