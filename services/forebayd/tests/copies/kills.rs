//! Copies whose source or target is killed: they resume where they were.

use forebay::{Client, ClientOptions};

use crate::process::{CopyProcess, await_bytes, start, table_bytes};
use crate::{digests, fill, is_applied, spec};

const DOCUMENTS: i64 = 160_000;
/// A rate limit that leaves time for kills.
const RATE: &str = "60MB";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_rows_resumes_after_kills_of_either_end() {
    let count = copy_with_killed_ends(&[]).await;
    assert!(count >= DOCUMENTS as u64, "{count} rows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_files_resumes_after_kills_of_either_end() {
    let count = copy_with_killed_ends(&["--files"]).await;
    assert!((3..1_000).contains(&count), "{count} files");
}

/// Returns the number of rows or files that the copy reports.
async fn copy_with_killed_ends(mode: &[&str]) -> u64 {
    let (source_dir, target_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = start(source_dir.path(), "127.0.0.1:0");
    let client = Client::connect(&source.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    is_applied(&store, fill(&store, 0..DOCUMENTS).await).await;
    let all = DOCUMENTS as u64 * 1_000;
    let arguments = [&["--rate", RATE], mode].concat();

    // The target is killed at each quarter; the last attempt receives only the rest.
    let mut was_there = 0;
    for quarter in 1..=3 {
        let process = CopyProcess::start(&source.address, "blobs", target_dir.path(), &arguments);
        await_bytes(target_dir.path(), all / 4 * quarter).await;
        was_there = table_bytes(target_dir.path(), "copy");
        process.kill();
    }
    // A resumed copy keeps the mode with which it began, whatever the arguments say.
    let rate_arguments = ["--rate", RATE];
    let (count, bytes, received_bytes) =
        CopyProcess::start(&source.address, "blobs", target_dir.path(), &rate_arguments)
            .await_report();
    assert!(bytes > all, "{bytes} bytes");
    let there_in_all = table_bytes(target_dir.path(), "shard");
    let remaining_bytes = bytes as f64 * (1.0 - was_there as f64 / there_in_all as f64);
    assert!(
        received_bytes as f64 <= 1.1 * remaining_bytes,
        "{received_bytes} bytes came, where {remaining_bytes} were left"
    );

    // The source is killed at each quarter, and one target continues by itself.
    let second_dir = tempfile::tempdir().unwrap();
    let process = CopyProcess::start(&source.address, "blobs", second_dir.path(), &arguments);
    let mut source = source;
    for quarter in 1..=3 {
        await_bytes(second_dir.path(), all / 4 * quarter).await;
        let address = source.kill();
        source = start(source_dir.path(), &address);
    }
    let (counted_again, bytes_again, received_bytes) = process.await_report();
    if mode.is_empty() {
        // Heartbeats may have been applied in between; they do not change the number of rows.
        assert_eq!(counted_again, count);
    }
    assert!(
        received_bytes as f64 <= 1.1 * bytes_again as f64,
        "{received_bytes} bytes came of {bytes_again}"
    );
    source.terminate();
    let definition = store.definition();
    let [all, first_copy, second_copy] =
        [source_dir, target_dir, second_dir].map(|data| digests(data.path(), &definition).1);
    assert_eq!(all.rows, DOCUMENTS as u64);
    assert_eq!([first_copy, second_copy], [all, all]);
    count
}
