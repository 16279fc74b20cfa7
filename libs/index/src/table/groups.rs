//! The writer's state of each group, by index, and the order in which groups are due for expiry.
//!
//! The list is split into pieces that never move: a list in one piece would be copied each time
//! that it doubles, inside one `apply`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};

use super::group_layout::GroupRef;
use crate::memory::Chunk;

/// The time of a group without expiring documents.
pub(super) const NEVER: i64 = i64::MAX;
/// Number of groups in one piece.
const PIECE: usize = 1_024;

/// The writer's state of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) chunk: Chunk,
    /// Number of top bits of the hash that the group's keys share.
    pub(super) depth: u32,
    /// Slots that are not empty.
    pub(super) filled: u32,
    /// Slots with a record.
    pub(super) live: u32,
    /// Slots that pending new keys will take.
    pub(super) reserved: u32,
    /// Whether `filled` and `live` are counted: not yet in a group of an image that was never
    /// written.
    pub(super) is_counted: bool,
    /// The time before which none of the group's documents expires.
    pub(super) expires: i64,
    /// The time at which the group is searched for expired documents, at the latest.
    pub(super) due: i64,
    /// Whether records may be written to the group's buckets: not if the buckets are in an image.
    pub(super) has_room: bool,
    /// Records of an inline group that have left their buckets since the group was created.
    pub(super) records_outside: u32,
    /// Whether the group is queued to be rebuilt.
    pub(super) is_queued: bool,
}

impl GroupState {
    /// Creates the state of a group with nothing known but its chunk and depth.
    pub(super) fn of(chunk: Chunk, depth: u32) -> Self {
        let (filled, live, reserved, is_counted) = (0, 0, 0, false);
        let (expires, due, has_room, records_outside, is_queued) = (NEVER, NEVER, true, 0, false);
        Self {
            chunk,
            depth,
            filled,
            live,
            reserved,
            is_counted,
            expires,
            due,
            has_room,
            records_outside,
            is_queued,
        }
    }

    /// Slots in use beyond which the group is split or rewritten.
    pub(super) fn filled_max(&self) -> u32 {
        GroupRef::of(&self.chunk).filled_max()
    }
}

/// The writer's state of each group.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The pieces; all but the last one are full.
    pieces: Vec<Vec<GroupState>>,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn push(&mut self, state: GroupState) {
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(state),
            None => self.pieces.push(vec![state]),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &GroupState> {
        self.pieces.iter().flatten()
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = GroupState> {
        self.pieces.into_iter().flatten()
    }
}

impl Index<usize> for Groups {
    type Output = GroupState;

    #[inline]
    fn index(&self, place: usize) -> &GroupState {
        &self.pieces[place / PIECE][place % PIECE]
    }
}

impl IndexMut<usize> for Groups {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut GroupState {
        &mut self.pieces[place / PIECE][place % PIECE]
    }
}

/// The groups with expiring documents, the next one first.
#[derive(Debug, Default)]
pub(super) struct ExpiryQueue(BinaryHeap<Reverse<(i64, u32)>>);

impl ExpiryQueue {
    /// Notes that a document of a group expires at this time.
    pub(super) fn note(&mut self, place: usize, state: &mut GroupState, expires: i64) {
        state.expires = state.expires.min(expires);
        self.plan(place, state, expires);
    }

    /// Plans the search of a group at this time, or earlier.
    pub(super) fn plan(&mut self, place: usize, state: &mut GroupState, time: i64) {
        if time < state.due {
            state.due = time;
            self.0.push(Reverse((time, place as u32)));
        }
    }

    /// Takes the next due group, whose plan ends with that.
    pub(super) fn next(&mut self, groups: &mut Groups, now: i64) -> Option<usize> {
        loop {
            let Reverse((due, place)) = *self.0.peek()?;
            if due > now {
                return None;
            }
            self.0.pop();
            let state = &mut groups[place as usize];
            // Otherwise the plan is stale: the group was later planned for an earlier time.
            if state.due == due {
                state.due = NEVER;
                return Some(place as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{CHUNK_BYTES_MIN, Chunk};

    #[test]
    fn groups_are_found_by_index() {
        let address = |place: usize| (1 << 21) + place as u64 * CHUNK_BYTES_MIN;
        let mut groups = Groups::default();
        assert!(groups.is_empty());
        for place in 0..2 * PIECE + 3 {
            assert_eq!(groups.len(), place);
            let chunk = Chunk::from_image(address(place), CHUNK_BYTES_MIN).unwrap();
            groups.push(GroupState::of(chunk, 0));
        }
        for place in [0, PIECE - 1, PIECE, 2 * PIECE + 2] {
            groups[place].depth = 7;
            assert_eq!((groups[place].chunk.address(), groups[place].depth), (address(place), 7));
        }
        assert!(
            groups.iter().map(|state| state.chunk.address()).eq((0..groups.len()).map(address))
        );
        assert_eq!(groups.into_iter().count(), 2 * PIECE + 3);
    }
}
