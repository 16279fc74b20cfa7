//! `forebayd dev` as a real process: killed, stopped, started twice, started wrongly.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use forebay::{
    Client, ClientOptions, FieldType, KeyType, KeyValue, Reader, ReaderOptions, ScalarType,
    StoreSpec, Token, Value,
};

const FOREBAYD: &str = env!("CARGO_BIN_EXE_forebayd");
const KILLS: usize = 4;
const WRITERS: i64 = 4;

/// A running forebayd; killed when the test ends.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(data_dir: &Path, listen: &str) -> Self {
        let mut child = Command::new(FOREBAYD)
            .args(["dev", "--listen", listen, "--data-dir"])
            .arg(data_dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("forebayd ready http://");
        let address = address.unwrap_or_else(|| panic!("no greeting, but {first:?}")).to_owned();
        Self { child, address }
    }

    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.address.clone()
    }

    fn terminate(mut self) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(arguments: &[&str]) -> String {
    let output = Command::new(FOREBAYD).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} was taken");
    String::from_utf8(output.stderr).unwrap()
}

fn spec() -> StoreSpec {
    StoreSpec::documents("counts", KeyType::Int64, 4)
        .field("count", FieldType::Scalar(ScalarType::Int64))
}

/// Increments one key until told to stop; answers how many increments were acknowledged, and the
/// token of the last.
async fn increment(
    address: String,
    key: i64,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicI64>,
) -> (i64, Option<Token>) {
    let options = ClientOptions { deadline: Duration::from_secs(60), ..ClientOptions::default() };
    let client = Client::connect(&address, options).await.unwrap();
    let store = client.store("counts").await.unwrap();
    let (mut count, mut token) = (0, None);
    while !stop.load(Ordering::SeqCst) {
        let written = store.upsert(key).increment("count", 1).send().await.unwrap();
        count += 1;
        acknowledged.fetch_add(1, Ordering::SeqCst);
        token = Some(written.token);
    }
    (count, token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_doubled_over_kills() {
    let data = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(data.path(), "127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    client.create_store(&spec()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicI64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|key| {
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            tokio::spawn(increment(daemon.address.clone(), key, stop, acknowledged))
        })
        .collect();
    for kill in 0..KILLS {
        let before = acknowledged.load(Ordering::SeqCst);
        let some_more = before + 20 + 13 * kill as i64;
        while acknowledged.load(Ordering::SeqCst) < some_more {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let address = daemon.kill();
        daemon = Daemon::start(data.path(), &address);
    }
    stop.store(true, Ordering::SeqCst);
    let fresh = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    for (key, writer) in (0..WRITERS).zip(writers) {
        let (count, token) = writer.await.unwrap();
        for reader in [&reader, &fresh] {
            reader.await_ready(Duration::from_secs(30)).await.unwrap();
            reader.wait_token(token.as_ref().unwrap(), Duration::from_secs(30)).await.unwrap();
            let document = reader.get(KeyValue::Int64(key)).unwrap().unwrap();
            let field = reader.schema().definition.field("count").unwrap().id;
            assert_eq!(document.value(field), Some(&Value::Int64(count)), "key {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_the_streams_of_readers_and_loses_nothing() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(data.path(), "127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(Duration::from_secs(30)).await.unwrap();
    let token = store.upsert(1).increment("count", 1).send().await.unwrap().token;
    let address = daemon.address.clone();
    let stopped = tokio::task::spawn_blocking(move || daemon.terminate());
    let stopped = tokio::time::timeout(Duration::from_secs(60), stopped).await;
    assert!(stopped.unwrap().unwrap().success());
    let _daemon = Daemon::start(data.path(), &address);
    reader.wait_token(&token, Duration::from_secs(30)).await.unwrap();
    assert!(reader.get(KeyValue::Int64(1)).unwrap().is_some());
}

#[test]
fn sigterm_drains_and_a_second_start_finds_the_directory_free() {
    let data = tempfile::tempdir().unwrap();
    let status = Daemon::start(data.path(), "127.0.0.1:0").terminate();
    assert!(status.success(), "{status}");
    Daemon::start(data.path(), "127.0.0.1:0").terminate();
}

#[test]
fn two_daemons_do_not_share_a_directory() {
    let data = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(data.path(), "127.0.0.1:0");
    let dir = data.path().to_str().unwrap();
    let error = refused(&["dev", "--listen", "127.0.0.1:0", "--data-dir", dir]);
    assert!(error.contains("Conflict"), "{error}");
}

#[test]
fn what_is_not_safe_or_not_known_is_refused_with_the_fix() {
    let error = refused(&["dev", "--listen", "0.0.0.0:0"]);
    assert!(error.contains("loopback") && error.contains("127.0.0.1"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "lisen = \"127.0.0.1:0\"\n").unwrap();
    let error = refused(&["config", "check", "--config", file.path().to_str().unwrap()]);
    assert!(error.contains("lisen"), "{error}");
}

#[test]
fn a_taken_port_is_refused_with_the_fix() {
    let data = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let dir = data.path().to_str().unwrap();
    let error = refused(&["dev", "--listen", &listen, "--data-dir", dir]);
    assert!(error.contains("--listen"), "{error}");
}

#[test]
fn the_greeting_says_what_to_do_next() {
    let data = tempfile::tempdir().unwrap();
    let mut child = Command::new(FOREBAYD)
        .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(first.starts_with("forebayd ready http://127.0.0.1:"), "{first}");
    assert!(rest.contains("SIGTERM") && rest.contains("synced"), "{rest}");
}

#[test]
fn the_first_steps_of_the_readme_work_twice() {
    let example = Path::new(FOREBAYD).with_file_name("examples").join("first_steps");
    let hint = "build with --all-targets, as every command of this tree does";
    assert!(example.is_file(), "{} is missing: {hint}", example.display());
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(data.path(), "127.0.0.1:0");
    for visits in 1..=2 {
        let output = Command::new(&example).arg(&daemon.address).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, format!("ada has visited {visits} time(s)\n"), "{error}");
    }
}
