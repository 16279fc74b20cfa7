//! Proves that a seed replays exactly, that runs differ by their seed, and that a run with a bug
//! differs from one without. A separate stage runs every plant and many seeds.

use forebay_simulator::Plant;

#[test]
fn seed_replays_event_by_event() {
    for seed in [7, 8] {
        let first = forebay_simulator::run(seed).unwrap();
        let second = forebay_simulator::run(seed).unwrap();
        assert_eq!(first, second);
    }
}

#[test]
fn different_seeds_give_different_runs() {
    assert_ne!(
        forebay_simulator::run(11).unwrap().digest,
        forebay_simulator::run(12).unwrap().digest
    );
}

/// Proves that parallel runs on several threads, as in `forebay-sim`, do not interfere.
#[test]
fn parallel_runs_do_not_interfere() {
    let alone = forebay_simulator::run(9).unwrap();
    let parallel_runs = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..3).map(|_| scope.spawn(|| forebay_simulator::run(9).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    parallel_runs.iter().for_each(|run| assert_eq!(*run, alone));
}

#[test]
fn planted_bug_fails_the_same_way_each_time() {
    let find_failure = || {
        let failure = (1..=forebay_simulator::PLANT_SEEDS_MAX).find_map(|seed| {
            forebay_simulator::run_planted(seed, Plant::RetriesUnderNewSequence).err()
        });
        failure.map(|failure| (failure.seed, failure.broken_rule, failure.last_events))
    };
    let first = find_failure();
    assert!(first.is_some());
    assert_eq!(first, find_failure());
}
