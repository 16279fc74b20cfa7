//! Memory of a copying process: within the documented bound, whatever the shard is.

use std::time::Duration;

use forebay::{Client, ClientOptions, Store};

use crate::process::{CopyProcess, start};
use crate::{fill_with, is_applied, spec};

/// The bounds in the README of the replicator, in MiB: for the process without the 8 MiB that a
/// release's code takes, and for each parallel read.
const PROCESS_MIB: u64 = 24;
const PARALLEL_READ_MIB: u64 = 16;
/// Number of rows of more than a MiB that each read may hold in addition.
const LARGE_ROWS: u64 = 6;
/// Number and size of the documents: 150 MB each time.
const SHARDS: [(&str, i64, usize); 3] =
    [("blobs", 150_000, 1_000), ("large", 144, 1 << 20), ("huge", 10, 15 << 20)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_stays_within_its_stated_memory() {
    let source_dir = tempfile::tempdir().unwrap();
    let source = start(source_dir.path(), "127.0.0.1:0");
    let client = Client::connect(&source.address, ClientOptions::default()).await.unwrap();
    for (name, documents, value_bytes) in SHARDS {
        let mut spec = spec();
        spec.name = name.to_owned();
        let store: Store = client.create_store(&spec).await.unwrap();
        is_applied(&store, fill_with(&store, 0..documents, value_bytes).await).await;
        let large_mib = if value_bytes > 1 << 20 { value_bytes as u64 >> 20 } else { 0 };
        for mode in [&[][..], &["--files"]] {
            let rows_mib = if mode.is_empty() { LARGE_ROWS * large_mib } else { 0 };
            let most_mib = PROCESS_MIB + 2 * (PARALLEL_READ_MIB + rows_mib);
            let target_dir = tempfile::tempdir().unwrap();
            let arguments = [&["--parallelism", "2"], mode].concat();
            let process = CopyProcess::start(&source.address, name, target_dir.path(), &arguments);
            // Code counts in the peak, and a development build has several times a release's code.
            let (mut peak_kib, mut code_kib) = (0, 0);
            while let Some(kib) = process.peak_kib() {
                if kib > peak_kib {
                    peak_kib = kib;
                    code_kib = process.code_kib().max(code_kib);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (_, bytes, _) = process.await_report();
            assert!(bytes > 150_000_000, "{bytes} bytes");
            let (peak_mib, code_mib) = (peak_kib / 1_024, code_kib / 1_024);
            println!("{name} {mode:?}: {peak_mib} MiB, {code_mib} MiB of them code");
            assert!(peak_mib > 1, "it was never seen");
            let peak_mib = peak_mib - code_mib;
            assert!(peak_mib <= most_mib, "{peak_mib} MiB, copying {name} {mode:?}");
        }
    }
    source.terminate();
}
