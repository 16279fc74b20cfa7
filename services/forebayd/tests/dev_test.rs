//! `forebayd dev` as a real process: killed, stopped, started twice, and started with wrong
//! settings.

mod daemon;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use daemon::{Daemon, FOREBAYD, count_of, counts, read_error};
use forebay::{Client, ClientOptions, Reader, ReaderOptions};
use forebay_testkit::tree;

fn start(data_dir: &Path, listen: &str) -> Daemon {
    Daemon::start(&["--data-dir", data_dir.to_str().unwrap()], listen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_neither_lose_nor_repeat_acknowledged_writes() {
    let data = tempfile::tempdir().unwrap();
    daemon::kills_neither_lose_nor_repeat_writes(|listen| start(data.path(), listen)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_the_streams_of_readers_and_loses_nothing() {
    let data = tempfile::tempdir().unwrap();
    let daemon = start(data.path(), "127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&counts()).await.unwrap();
    let reader = Reader::open(&daemon.address, ReaderOptions::new("counts")).await.unwrap();
    reader.await_ready(Duration::from_secs(30)).await.unwrap();
    let token = store.upsert(1).increment("count", 1).send().await.unwrap().token;
    let address = daemon.address.clone();
    let stopped = tokio::task::spawn_blocking(move || daemon.terminate());
    let stopped = tokio::time::timeout(Duration::from_secs(60), stopped).await;
    assert!(stopped.unwrap().unwrap().success());
    let _daemon = start(data.path(), &address);
    reader.await_token(&token, Duration::from_secs(30)).await.unwrap();
    assert_eq!(count_of(&reader, 1), Some(1));
}

#[test]
fn sigterm_drains_and_a_second_start_finds_the_directory_free() {
    let data = tempfile::tempdir().unwrap();
    let status = start(data.path(), "127.0.0.1:0").terminate();
    assert!(status.success(), "{status}");
    start(data.path(), "127.0.0.1:0").terminate();
}

#[test]
fn two_daemons_do_not_share_a_directory() {
    let data = tempfile::tempdir().unwrap();
    let _daemon = start(data.path(), "127.0.0.1:0");
    let dir = data.path().to_str().unwrap();
    let error = read_error(&["dev", "--listen", "127.0.0.1:0", "--data-dir", dir]);
    assert!(error.contains("Conflict"), "{error}");
}

#[test]
fn unsafe_address_and_unknown_key_are_refused_with_the_fix() {
    let error = read_error(&["dev", "--listen", "0.0.0.0:0"]);
    assert!(error.contains("loopback") && error.contains("127.0.0.1"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "lisen = \"127.0.0.1:0\"\n").unwrap();
    let error = read_error(&["config", "check", "--config", file.path().to_str().unwrap()]);
    assert!(error.contains("lisen"), "{error}");
}

#[test]
fn port_in_use_is_refused_with_the_fix() {
    let data = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let dir = data.path().to_str().unwrap();
    let error = read_error(&["dev", "--listen", &listen, "--data-dir", dir]);
    assert!(error.contains("--listen"), "{error}");
}

#[test]
fn folders_that_cannot_be_written_are_refused_with_the_fix() {
    let data = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let [good, bad, plain] =
        [data.path().join("snapshots"), file.path().join("folder"), file.path().to_owned()]
            .map(|path| format!("file://{}", path.display()));
    let dir = data.path().join("data");
    let own = ["dev", "--listen", "127.0.0.1:0", "--data-dir", dir.to_str().unwrap()];
    for more in [
        &["--snapshots", &bad][..],
        &["--snapshots", &plain],
        &["--snapshots", &good, "--backups", &bad],
    ] {
        let error = read_error(&[&own[..], more].concat());
        assert!(error.contains("writing into") && error.contains("name a folder"), "{error}");
    }
    let error = read_error(&[&own[..], &["--snapshots", "ftp://host/folder"]].concat());
    assert!(error.contains("give file:///"), "{error}");
    assert!(!dir.exists(), "the node opened its log");
}

#[test]
fn greeting_names_the_next_step() {
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
fn first_steps_of_the_readme_work_twice() {
    let example = tree::built("first_steps").unwrap();
    let data = tempfile::tempdir().unwrap();
    let daemon = start(data.path(), "127.0.0.1:0");
    for visits in 1..=2 {
        let output = Command::new(&example).arg(&daemon.address).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, format!("ada has visited {visits} time(s)\n"), "{error}");
    }
}
