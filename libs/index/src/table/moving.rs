//! Moving records: out of segments that are half dead, so that their space comes back; and to the
//! spill file, once memory is short.

use std::ops::Range;

use forebay_core::{ErrorCode, Result};

use super::group::Group;
use super::record::{in_memory, record};
use super::{PREFETCHED, Publishing, Scratch, Table, slot, spilled};
use crate::memory::is_spilled;
use crate::schedule::{self, Fault};

/// Where records are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveTo {
    /// To other memory; those that were spilled stay on disk.
    Memory,
    /// To the spill file.
    Spill,
}

/// How far before the walk the next records are asked for.
const AHEAD_BYTES: u64 = 512;

impl Table {
    /// Moves live records out of segments that are half dead: twice as many bytes as have died
    /// since the last call, and this many more. Where they are to be spilled, also out of those
    /// that were sealed first. Without room to move to it waits for the next call.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`, `Internal`.
    pub(crate) fn reclaim(
        &mut self,
        bytes_more: u64,
        to: MoveTo,
        publishing: Publishing<'_>,
    ) -> Result<()> {
        let bytes_max = bytes_more + 2 * self.segments.take_died();
        let (mut walked, mut retired) = (0, Vec::new());
        while walked < bytes_max {
            let Some(rest) = self.segments.rest_to_move() else {
                match self.segments.take_emptied()? {
                    Some(chunk) => {
                        self.memory.forget_note(chunk.address());
                        retired.push(chunk);
                    }
                    None if to == MoveTo::Spill && self.segments.line_up_oldest() => {}
                    None => break,
                }
                continue;
            };
            let is_spilled = to == MoveTo::Spill || is_spilled(rest.start);
            let records = self.records_ahead(rest, bytes_max - walked)?;
            let moved = match is_spilled {
                true => self.spill_records(&records),
                false => self.move_records(&records),
            };
            match moved {
                Err(error) if error.code() == ErrorCode::LimitExceeded => break,
                moved => walked += moved?,
            }
        }
        if schedule::is_planted(Fault::NotWaitedFor) {
            self.memory.leave(retired);
        } else {
            publishing.reclaim.retire(&self.memory, retired);
        }
        self.lay_anew(bytes_max, publishing)
    }

    /// Addresses and hashes of the next records of a segment, up to so many bytes; asks for their
    /// buckets.
    fn records_ahead(&self, rest: Range<u64>, bytes_max: u64) -> Result<Vec<(u64, u64)>> {
        let end = rest.end.min(rest.start.saturating_add(bytes_max));
        let (mut at, mut records) = (rest.start, Vec::with_capacity(PREFETCHED));
        let mut scratch = Scratch::default();
        while at < end && records.len() < PREFETCHED {
            scratch.clear();
            // SAFETY: the address of a record in a segment of this table, which is not retired.
            let record = unsafe { record(&self.memory, at, &scratch) }?;
            let hash = self.hash.of(record.key);
            self.root.prefetch(&self.memory, hash);
            records.push((at, hash));
            at += record.bytes;
            self.memory.prefetch(at + AHEAD_BYTES);
        }
        for (_, hash) in &records {
            if let Some(group) = self.group(*hash)? {
                group.prefetch(*hash);
            }
        }
        Ok(records)
    }

    /// Moves those of these records that live to the open segment; answers the bytes of all, which
    /// lie in memory, in one segment.
    ///
    /// # Errors
    /// `LimitExceeded` without memory to move to; what did not move is where it was.
    fn move_records(&mut self, records: &[(u64, u64)]) -> Result<u64> {
        let memory = self.memory.clone();
        let (mut walked, mut left) = (0, 0);
        let all = records.iter().try_for_each(|(address, hash)| {
            // SAFETY: as in `records_ahead`.
            let record = unsafe { in_memory(&memory, *address) }?;
            // SAFETY: a group of the writer's own table, which has some; none moves meanwhile.
            let group = unsafe { Group::at(&memory, self.group_at(*hash)?) };
            if let Some(slot) = group.slot_of(*hash, *address) {
                // SAFETY: the bytes of the record, which is not written over.
                let bytes = unsafe { memory.bytes(*address, record.bytes as usize) };
                let moved = self.append_bytes(group.place(), *hash, bytes)?;
                group.store(slot, slot::pack(slot::tag_of(*hash), moved, record.bytes));
                left += record.bytes;
            }
            walked += record.bytes;
            Ok(())
        });
        if let Some((first, _)) = records.first().filter(|_| left > 0) {
            self.segments.bury_moved(&memory, *first, left);
        }
        self.segments.moved(walked);
        all.map(|()| walked)
    }

    /// Moves those of these records that live to the spill file, in one write; answers the bytes of
    /// all.
    ///
    /// # Errors
    /// `LimitExceeded` without room there; `Corrupt`, `Unavailable`. What did not move is where it
    /// was.
    fn spill_records(&mut self, records: &[(u64, u64)]) -> Result<u64> {
        let (memory, scratch) = (self.memory.clone(), Scratch::default());
        let (mut living, mut walked, mut room) = (Vec::new(), 0, 0);
        for (address, hash) in records {
            // SAFETY: as in `records_ahead`.
            let record = unsafe { record(&memory, *address, &scratch) }?;
            walked += record.bytes;
            let slot = self.group(*hash)?.and_then(|group| group.slot_of(*hash, *address));
            if let Some(slot) = slot {
                room += spilled::bytes_max(record.key.len(), record.row.len());
                living.push((slot, *hash, *address, record));
            }
        }
        if !living.is_empty() {
            let start = self.segments.room_to_spill(&memory, room)?;
            let (mut bytes, mut words) = (Vec::with_capacity(room as usize), Vec::new());
            for (_, hash, _, record) in &living {
                let at = start + bytes.len() as u64;
                let length = spilled::append(&mut bytes, at, record.key, record.row);
                words.push(slot::pack(slot::tag_of(*hash), at, length));
            }
            memory.write_spilled(start, &bytes)?;
            self.segments.spilled(bytes.len() as u64);
            for ((slot, hash, address, record), word) in living.into_iter().zip(words) {
                if let Some(group) = self.group(hash)? {
                    group.store(slot, word);
                }
                self.segments.bury_moved(&memory, address, record.bytes);
            }
        }
        self.segments.moved(walked);
        Ok(walked)
    }
}
