//! Proves that a seed replays exactly, that runs differ by their seed, and that a run with a bug
//! differs from one without. A separate stage runs every plant and many seeds.
#![cfg(feature = "sim")]

use forebay_testkit::sim::{self, Plant};

#[test]
fn a_seed_replays_event_by_event() {
    for seed in [7, 8] {
        let first = sim::run(seed).unwrap();
        let second = sim::run(seed).unwrap();
        assert_eq!(first, second);
    }
}

#[test]
fn another_seed_is_another_run() {
    assert_ne!(sim::run(11).unwrap().digest, sim::run(12).unwrap().digest);
}

/// Proves that parallel runs on several threads, as in `forebay-sim`, do not interfere.
#[test]
fn runs_do_not_meet() {
    let alone = sim::run(9).unwrap();
    let beside = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| sim::run(9).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    beside.iter().for_each(|run| assert_eq!(*run, alone));
}

#[test]
fn a_planted_bug_fails_the_same_way_each_time() {
    let caught = || {
        let caught = (1..=sim::PLANT_SEEDS_MAX)
            .find_map(|seed| sim::run_planted(seed, Plant::RetriesUnderNewSequence).err());
        caught.map(|failure| (failure.seed, failure.what, failure.last_events))
    };
    let first = caught();
    assert!(first.is_some());
    assert_eq!(first, caught());
}
