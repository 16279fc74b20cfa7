//! Relocation of records: out of segments that are half dead, so that their memory is reclaimed;
//! and to the spill file, once memory is short.

use std::ops::Range;

use forebay_core::{ErrorCode, Result};

use super::group::Group;
use super::record::in_memory;
use super::scratch::Scratch;
use super::spilled_record::record;
use super::{PREFETCHED, PublishTarget, Table, slot, spilled_record};
use crate::memory::is_spilled;
use crate::schedule::{self, Fault};

/// The destination of moved records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelocationTarget {
    /// Other memory; spilled records stay on disk.
    Memory,
    /// The spill file.
    Spill,
}

/// Distance by which the walk prefetches records.
const AHEAD_BYTES: u64 = 512;

impl Table {
    /// Moves live records out of segments that are half dead. The amount is twice as many bytes as
    /// have died since the last call, plus `bytes_more`. If `to` is the spill file, the call also
    /// empties the segments that were sealed first. If there is no room to move to, the rest waits
    /// for the next call.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`, `Internal`.
    pub(crate) fn reclaim(
        &mut self,
        bytes_more: u64,
        to: RelocationTarget,
        publishing: PublishTarget<'_>,
    ) -> Result<()> {
        let bytes_max = bytes_more + 2 * self.segments.take_dead_bytes();
        let (mut bytes_visited, mut retired) = (0, Vec::new());
        while bytes_visited < bytes_max {
            let Some(remaining) = self.segments.range_to_move() else {
                match self.segments.take_evacuated()? {
                    Some(chunk) => {
                        self.memory.forget_note(chunk.address());
                        retired.push(chunk);
                    }
                    None if to == RelocationTarget::Spill && self.segments.queue_oldest() => {}
                    None => break,
                }
                continue;
            };
            let is_spilled = to == RelocationTarget::Spill || is_spilled(remaining.start);
            let records = self.records_ahead(remaining, bytes_max - bytes_visited)?;
            let moved = match is_spilled {
                true => self.spill_records(&records),
                false => self.move_records(&records),
            };
            match moved {
                Err(error) if error.code() == ErrorCode::LimitExceeded => break,
                moved => bytes_visited += moved?,
            }
        }
        if schedule::is_planted(Fault::NotWaitedFor) {
            self.memory.accept_released(retired);
        } else {
            publishing.reclaim.retire(&self.memory, retired);
        }
        self.rebuild_queued(bytes_max, publishing)
    }

    /// Returns addresses and hashes of the next records of a segment, up to this many bytes;
    /// prefetches their buckets.
    fn records_ahead(&self, remaining: Range<u64>, bytes_max: u64) -> Result<Vec<(u64, u64)>> {
        let end = remaining.end.min(remaining.start.saturating_add(bytes_max));
        let (mut record_address, mut records) = (remaining.start, Vec::with_capacity(PREFETCHED));
        let mut scratch = Scratch::default();
        while record_address < end && records.len() < PREFETCHED {
            scratch.clear();
            // SAFETY: the address of a record in a segment of this table, which is not retired.
            let record = unsafe { record(&self.memory, record_address, &scratch) }?;
            let hash = self.hash.of(record.key);
            self.root.prefetch(&self.memory, hash);
            records.push((record_address, hash));
            record_address += record.bytes;
            self.memory.prefetch(record_address + AHEAD_BYTES);
        }
        for (_, hash) in &records {
            if let Some(group) = self.group(*hash)? {
                group.prefetch(*hash);
            }
        }
        Ok(records)
    }

    /// Moves the live ones of these records, which are in memory in one segment, to the open
    /// segment; returns the bytes of all.
    ///
    /// # Errors
    /// `LimitExceeded` without memory to move to; the remaining records stay where they are.
    fn move_records(&mut self, records: &[(u64, u64)]) -> Result<u64> {
        let memory = self.memory.clone();
        let (mut bytes_visited, mut bytes_moved) = (0, 0);
        let result = records.iter().try_for_each(|(address, hash)| {
            // SAFETY: as in `records_ahead`.
            let record = unsafe { in_memory(&memory, *address) }?;
            // SAFETY: a group of the writer's own table, which has groups; none of them moves
            // during the loop.
            let group = unsafe { Group::at(&memory, self.group_at(*hash)?) };
            if let Some(slot) = group.slot_of(*hash, *address) {
                // SAFETY: the bytes of the record, which is not overwritten.
                let bytes = unsafe { memory.bytes(*address, record.bytes as usize) };
                let moved = self.append_bytes(group.place(), *hash, bytes)?;
                group.store(slot, slot::pack(slot::tag_of(*hash), moved, record.bytes));
                bytes_moved += record.bytes;
            }
            bytes_visited += record.bytes;
            Ok(())
        });
        if let Some((first, _)) = records.first().filter(|_| bytes_moved > 0) {
            self.segments.bury_moved(&memory, *first, bytes_moved);
        }
        self.segments.advance_evacuation(bytes_visited);
        result.map(|()| bytes_visited)
    }

    /// Moves the live ones of these records to the spill file, in one write; returns the bytes of
    /// all.
    ///
    /// # Errors
    /// `LimitExceeded` without room there; `Corrupt`, `Unavailable`. The remaining records stay
    /// where they are.
    fn spill_records(&mut self, records: &[(u64, u64)]) -> Result<u64> {
        let (memory, scratch) = (self.memory.clone(), Scratch::default());
        let (mut live, mut bytes_visited, mut room) = (Vec::new(), 0, 0);
        for (address, hash) in records {
            // SAFETY: as in `records_ahead`.
            let record = unsafe { record(&memory, *address, &scratch) }?;
            bytes_visited += record.bytes;
            let slot = self.group(*hash)?.and_then(|group| group.slot_of(*hash, *address));
            if let Some(slot) = slot {
                room += spilled_record::bytes_max(record.key.len(), record.row.len());
                live.push((slot, *hash, *address, record));
            }
        }
        if !live.is_empty() {
            let start = self.segments.room_to_spill(&memory, room)?;
            let (mut bytes, mut words) = (Vec::with_capacity(room as usize), Vec::new());
            for (_, hash, _, record) in &live {
                let record_address = start + bytes.len() as u64;
                let length =
                    spilled_record::append(&mut bytes, record_address, record.key, record.row);
                words.push(slot::pack(slot::tag_of(*hash), record_address, length));
            }
            memory.write_spilled(start, &bytes)?;
            self.segments.count_spilled(bytes.len() as u64);
            for ((slot, hash, address, record), word) in live.into_iter().zip(words) {
                if let Some(group) = self.group(hash)? {
                    group.store(slot, word);
                }
                self.segments.bury_moved(&memory, address, record.bytes);
            }
        }
        self.segments.advance_evacuation(bytes_visited);
        Ok(bytes_visited)
    }
}
