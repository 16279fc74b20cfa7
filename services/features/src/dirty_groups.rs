//! The dirty set of one partition: changed groups that the fold notes and the materializer takes.
//! The shard's rows list all of them; memory holds a bounded number.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::id::Position;
use parking_lot::Mutex;

/// Maximum number of groups in memory; only the shard's rows list the rest.
const AT_HAND_MAX: usize = 64 * 1024;

/// Changes of a group since its last materialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupChange {
    /// Position of the last change.
    pub(crate) position: Position,
    /// The partition's time at the first change since the last materialization.
    pub(crate) time: Timestamp,
}

impl GroupChange {
    /// Merges two changes.
    pub(crate) fn and(self, other: Self) -> Self {
        let (position, time) = (self.position.max(other.position), self.time.min(other.time));
        Self { position, time }
    }
}

/// A group that was materialized.
#[derive(Clone, Debug)]
pub(crate) struct MaterializedGroup {
    pub(crate) group: Vec<u8>,
    /// Position up to which the materialization includes the changes.
    pub(crate) position: Position,
    /// Time at which a window's values change even if no event arrives.
    pub(crate) next: Option<Timestamp>,
}

/// State shared between the fold of a partition and its materializer.
#[derive(Debug, Default)]
pub(crate) struct DirtyGroups(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    changed: BTreeMap<Vec<u8>, GroupChange>,
    /// Whether the shard has rows of groups that are not in memory.
    is_more: bool,
    materialized: Vec<MaterializedGroup>,
    /// Lower bound of the next time at which values change without an event.
    next_timer_at: Timestamp,
}

impl Default for Inner {
    /// Returns a state in which the shard may list groups that an earlier process has left.
    fn default() -> Self {
        let next_timer_at = Timestamp::MIN;
        Self { changed: BTreeMap::new(), is_more: true, materialized: Vec::new(), next_timer_at }
    }
}

impl DirtyGroups {
    /// Records a changed group that the shard has written.
    pub(crate) fn note(&self, group: &[u8], changed: GroupChange) {
        let mut inner = self.0.lock();
        let is_full = inner.changed.len() >= AT_HAND_MAX;
        match inner.changed.get_mut(group) {
            Some(change) => *change = change.and(changed),
            None if is_full => inner.is_more = true,
            None => {
                inner.changed.insert(group.to_vec(), changed);
            }
        }
    }

    /// Takes at most `at_most` groups to materialize.
    pub(crate) fn take(&self, at_most: usize) -> Vec<(Vec<u8>, GroupChange)> {
        let mut inner = self.0.lock();
        let mut groups = Vec::with_capacity(at_most.min(inner.changed.len()));
        while groups.len() < at_most {
            let Some(first) = inner.changed.pop_first() else { break };
            groups.push(first);
        }
        groups
    }

    /// Returns whether the shard must be read for more groups, and resets the flag; the caller sets
    /// it again with [`DirtyGroups::note_more`] if the shard has more groups than were read.
    pub(crate) fn take_more(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_more)
    }

    /// Records that the shard has rows of groups that are not in memory.
    pub(crate) fn note_more(&self) {
        self.0.lock().is_more = true;
    }

    /// Records materialized groups: the fold removes their rows with its next entry.
    pub(crate) fn note_materialized(&self, materialized: Vec<MaterializedGroup>) {
        self.0.lock().materialized.extend(materialized);
    }

    /// Returns the lower bound of the next time at which values change without an event.
    pub(crate) fn next_timer_at(&self) -> Timestamp {
        self.0.lock().next_timer_at
    }

    /// Records that the shard has no such time before this one.
    pub(crate) fn note_next_timer_at(&self, moment: Timestamp) {
        self.0.lock().next_timer_at = moment;
    }

    /// Takes the groups materialized since the last call.
    pub(crate) fn take_materialized(&self) -> Vec<MaterializedGroup> {
        std::mem::take(&mut self.0.lock().materialized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_waits_from_its_first_change_to_its_last() {
        let dirty = DirtyGroups::default();
        assert!(dirty.take_more() && !dirty.take_more());
        let change_at = |index_in_entry, time| GroupChange {
            position: Position { index_in_entry, ..Position::default() },
            time: Timestamp::from_micros(time),
        };
        dirty.note(b"b", change_at(1, 10));
        dirty.note(b"a", change_at(2, 20));
        dirty.note(b"b", change_at(3, 30));
        assert_eq!(dirty.take(1), [(b"a".to_vec(), change_at(2, 20))]);
        assert_eq!(dirty.take(9), [(b"b".to_vec(), change_at(3, 10))]);
        assert!(dirty.take(9).is_empty());
    }
}
