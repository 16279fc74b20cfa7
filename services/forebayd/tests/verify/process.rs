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
    let output = verify(&daemon.address, &[folder]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout} {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.lines().filter(|line| line.contains(": the same; ")).count(), 2, "{stdout}");
    let output = verify(&daemon.address, &["--partitions", "1", folder, &daemon.address]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);

    // The checkpoint is damaged beyond repair.
    for path in checkpoints(dir.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len();
        bytes[length / 4..length / 2].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, bytes).unwrap();
    }
    let output = verify(&daemon.address, &[folder]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(stderr.contains("Corrupt"), "{stderr}");

    for (arguments, words) in [
        (vec!["/no/such/folder"], "is not a folder, a URL or HOST:PORT"),
        (vec!["--partitions", "2", folder], "partitions 0 to 1"),
        (vec!["--version", "7", folder], "no such version"),
    ] {
        let output = verify(&daemon.address, &arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(words), "{stderr}");
    }
    // The node is down.
    let address = daemon.kill();
    let output = verify(&address, &[folder]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("Unavailable"), "{stderr}");
}
