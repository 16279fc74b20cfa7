//! Which groups have documents that expire, and when: lets their memory go once they have.
//!
//! Reads never depend on it: an expired document is absent whether or not its record is still
//! there. Of a group only the earliest time is kept, so a document costs nothing here. A group that
//! is due is looked through as a whole, and then rests a while, however soon the next of its
//! documents expires: what expires is gone a few seconds later, and each group is looked through
//! once for many of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::row::row_expires_at;

use super::{Groups, Kept, Table};

/// The time of a group of which nothing expires.
pub(super) const NEVER: i64 = i64::MAX;
/// How long a group rests that was looked through, in microseconds.
const REST_US: i64 = 10_000_000;

/// The groups of which something expires, the next one first.
#[derive(Debug, Default)]
pub(super) struct Due(BinaryHeap<Reverse<(i64, u32)>>);

impl Due {
    /// Notes that a document of a group expires at this time.
    pub(super) fn note(&mut self, place: usize, kept: &mut Kept, expires: i64) {
        kept.expires = kept.expires.min(expires);
        self.plan(place, kept, expires);
    }

    /// A group is looked through at this time, or earlier.
    fn plan(&mut self, place: usize, kept: &mut Kept, at: i64) {
        if at < kept.due {
            kept.due = at;
            self.0.push(Reverse((at, place as u32)));
        }
    }

    /// The next group that is due; it is planned no more.
    fn next(&mut self, groups: &mut Groups, now: i64) -> Option<usize> {
        loop {
            let Reverse((at, place)) = *self.0.peek()?;
            if at > now {
                return None;
            }
            self.0.pop();
            let kept = &mut groups[place as usize];
            // An older plan of a group that was planned for an earlier time since.
            if kept.due == at {
                kept.due = NEVER;
                return Some(place as usize);
            }
        }
    }
}

impl Table {
    /// Before this time none of a group's documents expires: by group, in the order of the
    /// directory.
    pub(super) fn expiries(&self) -> Vec<i64> {
        self.places.in_order().into_iter().map(|place| self.groups[place].expires).collect()
    }

    /// Prepares the removal of what has expired at this time from groups that are due, at most this
    /// many groups; tells the lengths of each key and row that goes.
    ///
    /// # Errors
    /// `Corrupt`; call [`Table::give_up`] then.
    pub(crate) fn prepare_expired(
        &mut self,
        now: Timestamp,
        groups_max: usize,
        mut goes: impl FnMut(usize, usize),
    ) -> Result<()> {
        for _ in 0..groups_max {
            let now = now.as_micros();
            let Some(place) = self.due.next(&mut self.groups, now) else { break };
            let (keys, next) = self.expired(&self.groups[place], now)?;
            for key in keys {
                if let Some(replaced) = self.prepare_removal(self.hash.of(&key), &key)? {
                    goes(key.len(), replaced.row_bytes);
                }
            }
            self.looked_through.push(place);
            let kept = &mut self.groups[place];
            kept.expires = next;
            if next < NEVER {
                self.due.plan(place, kept, next.max(now.saturating_add(REST_US)));
            }
        }
        Ok(())
    }

    /// Notes, in live memory, when the groups that were looked through are due again: what has
    /// expired there is gone.
    pub(crate) fn note_looked_through(&mut self) {
        for place in std::mem::take(&mut self.looked_through) {
            let kept = &self.groups[place];
            self.memory.note_group(kept.chunk.address(), kept.expires);
        }
    }

    /// The keys of a group that have expired, and when the next one does.
    fn expired(&self, kept: &Kept, now: i64) -> Result<(Vec<Vec<u8>>, i64)> {
        let (mut keys, mut next) = (Vec::new(), NEVER);
        self.visit_records(kept, |_, record| {
            match row_expires_at(record.row).map(Timestamp::as_micros) {
                Some(at) if at <= now => keys.push(record.key.to_vec()),
                Some(at) => next = next.min(at),
                None => {}
            }
            Ok(())
        })?;
        Ok((keys, next))
    }
}
