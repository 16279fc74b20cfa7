//! Every benchmark with a handful of operations, so that none of them rots. The test times nothing:
//! figures of a loaded machine and an unoptimised build are meaningless.

use std::path::PathBuf;
use std::time::Duration;

use forebay_bench_micro::push::{self, DocumentShape};
use forebay_bench_micro::{apply, bootstrap, freshness, writes};
use forebay_bench_report::Row;

fn assert_whole(rows: &[Row], measures: &[&str]) {
    for measure in measures {
        let row = rows.iter().find(|row| row.measure == *measure);
        let row = row.unwrap_or_else(|| panic!("no row {measure} in {rows:#?}"));
        assert!(row.value.median > 0.0, "{row:?}");
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.measure.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "a measure came twice");
}

#[test]
fn writes_benchmark_measures_every_shape_on_both_durabilities() {
    let plan = writes::WritesPlan {
        rounds: 2,
        turn: Duration::ZERO,
        clients: 3,
        batch_clients: 2,
        batch: 10,
        kafka: false,
    };
    let rows = writes::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "embedded fsync, unary, 1 client, 1/s",
            "embedded fsync, unary, 3 clients, p99.9, us",
            "embedded buffered, unary, 3 callers of 1 client, 1/s",
            "embedded buffered, batches of 10, 2 clients, p50, us",
            "embedded buffered, stream, 1 client, 1/s",
            "raw append and fdatasync, p50, us",
        ],
    );
    let unary =
        rows.iter().find(|row| row.measure.starts_with("embedded fsync, unary, 1")).unwrap();
    assert_eq!(unary.ratio.unwrap().rounds, 2, "its ratio to the disk was not formed");
}

#[test]
fn apply_benchmark_measures_every_step_on_written_entries() {
    let plan = apply::ApplyPlan { rounds: 1, changes: 400, shapes: vec![1, 7] };
    let rows = apply::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "reader, entries of 1, changes/s",
            "decode, fold and index, entries of 7, entries/s",
            "index alone, entries of 7, MB/s",
            "bootstrap from an embedded log in process, changes/s",
            "bootstrap over the change stream, MB/s",
        ],
    );
}

#[test]
fn bootstrap_benchmark_serves_the_snapshot_documents() {
    let plan = bootstrap::BootstrapPlan {
        rounds: 2,
        documents: 300,
        value_bytes: 50,
        partitions: 2,
        memory_limit: 1 << 30,
    };
    let rows = bootstrap::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "bootstrap from the local object store, MB/s of images",
            "bootstrap from the local object store, last verified byte to first get, s",
            "restart with all files and copies, open to the first get, ms",
            "restart with the files alone, open to the first get, ms",
        ],
    );
}

#[test]
fn freshness_benchmark_sees_every_probe_in_another_process() {
    let plan = freshness::FreshnessPlan {
        rounds: 2,
        writes: 60,
        rate: 1_000,
        timed_one_in: 3,
        watched: 4,
        kafka: false,
        watcher: PathBuf::from(env!("CARGO_BIN_EXE_freshness")),
    };
    let rows = freshness::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "embedded, 1K writes/s, acknowledged, 1/s",
            "embedded, 1K writes/s, acknowledged to visible, p99, ms",
            "embedded, 1K writes/s, due to visible, p50, ms",
        ],
    );
}

#[test]
fn push_benchmark_sees_a_reader_switch_and_release_versions() {
    let plan = push::PushPlan {
        rounds: 2,
        shapes: [350, 50].map(|text_bytes| DocumentShape { documents: 2_000, text_bytes }).to_vec(),
        partitions: 2,
        steady: Duration::from_millis(200),
        reader: PathBuf::from(env!("CARGO_BIN_EXE_push")),
    };
    let rows = push::run(&plan).unwrap();
    for bytes in [350, 50] {
        let measure =
            |quantity: &str| format!("push of 5 % changed, rows of {bytes} B, {quantity}");
        let measures = [
            "memory at its peak, bytes",
            "memory with both versions, bytes",
            "memory at its peak once the version before has gone, bytes",
            "index of the new version next to it, bytes in use",
            "rows/s",
            "reads around the change, p99, us",
            "a partition applies nothing once the version before has gone, longest, ms",
        ]
        .map(measure);
        assert_whole(&rows, &measures.each_ref().map(String::as_str));
        let failed_reads = rows.iter().find(|row| row.measure == measure("reads that failed"));
        assert_eq!(failed_reads.map(|row| row.value.quartile_3), Some(0.0), "{rows:#?}");
    }
}

#[test]
fn writes_and_freshness_measure_kafka_next_to_its_raw_producer() {
    let plan = writes::WritesPlan {
        rounds: 1,
        turn: Duration::ZERO,
        clients: 2,
        batch_clients: 1,
        batch: 10,
        kafka: true,
    };
    let rows = writes::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "kafka (one broker), unary, 1 client, p50, us",
            "kafka (one broker), stream, 1 client, 1/s",
            "raw Kafka producer, one in flight, p99, us",
            "raw Kafka producer, a stream's number in flight, 1/s",
        ],
    );
    let stream = |row: &&Row| row.measure.starts_with("kafka (one broker), stream");
    assert!(rows.iter().filter(stream).all(|row| row.ratio.is_some()), "no ratio to the peer");
    let plan = freshness::FreshnessPlan {
        rounds: 1,
        writes: 40,
        rate: 1_000,
        timed_one_in: 4,
        watched: 4,
        kafka: true,
        watcher: PathBuf::from(env!("CARGO_BIN_EXE_freshness")),
    };
    let rows = freshness::run(&plan).unwrap();
    assert_whole(&rows, &["kafka (one broker), 1K writes/s, acknowledged to visible, p99, ms"]);
}
