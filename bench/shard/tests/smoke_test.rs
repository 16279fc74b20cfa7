//! Every benchmark with a handful of operations, so that none of them rots. Nothing here is timed:
//! figures of a loaded machine and an unoptimised build say nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use forebay_bench_report::Row;
use forebay_bench_shard::{copies, orders};

fn assert_whole(rows: &[Row], measures: &[&str]) {
    for measure in measures {
        let row = rows.iter().find(|row| row.measure == *measure);
        let row = row.unwrap_or_else(|| panic!("no row {measure} in {rows:#?}"));
        assert!(row.value.median > 0.0, "{row:?}");
    }
    let names: BTreeSet<&str> = rows.iter().map(|row| row.measure.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "a measure came twice");
}

#[test]
fn copies_are_measured_beside_the_straight_loop_and_its_ceilings() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_copy"));
    let plan = copies::Plan { rounds: 1, bytes: 400_000, values: vec![256], program };
    let rows = copies::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "copy of rows, values of 256 B, MB/s",
            "copy of rows, values of 256 B, memory of the target, MB",
            "copy of rows, beside the slower ceiling, values of 256 B, MB/s",
            "copy of rows, source not in the page cache, values of 256 B, MB/s",
            "copy of files, values of 256 B, MB/s",
            "one writer of files alone, values of 256 B, MB/s",
        ],
    );
    let ratios = rows.iter().filter(|row| row.measure.starts_with("copy of")).map(|row| row.ratio);
    assert!(ratios.flatten().count() > 10, "no ratios were formed: {rows:#?}");
}

#[test]
fn the_four_orders_are_measured_beside_redis() {
    let plan =
        orders::Plan { rounds: 1, operations: 60, connecting: 20, values: vec![100], clients: 3 };
    let rows = orders::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "engine in process, random put, 100 B, 1/s",
            "forebay, synced, sequential put, 100 B, connections stay, 1/s",
            "forebay, synced, random get, 100 B, one connection each, p99, us",
            "forebay, buffered, sequential get, 100 B, connections stay, p50, us",
        ],
    );
    let of_node = rows.iter().filter(|row| row.measure.starts_with("forebay"));
    assert!(of_node.clone().count() == 64 && of_node.clone().all(|row| row.ratio.is_some()));
}
