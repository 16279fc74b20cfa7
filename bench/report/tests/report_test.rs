//! A benchmark from start to result file, in a separate tree.

use std::fs;
use std::path::Path;

use forebay_bench_report::{Bench, Contender, Report, Row, Unit, interleave};
use tempfile::TempDir;

const GOALS: &str = "\
[[goal]]
bench = 'get'
measure = 'get p50'
ratio_at_most = 0.6

[[goal]]
bench = 'get'
measure = 'get p99'
value_at_most = 100.0

[[goal]]
bench = 'get'
measure = 'gather'
value_at_most = 9.0

[[goal]]
bench = 'other'
measure = 'get p50'
value_at_most = 1.0
";

fn tree() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bench")).unwrap();
    fs::write(folder.path().join("bench/goals.toml"), GOALS).unwrap();
    folder
}

fn started(root: &Path) -> Bench {
    let mut bench = Bench::start_in(root, "get", "1,000 made-up keys").unwrap();
    let mut contenders = [
        Contender::new("get", || Ok(50.0)),
        Contender::new("peer", || Ok(100.0)),
        Contender::new("tail", || Ok(120.0)),
    ];
    let rounds = interleave(3, &mut contenders).unwrap();
    let unit = Unit::Nanoseconds;
    bench.add(Row::alone("load", unit, &rounds, "peer").unwrap());
    bench.add(Row::against("get p50", unit, &rounds, "get", "peer").unwrap());
    bench.add(Row::alone("get p99", unit, &rounds, "tail").unwrap());
    bench
}

#[test]
fn report_lists_misses_first_and_counts_a_goal_without_a_row() {
    let folder = tree();
    let report = started(folder.path()).finish().unwrap();
    let order: Vec<(&str, Option<bool>)> =
        report.rows.iter().map(|row| (row.measure.as_str(), row.met)).collect();
    let expected = [
        ("get p99", Some(false)),
        ("gather", Some(false)),
        ("get p50", Some(true)),
        ("load", None),
    ];
    assert_eq!(order, expected);
    let summary = report.summary();
    assert!(summary.starts_with("MISS get p99: 120.0000 ns [120.0000 .. 120.0000] (goal:"));
    assert!(summary.contains("MISS gather: not measured"));
    assert!(summary.contains("0.500 x peer"));
    assert_eq!(summary.lines().last(), Some("bench-get: met 1 of 3 goals"));
}

#[test]
fn result_file_contains_the_report() {
    let folder = tree();
    let report = started(folder.path()).finish().unwrap();
    let path = folder.path().join("bench/results/latest/get.json");
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    for name in ["kernel", "commit", "command", "data", "noise", "quartile_1", "\"ns\""] {
        assert!(text.contains(name), "{name}");
    }
}

#[test]
fn report_refuses_zero_rows_and_a_repeated_row() {
    let folder = tree();
    assert!(Bench::start_in(folder.path(), "get", "no data").unwrap().finish().is_err());
    let mut bench = started(folder.path());
    let rounds = interleave(1, &mut [Contender::new("get", || Ok(1.0))]).unwrap();
    bench.add(Row::alone("load", Unit::Seconds, &rounds, "get").unwrap());
    assert!(bench.finish().unwrap_err().contains("two rows of 'load'"));
}

#[test]
fn tree_without_goals_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let problem = Bench::start_in(folder.path(), "get", "x").err().unwrap();
    assert!(problem.contains("goals.toml"), "{problem}");
}
