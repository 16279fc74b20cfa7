//! A generation of a partition's documents, as its writer sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Result;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Progress};
use forebay_core::row::row_expires_at;

use crate::header_words::{Status, Words};
use crate::image::{Image, ImageMetadata};
use crate::key::SeededHash;
use crate::memory::{Chunk, Memory, Redo, SpillPlace};
use crate::resources::Resources;
use crate::schedule;
use crate::shared_copy::FoldStateTable;
use crate::space::Space;
use crate::table::{
    FIRST_SERIAL, PREFETCHED, PreviousRow, PublishTarget, RelocationTarget, Root, Table,
};

/// Number of bucket groups that one `apply` searches for expired documents, plus one more for each
/// `WRITES_PER_EXPIRED` writes.
const EXPIRED_PER_APPLY: usize = 4;
const WRITES_PER_EXPIRED: usize = 128;

/// Bytes of old records that one `apply` walks for reclaim, in addition to twice the bytes it
/// replaces.
const WALKED_PER_APPLY: u64 = 4 * 1024;

/// Bytes that one `apply` walks if memory is short: more than an entry adds, in most cases.
const SPILLED_PER_APPLY: u64 = 256 * 1024;
/// Bytes that are walked for an entry that found no memory: two of the largest segments.
const SPILLED_FOR_ROOM: u64 = 4 * 1024 * 1024;

/// Consecutive attempts to free memory without success, after which the entry is refused.
const IN_VAIN_MAX: u32 = 3;

/// A generation of a partition's documents.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) space: Arc<Space>,
    pub(crate) table: Table,
    /// The fold's state next to the documents; in a shared space only.
    pub(crate) fold_state: Option<FoldStateTable>,
    /// The chunk of the list of an entry's writes (the redo list); in a shared space only.
    redo_list: Option<Chunk>,
    /// Number of writes in the list.
    redo_count: u64,
    pub(crate) progress: Progress,
    pub(crate) usage: PartitionUsage,
    pub(crate) cursor: LogCursor,
    /// Number of repaired blocks of the image that this generation continues from.
    pub(crate) repaired: Arc<AtomicU64>,
}

impl Generation {
    /// Creates an empty generation, in a private space of its own.
    pub(crate) fn private(addresses: u64, hash: SeededHash) -> Result<Self> {
        let memory = Memory::reserve(addresses)?;
        Ok(Self::new_in(Space::new(memory, hash, Root::NONE)))
    }

    /// Creates an empty generation, in an empty space.
    pub(crate) fn new_in(space: Arc<Space>) -> Self {
        let table = Table::new(space.memory.clone(), space.hash, FIRST_SERIAL);
        let fold_state = space.memory.is_shared().then(|| FoldStateTable::new(&space));
        Self::of(space, table, fold_state, &Status::START)
    }

    /// Creates a generation with the existing content of a space.
    pub(crate) fn of(
        space: Arc<Space>,
        table: Table,
        fold_state: Option<FoldStateTable>,
        status: &Status,
    ) -> Self {
        let Status { progress, usage, cursor, .. } = *status;
        let (redo_list, redo_count, repaired) = (None, 0, Arc::default());
        Self { space, table, fold_state, redo_list, redo_count, progress, usage, cursor, repaired }
    }

    /// Creates a generation in a private space that continues from an image; the image is mapped
    /// there.
    pub(crate) fn from_image(
        image: &Image,
        addresses: u64,
        spill: Option<SpillPlace>,
    ) -> Result<Self> {
        let table = Table::from_image(image, addresses, spill)?;
        let space = Space::new(table.memory().clone(), table.hash(), table.root());
        Ok(Self::from_table(space, table, None, image))
    }

    /// Creates a generation in an empty shared space: the image is copied there, each of its blocks
    /// is verified, with the fold's state as of the image.
    pub(crate) fn copied_from_image(
        image: &Image,
        space: Arc<Space>,
        state: &PartitionState,
        resources: &Resources,
    ) -> Result<Self> {
        let table = Table::copied_from_image(image, &space.memory)?;
        // From here on keys are found by the image's hash.
        let space = Arc::new(Space {
            memory: space.memory.clone(),
            hash: table.hash(),
            generation: space.generation,
        });
        let header = space.memory.header();
        header.hash_seed.store(space.hash.seed(), Ordering::Relaxed);
        table.root().store_release(&header.root);
        let mut fold_state = FoldStateTable::new(&space);
        write_fold_state(&mut fold_state, state, resources)?;
        let mut generation = Self::from_table(space, table, Some(fold_state), image);
        generation.note_log(state);
        Ok(generation)
    }

    fn from_table(
        space: Arc<Space>,
        table: Table,
        fold_state: Option<FoldStateTable>,
        image: &Image,
    ) -> Self {
        let ImageMetadata { progress, usage, .. } = *image.metadata();
        let mut status = Status { progress, usage, ..Status::START };
        status.usage.memory_bytes = table.bytes();
        Self { repaired: image.repaired().clone(), ..Self::of(space, table, fold_state, &status) }
    }

    /// Notes the log's identity: a successor that takes over before anything is applied continues
    /// with it.
    pub(crate) fn note_log(&mut self, state: &PartitionState) {
        self.cursor.log_id = state.log_id;
        self.cursor.drop_all_count = state.drop_all_count;
    }

    /// Number of blocks of the underlying image that were repaired so far.
    pub(crate) fn blocks_repaired(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    /// Returns the current status.
    pub(crate) fn status(&self) -> Status {
        let Self { progress, usage, cursor, .. } = *self;
        Status { progress, usage, cursor, generation: self.space.generation }
    }

    /// Applies one record. `published` is the header that readers use, if this generation is
    /// visible.
    ///
    /// # Errors
    /// `LimitExceeded`, `Corrupt`: nothing has changed. `Internal`: the record may be half applied.
    pub(crate) fn apply(
        &mut self,
        resources: &Resources,
        effects: &FoldEffects,
        state: &PartitionState,
        published: Option<&Words>,
    ) -> Result<()> {
        let previous = (self.usage, self.cursor);
        let mut new_table = effects.drop_all.then(|| {
            self.usage = PartitionUsage::default();
            Table::new(self.space.memory.clone(), self.space.hash, self.table.serial() + 1)
        });
        if let Err(error) = self.prepare(resources, effects, state, new_table.as_mut(), published) {
            self.give_up();
            (self.usage, self.cursor) = previous;
            new_table.into_iter().for_each(|table| table.retire(&resources.reclaim));
            return Err(error);
        }
        self.progress = Progress::from(state);
        self.cursor.log_id = state.log_id;
        self.cursor.drop_all_count = state.drop_all_count;
        let old_table = self.publish(new_table, published)?;
        old_table.into_iter().for_each(|table| table.retire(&resources.reclaim));
        Ok(())
    }

    /// Prepares a record's writes; no reader sees any of them yet. Documents written after a drop
    /// go to a new table, which is published once it is complete.
    fn prepare(
        &mut self,
        resources: &Resources,
        effects: &FoldEffects,
        state: &PartitionState,
        new_table: Option<&mut Table>,
        published: Option<&Words>,
    ) -> Result<()> {
        let Self { space, table, usage, fold_state, .. } = self;
        let root = if new_table.is_some() { None } else { Some(space.root()) };
        let publishing = PublishTarget { root, reclaim: &resources.reclaim };
        let is_unpublished = new_table.is_some();
        let table = new_table.unwrap_or(table);
        table.allow_inline(!resources.account.may_spill() && !resources.account.is_short());
        for writes in effects.writes.chunks(PREFETCHED) {
            let hashes = table.prefetch(writes.iter().map(|(key, _)| key.as_bytes()));
            for ((key, row), hash) in writes.iter().zip(hashes) {
                let (key, row) = ((hash, key.as_bytes()), row.as_deref());
                prepare_one(table, usage, key, row, publishing)?;
            }
        }
        if is_unpublished {
            table.publish()?;
        }
        usage.memory_bytes = bytes_of(table, fold_state.as_ref());
        if let Some(fold_state) = fold_state {
            let root = Some(&space.memory.header().fold_state);
            let publishing = PublishTarget { root, reclaim: &resources.reclaim };
            fold_state.prepare(effects, state, publishing)?;
        }
        if published.is_some() { self.write_redo_list() } else { Ok(()) }
    }

    fn give_up(&mut self) {
        self.table.give_up();
        if let Some(fold_state) = &mut self.fold_state {
            fold_state.0.give_up();
        }
    }

    /// Writes the redo list of the prepared writes, in a shared space: a successor that takes over
    /// finishes them.
    fn write_redo_list(&mut self) -> Result<()> {
        let Some(fold_state) = &self.fold_state else { return Ok(()) };
        let items = self.table.items(0).chain(fold_state.0.items(IN_FOLD_STATE));
        let bytes: Vec<u8> = items.flat_map(u64::to_le_bytes).collect();
        let needed = bytes.len() as u64;
        let memory = &self.space.memory;
        if self.redo_list.as_ref().is_none_or(|list| list.bytes() < needed) {
            let list_chunk = memory.allocate(needed)?;
            memory.release(self.redo_list.replace(list_chunk));
        }
        if let Some(redo_list) = &self.redo_list {
            // SAFETY: the chunk is this writer's, is long enough, and no reader reaches it.
            unsafe { memory.write(redo_list.address(), &bytes) };
        }
        self.redo_count = needed / 8;
        Ok(())
    }

    /// Publishes the prepared writes and the resulting status; returns the table that was
    /// replaced, if any.
    fn publish(
        &mut self,
        new_table: Option<Table>,
        published: Option<&Words>,
    ) -> Result<Option<Table>> {
        let status = self.status();
        let header = self.space.memory.header();
        let turn = published.map(|published| published.prepare(&status));
        let shared_turn = turn.filter(|_| self.space.memory.is_shared());
        if let Some(turn) = shared_turn {
            let list = self.redo_list.as_ref().map_or(0, Chunk::address);
            let (root, serial) =
                new_table.as_ref().map_or((0, 0), |table| (table.root().word(), table.serial()));
            header.arm(turn, &Redo { list, count: self.redo_count, root, serial });
        }
        let old_table = new_table.map(|new_table| {
            new_table.root().store_release(&header.root);
            schedule::store();
            header.serial.store(new_table.serial(), Ordering::Release);
            std::mem::replace(&mut self.table, new_table)
        });
        self.table.publish()?;
        if let Some(fold_state) = &mut self.fold_state {
            fold_state.0.publish()?;
        }
        if let (Some(published), Some(turn)) = (published, turn) {
            published.take_turn(turn);
        }
        if shared_turn.is_some() {
            header.disarm();
        }
        Ok(old_table)
    }

    /// Garbage-collects expired documents and replaced records, a bounded amount for this many
    /// writes.
    ///
    /// # Errors
    /// As [`Generation::apply`].
    pub(crate) fn collect_garbage(
        &mut self,
        resources: &Resources,
        writes: usize,
        published: Option<&Words>,
    ) -> Result<()> {
        let groups_max = EXPIRED_PER_APPLY + writes / WRITES_PER_EXPIRED;
        let (now, previous_usage) = (self.progress.partition_time, self.usage);
        let (table, usage) = (&mut self.table, &mut self.usage);
        let expired = table.prepare_expired(now, groups_max, |key, row| usage.lose(key, row));
        let prepared = expired.and_then(|()| match published {
            Some(_) if self.usage != previous_usage => self.write_redo_list(),
            _ => Ok(()),
        });
        if let Err(error) = prepared {
            self.give_up();
            self.usage = previous_usage;
            return Err(error);
        }
        let changed_words = published.filter(|_| self.usage != previous_usage);
        self.publish(None, changed_words)?;
        self.table.note_searched_groups();
        let publishing =
            PublishTarget { root: Some(self.space.root()), reclaim: &resources.reclaim };
        match self.is_to_spill(resources) {
            true => self.table.reclaim(SPILLED_PER_APPLY, RelocationTarget::Spill, publishing)?,
            false => self.table.reclaim(WALKED_PER_APPLY, RelocationTarget::Memory, publishing)?,
        }
        if let Some(fold_state) = &mut self.fold_state {
            let root = Some(&self.space.memory.header().fold_state);
            let publishing = PublishTarget { root, reclaim: &resources.reclaim };
            fold_state.0.reclaim(WALKED_PER_APPLY, RelocationTarget::Memory, publishing)?;
        }
        self.usage.memory_bytes = bytes_of(&self.table, self.fold_state.as_ref());
        Ok(())
    }
}

impl Generation {
    /// Whether memory is so short that records must be spilled before it is used up.
    fn is_to_spill(&self, resources: &Resources) -> bool {
        if !resources.account.may_spill() || !resources.account.is_short() {
            return false;
        }
        self.space.memory.take_back();
        resources.account.is_short() && self.can_spill(resources)
    }

    fn can_spill(&self, resources: &Resources) -> bool {
        let memory = &self.space.memory;
        resources.spill_place().into_iter().for_each(|place| memory.spill_to(place));
        resources.account.may_spill() && memory.can_spill()
    }

    /// Spills records for an entry that found no memory; returns whether a retry may find some now.
    ///
    /// # Errors
    /// As [`Generation::apply`].
    pub(crate) fn make_room(
        &mut self,
        resources: &Resources,
        attempts: &mut SpaceAttempts,
    ) -> Result<bool> {
        let memory = self.space.memory.clone();
        if !self.can_spill(resources) {
            return Ok(false);
        }
        let publishing =
            PublishTarget { root: Some(self.space.root()), reclaim: &resources.reclaim };
        self.table.reclaim(SPILLED_FOR_ROOM, RelocationTarget::Spill, publishing)?;
        resources.reclaim.advance(&memory);
        memory.take_back();
        // Each failed attempt frees the memory that the entry took, so only a new minimum counts as
        // success.
        let used = memory.used_bytes();
        attempts.failures = if used < attempts.lowest { 0 } else { attempts.failures + 1 };
        attempts.lowest = attempts.lowest.min(used);
        Ok(attempts.failures < IN_VAIN_MAX)
    }
}

/// The attempts to free memory for one entry.
pub(crate) struct SpaceAttempts {
    /// The lowest memory use after any attempt.
    lowest: u64,
    /// Attempts since the lowest use.
    failures: u32,
}

impl SpaceAttempts {
    pub(crate) const NOTHING: Self = Self { lowest: u64::MAX, failures: 0 };
}

/// The bit of a list item whose record is in the fold-state table (`FoldStateTable`).
pub(crate) const IN_FOLD_STATE: u64 = 1 << 62;

/// Writes the fold's state to an empty table.
pub(crate) fn write_fold_state(
    fold_state: &mut FoldStateTable,
    state: &PartitionState,
    resources: &Resources,
) -> Result<()> {
    let memory = fold_state.0.memory().clone();
    let root = Some(&memory.header().fold_state);
    fold_state.prepare_all(state, PublishTarget { root, reclaim: &resources.reclaim })?;
    fold_state.0.publish()
}

/// Bytes that the documents and the fold's state take.
pub(crate) fn bytes_of(table: &Table, fold_state: Option<&FoldStateTable>) -> u64 {
    table.bytes() + fold_state.map_or(0, |fold_state| fold_state.0.bytes())
}

pub(crate) fn prepare_one(
    table: &mut Table,
    usage: &mut PartitionUsage,
    (hash, key): (u64, &[u8]),
    row: Option<&[u8]>,
    publishing: PublishTarget<'_>,
) -> Result<()> {
    let Some(row) = row else {
        if let Some(replaced) = table.prepare_removal(hash, key)? {
            usage.lose(key.len(), replaced.row_bytes);
        }
        return Ok(());
    };
    match table.prepare(hash, key, row, row_expires_at(row), publishing)? {
        Some(PreviousRow { row_bytes }) => {
            usage.row_bytes = usage.row_bytes.saturating_sub(row_bytes as u64) + row.len() as u64;
        }
        None => usage.gain(key.len(), row.len()),
    }
    Ok(())
}
