//! The benchmark with a handful of rows, so that no part of it rots. The test times nothing:
//! figures of a loaded machine and an unoptimised build are meaningless.

use std::path::PathBuf;
use std::time::Duration;

use forebay_bench_features::{kafka, run};
use forebay_bench_report::Goals;
use forebay_testkit::tree;

#[test]
fn every_part_measures_the_rows_that_its_goals_name() {
    let plan = run::FeaturesPlan {
        rows: 3_000,
        clients: 3,
        batch_clients: 4,
        batch: 500,
        rest: Duration::ZERO,
        rates: vec![(2_500, Duration::from_millis(700)), (22_000, Duration::from_millis(200))],
        window: Duration::from_millis(200),
        turn: Duration::ZERO,
        pages_bytes: 1 << 20,
        embedded: true,
        kafka: Some(kafka::KafkaPlan {
            rounds: 2,
            turn: Duration::ZERO,
            clients: 16,
            batch_clients: 4,
            batch: 100,
            brokers: vec![1],
        }),
        watcher: PathBuf::from(env!("CARGO_BIN_EXE_features")),
    };
    let rows = run::run(&plan).unwrap();
    let mut names: Vec<&str> = rows.iter().map(|row| row.measure.as_str()).collect();
    let goals = Goals::load(&tree::root_of(Goals::FILE).unwrap()).unwrap();
    for goal in goals.of("features") {
        assert!(names.contains(&goal.measure.as_str()), "no row {} in {names:#?}", goal.measure);
    }
    for measure in [
        "unary, 2500 rows/s due, inserts, p99 of the worst window, ms",
        "unary, 2500 rows/s due, acknowledged to visible, p50, ms",
        "unary, 2500 rows/s due, calls left out",
        "batches of 500, 4 clients, p99, ms",
        "direct read of 4 KiB, p99, ms",
    ] {
        assert!(names.contains(&measure), "no row {measure} in {names:#?}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "a measure came twice");
}
