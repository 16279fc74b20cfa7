//! The driver with a real worker: the results of a section, and its end.

use std::path::PathBuf;

use forebay_bench_index::data::{Data, Keys};
use forebay_bench_index::driver::{self, WorkerReports};
use forebay_bench_index::peers::Programs;
use forebay_bench_index::plan::{Process, Runtime, Section, Times};

fn section(name: &'static str, role: &'static str, orders: &[&'static str]) -> Section {
    let (runtime, orders, slow) = (Runtime::Rust, orders.to_vec(), false);
    Section {
        name,
        about: "fewer documents than the section of this name",
        data: Data { entries: 20_000, keys: Keys::Bytes16, value_bytes: 50 },
        processes: vec![Process { runtime, role, orders, slow }],
        rounds_max: None,
    }
}

fn run_section(section: Section, rows: Option<&str>) -> (driver::Rounds, WorkerReports) {
    let programs = Programs::new(PathBuf::from(env!("CARGO_BIN_EXE_index")));
    let times = Times { launches: 1, rounds: 2, rounds_nanos: 0, quick: true };
    let (mut reports, name) = (WorkerReports::default(), section.name);
    let mut measured = driver::run(&[section], &programs, times, rows, &mut reports);
    (measured.remove(name).unwrap(), reports)
}

fn run(orders: &[&'static str], rows: Option<&str>) -> (driver::Rounds, WorkerReports) {
    let data = Data { entries: 20_000, keys: Keys::Int64, value_bytes: 16 };
    run_section(Section { data, ..section("1M inline", "reads", orders) }, rows)
}

#[test]
fn worker_runs_its_rounds_and_reports_its_entry_count() {
    let (rounds, reports) = run(&["D", "rust get"], None);
    let rounds = rounds.unwrap();
    assert_eq!(rounds.ratio("rust get", "D").unwrap().rounds, 2);
    assert_eq!(reports.about[0].1["entries"], 20_000.0);
}

#[test]
fn run_reports_absent_and_unselected_sections() {
    let (rounds, reports) = run(&["none", "D"], None);
    assert_eq!(rounds.unwrap().spread("D").unwrap().rounds, 2, "the others go on");
    assert_eq!(reports.problems.len(), 1, "it was asked for again: {:?}", reports.problems);
    assert!(reports.problems[0].contains("there is no 'none'"), "{:?}", reports.problems);
    assert!(run(&["D"], Some("growth")).0.unwrap_err().contains("not asked for"));
}

#[test]
fn file_reader_is_measured_and_reopened_in_every_way() {
    let orders = ["D", "rust-files get", "rust-files batch 500"];
    let (rounds, reports) = run_section(section("files 1M x 50 B", "files", &orders), None);
    assert_eq!(rounds.unwrap().ratio("rust-files get", "D").unwrap().rounds, 2);
    assert!(reports.problems.is_empty(), "{:?}", reports.problems);

    let (rounds, reports) = run_section(section("reopen 1M", "reopen", &["reopen", "torn"]), None);
    assert!(reports.problems.is_empty(), "{:?}", reports.problems);
    let rounds = rounds.unwrap();
    for way in ["closed", "checkpoint", "killed", "killed next to another", "kept by another"] {
        let spread = rounds.spread(&format!("{way}: connect to first get, ms")).unwrap();
        assert!(spread.median > 0.0, "{way}");
    }
    assert_eq!(rounds.spread("torn: blocks repaired").unwrap().median, 4.0);
    assert!(rounds.spread("torn: rebuild, per entry").unwrap().median > 0.0);
}
