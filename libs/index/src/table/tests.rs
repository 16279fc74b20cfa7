//! Compares a table with a naive map: growth, deletes, reclaim, and the return of all memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Finds the record of a key, in the table that begins at this root.
///
/// # Safety
/// As [`Search::end`].
unsafe fn find<'g>(
    memory: &'g Memory,
    root: Root,
    hash: u64,
    key: &[u8],
    scratch: &'g Scratch,
) -> Result<Option<Record<'g>>> {
    // SAFETY: the caller's promise.
    unsafe { Search::begin(memory, root, hash).end(memory, key, scratch) }
}

mod inline;

use super::*;
use crate::memory::CHUNK_BYTES_MIN;

/// A table with a root that readers see.
struct TableWorld {
    memory: Arc<Memory>,
    reclaim: Reclaim,
    cell: AtomicU64,
    hash: SeededHash,
}

impl TableWorld {
    fn new() -> Self {
        Self::with_memory(1 << 36)
    }

    fn with_memory(bytes: u64) -> Self {
        let memory = Memory::reserve(bytes).unwrap();
        let reclaim = Reclaim::new();
        Self { memory, reclaim, cell: AtomicU64::new(0), hash: SeededHash::new(7) }
    }

    fn table(&self) -> Table {
        Table::new(self.memory.clone(), self.hash, 2)
    }

    fn publishing(&self) -> PublishTarget<'_> {
        PublishTarget { root: Some(&self.cell), reclaim: &self.reclaim }
    }

    /// Returns the row that a reader finds.
    fn find(&self, key: &[u8]) -> Option<Vec<u8>> {
        let _guard = self.reclaim.enter();
        let root = Root::load(&self.cell);
        let scratch = Scratch::default();
        // SAFETY: the root was loaded under the guard, and the row is copied under it.
        unsafe { find(&self.memory, root, self.hash.of(key), key, &scratch) }
            .unwrap()
            .map(|record| record.row.to_vec())
    }

    /// Bytes in use after all reclaimable memory was reclaimed.
    fn used_at_rest(&self) -> u64 {
        (0..1_000).for_each(|_| self.reclaim.advance(&self.memory));
        self.memory.used_bytes()
    }

    /// Returns the keys that a reader lists, in order.
    fn keys(&self) -> Vec<Vec<u8>> {
        let (mut keys, mut from) = (Vec::new(), Some(0));
        while let Some(start) = from {
            let _guard = self.reclaim.enter();
            let root = Root::load(&self.cell);
            let push = |key: &[u8]| keys.push(key.to_vec());
            // SAFETY: as in `find`.
            from = unsafe { keys_from(&self.memory, root, self.hash, start, push) }.unwrap();
        }
        keys.sort();
        keys
    }
}

impl Table {
    /// Writes one row.
    fn insert(
        &mut self,
        key: &[u8],
        row: &[u8],
        publishing: PublishTarget<'_>,
    ) -> Result<Option<usize>> {
        let prepared = self.prepare(self.hash.of(key), key, row, None, publishing);
        prepared.as_ref().err().into_iter().for_each(|_| self.give_up());
        self.publish()?;
        Ok(prepared?.map(|replaced| replaced.row_bytes))
    }

    fn remove(&mut self, key: &[u8]) -> Result<Option<usize>> {
        let removal = self.prepare_removal(self.hash.of(key), key)?;
        self.publish()?;
        Ok(removal.map(|replaced| replaced.row_bytes))
    }
}

/// Returns a generator of numbers that look random and are the same in each run.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

#[test]
fn table_equals_a_map_after_a_long_history() {
    let (world, mut number) = (TableWorld::new(), numbers(1));
    let (mut table, mut model) = (world.table(), HashMap::<Vec<u8>, Vec<u8>>::new());
    for step in 0..120_000_u64 {
        let key = format!("key-{}", number(9_000)).into_bytes();
        if number(4) == 0 {
            let removed_row = table.remove(&key).unwrap();
            assert_eq!(removed_row, model.remove(&key).map(|row| row.len()));
        } else {
            let row = vec![step as u8; number(120) as usize];
            let replaced = table.insert(&key, &row, world.publishing()).unwrap();
            assert_eq!(replaced, model.insert(key, row).map(|row| row.len()));
        }
        table.reclaim(200, RelocationTarget::Memory, world.publishing()).unwrap();
    }
    for (key, row) in &model {
        assert_eq!(world.find(key).as_ref(), Some(row));
    }
    assert_eq!(world.find(b"never"), None);
    let mut keys: Vec<_> = model.keys().cloned().collect();
    keys.sort();
    assert_eq!(world.keys(), keys);
    let mut rows = Vec::new();
    let visit = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        Ok(())
    };
    table.visit_rows(visit).unwrap();
    rows.sort();
    assert!(rows.iter().all(|(key, row)| model[key] == *row));
    assert_eq!(rows.len(), model.len());
    // All dead records were reclaimed, except in half of the sealed segments and in the open
    // segment.
    let live: u64 = model.iter().map(|(key, row)| (key.len() + row.len() + 2) as u64).sum();
    assert!(
        table.bytes() < table.group_bytes + 3 * live + 256 * 1024,
        "{} for {live}",
        table.bytes()
    );

    table.retire(&world.reclaim);
    assert_eq!(world.used_at_rest(), 0);
}

#[test]
fn each_new_key_moves_at_most_one_group() {
    let world = TableWorld::new();
    let mut table = world.table();
    for key in 0..60_000_u32 {
        let (before, used) = (table.groups.len(), world.memory.used_bytes());
        table.insert(&key.to_le_bytes(), b"row", world.publishing()).unwrap();
        assert!(table.groups.len() <= before + 1 || before == 0);
        assert!(used == 0 || world.memory.used_bytes() <= used + 4 * 1024 * 1024);
    }
    assert!(table.groups.len() >= 60_000 / group_layout::filled_max(true) as usize);
    let filled_slots: u32 = table.groups.iter().map(|state| state.filled).sum();
    assert_eq!(filled_slots, 60_000);
}

#[test]
fn group_of_deleted_slots_is_rewritten_and_not_split() {
    let world = TableWorld::new();
    let mut table = world.table();
    for key in 0..20_000_u32 {
        table.insert(&key.to_le_bytes(), b"row", world.publishing()).unwrap();
        assert_eq!(table.remove(&key.to_le_bytes()).unwrap(), Some(3));
        table.insert(b"lasting", &key.to_le_bytes(), world.publishing()).unwrap();
    }
    assert_eq!(table.groups.len(), 1);
    assert_eq!(world.find(b"lasting"), Some(19_999_u32.to_le_bytes().to_vec()));
}

#[test]
fn rows_of_every_size_round_trip() {
    let world = TableWorld::new();
    let mut table = world.table();
    let sizes = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 5_000_000];
    for size in sizes {
        let row = vec![size as u8; size];
        table.insert(format!("{size}").as_bytes(), &row, world.publishing()).unwrap();
    }
    for size in sizes {
        assert_eq!(world.find(format!("{size}").as_bytes()).unwrap(), vec![size as u8; size]);
    }
    let long = vec![b'k'; forebay_core::limits::KEY_BYTES_MAX];
    table.insert(&long, b"row", world.publishing()).unwrap();
    assert_eq!(world.find(&long).unwrap(), b"row");
}

#[test]
fn guard_pins_only_its_retired_memory() {
    let world = TableWorld::new();
    let mut table = world.table();
    table.insert(b"key", &[7; 100], world.publishing()).unwrap();
    let guard = world.reclaim.enter();
    let (root, scratch) = (Root::load(&world.cell), Scratch::default());
    // SAFETY: the root was loaded under the guard, which outlives the row.
    let row = unsafe { find(&world.memory, root, world.hash.of(b"key"), b"key", &scratch) };
    let row = row.unwrap().unwrap().row;
    for n in 0..50_000_u32 {
        table.insert(b"key", &n.to_le_bytes().repeat(25), world.publishing()).unwrap();
        table.reclaim(300, RelocationTarget::Memory, world.publishing()).unwrap();
    }
    assert!(row.iter().all(|byte| *byte == 7), "a record was written over under a guard");
    let with_guard = world.memory.used_bytes();
    drop(guard);
    for n in 0..50_000_u32 {
        table.insert(b"key", &n.to_le_bytes().repeat(25), world.publishing()).unwrap();
        table.reclaim(300, RelocationTarget::Memory, world.publishing()).unwrap();
    }
    assert!(world.memory.used_bytes() < with_guard.min(1024 * 1024));
}

#[test]
fn readers_during_growth_and_reclaim_miss_no_document() {
    const LASTING: u32 = 500;
    let (world, is_done) = (TableWorld::new(), AtomicBool::new(false));
    let mut table = world.table();
    let row = |key: u32, version: u32| {
        let mut row = key.to_le_bytes().to_vec();
        row.extend(version.to_le_bytes().repeat(1 + version as usize % 40));
        row
    };
    for key in 0..LASTING {
        table.insert(&key.to_le_bytes(), &row(key, 0), world.publishing()).unwrap();
    }
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (world, is_done) = (&world, &is_done);
            scope.spawn(move || {
                let mut number = numbers(reader);
                let mut last = vec![0; LASTING as usize];
                while !is_done.load(Ordering::Relaxed) {
                    let key = number(u64::from(LASTING)) as u32;
                    let Some(row_read) = world.find(&key.to_le_bytes()) else {
                        is_done.store(true, Ordering::Relaxed);
                        panic!("key {key} was missed");
                    };
                    let version = u32::from_le_bytes(row_read[4..8].try_into().unwrap());
                    if row_read != row(key, version) || version < last[key as usize] {
                        is_done.store(true, Ordering::Relaxed);
                        panic!("key {key}: {row_read:?} after version {}", last[key as usize]);
                    }
                    last[key as usize] = version;
                }
            });
        }
        let mut version = 0;
        for new in LASTING..60_000 {
            if is_done.load(Ordering::Relaxed) {
                break;
            }
            table.insert(&new.to_le_bytes(), &row(new, 0), world.publishing()).unwrap();
            let key = new % LASTING;
            version += u32::from(key == 0);
            table.insert(&key.to_le_bytes(), &row(key, version), world.publishing()).unwrap();
            table.reclaim(400, RelocationTarget::Memory, world.publishing()).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Takes all free memory except this many of the smallest chunks.
fn starve(memory: &Memory, spare: usize) -> Vec<Chunk> {
    let mut chunks: Vec<_> = std::iter::from_fn(|| memory.allocate(CHUNK_BYTES_MIN).ok()).collect();
    let spared = chunks.split_off(chunks.len() - spare.min(chunks.len()));
    memory.release(spared);
    chunks
}

#[test]
fn table_without_memory_loses_and_leaks_nothing() {
    let mut refusals = 0;
    for (spare, rows) in (0..5).flat_map(|spare| [(spare, 0), (spare, 40), (spare, 700)]) {
        let world = TableWorld::with_memory(8 * 1024 * 1024);
        let (mut table, mut model) = (world.table(), HashMap::new());
        let mut number = numbers(spare as u64);
        let mut chunks = Vec::new();
        for step in 0..6_000_u64 {
            // Memory shortage comes and goes, so that it hits every step of growth.
            if step % 600 == 300 {
                chunks = starve(&world.memory, spare);
            } else if step % 600 == 0 {
                world.memory.release(std::mem::take(&mut chunks));
            }
            let key = number(12_000).to_le_bytes();
            if number(5) == 0 {
                assert_eq!(
                    table.remove(&key).unwrap(),
                    model.remove(&key).map(|row: Vec<u8>| row.len())
                );
            }
            let row = vec![step as u8; number(1 + rows) as usize];
            match table.insert(&key, &row, world.publishing()) {
                Ok(_) => drop(model.insert(key, row)),
                Err(error) => {
                    assert_eq!(error.code(), forebay_core::ErrorCode::LimitExceeded);
                    refusals += 1;
                }
            }
            table.reclaim(100, RelocationTarget::Memory, world.publishing()).unwrap();
            assert_eq!(world.find(&key).as_ref(), model.get(&key));
        }
        assert!(model.iter().all(|(key, row)| world.find(key).as_ref() == Some(row)));
        let mut count = 0;
        let visit_result = table.visit_rows(|_, _| {
            count += 1;
            Ok(())
        });
        visit_result.unwrap();
        assert_eq!(count, model.len());
        world.memory.release(chunks);
        table.retire(&world.reclaim);
        assert_eq!(world.used_at_rest(), 0, "spare {spare}, rows {rows}");
    }
    assert!(refusals > 1_000, "{refusals} refusals");
}

#[test]
fn reader_of_a_split_group_finds_its_former_records() {
    let world = TableWorld::new();
    let mut table = world.table();
    let old: Vec<_> = (0..800_u32).map(u32::to_le_bytes).collect();
    for key in &old {
        table.insert(key, &key.repeat(9), world.publishing()).unwrap();
    }
    let pin = world.reclaim.enter();
    let root = Root::load(&world.cell);
    assert_eq!((table.groups.len(), root), (1, table.root()));
    for key in 800..20_000_u32 {
        table.insert(&key.to_le_bytes(), b"new", world.publishing()).unwrap();
    }
    // Every record that the old group names is removed, and so are the segments of these records.
    let before = table.segments.bytes();
    for round in 0..40_u8 {
        for key in &old {
            table.insert(key, &[round; 60], world.publishing()).unwrap();
            table.reclaim(10_000, RelocationTarget::Memory, world.publishing()).unwrap();
        }
    }
    assert!(table.segments.bytes() < 3 * before, "nothing was reclaimed");
    assert!(world.used_at_rest() > table.bytes(), "nothing waits for the reader");
    for key in &old {
        let scratch = Scratch::default();
        // SAFETY: the root was loaded under the pin.
        let record = unsafe { find(&world.memory, root, world.hash.of(key), key, &scratch) };
        let record = record.unwrap().unwrap();
        assert_eq!(record.row, key.repeat(9));
    }
    let mut listed = Vec::new();
    // SAFETY: as above.
    let end =
        unsafe { keys_from(&world.memory, root, world.hash, 0, |key| listed.push(key.to_vec())) }
            .unwrap();
    listed.sort_unstable();
    listed.dedup();
    let is_listed = |key: &[u8; 4]| listed.binary_search(&key.to_vec()).is_ok();
    assert!(old.iter().all(is_listed) && end.is_none());
    assert_eq!(
        listed.len(),
        group_layout::filled_max(false) as usize,
        "what the group held when it was split"
    );
    drop(pin);
    assert_eq!(world.used_at_rest(), table.bytes());
}

/// The collector accepts a retirement only together with as many others as there are readers.
#[test]
fn chunks_retired_under_many_readers_return_without_another_retirement() {
    let world = TableWorld::new();
    let mut table = world.table();
    table.insert(b"key", b"row", world.publishing()).unwrap();
    let gate = std::sync::Barrier::new(9);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let _pin = world.reclaim.enter();
                gate.wait();
                gate.wait();
            });
        }
        gate.wait();
        table.retire(&world.reclaim);
        assert!(world.memory.used_bytes() > 0);
        gate.wait();
    });
    assert_eq!(world.used_at_rest(), 0);
}

#[test]
fn deletes_release_segments() {
    let world = TableWorld::new();
    let mut table = world.table();
    let row = vec![7; 3_000_000];
    for key in 0..20_u8 {
        table.insert(&[key], &row, world.publishing()).unwrap();
    }
    for key in 0..20_u8 {
        assert_eq!(table.remove(&[key]).unwrap(), Some(row.len()));
        table.reclaim(100, RelocationTarget::Memory, world.publishing()).unwrap();
    }
    assert_eq!(table.segments.bytes(), 0);
    assert_eq!(world.used_at_rest(), table.bytes());
}
