//! Creates bucket groups (the first group, the two halves of a split, and a rewritten group), and
//! chooses where the records of an inline group go.
//!
//! A group is inline if most of its records are small. The writer puts a small record into the
//! bucket at which the key's search begins, while the bucket has room. A record is never
//! overwritten, so its replacement takes more room, and goes to a segment once the bucket has no
//! room. A group is rebuilt when half of its records have left their buckets.

use forebay_core::{ErrorCode, Result};

use super::directory::Root;
use super::group::Group;
use super::group_layout::{self, GroupRef, INLINE_RECORD_BYTES_MAX};
use super::groups::{GroupState, NEVER};
use super::record::{self, record_bytes};
use super::{PublishTarget, Table, slot};
use crate::memory::{DirectoryUpdate, Memory, is_spilled};

/// A record of a group that is being rebuilt.
struct GroupRecord {
    hash: u64,
    word: u64,
    bytes: u64,
    /// Whether a slot names the record already; false for a pending record, which a slot will name.
    is_published: bool,
}

/// The groups that replace a group, before any reader sees them.
struct RebuiltGroups {
    halves: Vec<GroupState>,
    /// Whether pending writes must learn the new addresses.
    has_pending_writes: bool,
    /// The old address of each moved record, and the word of its new address.
    moved: Vec<(u64, u64)>,
    /// Records of segments that were copied to buckets: their old addresses and bytes.
    dead_records: Vec<(u64, u64)>,
    /// Records of buckets that were copied to a segment: their new addresses and bytes.
    appended_records: Vec<(u64, u64)>,
}

impl RebuiltGroups {
    fn word_of(&self, address: u64) -> Option<u64> {
        let place = self.moved.binary_search_by_key(&address, |(old, _)| *old);
        place.ok().map(|place| self.moved[place].1)
    }
}

impl Table {
    /// Sets whether new groups may be inline: inline groups take more memory, and none of it can be
    /// spilled.
    pub(crate) fn allow_inline(&mut self, may_be: bool) {
        self.may_be_inline = may_be;
    }

    pub(super) fn add_first_group(&mut self, publishing: PublishTarget<'_>) -> Result<()> {
        let state = self.new_group(0, false)?;
        self.group_bytes += state.chunk.bytes();
        self.root = Root::of_group(GroupRef::of(&state.chunk));
        self.writer_directory.point(0, 0, 0);
        self.groups.push(state);
        self.publish_root(publishing);
        Ok(())
    }

    fn new_group(&self, depth: u32, is_inline: bool) -> Result<GroupState> {
        let chunk = self.memory.allocate(group_layout::bytes(is_inline))?;
        // SAFETY: the chunk was just allocated, so no other thread has its address.
        unsafe { self.memory.clear(&chunk) };
        self.memory.note_group(chunk.address(), NEVER);
        Ok(GroupState { is_counted: true, ..GroupState::of(chunk, depth) })
    }

    /// Creates this many groups; if there is no memory for all of them, creates none.
    fn new_groups(&self, depth: u32, is_inline: bool, count: usize) -> Result<Vec<GroupState>> {
        let mut groups: Vec<GroupState> = Vec::with_capacity(count);
        for _ in 0..count {
            match self.new_group(depth, is_inline) {
                Ok(group) => groups.push(group),
                Err(error) => {
                    self.memory.release(groups.into_iter().map(|group| group.chunk));
                    return Err(error);
                }
            }
        }
        Ok(groups)
    }

    /// Rewrites the group of a hash, without its deleted slots.
    pub(super) fn rewrite(&mut self, hash: u64, publishing: PublishTarget<'_>) -> Result<()> {
        let place = self.place_of(hash);
        let rebuilt = self.rebuild_groups(place, self.groups[place].depth, 1)?;
        self.replace_group(hash, rebuilt, publishing);
        Ok(())
    }

    /// Splits the group of a hash by the next bit.
    pub(super) fn split(&mut self, hash: u64, publishing: PublishTarget<'_>) -> Result<()> {
        let place = self.place_of(hash);
        let depth = self.groups[place].depth + 1;
        if depth > self.root.depth() {
            self.double(publishing)?;
        }
        let rebuilt = self.rebuild_groups(place, depth, 2)?;
        self.replace_group(hash, rebuilt, publishing);
        Ok(())
    }

    /// Replaces the group of a hash by the rebuilt groups.
    fn replace_group(
        &mut self,
        hash: u64,
        mut rebuilt: RebuiltGroups,
        publishing: PublishTarget<'_>,
    ) {
        let (place, entries) = (self.place_of(hash), self.entries_of(hash));
        self.update_pending(place, &rebuilt);
        let high = if rebuilt.halves.len() > 1 { rebuilt.halves.pop() } else { None };
        let Some(low) = rebuilt.halves.pop() else { return };
        let (old, places) = self.replace_state(place, low, high);
        let entry = |place: usize| GroupRef::of(&self.groups[place].chunk).entry();
        let update = DirectoryUpdate {
            entry: self.entry_address(entries.start),
            count: entries.len() as u64,
            low: entry(places[0]),
            high: entry(places[1]),
        };
        // A single entry is switched by one store, which needs no redo record.
        let is_armed = self.directory.is_some() && entries.len() > 1;
        if is_armed {
            self.memory.header().begin_directory_update(update);
        }
        let middle = entries.start + entries.len().div_ceil(2);
        self.point(entries.start..middle, places[0], publishing);
        self.point(middle..entries.end, places[1], publishing);
        if is_armed {
            self.memory.header().end_directory_update();
        }
        self.moves += 1;
        for place in places {
            self.groups[place].reserved = self.reserved_of(place);
        }
        for (address, bytes) in rebuilt.dead_records {
            self.segments.bury_moved(&self.memory, address, bytes);
        }
        publishing.reclaim.retire(&self.memory, vec![old.chunk]);
    }

    /// Replaces the state of the group at an index by that of groups that no reader sees yet.
    /// Returns the replaced state and the indexes of the new groups.
    fn replace_state(
        &mut self,
        place: usize,
        mut low: GroupState,
        high: Option<GroupState>,
    ) -> (GroupState, [usize; 2]) {
        let current = &self.groups[place];
        let expires = current.expires;
        (low.expires, low.due, low.is_queued) = (expires, current.due, current.is_queued);
        self.group_bytes -= current.chunk.bytes();
        self.group_bytes += low.chunk.bytes();
        self.memory.note_group(low.chunk.address(), expires);
        let old = std::mem::replace(&mut self.groups[place], low);
        let Some(mut high) = high else { return (old, [place, place]) };
        self.group_bytes += high.chunk.bytes();
        self.memory.note_group(high.chunk.address(), expires);
        let high_place = self.groups.len();
        self.due.note(high_place, &mut high, expires);
        self.groups.push(high);
        (old, [place, high_place])
    }

    /// Updates the pending writes with the new addresses of the records of the group at this index.
    fn update_pending(&mut self, place: usize, rebuilt: &RebuiltGroups) {
        if rebuilt.moved.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        for pending in pending.iter_mut().filter(|pending| self.place_of(pending.hash) == place) {
            let new_word = |word: u64| rebuilt.word_of(slot::address(word)).unwrap_or(word);
            pending.word = pending.word.map(new_word);
            if let Some(existing) = &mut pending.existing {
                existing.word = new_word(existing.word);
            }
        }
        self.pending = pending;
    }

    /// Rebuilds the group at this index as one group, or two, that no reader sees yet. If there is
    /// no memory, nothing has changed.
    fn rebuild_groups(&mut self, place: usize, depth: u32, count: usize) -> Result<RebuiltGroups> {
        let records = self.records(place)?;
        let bit = if count > 1 { 1_u64 << (64 - depth) } else { 0 };
        let half_of = |hash: u64| usize::from(hash & bit != 0);
        let is_inline = self.is_to_be_inline(place, &records, half_of);
        let halves = match self.new_groups(depth, is_inline, count) {
            // Plain groups take a quarter of the memory.
            Err(error) if is_inline && error.code() == ErrorCode::LimitExceeded => {
                self.new_groups(depth, false, count)
            }
            halves => halves,
        }?;
        let (moved, dead_records, appended_records) = (Vec::new(), Vec::new(), Vec::new());
        let has_pending_writes = !self.pending.is_empty();
        let mut rebuilt =
            RebuiltGroups { halves, has_pending_writes, moved, dead_records, appended_records };
        let old_group = GroupRef::of(&self.groups[place].chunk);
        if let Err(error) = self.lay_out(&records, old_group, half_of, &mut rebuilt) {
            for (address, bytes) in rebuilt.appended_records {
                self.segments.bury_moved(&self.memory, address, bytes);
            }
            self.memory.release(rebuilt.halves.into_iter().map(|half_group| half_group.chunk));
            return Err(error);
        }
        rebuilt.moved.sort_unstable();
        Ok(rebuilt)
    }

    /// Whether most of these records are small, and few enough that each half has slots for them.
    fn is_to_be_inline(
        &self,
        place: usize,
        records: &[GroupRecord],
        half_of: impl Fn(u64) -> usize,
    ) -> bool {
        let published = || records.iter().filter(|record| record.is_published);
        let small = published().filter(|record| record.is_small()).count();
        let (all, high) =
            (published().count(), published().filter(|record| half_of(record.hash) == 1).count());
        let records_max = high.max(all - high) + self.groups[place].reserved as usize;
        self.may_be_inline
            && 4 * small > 3 * all
            && records_max < group_layout::filled_max(true) as usize
    }

    /// Puts records into their halves. Records from the buckets of the old group come first,
    /// because the new buckets have room for all of them.
    fn lay_out(
        &mut self,
        records: &[GroupRecord],
        old_group: GroupRef,
        half_of: impl Fn(u64) -> usize,
        rebuilt: &mut RebuiltGroups,
    ) -> Result<()> {
        let memory = self.memory.clone();
        let is_inside = |record: &&GroupRecord| old_group.holds(slot::address(record.word));
        let inside = records.iter().filter(is_inside);
        for record in inside.chain(records.iter().filter(|record| !is_inside(record))) {
            let half_place = half_of(record.hash);
            let word =
                self.place_record(&memory, record, is_inside(&record), half_place, rebuilt)?;
            if record.is_published {
                self.put(&mut rebuilt.halves[half_place], record.hash, word);
            }
        }
        Ok(())
    }

    /// Returns the word of a record after the rebuild: that of a copy in its bucket, if there is
    /// room.
    fn place_record(
        &mut self,
        memory: &Memory,
        record: &GroupRecord,
        is_inside: bool,
        half_place: usize,
        rebuilt: &mut RebuiltGroups,
    ) -> Result<u64> {
        let GroupRecord { hash, word, bytes, .. } = *record;
        let old_address = slot::address(word);
        let state = &rebuilt.halves[half_place];
        // SAFETY: a group that only this writer has.
        let group = unsafe { Group::at(memory, GroupRef::of(&state.chunk)) };
        let room = if is_spilled(word) { None } else { group.take_room(hash, bytes) };
        // SAFETY: a record of this table, in memory; its chunk is not retired while the table is
        // borrowed.
        let old_bytes = || unsafe { memory.bytes(old_address, bytes as usize) };
        let new_address = match room {
            Some(new_address) => {
                // SAFETY: room in a group that no other thread has yet.
                unsafe { memory.write(new_address, old_bytes()) };
                if !is_inside {
                    rebuilt.dead_records.push((old_address, bytes));
                }
                new_address
            }
            None if is_inside => {
                let new_address = self.segments.append_bytes(memory, old_bytes())?;
                rebuilt.appended_records.push((new_address, bytes));
                new_address
            }
            None => return Ok(word),
        };
        let word = slot::pack(slot::tag_of(hash), new_address, bytes);
        if rebuilt.has_pending_writes {
            rebuilt.moved.push((old_address, word));
        }
        Ok(word)
    }

    /// Lists the records of a group, including pending records in the group's buckets.
    fn records(&self, place: usize) -> Result<Vec<GroupRecord>> {
        let mut records = Vec::new();
        self.visit_records(&self.groups[place], |word, record| {
            let (hash, bytes) = (self.hash.of(record.key), record.bytes);
            records.push(GroupRecord { hash, word, bytes, is_published: true });
            Ok(())
        })?;
        let group_ref = GroupRef::of(&self.groups[place].chunk);
        for pending in self.pending.iter().filter(|_| group_ref.is_inline()) {
            if let Some(word) = pending.word.filter(|word| group_ref.holds(slot::address(*word))) {
                let (hash, bytes) = (pending.hash, pending.bytes);
                records.push(GroupRecord { hash, word, bytes, is_published: false });
            }
        }
        Ok(records)
    }

    fn put(&self, group: &mut GroupState, hash: u64, word: u64) {
        // SAFETY: a group that only this writer has.
        unsafe { Group::at(&self.memory, GroupRef::of(&group.chunk)) }.put(hash, word);
        group.filled += 1;
        group.live += 1;
    }

    /// Writes the record of a key with this hash, whose group this is: into its bucket if there is
    /// room, otherwise into a segment. Returns its address and its bytes.
    ///
    /// # Errors
    /// `LimitExceeded` without memory.
    pub(super) fn append(
        &mut self,
        group: GroupRef,
        hash: u64,
        key: &[u8],
        row: &[u8],
    ) -> Result<(u64, u64)> {
        let room = self.take_room(group, hash, record_bytes(key.len(), row.len()));
        let Some(address) = room else { return self.segments.append(&self.memory, key, row) };
        // SAFETY: room in the writer's own group; no other thread has its address yet.
        let bytes = unsafe { record::write(&self.memory, address, key, row) };
        Ok((address, bytes))
    }

    /// As [`Table::append`], for a copy of an existing record; returns its address.
    pub(super) fn append_bytes(
        &mut self,
        group: GroupRef,
        hash: u64,
        record: &[u8],
    ) -> Result<u64> {
        let room = self.take_room(group, hash, record.len() as u64);
        let Some(address) = room else { return self.segments.append_bytes(&self.memory, record) };
        // SAFETY: as above.
        unsafe { self.memory.write(address, record) };
        Ok(address)
    }

    /// Takes room for a record in the bucket of its key, if there is any.
    fn take_room(&self, group: GroupRef, hash: u64, bytes: u64) -> Option<u64> {
        if !group.is_inline() || !self.has_room(hash) {
            return None;
        }
        // SAFETY: a group of the writer's own table, which has not moved.
        unsafe { Group::at(&self.memory, group) }.take_room(hash, bytes)
    }

    /// Whether records may be written to the group of a hash: not if the group is in an image.
    fn has_room(&self, hash: u64) -> bool {
        !self.memory.is_of_image() || self.groups[self.place_of(hash)].has_room
    }

    /// Counts a record of the group at this index that has left its bucket, or a new record that a
    /// rebuild may bring into a bucket.
    pub(super) fn count_record_outside(&mut self, place: usize) {
        let state = &mut self.groups[place];
        state.records_outside += 1;
        if state.records_outside * 2 > state.live && !state.is_queued {
            state.is_queued = true;
            self.rebuild_queue.push_back(place as u32);
        }
    }

    /// Rebuilds groups of which many records are outside their buckets, up to about this many
    /// bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`.
    pub(super) fn rebuild_queued(
        &mut self,
        bytes_max: u64,
        publishing: PublishTarget<'_>,
    ) -> Result<()> {
        let mut rebuilt = 0;
        while rebuilt < bytes_max {
            let Some(place) = self.rebuild_queue.pop_front() else { break };
            let place = place as usize;
            self.groups[place].is_queued = false;
            // In a group from an image or a takeover the live slots may not be counted yet.
            self.count(place)?;
            let state = &self.groups[place];
            let word = self.group_of(state)?.words().next();
            let Some(word) = word.filter(|_| state.records_outside * 2 > state.live) else {
                continue;
            };
            let scratch = super::Scratch::default();
            let record = self.group_of(state)?.record(word, &scratch)?;
            let (hash, bytes) = (self.hash.of(record.key), state.chunk.bytes());
            match self.rewrite(hash, publishing) {
                // The rebuild is retried when more records have left their buckets.
                Err(error) if error.code() == ErrorCode::LimitExceeded => break,
                result => result?,
            }
            rebuilt += bytes;
        }
        Ok(())
    }
}

impl GroupRecord {
    fn is_small(&self) -> bool {
        self.bytes <= INLINE_RECORD_BYTES_MAX && !is_spilled(self.word)
    }
}
