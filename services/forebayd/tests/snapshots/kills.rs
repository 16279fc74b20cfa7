//! Nodes that are killed while they build snapshots.

use std::path::Path;
use std::time::Duration;

use forebay::{Client, ClientOptions};
use forebay_snapshot::SnapshotStore;

use crate::daemon::Daemon;
use crate::{ExpectedDocuments, LONG, assert_holds, reader, spec, write};

const DOCUMENTS: i64 = 300_000;

fn start(data: &Path, snapshots: &str, listen: &str) -> Daemon {
    let data = data.to_str().unwrap();
    let snapshots = ["--snapshots", snapshots, "--snapshot-interval", "1s"];
    Daemon::start(
        &[&["--data-dir", data, "--durability", "buffered"], &snapshots[..]].concat(),
        listen,
    )
}

/// Returns the number of stored chunks.
fn chunks(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let entries = entries.flatten().map(|entry| entry.path());
    let count = |path: std::path::PathBuf| match path.is_dir() {
        true => chunks(&path),
        false => usize::from(path.parent().is_some_and(|folder| folder.ends_with("chunks"))),
    };
    entries.map(count).sum()
}

async fn await_chunks(folder: &Path, count: usize) {
    let wait = async {
        while chunks(folder) < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{} chunks", chunks(folder)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_builder_leaves_valid_snapshots_and_the_next_builder_succeeds() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", folder.path().display());
    let mut node = start(data.path(), &url, "127.0.0.1:0");
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    let mut token = write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    for round in 1..=6 {
        // The kill falls in the middle of the next build, at an arbitrary point.
        await_chunks(folder.path(), chunks(folder.path()) + round % 3 + 1).await;
        let address = node.kill();
        node = start(data.path(), &url, &address);
        let keys = DOCUMENTS / 10 * round as i64;
        token = write(&store, &mut expected, keys..keys + 2_000, 10 * round as i64).await;
    }
    let snapshots = SnapshotStore::open(&url).unwrap();
    crate::snapshots(&snapshots, &store, |_| true).await;
    let new_reader = reader(&node.address, &snapshots, &token).await;
    assert_holds(&new_reader, &expected, 0..DOCUMENTS + 2_000);
}
