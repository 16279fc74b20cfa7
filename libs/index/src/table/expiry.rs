//! Expiry: which groups have documents that expire, and when. The writer reclaims expired
//! documents.
//!
//! Reads never depend on this module: an expired document is absent whether or not its record is
//! still there. Each group stores only its earliest expiry time, so a document costs nothing here.
//! A due group is searched as a whole, and then rests for a while, even if its next document
//! expires soon. Therefore an expired document is reclaimed some seconds late, and one search of a
//! group serves many documents.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::row::row_expires_at;

use super::Table;
use super::groups::{GroupState, NEVER};

/// Minimum time between two searches of a group, in microseconds.
const REST_US: i64 = 10_000_000;

impl Table {
    /// Returns, by group in the order of the directory, the time before which none of its documents
    /// expires.
    pub(super) fn expiries(&self) -> Vec<i64> {
        self.writer_directory
            .in_order()
            .into_iter()
            .map(|place| self.groups[place].expires)
            .collect()
    }

    /// Prepares the removal of documents that have expired at this time, from at most this many due
    /// groups; passes the lengths of each removed key and row to `on_removal`.
    ///
    /// # Errors
    /// `Corrupt`; call [`Table::give_up`] then.
    pub(crate) fn prepare_expired(
        &mut self,
        now: Timestamp,
        groups_max: usize,
        mut on_removal: impl FnMut(usize, usize),
    ) -> Result<()> {
        for _ in 0..groups_max {
            let now = now.as_micros();
            let Some(place) = self.due.next(&mut self.groups, now) else { break };
            let (keys, next) = self.expired_keys(&self.groups[place], now)?;
            for key in keys {
                if let Some(replaced) = self.prepare_removal(self.hash.of(&key), &key)? {
                    on_removal(key.len(), replaced.row_bytes);
                }
            }
            self.searched_groups.push(place);
            let state = &mut self.groups[place];
            state.expires = next;
            if next < NEVER {
                self.due.plan(place, state, next.max(now.saturating_add(REST_US)));
            }
        }
        Ok(())
    }

    /// Notes, in shared memory, when the searched groups are due again: their expired documents are
    /// gone.
    pub(crate) fn note_searched_groups(&mut self) {
        for place in std::mem::take(&mut self.searched_groups) {
            let state = &self.groups[place];
            self.memory.note_group(state.chunk.address(), state.expires);
        }
    }

    /// Returns the expired keys of a group, and the time of its next expiry.
    fn expired_keys(&self, state: &GroupState, now: i64) -> Result<(Vec<Vec<u8>>, i64)> {
        let (mut keys, mut next) = (Vec::new(), NEVER);
        self.visit_records(state, |_, record| {
            match row_expires_at(record.row).map(Timestamp::as_micros) {
                Some(expires_at) if expires_at <= now => keys.push(record.key.to_vec()),
                Some(expires_at) => next = next.min(expires_at),
                None => {}
            }
            Ok(())
        })?;
        Ok((keys, next))
    }
}
