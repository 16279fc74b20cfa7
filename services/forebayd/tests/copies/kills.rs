//! Copies whose ends are killed: they go on where they were.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay::{Client, ClientOptions};

use crate::daemon::{Daemon, FOREBAYD, LONG};
use crate::{digest, fill, spec};

const DOCUMENTS: i64 = 160_000;
/// A bound that leaves time for kills.
const BYTES_PER_SECOND: u64 = 60_000_000;

fn start(data: &Path, listen: &str) -> Daemon {
    let data = data.to_str().unwrap();
    Daemon::start(&["--data-dir", data, "--durability", "buffered"], listen)
}

/// A `forebayd copy` under way; killed when the test ends.
struct Copying(Child);

impl Copying {
    fn start(from: &str, data: &Path) -> Self {
        let bound = BYTES_PER_SECOND.to_string();
        let command = [
            &["copy", "--from", from, "--store", "blobs", "--partition", "0"][..],
            &["--data-dir", data.to_str().unwrap(), "--bytes-per-second", &bound],
        ];
        let child = Command::new(FOREBAYD)
            .args(command.concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// What it says at its end: rows, bytes, and those of them that came to it.
    fn ended(mut self) -> (u64, u64, u64) {
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success(), "{said}");
        let numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.take(3).collect();
        (numbers[0], numbers[1], numbers[2])
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes of files of parts at a copy's target.
fn copied_bytes(data: &Path) -> u64 {
    let folders = std::fs::read_dir(data.join("shards")).into_iter().flatten().flatten();
    let copies = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with("copy-"));
    let files =
        copies.flat_map(|copy| std::fs::read_dir(copy.path()).into_iter().flatten().flatten());
    let parts = files.filter(|file| file.path().extension().is_some_and(|it| it == "sst"));
    parts.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Waits until so much of a copy is there.
async fn reached(data: &Path, bytes: u64) {
    let wait = async {
        while copied_bytes(data) < bytes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(LONG, wait).await;
    assert!(came.is_ok(), "{} bytes of {bytes}", copied_bytes(data));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_whose_ends_are_killed_moves_what_was_left() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = start(from.path(), "127.0.0.1:0");
    let client = Client::connect(&source.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    let token = fill(&store, 0..DOCUMENTS).await;
    let read = forebay::Read::after_token(token, LONG);
    store.ordered().unwrap().get(&read, 0_i64).await.unwrap();
    let all = DOCUMENTS as u64 * 1_000;

    // The target is killed at each quarter, and what comes to the last one is what was left.
    let mut was_there = 0;
    for quarter in 1..=3 {
        let copying = Copying::start(&source.address, to.path());
        reached(to.path(), all / 4 * quarter).await;
        was_there = copied_bytes(to.path());
        copying.kill();
    }
    let (rows, bytes, came) = Copying::start(&source.address, to.path()).ended();
    assert!(rows >= DOCUMENTS as u64 && bytes > all, "{rows} rows of {bytes} bytes");
    let left = bytes - was_there;
    assert!(came as f64 <= 1.1 * left as f64, "{came} bytes came, where {left} were left");

    // The source is killed at each quarter, and one target goes on by itself.
    let again = tempfile::tempdir().unwrap();
    let copying = Copying::start(&source.address, again.path());
    let mut source = source;
    for quarter in 1..=3 {
        reached(again.path(), all / 4 * quarter).await;
        let address = source.kill();
        source = start(from.path(), &address);
    }
    let (rows_again, bytes_again, came) = copying.ended();
    // Heartbeats may have been applied meanwhile, which change no number of rows.
    assert_eq!(rows_again, rows);
    assert!(came as f64 <= 1.1 * bytes_again as f64, "{came} bytes came of {bytes_again}");
    source.terminate();
    let definition = store.definition();
    let digests = [to.path(), again.path()].map(|data| digest(data, &definition).rows);
    assert_eq!(digests, [rows, rows]);
}
