//! Copies whose source or target is killed: they resume where they were.

use forebay::{Client, ClientOptions};

use crate::process::{CopyProcess, reached, start, table_bytes};
use crate::{digests, fill, is_applied, spec};

const DOCUMENTS: i64 = 160_000;
/// A rate limit that leaves time for kills.
const RATE: &str = "60MB";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_rows_resumes_after_kills_of_either_end() {
    let counted = copy_with_killed_ends(&[]).await;
    assert!(counted >= DOCUMENTS as u64, "{counted} rows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_files_resumes_after_kills_of_either_end() {
    let counted = copy_with_killed_ends(&["--files"]).await;
    assert!((3..1_000).contains(&counted), "{counted} files");
}

/// Returns the number of rows or files that the copy reports.
async fn copy_with_killed_ends(mode: &[&str]) -> u64 {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = start(from.path(), "127.0.0.1:0");
    let client = Client::connect(&source.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    is_applied(&store, fill(&store, 0..DOCUMENTS).await).await;
    let all = DOCUMENTS as u64 * 1_000;
    let more = [&["--rate", RATE], mode].concat();

    // The target is killed at each quarter; the last attempt receives only the rest.
    let mut was_there = 0;
    for quarter in 1..=3 {
        let process = CopyProcess::start(&source.address, "blobs", to.path(), &more);
        reached(to.path(), all / 4 * quarter).await;
        was_there = table_bytes(to.path(), "copy");
        process.kill();
    }
    // A resumed copy keeps the mode with which it began, whatever the arguments say.
    let bound = ["--rate", RATE];
    let (counted, bytes, came) =
        CopyProcess::start(&source.address, "blobs", to.path(), &bound).ended();
    assert!(bytes > all, "{bytes} bytes");
    let there_in_all = table_bytes(to.path(), "shard");
    let left = bytes as f64 * (1.0 - was_there as f64 / there_in_all as f64);
    assert!(came as f64 <= 1.1 * left, "{came} bytes came, where {left} were left");

    // The source is killed at each quarter, and one target continues by itself.
    let again = tempfile::tempdir().unwrap();
    let process = CopyProcess::start(&source.address, "blobs", again.path(), &more);
    let mut source = source;
    for quarter in 1..=3 {
        reached(again.path(), all / 4 * quarter).await;
        let address = source.kill();
        source = start(from.path(), &address);
    }
    let (counted_again, bytes_again, came) = process.ended();
    if mode.is_empty() {
        // Heartbeats may have been applied in between; they do not change the number of rows.
        assert_eq!(counted_again, counted);
    }
    assert!(came as f64 <= 1.1 * bytes_again as f64, "{came} bytes came of {bytes_again}");
    source.terminate();
    let definition = store.definition();
    let [all, one, other] = [from, to, again].map(|data| digests(data.path(), &definition).1);
    assert_eq!(all.rows, DOCUMENTS as u64);
    assert_eq!([one, other], [all, all]);
    counted
}
