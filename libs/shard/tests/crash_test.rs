//! Kills writers of a shard at any moment. The tests prove that the remains are the state of a
//! prefix of the log, no older than the last flush, and that the shard continues from there.
//!
//! Each writer is a separate process: this binary with a folder in its environment.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_testkit::random::SeededRng;
use support::*;

const ROUNDS: usize = 15;
/// Environment variable with the writer's folder.
const WRITER_DIR: &str = "FOREBAY_SHARD_WRITER";
const ENTRIES_MAX: u64 = 20_000;
/// Entries between two flushes that a writer starts itself.
const FLUSH_EVERY: u64 = 150;

/// The writer: applies entries until it is killed, and prints the flushed offsets.
#[test]
fn writer_writes_until_killed() {
    let Some(dir) = std::env::var_os(WRITER_DIR) else { return };
    let world = World::new();
    let mut replica = world.resume(Path::new(&dir));
    println!("open {}", replica.state.offset_applied);
    let last = replica.state.offset_applied.0 + ENTRIES_MAX;
    while replica.state.offset_applied.0 < last {
        replica.step();
        let applied = replica.state.offset_applied.0;
        if applied.is_multiple_of(FLUSH_EVERY) {
            // The writer continues during the flush.
            let shard = replica.writer.shard().clone();
            std::thread::spawn(move || {
                shard.flush().unwrap();
                println!("flushed {applied}");
            });
        }
    }
}

/// Starts a writer and waits until it has opened the shard; returns the last offset that it
/// reported as flushed.
fn start_writer(dir: &Path) -> (Child, Arc<AtomicU64>, std::thread::JoinHandle<()>) {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["writer_writes_until_killed", "--exact", "--nocapture", "--test-threads=1"]);
    writer.env(WRITER_DIR, dir).stdout(Stdio::piped());
    let mut child = writer.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_open = |line: std::io::Result<String>| line.unwrap().contains("open ");
    assert!(lines.by_ref().any(is_open), "the writer ended before it had the shard");
    let flushed_offset = Arc::new(AtomicU64::new(0));
    let reported_offset = flushed_offset.clone();
    let listener = std::thread::spawn(move || {
        for line in lines {
            let line = line.unwrap_or_default();
            let at = line.split_once("flushed ").and_then(|(_, at)| at.trim().parse().ok());
            reported_offset.fetch_max(at.unwrap_or(0), Ordering::SeqCst);
        }
    });
    (child, flushed_offset, listener)
}

#[test]
fn killed_writer_leaves_the_state_of_a_log_prefix() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut model = world.model();
    let mut dice = SeededRng::new(u64::from(std::process::id()));
    let (mut got_on, mut before) = (0, 0);
    for round in 0..ROUNDS {
        let (mut child, flushed_offset, listener) = start_writer(dir.path());
        std::thread::sleep(Duration::from_micros(dice.below(400_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        listener.join().unwrap();
        let flushed_offset = flushed_offset.load(Ordering::SeqCst);
        let mut replica = world.resume(dir.path());
        let applied = replica.state.offset_applied.0;
        assert!(
            applied >= flushed_offset.max(before),
            "round {round}: {applied}, and {flushed_offset} was on disk"
        );
        got_on += usize::from(applied > before);
        while model.state.offset_applied < replica.state.offset_applied {
            model.step();
        }
        replica.assert_is(&model);
        // The shard continues in this process.
        for _ in 0..20 {
            replica.step();
            model.step();
        }
        replica.assert_is(&model);
        replica.writer.shard().flush().unwrap();
        before = replica.state.offset_applied.0;
    }
    assert!(got_on > ROUNDS / 3, "writers came to write before they were killed: {got_on}");
}
