//! The writes of one entry: prepared first, then published.
//!
//! Preparing finds each key, reserves slots for new keys and appends the records, which no reader
//! sees yet. If there is no memory for all of the entry, all of it is abandoned and nothing has
//! changed. Showing stores one slot after the other and needs no memory.

use forebay_core::clock::Timestamp;
use forebay_core::{Error, Result};

use super::directory::DEPTH_MAX;
use super::group::Group;
use super::group_layout::GroupRef;
use super::scratch::Scratch;
use super::spilled_record::record;
use super::{PendingWrite, PublishTarget, SlotLocation, Table, group_layout, slot};

/// The bit of an item that marks a removed record.
const GOES: u64 = 1 << 63;

/// The previous document under a write's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviousRow {
    /// Bytes of the replaced row.
    pub(crate) row_bytes: usize,
}

impl Table {
    /// Prepares a row under a key with this hash, whose document may expire; returns the document
    /// that it will replace.
    ///
    /// # Errors
    /// `LimitExceeded` without memory, `Corrupt`; call [`Table::give_up`] then.
    pub(crate) fn prepare(
        &mut self,
        hash: u64,
        key: &[u8],
        row: &[u8],
        expires: Option<Timestamp>,
        publishing: PublishTarget<'_>,
    ) -> Result<Option<PreviousRow>> {
        self.prepare_by(hash, key, expires, publishing, |table, group| {
            table.append(group, hash, key, row)
        })
    }

    /// As [`Table::prepare`], with a record in the donor's memory, as address and bytes.
    ///
    /// # Errors
    /// As [`Table::prepare`].
    pub(crate) fn prepare_shared_record(
        &mut self,
        hash: u64,
        key: &[u8],
        record: (u64, u64),
        expires: Option<Timestamp>,
        publishing: PublishTarget<'_>,
    ) -> Result<Option<PreviousRow>> {
        self.prepare_by(hash, key, expires, publishing, |_, _| Ok(record))
    }

    fn prepare_by(
        &mut self,
        hash: u64,
        key: &[u8],
        expires: Option<Timestamp>,
        publishing: PublishTarget<'_>,
        record: impl FnOnce(&mut Self, GroupRef) -> Result<(u64, u64)>,
    ) -> Result<Option<PreviousRow>> {
        let found = self.find_or_reserve(hash, key, publishing)?;
        let group = match &found {
            Some((held, _)) => Ok(held.group),
            None => self.group_at(hash),
        };
        let placed = group.and_then(|group| record(self, group));
        let (address, bytes) = placed.inspect_err(|_| {
            if found.is_none() {
                let place = self.place_of(hash);
                self.groups[place].reserved -= 1;
            }
        })?;
        let word = Some(slot::pack(slot::tag_of(hash), address, bytes));
        let held = found.map(|(held, _)| held);
        self.pending.push(PendingWrite { hash, held, word, bytes });
        if let Some(expires) = expires {
            let place = self.place_of(hash);
            let kept = &mut self.groups[place];
            self.due.note(place, kept, expires.as_micros());
            // The note precedes the store that makes the document visible: a successor must not
            // forget the expiry.
            self.memory.note_group(kept.chunk.address(), kept.expires);
        }
        Ok(found.map(|(_, replaced)| replaced))
    }

    /// Prepares the removal of a key with this hash; returns the document that it removes.
    ///
    /// # Errors
    /// `Corrupt`; call [`Table::give_up`] then.
    pub(crate) fn prepare_removal(&mut self, hash: u64, key: &[u8]) -> Result<Option<PreviousRow>> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        self.count(self.place_of(hash))?;
        let Some((held, replaced)) = self.find(hash, key)? else { return Ok(None) };
        self.pending.push(PendingWrite { hash, held: Some(held), word: None, bytes: 0 });
        Ok(Some(replaced))
    }

    /// Returns the prepared writes as items of the redo list, by which a shared space's next writer
    /// finishes them: the address of the record that a key gets, or of the record that is removed,
    /// with these bits.
    pub(crate) fn items(&self, bits: u64) -> impl Iterator<Item = u64> {
        self.pending.iter().map(move |pending| {
            let goes = pending.held.map_or(0, |held| slot::address(held.word) | GOES);
            bits | pending.word.map_or(goes, slot::address)
        })
    }

    /// Finishes an item of an earlier writer's list, whether or not that writer had published it.
    ///
    /// # Errors
    /// `Corrupt`, `Internal` for an impossible item.
    pub(crate) fn redo(&mut self, item: u64) -> Result<()> {
        let address = slot::address(item);
        let scratch = Scratch::default();
        // SAFETY: a record that was appended before the list was written; its segment is in use.
        let record = unsafe { record(&self.memory, address, &scratch) }?;
        let (hash, key, bytes) = (self.hash.of(record.key), record.key.to_vec(), record.bytes);
        if self.groups.is_empty() {
            return Err(Error::internal("the table has no bucket group"));
        }
        let place = self.place_of(hash);
        self.count(place)?;
        let held = self.find(hash, &key)?.map(|(held, _)| held);
        let is_there = held.is_some_and(|held| slot::address(held.word) == address);
        let word = match (item & GOES != 0, is_there) {
            (true, true) => None,
            (false, false) => Some(slot::pack(slot::tag_of(hash), address, bytes)),
            _ => return Ok(()),
        };
        self.groups[place].reserved += u32::from(held.is_none());
        self.pending.push(PendingWrite { hash, held, word, bytes });
        self.publish()
    }

    /// Abandons the prepared writes, which no reader has seen.
    pub(crate) fn give_up(&mut self) {
        for place in std::mem::take(&mut self.looked_through) {
            // The group still has the documents that it was searched for.
            let kept = &mut self.groups[place];
            kept.expires = i64::MIN;
            self.due.note(place, kept, i64::MIN);
        }
        for pending in std::mem::take(&mut self.pending) {
            if let Some(word) = pending.word {
                self.segments.bury_moved(&self.memory, slot::address(word), pending.bytes);
            }
            if pending.held.is_none() {
                let place = self.place_of(pending.hash);
                self.groups[place].reserved -= 1;
            }
        }
    }

    /// Shows the prepared writes, in their order.
    ///
    /// # Errors
    /// `Internal` when a slot that was found while preparing is gone.
    pub(crate) fn publish(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let shown = pending.drain(..).try_for_each(|pending| self.show_one(&pending));
        // The list's allocation is reused for the next entry.
        self.pending = pending;
        shown
    }

    fn show_one(&mut self, pending: &PendingWrite) -> Result<()> {
        let lost = || Error::internal("a prepared slot is gone");
        let Some(held) = pending.held else {
            let word = pending.word.ok_or_else(lost)?;
            let place = self.place_of(pending.hash);
            let group = self.group(pending.hash)?.ok_or_else(lost)?;
            let (filled, is_inline) = (group.put(pending.hash, word), group.place().is_inline());
            let kept = &mut self.groups[place];
            kept.filled += u32::from(filled.ok_or_else(lost)? == slot::EMPTY);
            kept.live += 1;
            kept.reserved -= 1;
            // If nothing can be written to the group, only a rebuild brings records into its
            // buckets.
            if is_inline && !kept.has_room {
                self.count_away(place);
            }
            return Ok(());
        };
        let address = slot::address(held.word);
        let (group, at) = if held.moves == self.moves {
            // SAFETY: a group of the writer's own table, which has not moved.
            (unsafe { Group::at(&self.memory, held.group) }, held.slot)
        } else {
            let group = self.group(pending.hash)?.ok_or_else(lost)?;
            (group, group.slot_of(pending.hash, address).ok_or_else(lost)?)
        };
        let is_within = |address| group.place().is_inline() && group.place().holds(address);
        let stays = pending.word.is_some_and(|word| is_within(slot::address(word)));
        let has_left = is_within(address) && !stays;
        match pending.word {
            Some(word) => group.store(at, word),
            None => {
                let becomes = group.emptied(at);
                group.store(at, becomes);
                let place = self.place_of(pending.hash);
                let kept = &mut self.groups[place];
                kept.live -= 1;
                kept.filled -= u32::from(becomes == slot::EMPTY);
            }
        }
        self.segments.bury(&self.memory, address, held.bytes);
        if has_left {
            self.count_away(self.place_of(pending.hash));
        }
        Ok(())
    }

    fn find(&self, hash: u64, key: &[u8]) -> Result<Option<(SlotLocation, PreviousRow)>> {
        let scratch = Scratch::default();
        let Some(group) = self.group(hash)? else { return Ok(None) };
        let Some((slot, word, record)) = group.locate(hash, key, &scratch)? else {
            return Ok(None);
        };
        let (group, bytes) = (group.place(), record.bytes);
        let held = SlotLocation { group, slot, word, bytes, moves: self.moves };
        Ok(Some((held, PreviousRow { row_bytes: record.row.len() })))
    }

    /// Finds a key, or reserves a slot for it in its group; splits the group until it has a free
    /// slot.
    fn find_or_reserve(
        &mut self,
        hash: u64,
        key: &[u8],
        publishing: PublishTarget<'_>,
    ) -> Result<Option<(SlotLocation, PreviousRow)>> {
        if self.groups.is_empty() {
            self.add_first_group(publishing)?;
        }
        // Each iteration halves the group's share of all hashes.
        for moved in 0..=DEPTH_MAX {
            self.moved_max = self.moved_max.max(moved);
            if let Some(found) = self.find(hash, key)? {
                return Ok(Some(found));
            }
            let place = self.place_of(hash);
            self.count(place)?;
            let kept = &mut self.groups[place];
            let filled_max = kept.filled_max();
            if kept.filled + kept.reserved < filled_max {
                kept.reserved += 1;
                return Ok(None);
            }
            // A group of mostly deleted slots is rewritten and not split.
            if kept.filled - kept.live > filled_max / 2 {
                self.rewrite(hash, publishing)?;
            } else {
                self.split(hash, publishing)?;
            }
        }
        let message = "more keys than a bucket group holds share the top bits of their hash";
        let most = u64::from(group_layout::filled_max(false));
        Err(Error::limit_exceeded(message, most, most + 1))
    }

    /// Number of prepared new keys that belong to the group at this index.
    pub(super) fn reserved_of(&self, place: usize) -> u32 {
        let new = self.pending.iter().filter(|pending| pending.held.is_none());
        new.filter(|pending| self.place_of(pending.hash) == place).count() as u32
    }
}
