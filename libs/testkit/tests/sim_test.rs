//! The simulator itself: a seed replays exactly, and runs differ by their seed.
#![cfg(feature = "sim")]

use forebay_testkit::sim;

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

#[test]
fn planted_bugs_are_caught() {
    for plant in [sim::Plant::AcknowledgesBeforeSync, sim::Plant::SendsTwice] {
        let caught = (1..=20).find(|seed| sim::run_planted(*seed, plant).is_err());
        assert!(caught.is_some(), "{plant:?} passed 20 seeds");
    }
}
