//! Copies of shards: every row comes, in ranges of about equal bytes, over breaks at any part; and
//! rows that are not what their source says never become a shard.

mod support;

use std::path::Path;

use forebay_core::ErrorCode;
use forebay_core::key::KeyType;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::HEAD;
use forebay_shard::{Export, Import, PartEnd, PartSource};
use forebay_testkit::random::Dice;
use forebay_wire::shard_copy::{RowsBlock, block_rows};
use support::*;

const RANGES: usize = 8;

/// The rows of a range of an export, until a break.
struct Range<'e> {
    rows: forebay_shard::ExportRows<'e>,
    /// Parts that come before it breaks off inside of the next one.
    parts_left: usize,
}

impl PartSource for Range<'_> {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> forebay_core::Result<(Vec<u8>, Option<PartEnd>)> {
        let mut block = RowsBlock::default();
        let end = self.rows.next(&mut block)?;
        if end.is_some() {
            if self.parts_left == 0 {
                return Err(forebay_core::Error::unavailable("it breaks off"));
            }
            self.parts_left -= 1;
        }
        Ok((block.bytes().to_vec(), end))
    }
}

/// Copies a range from where it is, for so many parts; whether it has ended.
fn copy_range(export: &Export, import: &Import, range: usize, parts: usize) -> bool {
    let done = &import.ranges()[range];
    if done.is_ended {
        return true;
    }
    let rows = export.rows(range, done.last_key.as_deref()).unwrap();
    let mut source = Range { rows, parts_left: parts };
    loop {
        match import.write_part(range, &mut source) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
                return false;
            }
        }
    }
}

/// All rows of an export: how many, and what they are.
fn digest(export: &Export) -> (RowsDigest, Vec<u64>) {
    let (mut all, mut sizes) = (RowsDigest::default(), Vec::new());
    for range in 0..export.plan().ranges.len() {
        let (mut rows, mut bytes) = (export.rows(range, None).unwrap(), 0);
        loop {
            let mut block = RowsBlock::default();
            let end = rows.next(&mut block).unwrap();
            bytes += block.bytes().len() as u64;
            all.merge(end.map(|end| end.digest).unwrap_or_default());
            if end.is_some_and(|end| end.is_range_end) {
                break;
            }
        }
        sizes.push(bytes);
    }
    (all, sizes)
}

/// A shard of some of the log, and of so many documents more.
fn filled<'w>(world: &'w World, dir: &Path, documents: usize) -> Replica<'w> {
    let mut replica = world.resume(dir);
    (0..50).for_each(|_| drop(replica.step()));
    replica.fill(documents);
    replica
}

#[test]
fn a_copy_has_every_row_and_goes_on_with_the_log() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let mut replica = filled(&world, from.path(), 120_000);
    let shard = replica.writer.shard().clone();
    let frozen = replica.live();
    let export = Export::create(&shard, "users", &from.path().join("copies/1"), 1, RANGES).unwrap();
    let at = replica.state.offset_applied;
    // What comes behind is not of it.
    (0..50).for_each(|_| drop(replica.step()));
    let (expected, sizes) = digest(&export);
    assert!(sizes.len() > RANGES / 2, "{sizes:?}");
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*most < 2 * least, "ranges of equal bytes: {sizes:?}");

    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    for range in 0..sizes.len() {
        assert!(copy_range(&export, &import, range, usize::MAX));
    }
    assert_eq!(import.digest(), expected);
    directory.take_in(import).unwrap();
    let mut copy = world.resume(to.path());
    assert_eq!(copy.state.offset_applied, at);
    assert!(copy.live() == frozen);
    let again =
        Export::create(copy.writer.shard(), "users", &to.path().join("copies/1"), 1, RANGES);
    assert_eq!(digest(&again.unwrap()).0, expected);
    (0..50).for_each(|_| drop(copy.step()));
    assert!(copy.live() == replica.live());
}

#[test]
fn a_copy_goes_on_behind_what_is_durable() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = filled(&world, from.path(), 60_000);
    let place = from.path().join("copies/1");
    let mut export = Export::create(replica.writer.shard(), "users", &place, 1, RANGES).unwrap();
    let expected = digest(&export).0;
    let (mut dice, mut breaks) = (Dice::new(5), 0);
    drop(directory(to.path()).begin_import(export.plan().clone()).unwrap());
    loop {
        // Both ends are begun anew each time.
        drop(export);
        export = Export::open(&place).unwrap();
        let directory = directory(to.path());
        assert!(directory.resume_import("others", AT.partition).unwrap().is_none());
        let import = directory.resume_import("users", AT.partition).unwrap().unwrap();
        let ranges = import.ranges().len();
        let range = dice.below(ranges);
        if !copy_range(&export, &import, range, dice.below(3)) {
            breaks += 1;
        }
        if import.ranges().iter().all(|range| range.is_ended) {
            assert_eq!(import.digest(), expected);
            directory.take_in(import).unwrap();
            break;
        }
        assert_eq!(directory.take_in(import).unwrap_err().code(), ErrorCode::Unavailable);
    }
    assert!(breaks > 5, "{breaks}");
    assert!(directory(to.path()).resume_import("users", AT.partition).unwrap().is_none());
    assert!(world.resume(to.path()).live() == replica.live());
    Export::remove(&place).unwrap();
    assert_eq!(Export::open(&place).err().unwrap().code(), ErrorCode::NotFound);
}

#[test]
fn one_process_copies_to_a_place_and_a_kill_at_its_end_loses_nothing() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = filled(&world, from.path(), 1_000);
    let place = from.path().join("copies/1");
    let export = Export::create(replica.writer.shard(), "users", &place, 1, 1).unwrap();
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    for again in [
        directory.resume_import("users", AT.partition).err(),
        directory.begin_import(export.plan().clone()).err(),
    ] {
        assert_eq!(again.unwrap().code(), ErrorCode::Conflict);
    }
    assert!(copy_range(&export, &import, 0, usize::MAX));
    let names = || std::fs::read_dir(to.path()).unwrap().map(|name| name.unwrap().path());
    let copy = names().find(|path| path.is_dir()).unwrap();
    let kept = ["plan", "parts"].map(|name| (name, std::fs::read(copy.join(name)).unwrap()));
    directory.take_in(import).unwrap();
    assert!(!copy.exists());
    let leave = || {
        std::fs::create_dir_all(&copy).unwrap();
        kept.iter().for_each(|(name, bytes)| std::fs::write(copy.join(name), bytes).unwrap());
    };
    // Killed between taking the files in and giving the shard its name.
    leave();
    let shard = names().find(|path| path.is_dir() && *path != copy).unwrap();
    std::fs::rename(&shard, copy.join("shard")).unwrap();
    let import = directory.resume_import("users", AT.partition).unwrap().unwrap();
    directory.take_in(import).unwrap();
    // Killed behind that.
    leave();
    assert!(directory.resume_import("users", AT.partition).unwrap().is_none());
    assert!(!copy.exists());
    assert!(world.resume(to.path()).live() == replica.live());
}

/// Rows that are told, whatever their end says.
struct Told(Vec<(Vec<u8>, Vec<u8>)>, RowsDigest);

impl PartSource for Told {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> forebay_core::Result<(Vec<u8>, Option<PartEnd>)> {
        let mut block = RowsBlock::default();
        self.0.iter().for_each(|(key, value)| block.push(key, value));
        Ok((block.bytes().to_vec(), Some(PartEnd { digest: self.1, is_range_end: true })))
    }
}

fn told(rows: &[(&[u8], &[u8])]) -> Told {
    let mut digest = RowsDigest::default();
    rows.iter().for_each(|(key, value)| digest.add(key, value));
    Told(rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect(), digest)
}

#[test]
fn rows_that_are_not_what_their_source_says_are_refused() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = filled(&world, from.path(), 10);
    let place = from.path().join("copies/1");
    let export = Export::create(replica.writer.shard(), "users", &place, 1, 1).unwrap();
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    let refused = |mut rows: Told| import.write_part(0, &mut rows).unwrap_err().code();
    let [a, b]: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
    assert_eq!(refused(told(&[b, a])), ErrorCode::Corrupt);
    assert_eq!(refused(told(&[a, a])), ErrorCode::Corrupt);
    let Told(rows, digest) = told(&[a, b]);
    let more = RowsDigest { rows: digest.rows + 1, ..digest };
    let other = RowsDigest { sum: digest.sum ^ 1, ..digest };
    assert_eq!(refused(Told(rows.clone(), more)), ErrorCode::Corrupt);
    assert_eq!(refused(Told(rows, other)), ErrorCode::Corrupt);
    assert_eq!(import.digest(), RowsDigest::default(), "nothing of it counts");
    // What makes no shard is none.
    assert!(import.write_part(0, &mut told(&[a, b])).unwrap());
    assert_eq!(directory.take_in(import).unwrap_err().code(), ErrorCode::Corrupt);

    let mut torn = export.plan().clone();
    torn.ranges[0].to = Some(b"d".to_vec().into());
    assert_eq!(directory.begin_import(torn).err().unwrap().code(), ErrorCode::Corrupt);
}

#[test]
fn an_empty_key_is_a_key() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = filled(&world, from.path(), 10);
    let place = from.path().join("copies/1");
    let export = Export::create(replica.writer.shard(), "users", &place, 1, 1).unwrap();
    let mut rows = Vec::new();
    let mut block = RowsBlock::default();
    export.rows(0, None).unwrap().next(&mut block).unwrap();
    for row in block_rows(block.bytes()) {
        rows.push(row.unwrap());
    }
    rows.insert(0, (b"", b""));
    assert!(rows.iter().any(|(key, _)| *key == HEAD));
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    assert!(import.write_part(0, &mut told(&rows)).unwrap());
    directory.take_in(import).unwrap();
    let copy = world.resume(to.path());
    assert!(copy.live() == replica.live());
    let place = to.path().join("copies/1");
    let again = Export::create(copy.writer.shard(), "users", &place, 1, 1).unwrap();
    assert_eq!(digest(&again).0, told(&rows).1);
}

#[test]
fn a_shard_to_which_nothing_was_written_is_not_copied_yet() {
    let dir = tempfile::tempdir().unwrap();
    let definition = forebay_core::schema::StoreSpec::documents("users", KeyType::Bytes, 1);
    let order = forebay_core::key_order::KeyOrder::of(&definition.define(AT.store).unwrap());
    let writer = directory(dir.path()).create(AT, order).unwrap();
    let place = dir.path().join("copies/1");
    let error = Export::create(writer.shard(), "users", &place, 1, 1).err().unwrap();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(!place.exists());
}
