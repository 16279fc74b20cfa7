//! `forebayd dev` as a process, and the properties that must hold on every log.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use forebay::schema::{FieldType, KeyType, KeyValue, StoreSpec, Value};
use forebay::writes::Token;
use forebay::{Client, ClientOptions, Reader, ReaderOptions};

pub const FOREBAYD: &str = env!("CARGO_BIN_EXE_forebayd");
/// Longest wait for an expected event.
pub const LONG: Duration = Duration::from_secs(60);
const KILLS: usize = 4;
const WRITERS: i64 = 4;

/// Number of log lines that a failed test shows.
const LINES_SHOWN: usize = 60;

/// A running forebayd; killed when the test ends.
pub struct Daemon {
    child: Child,
    log: File,
    pub address: String,
}

impl Daemon {
    /// Starts `forebayd dev` with these arguments and waits for its greeting.
    pub fn start(arguments: &[&str], listen: &str) -> Self {
        Self::start_with(arguments, &[], listen)
    }

    /// Starts `forebayd dev` with additional environment variables.
    pub fn start_with(arguments: &[&str], variables: &[(String, String)], listen: &str) -> Self {
        let log = tempfile::tempfile().unwrap();
        let mut child = Command::new(FOREBAYD)
            .args(["dev", "--listen", listen])
            .args(arguments)
            .envs(variables.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let mut daemon = Self { child, log, address: String::new() };
        let address = first.trim().strip_prefix("forebayd ready http://");
        let address = address.unwrap_or_else(|| panic!("no greeting, but {first:?}"));
        address.clone_into(&mut daemon.address);
        daemon
    }

    /// Kills the process as `kill -9` does; returns its address.
    pub fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.address.clone()
    }

    /// Returns the log so far.
    pub fn read_log(&self) -> String {
        let mut bytes = vec![0; self.log.metadata().map_or(0, |log| log.len() as usize)];
        // The child shares the file's position, so this read must not move it.
        let _ = self.log.read_exact_at(&mut bytes, 0);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the process ends by itself.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends the process by SIGTERM.
    pub fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = self.read_log();
            let lines: Vec<_> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
            eprintln!("the last forebayd said:\n{}", last.join("\n"));
        }
    }
}

/// Returns the error with which forebayd refuses these arguments.
pub fn read_error(arguments: &[&str]) -> String {
    read_error_with(arguments, &[])
}

/// Works like [`read_error`], with additional environment variables.
pub fn read_error_with(arguments: &[&str], variables: &[(String, String)]) -> String {
    let variables = variables.iter().cloned();
    let output = Command::new(FOREBAYD).args(arguments).envs(variables).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} was taken");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the definition of a store of counters.
pub fn counts() -> StoreSpec {
    StoreSpec::documents("counts", KeyType::Int64).partitions(4).field("count", FieldType::INT64)
}

/// Returns the counter under a key, as the reader holds it.
pub fn count_of(reader: &Reader, key: i64) -> Option<i64> {
    let field = reader.definition().field("count").unwrap().id;
    let document = reader.get_document(KeyValue::Int64(key)).unwrap()?;
    match document.value(field) {
        Some(Value::Int64(count)) => Some(*count),
        other => panic!("key {key} holds {other:?}"),
    }
}

/// Increments one key until `stop` is set; returns the number of acknowledged increments, and the
/// token of the last.
async fn increment(
    address: String,
    key: i64,
    stop: Arc<AtomicBool>,
    acknowledged_count: Arc<AtomicI64>,
) -> (i64, Option<Token>) {
    let options = ClientOptions::default().deadline(LONG);
    let client = Client::connect(&address, options).await.unwrap();
    let store = client.store("counts").await.unwrap();
    let (mut count, mut token) = (0, None);
    while !stop.load(Ordering::SeqCst) {
        let write = store.upsert(key).increment("count", 1).send().await.unwrap();
        count += 1;
        acknowledged_count.fetch_add(1, Ordering::SeqCst);
        token = Some(write.token);
    }
    (count, token)
}

/// Kills and restarts forebayd under clients that increment. Proves that both a reader that lived
/// through the kills and a fresh one finally hold exactly the acknowledged increments. `start`
/// starts a process on an address, always on the same log.
pub async fn kills_neither_lose_nor_repeat_writes(start: impl Fn(&str) -> Daemon) {
    let mut daemon = start("127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged_count = Arc::new(AtomicI64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|key| {
            let (stop, acknowledged_count) = (Arc::clone(&stop), Arc::clone(&acknowledged_count));
            tokio::spawn(increment(daemon.address.clone(), key, stop, acknowledged_count))
        })
        .collect();
    for kill in 0..KILLS {
        let before = acknowledged_count.load(Ordering::SeqCst);
        let some_more = before + 20 + 13 * kill as i64;
        while acknowledged_count.load(Ordering::SeqCst) < some_more {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_micros(random() % 20_000)).await;
        let address = daemon.kill();
        daemon = start(&address);
    }
    stop.store(true, Ordering::SeqCst);
    let fresh = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    for (key, writer) in (0..WRITERS).zip(writers) {
        let (count, token) = writer.await.unwrap();
        for reader in [&reader, &fresh] {
            reader.await_ready(LONG).await.unwrap();
            reader.await_token(token.as_ref().unwrap(), LONG).await.unwrap();
            assert_eq!(count_of(reader, key), Some(count), "key {key}");
        }
    }
}

/// Returns a random number, so that a kill falls on an arbitrary point of a write.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
