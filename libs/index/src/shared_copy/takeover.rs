//! Takeover of a shared copy: from an owner that was killed, or that has closed it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;
use forebay_core::fold::PartitionState;
use forebay_core::id::{PartitionCount, PartitionRef};
use forebay_core::replica_state::{Phase, Progress, ReplicaState};

use super::creation::begin_empty;
use super::directory::SharedCopyDirectory;
use super::fold_state_table;
use super::fold_state_table::FoldStateTable;
use super::header_file::PublishedWords;
use super::spaces::header_to_write;
use crate::generation::{Generation, IN_FOLD_STATE};
use crate::header_words::Status;
use crate::key::SeededHash;
use crate::memory::{Memory, Redo, is_spilled, shared_addresses_for};
use crate::schedule::{self, Fault};
use crate::space::Space;
use crate::table::Table;
use crate::writer_state::WriterState;

/// Makes this process the owner of a partition's copy; the process has the copy's lock. Finishes
/// the writes that the previous owner left half done. Returns the state that the previous owner
/// had reached. Returns `None` if nothing was applied yet, or if its copy cannot be used: then the
/// copy starts again, empty. If `image_hash` is set, readers use an image until then, and an empty
/// copy is created with that hash.
///
/// # Errors
/// `NotFound` without a copy; `LimitExceeded`, `Unavailable` if no new copy can be created.
pub(crate) fn acquire_writer(
    directory: &SharedCopyDirectory,
    partition: PartitionRef,
    partitions: PartitionCount,
    hash: SeededHash,
    image_hash: Option<SeededHash>,
) -> Result<(WriterState, Option<ReplicaState>)> {
    let (published, spaces) = header_to_write(directory, partition.store, partition.partition)?;
    finish_swap(&published);
    let generation = published.load_generation();
    let current = spaces.open(generation, true).and_then(|space| take_over(space, &published));
    let usable = current.ok().and_then(|current| {
        let resumed = resume(&current, &published, partition, partitions);
        let is_fit = image_hash.is_none_or(|hash| hash.seed() == current.space.hash.seed());
        let is_empty = current.progress == Progress::START && is_fit;
        (resumed.is_some() || is_empty).then_some((current, resumed))
    });
    let (current, resumed) = match usable {
        Some(usable) => usable,
        None => {
            let hash = image_hash.unwrap_or(hash);
            (begin_empty(&published, &spaces, hash, shared_addresses_for(1))?, None)
        }
    };
    Ok((WriterState::of_shared(current, published, spaces), resumed))
}

/// Finishes a begun switch to another space, whose status was prepared before.
fn finish_swap(published: &PublishedWords) {
    let (turn, generation) = (published.turn(), published.load_generation());
    let next = published.status_of(turn + 1);
    if published.status_of(turn).generation != generation && next.generation == generation {
        published.take_turn(turn + 1);
    }
}

/// Finishes a begun update of several directory entries.
fn finish_directory_update(memory: &Memory) -> Result<()> {
    let header = memory.header();
    let Some(update) = header.begun_directory_update() else { return Ok(()) };
    for entry in 0..update.count {
        let group = if entry < update.count / 2 { update.low } else { update.high };
        let entry_at = update.entry + entry * 4;
        memory.check_opened(entry_at, 4)?;
        schedule::store();
        // SAFETY: an entry of a directory of this space, only accessed as an atomic.
        unsafe { memory.half_word(entry_at) }.store(group, Ordering::Release);
    }
    header.end_directory_update();
    Ok(())
}

/// Takes over a space: finishes the previous owner's writes, and opens the tables.
fn take_over(space: Arc<Space>, published: &PublishedWords) -> Result<Generation> {
    let (memory, hash) = (space.memory.clone(), space.hash);
    let header = memory.header();
    finish_directory_update(&memory)?;
    let armed = header.armed();
    let redo = armed.map(|(_, redo)| redo);
    finish_root_switch(&memory, redo);
    // From here on unreferenced memory is free, even if a reader may still be there.
    memory.note_reuse();
    let serial = header.serial.load(Ordering::Acquire);
    let mut table = Table::from_shared(&memory, hash, header.root.load(Ordering::Acquire), serial)?;
    let fold_state_root = header.fold_state.load(Ordering::Acquire);
    let mut fold_state = FoldStateTable(Table::from_shared(
        &memory,
        hash,
        fold_state_root,
        fold_state_table::SERIAL,
    )?);
    forget_unused_segments(&memory, serial);
    let mut used = table.chunks();
    used.extend(fold_state.0.chunks());
    let items = redo_items(&memory, redo)?;
    memory.adopt(used, None)?;
    redo_writes(&memory, items, (&mut table, &mut fold_state.0))?;
    if let Some((turn, _)) = armed {
        if published.turn() < turn {
            published.take_turn(turn);
        }
        header.disarm();
    }
    let mut status: Status = published.status();
    status.usage.memory_bytes = table.bytes() + fold_state.0.bytes();
    Ok(Generation::of(space, table, Some(fold_state), &status))
}

/// Finishes a begun switch to another root of the table.
fn finish_root_switch(memory: &Memory, redo: Option<Redo>) {
    let header = memory.header();
    if let Some(redo) = redo.filter(|redo| redo.serial != 0) {
        schedule::store();
        header.root.store(redo.root, Ordering::Release);
        schedule::store();
        header.serial.store(redo.serial, Ordering::Release);
    }
}

/// Forgets the notes of segments that neither the table of this serial nor the fold state uses.
fn forget_unused_segments(memory: &Memory, serial: u64) {
    for note in memory.noted_segments() {
        if note.serial != serial && note.serial != fold_state_table::SERIAL {
            memory.forget_note(note.address);
        }
    }
}

/// Returns the items of the writes that may be half done.
fn redo_items(memory: &Memory, redo: Option<Redo>) -> Result<Vec<u64>> {
    let is_finished = !schedule::is_planted(Fault::NotFinished);
    let Some(redo) = redo.filter(|redo| redo.count > 0 && is_finished) else {
        return Ok(Vec::new());
    };
    memory.check_opened(redo.list, 8 * redo.count)?;
    // SAFETY: the list was written before it was armed, and nothing is written in the meantime.
    let bytes = unsafe { memory.bytes(redo.list, 8 * redo.count as usize) };
    Ok(bytes.as_chunks::<8>().0.iter().map(|item| u64::from_le_bytes(*item)).collect())
}

/// Finishes the writes of these items, in the table and in the table of the fold state.
fn redo_writes(
    memory: &Memory,
    items: Vec<u64>,
    (table, fold_state): (&mut Table, &mut Table),
) -> Result<()> {
    for item in items {
        // A replaced record may be spilled: then the file and the record's checksum reveal a bad
        // address.
        if !is_spilled(item & ADDRESS) {
            memory.check_opened(item & ADDRESS, 1)?;
        }
        match item & IN_FOLD_STATE == 0 {
            true => table.redo(item)?,
            false => fold_state.redo(item & !IN_FOLD_STATE)?,
        }
    }
    Ok(())
}

/// The address bits of an item.
const ADDRESS: u64 = (1 << 43) - 1;

fn resume(
    generation: &Generation,
    published: &PublishedWords,
    partition: PartitionRef,
    partitions: PartitionCount,
) -> Option<ReplicaState> {
    let (progress, cursor) = (generation.progress, generation.cursor);
    let mut state = PartitionState::new(partition, partitions);
    state.log_id = cursor.log_id;
    state.offset_applied = progress.offset_applied;
    state.position = progress.position;
    state.partition_time = progress.partition_time;
    state.schema_version = progress.schema_version;
    state.drop_all_count = cursor.drop_all_count;
    generation.fold_state.as_ref()?.restore(&mut state).ok()?;
    let phase = published.load_phase_acquire();
    let is_used = cursor.opened.is_some() && phase != Phase::Poisoned;
    is_used.then_some(ReplicaState { state, cursor, phase })
}
