//! Writers of a shard that are killed at any moment: what is left is what some prefix of the log
//! makes, no less than what was put on disk, and it goes on.
//!
//! The writers are processes of their own: this binary again, with a folder in its environment.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_testkit::random::Dice;
use support::*;

const ROUNDS: usize = 15;
/// Where the writer that this binary is started as finds its shard.
const WRITER_DIR: &str = "FOREBAY_SHARD_WRITER";
const ENTRIES_MAX: u64 = 20_000;
/// Of entries, between two times that a writer puts all on disk by itself.
const FLUSH_EVERY: u64 = 150;

/// The writer: applies entries until it is killed, and tells what is on disk.
#[test]
fn writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(WRITER_DIR) else { return };
    let world = World::new();
    let mut replica = world.resume(Path::new(&dir));
    println!("open {}", replica.state.offset_applied);
    let last = replica.state.offset_applied.0 + ENTRIES_MAX;
    while replica.state.offset_applied.0 < last {
        replica.step();
        let applied = replica.state.offset_applied.0;
        if applied.is_multiple_of(FLUSH_EVERY) {
            // Others write while it goes to disk.
            let shard = replica.writer.shard().clone();
            std::thread::spawn(move || {
                shard.flush().unwrap();
                println!("flushed {applied}");
            });
        }
    }
}

/// A writer that has opened the shard, and the last offset that it said is on disk.
fn start_writer(dir: &Path) -> (Child, Arc<AtomicU64>, std::thread::JoinHandle<()>) {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["writes_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"]);
    writer.env(WRITER_DIR, dir).stdout(Stdio::piped());
    let mut child = writer.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_open = |line: std::io::Result<String>| line.unwrap().contains("open ");
    assert!(lines.by_ref().any(is_open), "the writer ended before it had the shard");
    let flushed = Arc::new(AtomicU64::new(0));
    let noted = flushed.clone();
    let listener = std::thread::spawn(move || {
        for line in lines {
            let line = line.unwrap_or_default();
            let at = line.split_once("flushed ").and_then(|(_, at)| at.trim().parse().ok());
            noted.fetch_max(at.unwrap_or(0), Ordering::SeqCst);
        }
    });
    (child, flushed, listener)
}

#[test]
fn a_writer_that_is_killed_leaves_what_a_prefix_of_the_log_makes() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut model = world.model();
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (mut got_on, mut before) = (0, 0);
    for round in 0..ROUNDS {
        let (mut child, flushed, listener) = start_writer(dir.path());
        std::thread::sleep(Duration::from_micros(dice.below(400_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        listener.join().unwrap();
        let flushed = flushed.load(Ordering::SeqCst);
        let mut replica = world.resume(dir.path());
        let applied = replica.state.offset_applied.0;
        assert!(
            applied >= flushed.max(before),
            "round {round}: {applied}, and {flushed} was on disk"
        );
        got_on += usize::from(applied > before);
        while model.state.offset_applied < replica.state.offset_applied {
            model.step();
        }
        replica.assert_is(&model);
        // And goes on, here.
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
