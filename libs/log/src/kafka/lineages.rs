//! Which topics were made anew under us, so that no append goes on in one as if nothing had
//! happened: its entry would carry the id of the log that is gone, and every reader skips it.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use parking_lot::Mutex;

/// What all clients of one log have heard of its topics.
#[derive(Clone, Default)]
pub(super) struct Lineages(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    topics: BTreeMap<String, Lineage>,
    /// How often its topic had been made anew when a partition was last appended to.
    appended: BTreeMap<PartitionRef, u64>,
}

#[derive(Default)]
struct Lineage {
    /// The id that the topic got last; every client hears of it in its own time.
    id: String,
    remade: u64,
    /// We removed the topic ourselves: its next id is no surprise.
    is_removed: bool,
}

impl Lineages {
    /// A client says that a topic has this id now, and had another one before.
    pub(super) fn note(&self, topic: &str, id: &str) {
        let mut heard = self.0.lock();
        let lineage = heard.topics.entry(topic.to_owned()).or_default();
        if lineage.id != id {
            lineage.id = id.to_owned();
            lineage.remade += u64::from(!std::mem::take(&mut lineage.is_removed));
        }
    }

    /// We are about to remove a topic.
    pub(super) fn remove(&self, topic: &str) {
        self.0.lock().topics.entry(topic.to_owned()).or_default().is_removed = true;
    }

    /// Begins an append. The first one to each partition after its topic was made anew is refused,
    /// so that its sender looks at the log again.
    ///
    /// # Errors
    /// `Unavailable`: nothing was appended.
    pub(super) fn begin(&self, at: PartitionRef, topic: &str) -> Result<u64> {
        let mut heard = self.0.lock();
        let remade = heard.remade(topic);
        let before = heard.appended.insert(at, remade).unwrap_or(remade);
        if before == remade {
            return Ok(remade);
        }
        let message = "the topic was deleted and made anew, and what was in it is lost; look at \
                       the log again, then append";
        Err(Error::unavailable(message).with_partition(at.partition))
    }

    /// Whether the topic is still the one that an append began with.
    pub(super) fn is_same(&self, topic: &str, begun: u64) -> bool {
        self.remade(topic) == begun
    }

    /// How often a topic was made anew under us, as far as any client has heard.
    pub(super) fn remade(&self, topic: &str) -> u64 {
        self.0.lock().remade(topic)
    }
}

impl Heard {
    fn remade(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |lineage| lineage.remade)
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
    fn each_partition_is_refused_once_however_many_clients_hear_of_it() {
        let lineages = Lineages::default();
        let begun = lineages.begin(AT, TOPIC).unwrap();
        lineages.begin(BESIDE, TOPIC).unwrap();
        lineages.note(TOPIC, "second");
        assert!(!lineages.is_same(TOPIC, begun));
        for at in [AT, BESIDE] {
            assert_eq!(lineages.begin(at, TOPIC).unwrap_err().code(), ErrorCode::Unavailable);
            lineages.note(TOPIC, "second");
            let begun = lineages.begin(at, TOPIC).unwrap();
            assert!(lineages.is_same(TOPIC, begun));
        }
    }

    #[test]
    fn a_topic_that_we_removed_ourselves_is_no_surprise() {
        let lineages = Lineages::default();
        lineages.begin(AT, TOPIC).unwrap();
        lineages.remove(TOPIC);
        lineages.note(TOPIC, "second");
        lineages.begin(AT, TOPIC).unwrap();
        lineages.note(TOPIC, "third");
        lineages.begin(AT, TOPIC).unwrap_err();
    }
}
