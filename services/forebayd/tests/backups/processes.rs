//! Backups by the commands, of nodes as processes: killed in the middle, and losing all data except
//! the backups.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use forebay::reads::ReadOptions;
use forebay::schema::{KeyType, StoreSpec};
use forebay::{Client, ClientOptions};

use crate::daemon::{Daemon, FOREBAYD};
use crate::{INT64, KEYS};

const PARTITIONS: u32 = 4;

/// Folders of a node.
struct Folders<'f> {
    data: &'f Path,
    snapshots: &'f Path,
    backups: &'f Path,
}

impl Folders<'_> {
    fn start(&self, listen: &str) -> Daemon {
        let url = |path: &Path| format!("file://{}", path.display());
        let (snapshots, backups) = (url(self.snapshots), url(self.backups));
        let data = self.data.to_str().unwrap();
        let arguments = ["--data-dir", data, "--snapshots", &snapshots, "--backups", &backups];
        Daemon::start(&arguments, listen)
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(FOREBAYD);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn unwrap_stdout(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

async fn client(address: &str) -> Client {
    Client::connect(address, ClientOptions::default()).await.unwrap()
}

/// Writes all documents into a new store.
async fn fill(address: &str) {
    let spec =
        StoreSpec::documents("users", KeyType::Int64).partitions(PARTITIONS).field("age", INT64);
    client(address).await.create_store(&spec).await.unwrap();
    write_all(address).await;
}

/// Writes all documents; returns the token as the command takes it.
async fn write_all(address: &str) -> String {
    let store = client(address).await.store("users").await.unwrap();
    let mut batch = store.batch();
    for key in 0..KEYS {
        batch.add(store.upsert(key).set("age", key * 3)).unwrap();
    }
    let outcome = batch.send().await.unwrap();
    assert!(outcome.results.iter().all(Result::is_ok));
    hex::encode(outcome.token.encode())
}

/// Asserts, over the network, that the store has all documents.
async fn assert_is_whole(address: &str, name: &str) {
    let store = client(address).await.store(name).await.unwrap();
    let ordered = store.ordered().unwrap();
    let age = store.definition().field("age").unwrap().id;
    let keys: Vec<i64> = (0..KEYS).collect();
    let deadline = tokio::time::Instant::now() + crate::LONG;
    loop {
        // The store's shards bootstrap from the snapshots of the restore.
        let found = ordered.get_many(&ReadOptions::local(), &keys[..]).await;
        let is_whole = found.is_ok_and(|found| {
            found.iter().zip(&keys).all(|(found, key)| {
                let found = found.as_ref().ok().and_then(Option::as_ref);
                found.and_then(|found| found.value(age)) == Some(&(key * 3).into())
            })
        });
        if is_whole {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "`{name}` is not whole");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Kills a node once a command has reported this number of finished partitions.
fn killed_behind(node: Daemon, arguments: &[&str], partitions: u32) -> String {
    let mut child = command(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for number in 1..=partitions {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("{number} of {PARTITIONS} partitions"));
    }
    let address = node.kill();
    drop(lines);
    child.wait().unwrap();
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_and_restore_survive_kills_and_the_loss_of_all_but_the_backups() {
    let folder = tempfile::tempdir().unwrap();
    let [data, snapshots, backups] =
        ["data", "snapshots", "backups"].map(|name| folder.path().join(name));
    for folder in [&snapshots, &backups] {
        std::fs::create_dir(folder).unwrap();
    }
    let folders = Folders { data: &data, snapshots: &snapshots, backups: &backups };
    let mut node = folders.start("127.0.0.1:0");
    fill(&node.address).await;
    let address = node.address.clone();
    let store_arguments = ["--node", &address, "--store", "users"];
    let take = [&["backup", "take"][..], &store_arguments].concat();
    for partitions in 1..PARTITIONS {
        node = folders.start(&killed_behind(node, &take, partitions));
    }
    let list = [&["backup", "list"][..], &store_arguments].concat();
    assert_eq!(unwrap_stdout(command(&list).output().unwrap()), "", "none of those counts");
    let output = unwrap_stdout(command(&take).output().unwrap());
    let id = output.split_whitespace().nth(1).unwrap().to_owned();
    assert!(unwrap_stdout(command(&list).output().unwrap()).starts_with(&id));

    // A point in time between two backups.
    let token = write_all(&address).await;
    unwrap_stdout(command(&take).output().unwrap());

    let restore =
        |name: &'static str| [&["restore"][..], &store_arguments, &["--to", name]].concat();
    for partitions in 1..PARTITIONS {
        node = folders.start(&killed_behind(node, &restore("again"), partitions));
        assert!(client(&address).await.store("again").await.is_err());
    }
    let output = unwrap_stdout(command(&restore("again")).output().unwrap());
    assert_eq!(output, format!("restored again with {KEYS} documents\n"));
    assert_is_whole(&address, "again").await;
    node = folders.start(&node.kill());
    assert_is_whole(&address, "again").await;

    let by_token = [&restore("written")[..], &["--token", &token]].concat();
    unwrap_stdout(command(&by_token).output().unwrap());
    assert_is_whole(&address, "written").await;

    drop(node);
    let [data, snapshots] = ["other-data", "other-snapshots"].map(|name| folder.path().join(name));
    std::fs::create_dir(&snapshots).unwrap();
    let folders = Folders { data: &data, snapshots: &snapshots, backups: &backups };
    let node = folders.start(&address);
    let by_id = [&restore("users")[..], &["--backup", &id]].concat();
    unwrap_stdout(command(&by_id).output().unwrap());
    assert_is_whole(&node.address, "users").await;
}

#[tokio::test]
async fn invalid_backup_commands_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let node = Daemon::start(&["--data-dir", data], "127.0.0.1:0");
    let store_arguments = ["--node", &node.address, "--store", "users"];
    let restore = [&["restore"][..], &store_arguments, &["--to", "other"]].concat();
    for (arguments, words) in [
        (&[&["backup", "list"][..], &store_arguments].concat()[..], "--backups"),
        (&[&restore[..], &["--before", "yesterday"]].concat(), "invalid time `yesterday`"),
        (&[&restore[..], &["--backup", "first"]].concat(), "invalid backup id `first`"),
        (&[&restore[..], &["--token", "abc"]].concat(), "hex digits"),
        (&["dev", "--backups", "file:///b"], "--snapshots"),
        (&["dev", "--backups", "file:///b", "--snapshots", "file:///b"], "share a folder"),
    ] {
        let output = command(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(words), "{arguments:?}: {stderr}");
    }
}
