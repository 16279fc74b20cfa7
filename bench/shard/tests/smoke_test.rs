//! Every benchmark with a handful of operations, so that none of them rots. The test times nothing:
//! figures of a loaded machine and an unoptimised build are meaningless.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_bench_naive_copy as naive_copy;
use forebay_bench_report::Row;
use forebay_bench_shard::{copies, orders};
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::key::KeyType;
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::SHARD_MEMORY_MIB;
use forebay_core::schema::StoreSpec;
use forebay_shard::{Resources, ShardDirectory};
use rocksdb::DB;

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
fn shard_copies_are_measured_next_to_the_naive_copy_and_its_ceilings() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_copy"));
    let (values, loopback) = (vec![256], Duration::from_millis(10));
    let plan = copies::CopiesPlan { rounds: 1, bytes: 400_000, values, loopback, program };
    let rows = copies::run(&plan).unwrap();
    assert_whole(
        &rows,
        &[
            "copy of rows, values of 256 B, MB/s",
            "copy of rows, values of 256 B, memory of the target, MB",
            "copy of rows, against the slower ceiling, values of 256 B, MB/s",
            "copy of rows, source not in the page cache, values of 256 B, MB/s",
            "copy of files, values of 256 B, MB/s",
            "file writer alone, values of 256 B, MB/s",
        ],
    );
    let ratios = rows.iter().filter(|row| row.measure.starts_with("copy of")).map(|row| row.ratio);
    assert!(ratios.flatten().count() > 10, "no ratios were formed: {rows:#?}");
}

/// Returns the engine's own record of a database's options: `[section] name=value`.
fn options_in(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_options = |path: &PathBuf| path.to_string_lossy().contains("/OPTIONS-");
    let newest = files.filter(is_options).max().expect("the engine keeps its options");
    let text = fs::read_to_string(newest).unwrap();
    let mut section = "";
    let mut options = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if line.contains('=') {
            options.insert(format!("{section} {line}"));
        }
    }
    options
}

#[test]
fn naive_copy_has_the_options_of_our_shards() {
    let (own_folder, naive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let definition =
        StoreSpec::key_value("a", KeyType::Bytes).partitions(1).define(StoreId(1)).unwrap();
    // The default of a node.
    let memory = (SHARD_MEMORY_MIB as usize) << 20;
    let directory = ShardDirectory::new(own_folder.path(), Resources::new(memory).unwrap());
    let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
    let shard = directory.create(at, KeyOrder::of(&definition)).unwrap();
    drop(DB::open(&naive_copy::options(), naive.path()).unwrap());
    let (own_options, naive) = (options_in(shard.shard().path()), options_in(naive.path()));
    assert!(own_options.len() > 100, "{own_options:?}");
    let differing: BTreeSet<&str> = own_options
        .symmetric_difference(&naive)
        .map(|option| option.split_once('=').unwrap().0)
        // The unit stage of `make test` gathers the logs of all shards in one folder.
        .filter(|option| *option != "[DBOptions] db_log_dir")
        .collect();
    // Options of the engine's logs, and of which old files the engine rewrites for expiry or reads:
    // neither affects a row.
    let expected_options = [
        "[CFOptions \"default\"] bottommost_file_compaction_delay",
        "[CFOptions \"default\"] compaction_filter",
        "[CFOptions \"default\"] periodic_compaction_seconds",
        "[DBOptions] info_log_level",
        "[DBOptions] keep_log_file_num",
        "[DBOptions] manifest_preallocation_size",
        "[DBOptions] max_log_file_size",
        "[DBOptions] skip_stats_update_on_db_open",
    ];
    assert_eq!(differing, BTreeSet::from(expected_options));
}

#[test]
fn four_access_orders_are_measured_next_to_redis() {
    let plan = orders::OrdersPlan {
        rounds: 1,
        operations: 60,
        connecting: 20,
        values: vec![100],
        clients: 3,
    };
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
    assert!(of_node.clone().count() == 80 && of_node.clone().all(|row| row.ratio.is_some()));
}
