//! The writes of one entry: prepared first, then published.
//!
//! Preparing finds each key, reserves slots for new keys and appends the records, which no reader
//! sees yet. If there is no memory for all of the entry, all of it is abandoned and nothing has
//! changed. Publishing stores one slot after the other and needs no memory.

use forebay_core::clock::Timestamp;
use forebay_core::{Error, Result};

use super::directory::DEPTH_MAX;
use super::group::Group;
use super::group_layout::GroupRef;
use super::scratch::Scratch;
use super::spilled_record::record;
use super::{PendingWrite, PublishTarget, SlotLocation, Table, group_layout, slot};

/// The bit of an item that marks a removed record.
const REMOVED: u64 = 1 << 63;

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
            Some((existing, _)) => Ok(existing.group),
            None => self.group_at(hash),
        };
        let location = group.and_then(|group| record(self, group));
        let (address, bytes) = location.inspect_err(|_| {
            if found.is_none() {
                let place = self.place_of(hash);
                self.groups[place].reserved -= 1;
            }
        })?;
        let word = Some(slot::pack(slot::tag_of(hash), address, bytes));
        let existing = found.map(|(existing, _)| existing);
        self.pending.push(PendingWrite { hash, existing, word, bytes });
        if let Some(expires) = expires {
            let place = self.place_of(hash);
            let state = &mut self.groups[place];
            self.due.note(place, state, expires.as_micros());
            // The note precedes the store that makes the document visible: a successor must not
            // forget the expiry.
            self.memory.note_group(state.chunk.address(), state.expires);
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
        let Some((existing, replaced)) = self.find(hash, key)? else { return Ok(None) };
        self.pending.push(PendingWrite { hash, existing: Some(existing), word: None, bytes: 0 });
        Ok(Some(replaced))
    }

    /// Returns the prepared writes as items of the redo list, by which a shared space's next writer
    /// finishes them: the address of the record that a key gets, or of the record that is removed,
    /// with these bits.
    pub(crate) fn items(&self, bits: u64) -> impl Iterator<Item = u64> {
        self.pending.iter().map(move |pending| {
            let removal =
                pending.existing.map_or(0, |existing| slot::address(existing.word) | REMOVED);
            bits | pending.word.map_or(removal, slot::address)
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
        let existing = self.find(hash, &key)?.map(|(existing, _)| existing);
        let is_published = existing.is_some_and(|existing| slot::address(existing.word) == address);
        let word = match (item & REMOVED != 0, is_published) {
            (true, true) => None,
            (false, false) => Some(slot::pack(slot::tag_of(hash), address, bytes)),
            _ => return Ok(()),
        };
        self.groups[place].reserved += u32::from(existing.is_none());
        self.pending.push(PendingWrite { hash, existing, word, bytes });
        self.publish()
    }

    /// Abandons the prepared writes, which no reader has seen.
    pub(crate) fn give_up(&mut self) {
        for place in std::mem::take(&mut self.searched_groups) {
            // The group still has the documents that it was searched for.
            let state = &mut self.groups[place];
            state.expires = i64::MIN;
            self.due.note(place, state, i64::MIN);
        }
        for pending in std::mem::take(&mut self.pending) {
            if let Some(word) = pending.word {
                self.segments.bury_moved(&self.memory, slot::address(word), pending.bytes);
            }
            if pending.existing.is_none() {
                let place = self.place_of(pending.hash);
                self.groups[place].reserved -= 1;
            }
        }
    }

    /// Publishes the prepared writes, in their order.
    ///
    /// # Errors
    /// `Internal` when a slot that was found while preparing is gone.
    pub(crate) fn publish(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let result = pending.drain(..).try_for_each(|pending| self.publish_one(&pending));
        // The list's allocation is reused for the next entry.
        self.pending = pending;
        result
    }

    fn publish_one(&mut self, pending: &PendingWrite) -> Result<()> {
        let slot_is_gone = || Error::internal("a prepared slot is gone");
        let Some(existing) = pending.existing else {
            let word = pending.word.ok_or_else(slot_is_gone)?;
            let place = self.place_of(pending.hash);
            let group = self.group(pending.hash)?.ok_or_else(slot_is_gone)?;
            let (filled, is_inline) = (group.put(pending.hash, word), group.place().is_inline());
            let state = &mut self.groups[place];
            state.filled += u32::from(filled.ok_or_else(slot_is_gone)? == slot::EMPTY);
            state.live += 1;
            state.reserved -= 1;
            // If nothing can be written to the group, only a rebuild brings records into its
            // buckets.
            if is_inline && !state.has_room {
                self.count_record_outside(place);
            }
            return Ok(());
        };
        let address = slot::address(existing.word);
        let (group, slot) = if existing.moves == self.moves {
            // SAFETY: a group of the writer's own table, which has not moved.
            (unsafe { Group::at(&self.memory, existing.group) }, existing.slot)
        } else {
            let group = self.group(pending.hash)?.ok_or_else(slot_is_gone)?;
            (group, group.slot_of(pending.hash, address).ok_or_else(slot_is_gone)?)
        };
        let is_inside = |address| group.place().is_inline() && group.place().holds(address);
        let stays = pending.word.is_some_and(|word| is_inside(slot::address(word)));
        let has_left = is_inside(address) && !stays;
        match pending.word {
            Some(word) => group.store(slot, word),
            None => {
                let new_word = group.word_after_removal(slot);
                group.store(slot, new_word);
                let place = self.place_of(pending.hash);
                let state = &mut self.groups[place];
                state.live -= 1;
                state.filled -= u32::from(new_word == slot::EMPTY);
            }
        }
        self.segments.bury(&self.memory, address, existing.bytes);
        if has_left {
            self.count_record_outside(self.place_of(pending.hash));
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
        let existing = SlotLocation { group, slot, word, bytes, moves: self.moves };
        Ok(Some((existing, PreviousRow { row_bytes: record.row.len() })))
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
        for groups_moved in 0..=DEPTH_MAX {
            self.moved_max = self.moved_max.max(groups_moved);
            if let Some(location) = self.find(hash, key)? {
                return Ok(Some(location));
            }
            let place = self.place_of(hash);
            self.count(place)?;
            let state = &mut self.groups[place];
            let filled_max = state.filled_max();
            if state.filled + state.reserved < filled_max {
                state.reserved += 1;
                return Ok(None);
            }
            // A group of mostly deleted slots is rewritten and not split.
            if state.filled - state.live > filled_max / 2 {
                self.rewrite(hash, publishing)?;
            } else {
                self.split(hash, publishing)?;
            }
        }
        let message = "more keys than a bucket group holds share the top bits of their hash";
        let keys_max = u64::from(group_layout::filled_max(false));
        Err(Error::limit_exceeded(message, keys_max, keys_max + 1))
    }

    /// Number of prepared new keys that belong to the group at this index.
    pub(super) fn reserved_of(&self, place: usize) -> u32 {
        let new = self.pending.iter().filter(|pending| pending.existing.is_none());
        new.filter(|pending| self.place_of(pending.hash) == place).count() as u32
    }
}
