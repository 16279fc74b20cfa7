//! Readers next to a writer, and killed owners, in many orders: the real code of publish,
//! validate, reclaim and takeover, under shuttle.
//!
//! The test `interleavings` explores all orders of small models; here the whole index runs, in
//! orders that are derived from seeds. The orders are sequentially consistent, so the effects of
//! weaker memory orders are left to the models, and to ThreadSanitizer. In a build with `--cfg
//! forebay_shuttle`, as in `make schedules`, tasks switch between any two accesses to shared words,
//! and faults are planted, each of which must be found. In any other build tasks switch between
//! whole operations, and this is a small test of the scenes themselves.

mod orders;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::ops::Range;
use std::sync::Arc;

use forebay_core::Result;
#[cfg(forebay_shuttle)]
use forebay_index::schedule::Fault;
use forebay_index::{Index, KeyAnswer, ScannedDocument};
use orders::{Role, RunTally, join, numbers, spawn, turn, until_killed};
use support::at;
use world::{PARTITION, ReadDocument, Shape, World, found, name};

/// Number of seeds of a scene in a full run; each seed is some dozens of schedules.
const SEEDS: u64 = if cfg!(forebay_shuttle) { 10 } else { 1 };
/// Number of seeds if each schedule creates files, or takes long.
const SEEDS_OF_FILES: u64 = if cfg!(forebay_shuttle) { 3 } else { 1 };
const SEEDS_OF_MANY: u64 = 1;
/// Number of seeds within which a planted fault must be found.
#[cfg(forebay_shuttle)]
const SEEDS_TO_FIND: u64 = 200;
/// Number of stores of an owner before it is killed, or of entries, as powers of two.
const LIVES_LOG2: Range<u64> = if cfg!(forebay_shuttle) { 4..14 } else { 1..5 };
const READERS: u64 = 2;
const READS: u64 = 12;
/// Start of each message about an incorrect answer.
const WRONG: &str = "a wrong answer";
/// Documents of a batch, and of a step of a scan.
const AT_ONCE: usize = 3;

/// Documents in files, with so little memory that it is reused all the time.
const SHARED: Shape = Shape {
    is_shared: true,
    keys: 12,
    keys_before: 8,
    entries: 120,
    changes: 4,
    text: 1_500,
    memory: 8 * 8_192,
    spills: false,
    drops: true,
    rebuilds: false,
    scans: true,
    kills: 0,
};
const PRIVATE: Shape = Shape { is_shared: false, memory: 0, ..SHARED };
/// Owners are killed, and the next owner finishes their half-done writes.
const KILLED: Shape = Shape { entries: 60, kills: 3, text: 300, memory: 12 * 8_192, ..SHARED };
/// As [`KILLED`], with almost as many documents as a bucket group can have: the group is split, and
/// deleted slots cause its rewrite.
const GROWING: Shape =
    Shape { keys: 1_000, keys_before: 864, entries: 16, changes: 16, memory: 0, ..KILLED };
/// As [`GROWING`], with documents so small that they are in the buckets of their keys.
const INLINE: Shape = Shape { text: 4, ..GROWING };
/// As [`KILLED`], with less memory than the documents take.
const SPILLED: Shape = Shape { spills: true, keys: 60, memory: 5 * 8_192, text: 1_000, ..KILLED };
/// As [`KILLED`], and each owner also rebuilds the partition.
const REBUILT: Shape = Shape { rebuilds: true, memory: 20 * 8_192, ..KILLED };

/// A reader: whatever it has seen once must stay visible to it.
struct Reader<'w> {
    world: &'w World,
    index: &'w Index,
    /// Number of entries that are certainly visible, by key.
    seen_entries: Vec<u64>,
    position: u64,
}

impl<'w> Reader<'w> {
    fn new(world: &'w World, index: &'w Index) -> Self {
        Self { world, index, seen_entries: vec![0; world.shape.keys as usize], position: 0 }
    }

    fn entries_min(&self, key: u64) -> u64 {
        self.seen_entries[key as usize].max(self.position).max(self.world.done())
    }

    fn note(&mut self, key: u64, found: Option<ReadDocument>, entries_min: u64, entries_max: u64) {
        self.world.judge(key, found, entries_min, entries_max);
        let seen_offset = found.map_or(0, |found| found.offset + 1);
        let before = &mut self.seen_entries[key as usize];
        *before = seen_offset.max(*before);
    }

    fn look_at_status(&mut self) {
        let done_entries = self.world.done();
        let status = self.index.status(PARTITION).unwrap();
        let applied = status.progress.offset_applied.0;
        let range = done_entries.max(self.position)..=self.world.begun();
        assert!(range.contains(&applied), "a wrong answer: position {applied}, not in {range:?}");
        self.position = applied;
    }

    fn get(&mut self, key: u64) {
        let entries_min = self.entries_min(key);
        let view = self.index.view(at(0));
        let row = view.get(name(key).as_str()).expect(WRONG);
        let entries_max = self.world.begun();
        turn();
        let read = row.map(|row| found(self.index, &row, key));
        drop(view);
        self.note(key, read, entries_min, entries_max);
    }

    fn get_many(&mut self, keys: &[u64]) {
        let minima: Vec<u64> = keys.iter().map(|key| self.entries_min(*key)).collect();
        let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
        let view = self.index.view(at(0));
        let mut answers = Vec::new();
        let read = view.get_many(&names[..], |place, answer| {
            let entries_max = self.world.begun();
            let read = match answer {
                KeyAnswer::Found(row) => Some(found(self.index, &row, keys[place])),
                KeyAnswer::None(_) => None,
            };
            answers.push((place, read, entries_max));
            Ok(())
        });
        read.expect(WRONG);
        drop(view);
        assert_eq!(answers.len(), keys.len());
        for (place, read, entries_max) in answers {
            self.note(keys[place], read, minima[place], entries_max);
        }
    }

    fn scan(&mut self) {
        let minima: Vec<u64> =
            (0..self.world.shape.keys).map(|key| self.entries_min(key)).collect();
        let mut times_seen = vec![0_u32; minima.len()];
        let mut scan = self.index.scan();
        let mut documents = Vec::new();
        let mut visit = |document: ScannedDocument<'_>| -> Result<()> {
            let entries_max = self.world.begun();
            let mut keys = 0..self.world.shape.keys;
            let key = keys.find(|key| document.key == name(*key).as_str().into()).expect(WRONG);
            documents.push((key, found(self.index, &document.row, key), entries_max));
            Ok(())
        };
        while scan.next_batch(at(0), AT_ONCE, &mut visit).expect(WRONG) > 0 {
            turn();
        }
        let entries_max = self.world.begun();
        for (key, read, entries_max) in documents {
            times_seen[key as usize] += 1;
            self.note(key, Some(read), minima[key as usize], entries_max);
        }
        for (key, times_seen) in (0..).zip(times_seen) {
            let is_lasting = self.world.is_lasting(key, minima[key as usize], entries_max);
            // A document that was removed and written again may have another position in the scan.
            let is_right = !is_lasting || times_seen == 1;
            let entries_min = minima[key as usize];
            let describe = || self.world.describe(key, entries_min, entries_max);
            assert!(is_right, "a wrong answer: a scan has seen {times_seen} times {}", describe());
        }
    }

    fn read(&mut self, mut number: impl FnMut(u64) -> u64) {
        let keys = self.world.shape.keys;
        for _ in 0..READS {
            match number(9) {
                0 if self.world.shape.scans => self.scan(),
                1 => self.look_at_status(),
                2 | 3 => {
                    let first = number(keys);
                    let keys_chosen: Vec<u64> =
                        (0..AT_ONCE as u64).map(|n| (first + n) % keys).collect();
                    self.get_many(&keys_chosen);
                }
                4 => {
                    self.index.prepare();
                    self.index.collect_garbage();
                }
                _ => self.get(number(keys)),
            }
            turn();
        }
    }
}

/// Writes all entries; each owner except the last is killed.
fn write_all(world: &World, mut number: impl FnMut(u64) -> u64) {
    let mut kills = number(world.shape.kills + 1);
    loop {
        let log2 = LIVES_LOG2.start + number(LIVES_LOG2.end - LIVES_LOG2.start);
        let stores = if kills > 0 { number(1 << log2) } else { u64::MAX };
        kills = kills.saturating_sub(1);
        let has_ended = until_killed(stores, || {
            let index = world.open();
            let mut followed = world.acquire_writer(&index);
            world.write(&index, &mut followed);
        });
        if has_ended {
            return;
        }
    }
}

/// Runs one writer and some readers until all of them have finished.
fn play(shape: Shape, seed: u64) {
    let world = Arc::new(World::new(shape, seed));
    let mut number = numbers(seed ^ 0x5eed);
    let index = world.open();
    let mut followed = world.acquire_writer(&index);
    world.begin(&index, &mut followed);
    let mut tasks = Vec::new();
    for reader in 0..READERS {
        let (world, index) = (world.clone(), index.clone());
        let comes_later = shape.is_shared && number(2) == 0;
        tasks.push(spawn(Role::Reader, move || {
            let index = if comes_later { world.open() } else { index };
            Reader::new(&world, &index).read(numbers(seed ^ reader << 32));
        }));
    }
    if shape.is_shared {
        drop(followed);
        if number(2) == 0 {
            index.prepare();
        }
        let world = world.clone();
        tasks.push(spawn(Role::Writer, move || write_all(&world, number)));
    } else {
        let (world, index) = (world.clone(), index.clone());
        tasks.push(spawn(Role::Writer, move || world.write(&index, &mut followed)));
    }
    join(tasks);
    world.look_at_the_end(&index);
}

fn holds(seeds: u64, scene: impl Fn(u64) + Copy + Send + Sync + 'static) -> RunTally {
    let tally = orders::explore(
        #[cfg(forebay_shuttle)]
        None,
        seeds,
        scene,
    );
    let tally = tally.unwrap();
    println!("{tally:?}");
    tally
}

#[test]
fn shared_copy_readers_during_writes_are_right_or_report_reuse() {
    let tally = holds(SEEDS, |seed| play(SHARED, seed));
    assert_eq!(tally.reused > 0, cfg!(forebay_shuttle), "nothing was used again: {tally:?}");
}

#[test]
fn private_readers_during_writes_are_right() {
    holds(SEEDS, |seed| play(PRIVATE, seed));
}

#[test]
fn owner_killed_between_any_two_stores_leaves_one_position() {
    let tally = holds(SEEDS, |seed| play(KILLED, seed));
    assert!(tally.killed > 0, "nobody was killed: {tally:?}");
}

/// Kills the owner at every store of one entry, which also deletes spilled documents.
#[cfg(forebay_shuttle)]
#[test]
fn owner_killed_at_any_store_of_an_entry_leaves_one_position() {
    let _alone = orders::lock_alone();
    let shape = Shape { entries: 16, changes: 24, text: 2_500, ..SPILLED };
    let last = shape.entries - 1;
    let mut has_spilled = false;
    for stores in 0.. {
        let world = World::new(shape, 1);
        let is_through = {
            let index = world.open();
            let mut followed = world.acquire_writer(&index);
            world.begin(&index, &mut followed);
            world.write_until(last, &index, &mut followed);
            has_spilled |= index.memory().spilled > 0;
            until_killed(stores, || world.write(&index, &mut followed))
        };
        if is_through {
            assert!(stores > 100 && has_spilled, "one entry is {stores} stores");
            return;
        }
        let index = world.open();
        let mut followed = world.acquire_writer(&index);
        world.write(&index, &mut followed);
        world.look_at_the_end(&index);
    }
}

#[test]
fn owner_killed_while_groups_split_leaves_one_position() {
    let tally = holds(SEEDS_OF_MANY, |seed| play(GROWING, seed));
    assert!(tally.killed > 0, "nobody was killed: {tally:?}");
    holds(SEEDS_OF_MANY, |seed| play(Shape { is_shared: false, kills: 0, ..GROWING }, seed));
}

#[test]
fn owner_killed_with_inline_records_leaves_one_position() {
    let tally = holds(SEEDS_OF_MANY, |seed| play(INLINE, seed));
    assert!(tally.killed > 0, "nobody was killed: {tally:?}");
    holds(SEEDS_OF_MANY, |seed| play(Shape { is_shared: false, kills: 0, ..INLINE }, seed));
}

#[test]
fn owner_killed_while_spilling_leaves_one_position() {
    let tally = holds(SEEDS, |seed| play(SPILLED, seed));
    assert!(tally.killed > 0 && tally.spilled > 0, "nobody was killed, or has spilled: {tally:?}");
    let tally = holds(SEEDS, |seed| play(Shape { is_shared: false, kills: 0, ..SPILLED }, seed));
    assert!(tally.spilled > 0, "nobody has spilled: {tally:?}");
}

#[test]
fn owner_killed_during_a_rebuild_leaves_one_position() {
    let tally = holds(SEEDS_OF_FILES, |seed| play(REBUILT, seed));
    assert!(tally.killed > 0, "nobody was killed: {tally:?}");
    holds(SEEDS_OF_FILES, |seed| play(Shape { is_shared: false, kills: 0, ..REBUILT }, seed));
}

/// Plants a fault, which a reader or a successor must find.
#[cfg(forebay_shuttle)]
fn is_found(fault: Fault, scene: impl Fn(u64) + Copy + Send + Sync + 'static) {
    let failure = orders::explore(Some(fault), SEEDS_TO_FIND, scene);
    let failure = failure.expect_err("nobody has seen a fault that was planted");
    assert!(failure.contains("a wrong answer"), "{fault:?} was not found, but this: {failure}");
}

#[cfg(forebay_shuttle)]
#[test]
fn planted_copy_without_comparison_is_found() {
    is_found(Fault::NotCompared, |seed| play(SHARED, seed));
}

#[cfg(forebay_shuttle)]
#[test]
fn planted_reuse_before_its_announcement_is_found() {
    is_found(Fault::RaisedLate, |seed| play(SHARED, seed));
}

#[cfg(forebay_shuttle)]
#[test]
fn planted_reuse_under_a_guard_is_found() {
    is_found(Fault::NotWaitedFor, |seed| play(Shape { scans: false, ..PRIVATE }, seed));
}

#[cfg(forebay_shuttle)]
#[test]
fn planted_slot_before_its_record_is_found() {
    is_found(Fault::SlotFirst, |seed| play(SHARED, seed));
}

#[cfg(forebay_shuttle)]
#[test]
fn planted_half_finished_entry_is_found() {
    is_found(Fault::NotFinished, |seed| play(KILLED, seed));
}
