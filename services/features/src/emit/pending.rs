//! The groups of one partition whose values are to be emitted: those that changed, as rows of the
//! shard tell, with as many of them at hand as memory is given for.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::id::Position;
use parking_lot::Mutex;

/// Groups at hand; of more the shard's rows tell.
const AT_HAND_MAX: usize = 64 * 1024;

/// A group that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Where it changed last.
    pub(crate) position: Position,
    /// The partition's time when it changed first since it was emitted.
    pub(crate) since: Timestamp,
}

impl Changed {
    /// Both changes as one.
    pub(crate) fn and(self, other: Self) -> Self {
        let (position, since) = (self.position.max(other.position), self.since.min(other.since));
        Self { position, since }
    }
}

/// A group that was emitted.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) group: Vec<u8>,
    /// Up to where it had changed.
    pub(crate) position: Position,
    /// When a window's values change though nothing comes.
    pub(crate) next: Option<Timestamp>,
}

/// What the fold of a partition and its emitter tell each other.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    changed: BTreeMap<Vec<u8>, Changed>,
    /// Whether the shard has rows of groups that are not at hand.
    is_more: bool,
    settled: Vec<Settled>,
    /// No moment at which values change by themselves lies before it.
    quiet_until: Timestamp,
}

impl Default for Inner {
    /// Of what an earlier process has left the shard tells.
    fn default() -> Self {
        let quiet_until = Timestamp::MIN;
        Self { changed: BTreeMap::new(), is_more: true, settled: Vec::new(), quiet_until }
    }
}

impl Pending {
    /// A group changed, and the shard has that.
    pub(crate) fn note(&self, group: &[u8], changed: Changed) {
        let mut inner = self.0.lock();
        let is_full = inner.changed.len() >= AT_HAND_MAX;
        match inner.changed.get_mut(group) {
            Some(held) => *held = held.and(changed),
            None if is_full => inner.is_more = true,
            None => {
                inner.changed.insert(group.to_vec(), changed);
            }
        }
    }

    /// Some groups to emit, at most so many.
    pub(crate) fn take(&self, at_most: usize) -> Vec<(Vec<u8>, Changed)> {
        let mut inner = self.0.lock();
        let mut taken = Vec::with_capacity(at_most.min(inner.changed.len()));
        while taken.len() < at_most {
            let Some(first) = inner.changed.pop_first() else { break };
            taken.push(first);
        }
        taken
    }

    /// Whether the shard is to be asked for more; to be told again by [`Pending::note_more`] where
    /// it has more than are taken of it.
    pub(crate) fn take_more(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_more)
    }

    /// The shard has rows of groups that are not at hand.
    pub(crate) fn note_more(&self) {
        self.0.lock().is_more = true;
    }

    /// These were emitted: the fold notes it with its next entry.
    pub(crate) fn settle(&self, settled: Vec<Settled>) {
        self.0.lock().settled.extend(settled);
    }

    /// Until when no moment comes at which values change by themselves, as far as is known.
    pub(crate) fn quiet_until(&self) -> Timestamp {
        self.0.lock().quiet_until
    }

    /// The shard has no such moment before this one.
    pub(crate) fn note_quiet_until(&self, moment: Timestamp) {
        self.0.lock().quiet_until = moment;
    }

    /// What was emitted since it was last asked.
    pub(crate) fn take_settled(&self) -> Vec<Settled> {
        std::mem::take(&mut self.0.lock().settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_waits_since_its_first_change_and_up_to_its_last() {
        let pending = Pending::default();
        assert!(pending.take_more() && !pending.take_more());
        let at = |place, since| Changed {
            position: Position { place, ..Position::default() },
            since: Timestamp::from_micros(since),
        };
        pending.note(b"b", at(1, 10));
        pending.note(b"a", at(2, 20));
        pending.note(b"b", at(3, 30));
        assert_eq!(pending.take(1), [(b"a".to_vec(), at(2, 20))]);
        assert_eq!(pending.take(9), [(b"b".to_vec(), at(3, 10))]);
        assert!(pending.take(9).is_empty());
    }
}
