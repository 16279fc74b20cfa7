//! Proves that every decoder passes on arbitrary bytes and on corpus inputs with a few changes. The
//! fuzzer searches deeper; this test runs wherever the tests run, and shrinks its findings.

use std::fs;

use forebay_fuzz::{TARGETS, Target};
use forebay_testkit::tree;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

/// A change of an input.
#[derive(Clone, Debug)]
enum Edit {
    Put(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
    Repeat(Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let bytes = vec(any::<u8>(), 1..9);
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Put(at, byte)),
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<Index>(), 1..20_usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        any::<Index>().prop_map(Edit::Cut),
        (any::<Index>(), 1..20_usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
    ]
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match self {
            Self::Put(place, byte) => bytes[place.index(length)] = *byte,
            Self::Flip(place, bit) => bytes[place.index(length)] ^= 1 << bit,
            Self::Insert(place, inserted) => {
                let place = place.index(length);
                bytes.splice(place..place, inserted.iter().copied());
            }
            Self::Remove(place, count) => {
                let place = place.index(length);
                bytes.drain(place..(place + count).min(length));
            }
            Self::Cut(place) => bytes.truncate(place.index(length)),
            Self::Repeat(place, count) => {
                let place = place.index(length);
                let part = bytes[place..(place + count).min(length)].to_vec();
                bytes.splice(place..place, part);
            }
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = tree::find("tools/fuzz/corpus").unwrap().join(target);
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns inputs of a target: arbitrary bytes after each small `mode`, or changed inputs of the
/// corpus.
fn inputs(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = (0..20_u8, vec(any::<u8>(), 0..400));
    let any_bytes = any_bytes.prop_map(|(mode, bytes)| [&[mode], &bytes[..]].concat());
    let changed = (select(corpus(target)), vec(edit(), 0..6)).prop_map(|(mut bytes, edits)| {
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        bytes
    });
    prop_oneof![1 => any_bytes, 3 => changed]
}

fn holds((target, run): Target, cases: u32) {
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let outcome = TestRunner::new(config).run(&inputs(target), |input| {
        run(&input);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{target}: {failure}"));
}

macro_rules! properties {
    ($($target:ident: $cases:literal;)*) => {
        const TESTED: &[&str] = &[$(stringify!($target)),*];

        $(
            #[test]
            fn $target() {
                holds((stringify!($target), forebay_fuzz::$target), $cases);
            }
        )*
    };
}

// Targets that open a log or a reader for each input run fewer cases.
properties! {
    row_decode: 2_000;
    entry_decode: 2_000;
    token_decode: 2_000;
    embedded_segment: 300;
    embedded_journal: 300;
    checkpoint_restore: 300;
    key_decode: 2_000;
    message_decode: 4_000;
    shard_rows: 4_000;
    copy_decode: 4_000;
    snapshot_decode: 4_000;
    tile_decode: 4_000;
}

#[test]
fn every_target_has_a_property() {
    let targets: Vec<_> = TARGETS.iter().map(|(target, _)| *target).collect();
    assert_eq!(TESTED, targets);
}
