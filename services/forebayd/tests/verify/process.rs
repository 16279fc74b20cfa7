//! `forebayd verify` as a process.

use std::path::Path;
use std::process::{Command, Output};

use forebay::reads::CheckpointOptions;
use forebay::{Client, ClientOptions, Reader, ReaderOptions};

use crate::daemon::{Daemon, FOREBAYD};
use crate::{KEYS, LONG, spec, write};

fn verify(node: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(FOREBAYD);
    command.args(["verify", "--node", node, "--store", "users"]).args(arguments);
    command.output().unwrap()
}

/// Returns the checkpoint images in a folder.
fn checkpoints(dir: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|it| it == "checkpoint")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_command_compares_readers_with_shards() {
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--data-dir", data.path().to_str().unwrap()], "127.0.0.1:0");
    let client = Client::connect(&daemon.address, ClientOptions::default()).await.unwrap();
    let store = client.create_store(&spec()).await.unwrap();
    let token = write(&store, 0..KEYS).await;
    let dir = tempfile::tempdir().unwrap();
    let options = ReaderOptions::new("users").checkpoint(CheckpointOptions::new(dir.path()));
    let reader = Reader::open(&daemon.address, options).await.unwrap();
    reader.await_ready(LONG).await.unwrap();
    reader.await_token(&token, LONG).await.unwrap();
    reader.close(LONG).await.unwrap();
    write(&store, 500..900).await;

    let folder = dir.path().to_str().unwrap();
    let same = verify(&daemon.address, &[folder]);
    let said = String::from_utf8(same.stdout).unwrap();
    assert!(same.status.success(), "{said} {}", String::from_utf8_lossy(&same.stderr));
    assert_eq!(said.lines().filter(|line| line.contains(": the same; ")).count(), 2, "{said}");
    let one = verify(&daemon.address, &["--partitions", "1", folder, &daemon.address]);
    assert_eq!(String::from_utf8(one.stdout).unwrap().lines().count(), 1);

    // The checkpoint is damaged beyond repair.
    for path in checkpoints(dir.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len();
        bytes[length / 4..length / 2].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, bytes).unwrap();
    }
    let damaged = verify(&daemon.address, &[folder]);
    let said = String::from_utf8(damaged.stderr).unwrap();
    assert!(!damaged.status.success(), "{}", String::from_utf8_lossy(&damaged.stdout));
    assert!(said.contains("Corrupt"), "{said}");

    for (arguments, wanted) in [
        (vec!["/no/such/folder"], "is not a folder, a URL or HOST:PORT"),
        (vec!["--partitions", "2", folder], "partitions 0 to 1"),
        (vec!["--version", "7", folder], "no such version"),
    ] {
        let refused = verify(&daemon.address, &arguments);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(wanted), "{said}");
    }
    // The node is down.
    let address = daemon.kill();
    let down = verify(&address, &[folder]);
    let said = String::from_utf8(down.stderr).unwrap();
    assert!(!down.status.success() && said.contains("Unavailable"), "{said}");
}
