//! Proves the behaviour of shared copies on full file systems, both of the memory and of the
//! directory: nothing is lost or half applied, readers answer from the applied data, and the owner
//! continues by itself once there is space.
//!
//! The small file systems are tmpfs, which a process may mount in a mount namespace of its own:
//! `unshare` runs this binary again. If the system permits no namespace, the test prints that and
//! passes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::change::{Change, ClientBatch, EntryBody, Verb};
use forebay_core::id::{ClientId, Sequence};
use forebay_log::disk::RealDisk;
use forebay_reader::{CheckpointOptions, ReadOptions, Reader, ReaderOptions, ReaderParts};
use forebay_wire::token::Token;

use crate::world::checkpoints::{status, wait_until};
use crate::world::{LOG, World, age, change, token};

const LONG: Duration = Duration::from_secs(60);
/// Environment variable with the folder for the process that this binary is started as.
const FOLDER: &str = "FOREBAY_FULL_FOLDER";
const MEMORY_MIB: u64 = 48;
const DIR_MIB: u64 = 64;
/// Documents per entry, of about 1 KiB each.
const PER_ENTRY: u64 = 100;
/// Entries per write: more than the few free blocks of a copy can store.
const ENTRIES: u64 = 120;

/// Two small file systems, a store, and the number of entries written to it.
struct Small {
    world: World,
    memory: PathBuf,
    dir: PathBuf,
    entries: u64,
}

impl Small {
    async fn new(folder: &Path, name: &str) -> Self {
        let tmpfs_at = |part: &str, mib: u64| {
            let path = folder.join(format!("{name}-{part}"));
            std::fs::create_dir(&path).unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"]).arg(&path);
            assert!(mount.status().unwrap().success());
            path
        };
        let (memory, dir) = (tmpfs_at("memory", MEMORY_MIB), tmpfs_at("dir", DIR_MIB));
        let world = World::new(1).await;
        world.put("steady", 7).await;
        Self { world, memory, dir, entries: 0 }
    }

    fn options(&self) -> ReaderOptions {
        // Checkpoints are off, because they would take space as well.
        let memory_dir = Some(self.memory.clone());
        let checkpoint = CheckpointOptions::new(&self.dir).memory_dir(memory_dir).bytes_max(0);
        self.world.options().checkpoint(checkpoint)
    }

    fn parts(&self) -> ReaderParts {
        ReaderParts { disk: Some(Arc::new(RealDisk)), ..self.world.parts() }
    }

    async fn open(&self) -> Reader {
        let reader = Reader::open(self.options(), self.parts()).await.unwrap();
        reader.await_ready(LONG).await.unwrap();
        assert_eq!(age(&reader, "steady").unwrap(), Some(7));
        reader
    }

    /// Writes some MiB as entries of many documents; returns the token of the last one.
    async fn write_much(&mut self) -> Token {
        let mut last = None;
        for _ in 0..ENTRIES {
            let changes = (0..PER_ENTRY).map(|i| {
                let n = self.entries * PER_ENTRY + i;
                let sequence = Sequence(n + 1);
                Change { sequence, ..change(&key(n), Verb::Put, &[("age", n as i64)]) }
            });
            let changes = changes.collect();
            let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(99), changes }]);
            last = Some(self.world.append_to(0, LOG, body).await.offset.0);
            self.entries += 1;
        }
        token(0, LOG, last.unwrap())
    }

    /// Returns how many of the entries are present; each must be present as a whole or not at all,
    /// in order.
    fn entries_of(&self, reader: &Reader) -> u64 {
        let mut found = Vec::new();
        for entry in 0..self.entries {
            let ages = [0, PER_ENTRY - 1].map(|i| {
                let n = entry * PER_ENTRY + i;
                let age = age(reader, &key(n)).unwrap();
                assert!(age.is_none_or(|age| age == n as i64));
                age.is_some()
            });
            assert_eq!(ages[0], ages[1], "half of entry {entry}");
            found.push(ages[0]);
        }
        let first_absent = found.iter().position(|is_there| !is_there).unwrap_or(found.len());
        assert!(!found[first_absent..].contains(&true), "an entry behind one that is not there");
        first_absent as u64
    }

    fn spaces(&self) -> [usize; 2] {
        [&self.memory, &self.dir].map(|dir| {
            let names = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name());
            names.filter(|name| name.to_str().unwrap().starts_with("forebay-")).count()
        })
    }
}

fn key(n: u64) -> String {
    format!("{n:->900}")
}

/// A file that takes all space of its file system until it is dropped.
struct Filler(PathBuf);

impl Filler {
    fn of(dir: &Path) -> Self {
        let path = dir.join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut bytes = vec![1; 1 << 20];
        while !bytes.is_empty() {
            match file.write(&bytes) {
                Ok(written_bytes) if written_bytes > 0 => {}
                _ => bytes.truncate(bytes.len() / 2),
            }
        }
        Self(path)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// A thread of its own that reads without end; each read must be answered.
struct Reads(Arc<AtomicBool>, std::thread::JoinHandle<u64>);

impl Reads {
    fn of(reader: &Reader) -> Self {
        let (reader, stop) = (reader.clone(), Arc::new(AtomicBool::new(false)));
        let stop_signal = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut reads = 0;
            while !stop_signal.load(Ordering::Relaxed) {
                assert_eq!(age(&reader, "steady").unwrap(), Some(7));
                reads += 1;
                std::thread::yield_now();
            }
            reads
        });
        Self(stop, thread)
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        assert!(self.1.join().unwrap() > 0);
    }
}

async fn until_full(reader: &Reader) {
    let is_limit = |error: &forebay_core::Error| error.code() == ErrorCode::LimitExceeded;
    wait_until(reader, |status| status.last_error.as_ref().is_some_and(is_limit)).await;
}

/// Waits until reads are refused for their age, although the log advances.
async fn until_stale(small: &Small, reader: &Reader) {
    let code = || {
        let bound = Some(Duration::from_secs(2));
        let read = reader.read_local(bound, |view| view.get_document("steady"));
        read.err().map(|error| error.code())
    };
    while code() != Some(ErrorCode::Stale) {
        small.world.heartbeat(0).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn copy_in_full_memory_moves_to_the_directory(folder: &Path) {
    let mut small = Small::new(folder, "moves").await;
    let (owner, beside) = (small.open().await, small.open().await);
    let reads = [&owner, &beside].map(Reads::of);
    assert_eq!(small.spaces(), [1, 0]);
    let _memory = Filler::of(&small.memory);
    let token = small.write_much().await;
    for reader in [&owner, &beside] {
        reader.await_token(&token, LONG).await.unwrap();
        assert_eq!(small.entries_of(reader), ENTRIES);
        assert_eq!(status(reader).generation, 2);
    }
    assert_eq!(small.spaces(), [0, 1]);

    let room = Filler::of(&small.dir);
    let second_token = small.write_much().await;
    until_full(&owner).await;
    let entries = small.entries_of(&owner);
    assert!((ENTRIES..2 * ENTRIES).contains(&entries), "{entries} entries have found room");
    for reader in [&owner, &beside] {
        until_stale(&small, reader).await;
        assert_eq!(small.entries_of(reader), entries);
    }
    // A new reader shares the copy, and a reader that takes it over waits as well.
    let options = small.options().ready_max_staleness(LONG * 60);
    let late = Reader::open(options, small.parts()).await.unwrap();
    assert_eq!(small.entries_of(&late), entries);
    reads.into_iter().for_each(Reads::end);
    owner.close(LONG).await.unwrap();
    let taken_over = async {
        while [&beside, &late].iter().all(|reader| status(reader).last_error.is_none()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, taken_over).await.unwrap();
    let reads = [&beside, &late].map(Reads::of);
    assert_eq!(small.entries_of(&beside), entries);

    drop(room);
    for reader in [&beside, &late] {
        reader.await_token(&second_token, LONG).await.unwrap();
        assert_eq!(small.entries_of(reader), 2 * ENTRIES);
        small.world.heartbeat(0).await;
        let partitions = [reader.partition_of("steady").unwrap()];
        reader.wait(&ReadOptions::latest(LONG), &partitions).await.unwrap();
        reader.read_local(Some(LONG), |view| view.get_document("steady")).unwrap();
    }
    reads.into_iter().for_each(Reads::end);
    assert_eq!(small.spaces(), [0, 1]);
}

async fn copy_on_two_full_disks_waits_for_space(folder: &Path, is_of_memory: bool) {
    let mut small = Small::new(folder, if is_of_memory { "memory" } else { "dir" }).await;
    let (owner, beside) = (small.open().await, small.open().await);
    let reads = [&owner, &beside].map(Reads::of);
    let [memory, dir] = [&small.memory, &small.dir].map(|root| Filler::of(root));
    let token = small.write_much().await;
    until_full(&owner).await;
    let entries = small.entries_of(&owner);
    assert!(entries < ENTRIES);
    until_stale(&small, &beside).await;
    until_full(&owner).await;
    assert_eq!([small.entries_of(&owner), small.entries_of(&beside)], [entries; 2]);
    let fillers = if is_of_memory { (memory, dir) } else { (dir, memory) };
    drop(fillers.0);
    for reader in [&owner, &beside] {
        reader.await_token(&token, LONG).await.unwrap();
        assert_eq!(small.entries_of(reader), ENTRIES);
    }
    reads.into_iter().for_each(Reads::end);
    assert_eq!(small.spaces(), if is_of_memory { [1, 0] } else { [0, 1] });
}

async fn reader_without_disk_space_is_refused(folder: &Path) {
    let small = Small::new(folder, "nothing").await;
    let (_memory, dir) = (Filler::of(&small.memory), Filler::of(&small.dir));
    let error = Reader::open(small.options(), small.parts()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    drop(dir);
    small.open().await;
    assert_eq!(small.spaces(), [0, 1]);
}

/// Runs the tests inside the namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_disks_do_not_stop_readers() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    copy_in_full_memory_moves_to_the_directory(&folder).await;
    copy_on_two_full_disks_waits_for_space(&folder, false).await;
    copy_on_two_full_disks_waits_for_space(&folder, true).await;
    reader_without_disk_space_is_refused(&folder).await;
}

#[test]
fn shared_copy_on_a_full_disk_answers_and_continues_once_space_returns() {
    let folder = tempfile::tempdir().unwrap();
    let unshared_command = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount"]).arg(program);
        command
    };
    let mut probe = unshared_command("mount".as_ref());
    probe.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(folder.path());
    match probe.output() {
        Ok(probed) if probed.status.success() => {}
        outcome => {
            println!("not run: the system mounts no file system here ({outcome:?})");
            return;
        }
    }
    let mut command = unshared_command(&std::env::current_exe().unwrap());
    let test = "full_disk::small_disks_do_not_stop_readers";
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(FOLDER, folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
}
