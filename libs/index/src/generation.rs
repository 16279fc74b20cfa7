//! One generation of a partition's documents, as its writer has it.

mod beside;

pub(crate) use beside::has_most;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Result;
use forebay_core::fold::{Applied, PartitionState};
use forebay_core::row::row_expires_at;

use crate::header::{Following, Held, Progress, Status, Words};
use crate::image::{Image, ImageAbout};
use crate::index::Inner;
use crate::live::Windows;
use crate::memory::{Chunk, Memory, Redo, SpillPlace};
use crate::schedule;
use crate::storage::{SeededHash, Space};
use crate::table::{FIRST_SERIAL, MoveTo, PREFETCHED, Publishing, Replaced, Root, Table};

/// Bucket groups that one `apply` looks through for what has expired, and one more for this many
/// writes.
const EXPIRED_PER_APPLY: usize = 4;
const WRITES_PER_EXPIRED: usize = 128;

/// Bytes of old records that one `apply` walks for reclaim, beyond twice what it replaces.
const WALKED_PER_APPLY: u64 = 4 * 1024;

/// As many where memory is short: more than an entry adds, most often.
const SPILLED_PER_APPLY: u64 = 256 * 1024;
/// And where an entry found none: two of the largest segments.
const SPILLED_FOR_ROOM: u64 = 4 * 1024 * 1024;

/// Attempts to make room that may bring none, one after another, until an entry is refused.
const IN_VAIN_MAX: u32 = 3;

/// One generation of a partition's documents.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) space: Arc<Space>,
    pub(crate) table: Table,
    /// What the fold keeps beside the documents; in a live space only.
    pub(crate) windows: Option<Windows>,
    /// Where the list of an entry's writes lies; in a live space only.
    list: Option<Chunk>,
    /// How many writes the list has.
    listed: u64,
    pub(crate) progress: Progress,
    pub(crate) held: Held,
    pub(crate) following: Following,
    /// How many blocks of the image that it goes on from were mended.
    mended: Arc<AtomicU64>,
}

impl Generation {
    /// An empty one, in a private space of its own.
    pub(crate) fn private(addresses: u64, hash: SeededHash) -> Result<Self> {
        let memory = Memory::reserve(addresses)?;
        Ok(Self::within(Space::new(memory, hash, Root::NONE)))
    }

    /// An empty one, in a space that is empty.
    pub(crate) fn within(space: Arc<Space>) -> Self {
        let table = Table::new(space.memory.clone(), space.hash, FIRST_SERIAL);
        let windows = space.memory.is_live().then(|| Windows::new(&space));
        Self::of(space, table, windows, &Status::START)
    }

    /// One with what a space holds already.
    pub(crate) fn of(
        space: Arc<Space>,
        table: Table,
        windows: Option<Windows>,
        status: &Status,
    ) -> Self {
        let Status { progress, held, following, .. } = *status;
        let (list, listed, mended) = (None, 0, Arc::default());
        Self { space, table, windows, list, listed, progress, held, following, mended }
    }

    /// One in a private space that goes on from an image, which is mapped there.
    pub(crate) fn of_image(
        image: &Image,
        addresses: u64,
        spill: Option<SpillPlace>,
    ) -> Result<Self> {
        let table = Table::of_image(image, addresses, spill)?;
        let space = Space::new(table.memory().clone(), table.hash(), table.root());
        Ok(Self::of_table(space, table, None, image))
    }

    /// One in a live space that is empty: an image is copied there, each of its blocks proved, with
    /// the fold's state as of the image.
    pub(crate) fn of_image_copied(
        image: &Image,
        space: Arc<Space>,
        state: &PartitionState,
        index: &Inner,
    ) -> Result<Self> {
        let table = Table::of_image_copied(image, &space.memory)?;
        // Keys are found by the image's hash from here on.
        let space = Arc::new(Space {
            memory: space.memory.clone(),
            hash: table.hash(),
            generation: space.generation,
        });
        let words = space.memory.words();
        words.hash_seed.store(space.hash.seed(), Ordering::Relaxed);
        table.root().store_release(&words.root);
        let mut windows = Windows::new(&space);
        note_windows(&mut windows, state, index)?;
        let mut copied = Self::of_table(space, table, Some(windows), image);
        copied.note_log(state);
        Ok(copied)
    }

    fn of_table(space: Arc<Space>, table: Table, windows: Option<Windows>, image: &Image) -> Self {
        let ImageAbout { progress, held, .. } = *image.about();
        let mut status = Status { progress, held, ..Status::START };
        status.held.memory_bytes = table.bytes();
        Self { mended: image.mended().clone(), ..Self::of(space, table, windows, &status) }
    }

    /// Notes of which log it is: whoever takes over before anything is applied goes on with that.
    fn note_log(&mut self, state: &PartitionState) {
        self.following.log_id = state.log_id;
        self.following.drop_all_count = state.drop_all_count;
    }

    /// How many blocks of the image that it goes on from were mended so far.
    pub(crate) fn blocks_mended(&self) -> u64 {
        self.mended.load(Ordering::Relaxed)
    }

    /// What it comes to at the moment.
    pub(crate) fn status(&self) -> Status {
        let Self { progress, held, following, .. } = *self;
        Status { progress, held, following, generation: self.space.generation }
    }

    /// Carries out one record's effect. `published` is where readers see it, if they do.
    ///
    /// # Errors
    /// `LimitExceeded`, `Corrupt`: all is as it was. `Internal`: it may be half done.
    pub(crate) fn apply(
        &mut self,
        index: &Inner,
        applied: &Applied,
        state: &PartitionState,
        published: Option<&Words>,
    ) -> Result<()> {
        let before = (self.held, self.following);
        let mut fresh = applied.drop_all.then(|| {
            self.held = Held::default();
            Table::new(self.space.memory.clone(), self.space.hash, self.table.serial() + 1)
        });
        if let Err(error) = self.prepare(index, applied, state, fresh.as_mut(), published) {
            self.give_up();
            (self.held, self.following) = before;
            fresh.into_iter().for_each(|fresh| fresh.retire(&index.reclaim));
            return Err(error);
        }
        self.progress = Progress::from(state);
        self.following.log_id = state.log_id;
        self.following.drop_all_count = state.drop_all_count;
        let dropped = self.show(fresh, published)?;
        dropped.into_iter().for_each(|dropped| dropped.retire(&index.reclaim));
        Ok(())
    }

    /// Prepares a record's writes; nobody sees any of it yet. What comes after a drop goes to a
    /// table that is shown when all of it is there.
    fn prepare(
        &mut self,
        index: &Inner,
        applied: &Applied,
        state: &PartitionState,
        fresh: Option<&mut Table>,
        published: Option<&Words>,
    ) -> Result<()> {
        let Self { space, table, held, windows, .. } = self;
        let root = if fresh.is_some() { None } else { Some(space.root()) };
        let publishing = Publishing { root, reclaim: &index.reclaim };
        let is_unseen = fresh.is_some();
        let table = fresh.unwrap_or(table);
        table.allow_inline(!index.budget.may_spill() && !index.budget.is_short());
        for writes in applied.writes.chunks(PREFETCHED) {
            let hashes = table.prefetch(writes.iter().map(|(key, _)| key.as_bytes()));
            for ((key, row), hash) in writes.iter().zip(hashes) {
                let (key, row) = ((hash, key.as_bytes()), row.as_deref());
                prepare_one(table, held, key, row, publishing)?;
            }
        }
        if is_unseen {
            table.show()?;
        }
        held.memory_bytes = bytes_of(table, windows.as_ref());
        if let Some(windows) = windows {
            let root = Some(&space.memory.words().windows);
            let publishing = Publishing { root, reclaim: &index.reclaim };
            windows.prepare(applied, state, publishing)?;
        }
        if published.is_some() { self.write_list() } else { Ok(()) }
    }

    fn give_up(&mut self) {
        self.table.give_up();
        if let Some(windows) = &mut self.windows {
            windows.0.give_up();
        }
    }

    /// Writes down what was prepared, in a live space: whoever takes over finishes it.
    fn write_list(&mut self) -> Result<()> {
        let Some(windows) = &self.windows else { return Ok(()) };
        let items = self.table.items(0).chain(windows.0.items(WINDOWS));
        let bytes: Vec<u8> = items.flat_map(u64::to_le_bytes).collect();
        let needed = bytes.len() as u64;
        let memory = &self.space.memory;
        if self.list.as_ref().is_none_or(|list| list.bytes() < needed) {
            let larger = memory.allocate(needed)?;
            memory.release(self.list.replace(larger));
        }
        if let Some(list) = &self.list {
            // SAFETY: the chunk is this writer's, is long enough, and no reader comes to it.
            unsafe { memory.write(list.address(), &bytes) };
        }
        self.listed = needed / 8;
        Ok(())
    }

    /// Shows what was prepared, and publishes what it comes to; answers the table that another one
    /// has taken the place of.
    fn show(&mut self, fresh: Option<Table>, published: Option<&Words>) -> Result<Option<Table>> {
        let status = self.status();
        let words = self.space.memory.words();
        let turn = published.map(|published| published.prepare(&status));
        let armed = turn.filter(|_| self.space.memory.is_live());
        if let Some(turn) = armed {
            let list = self.list.as_ref().map_or(0, Chunk::address);
            let (root, serial) =
                fresh.as_ref().map_or((0, 0), |fresh| (fresh.root().word(), fresh.serial()));
            words.arm(turn, &Redo { list, count: self.listed, root, serial });
        }
        let dropped = fresh.map(|fresh| {
            fresh.root().store_release(&words.root);
            schedule::store();
            words.serial.store(fresh.serial(), Ordering::Release);
            std::mem::replace(&mut self.table, fresh)
        });
        self.table.show()?;
        if let Some(windows) = &mut self.windows {
            windows.0.show()?;
        }
        if let (Some(published), Some(turn)) = (published, turn) {
            published.take_turn(turn);
        }
        if armed.is_some() {
            words.disarm();
        }
        Ok(dropped)
    }

    /// Lets the memory of expired documents and of replaced records go, a bounded amount for this
    /// many writes.
    ///
    /// # Errors
    /// As [`Generation::apply`].
    pub(crate) fn tidy(
        &mut self,
        index: &Inner,
        writes: usize,
        published: Option<&Words>,
    ) -> Result<()> {
        let most = EXPIRED_PER_APPLY + writes / WRITES_PER_EXPIRED;
        let (now, before) = (self.progress.partition_time, self.held);
        let (table, held) = (&mut self.table, &mut self.held);
        let expired = table.prepare_expired(now, most, |key, row| held.lose(key, row));
        let listed = expired.and_then(|()| match published {
            Some(_) if self.held != before => self.write_list(),
            _ => Ok(()),
        });
        if let Err(error) = listed {
            self.give_up();
            self.held = before;
            return Err(error);
        }
        let is_seen = published.filter(|_| self.held != before);
        self.show(None, is_seen)?;
        self.table.note_looked_through();
        let publishing = Publishing { root: Some(self.space.root()), reclaim: &index.reclaim };
        match self.is_to_spill(index) {
            true => self.table.reclaim(SPILLED_PER_APPLY, MoveTo::Spill, publishing)?,
            false => self.table.reclaim(WALKED_PER_APPLY, MoveTo::Memory, publishing)?,
        }
        if let Some(windows) = &mut self.windows {
            let root = Some(&self.space.memory.words().windows);
            let publishing = Publishing { root, reclaim: &index.reclaim };
            windows.0.reclaim(WALKED_PER_APPLY, MoveTo::Memory, publishing)?;
        }
        self.held.memory_bytes = bytes_of(&self.table, self.windows.as_ref());
        Ok(())
    }
}

impl Generation {
    /// Whether memory is so short that records are to be spilled before it is used up.
    fn is_to_spill(&self, index: &Inner) -> bool {
        if !index.budget.may_spill() || !index.budget.is_short() {
            return false;
        }
        self.space.memory.take_back();
        index.budget.is_short() && self.can_spill(index)
    }

    fn can_spill(&self, index: &Inner) -> bool {
        let memory = &self.space.memory;
        index.spill_place().into_iter().for_each(|place| memory.spill_to(place));
        index.budget.may_spill() && memory.can_spill()
    }

    /// Spills records for an entry that found no memory; answers whether it may find some now.
    ///
    /// # Errors
    /// As [`Generation::apply`].
    pub(crate) fn make_room(&mut self, index: &Inner, tried: &mut Tried) -> Result<bool> {
        let memory = self.space.memory.clone();
        if !self.can_spill(index) {
            return Ok(false);
        }
        let publishing = Publishing { root: Some(self.space.root()), reclaim: &index.reclaim };
        self.table.reclaim(SPILLED_FOR_ROOM, MoveTo::Spill, publishing)?;
        index.reclaim.go_on(&memory);
        memory.take_back();
        // What the entry took before it failed comes free each time: only new lows count.
        let used = memory.used_bytes();
        tried.in_vain = if used < tried.lowest { 0 } else { tried.in_vain + 1 };
        tried.lowest = tried.lowest.min(used);
        Ok(tried.in_vain < IN_VAIN_MAX)
    }
}

/// How far an entry has come that looks for room.
pub(crate) struct Tried {
    /// The least that was in use behind any attempt.
    lowest: u64,
    /// Attempts since then.
    in_vain: u32,
}

impl Tried {
    pub(crate) const NOTHING: Self = Self { lowest: u64::MAX, in_vain: 0 };
}

/// The bit of an item of the list whose record lies in the windows' table.
pub(crate) const WINDOWS: u64 = 1 << 62;

/// Writes what the fold keeps beside the documents, to a table that is empty.
fn note_windows(windows: &mut Windows, state: &PartitionState, index: &Inner) -> Result<()> {
    let memory = windows.0.memory().clone();
    let root = Some(&memory.words().windows);
    windows.prepare_all(state, Publishing { root, reclaim: &index.reclaim })?;
    windows.0.show()
}

/// What the documents take, and what the fold keeps beside them.
fn bytes_of(table: &Table, windows: Option<&Windows>) -> u64 {
    table.bytes() + windows.map_or(0, |windows| windows.0.bytes())
}

fn prepare_one(
    table: &mut Table,
    held: &mut Held,
    (hash, key): (u64, &[u8]),
    row: Option<&[u8]>,
    publishing: Publishing<'_>,
) -> Result<()> {
    let Some(row) = row else {
        if let Some(replaced) = table.prepare_removal(hash, key)? {
            held.lose(key.len(), replaced.row_bytes);
        }
        return Ok(());
    };
    match table.prepare(hash, key, row, row_expires_at(row), publishing)? {
        Some(Replaced { row_bytes }) => {
            held.row_bytes = held.row_bytes.saturating_sub(row_bytes as u64) + row.len() as u64;
        }
        None => held.gain(key.len(), row.len()),
    }
    Ok(())
}
