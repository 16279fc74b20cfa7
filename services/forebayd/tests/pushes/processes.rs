//! Pushes at a node as a process that is killed in the middle; and pushes by the command.

use std::path::Path;
use std::process::{Command, Output};

use forebay::{Client, ClientOptions};
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;

use crate::daemon::{Daemon, FOREBAYD};
use crate::files::{Files, ROWS};
use crate::{PARTITIONS, assert_is_whole, reader, spec, url};

/// Starts a node with its data in this folder.
pub fn start(folder: &Path, listen: &str) -> Daemon {
    let (data, snapshots) = (folder.join("data"), folder.join("snapshots"));
    std::fs::create_dir_all(&snapshots).unwrap();
    let arguments = ["--data-dir", data.to_str().unwrap(), "--snapshots", &url(&snapshots)];
    Daemon::start(&arguments, listen)
}

fn request(files: &Path) -> v1::PushFilesRequest {
    v1::PushFilesRequest {
        store: "users".to_owned(),
        push_as: Some("users-2".to_owned()),
        inputs: vec![url(files)],
        key_column: "id".to_owned(),
        ..v1::PushFilesRequest::default()
    }
}

/// Kills a node once a push has reached some progress; returns the last progress and the node's
/// address.
pub async fn killed_at(
    node: Daemon,
    request: v1::PushFilesRequest,
    is_there: impl Fn(&v1::PushFilesResponse) -> bool,
) -> (v1::PushFilesResponse, String) {
    let mut client = PushesClient::connect(format!("http://{}", node.address)).await.unwrap();
    let mut answers = client.push_files(request).await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap();
    let mut last = first.clone();
    while !is_there(&last) {
        last = answers.message().await.unwrap().expect("the push has ended");
    }
    (first, node.kill())
}

async fn store(address: &str, name: &str) -> forebay::Result<forebay::Store> {
    Client::connect(address, ClientOptions::default()).await.unwrap().store(name).await
}

fn push(node: &str, arguments: &[&str]) -> Output {
    let common_arguments = ["push", "--node", node, "--store", "users", "--key", "id"];
    Command::new(FOREBAYD).args(common_arguments).args(arguments).output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_resumes_after_kills() {
    let (folder, files) = (tempfile::tempdir().unwrap(), Files::new());
    let parts = files.parts(8);
    let mut node = start(folder.path(), "127.0.0.1:0");
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    client.create_store(&spec()).await.unwrap();
    let mut rows_before = 0;
    for quarter in 1..=3 {
        let (first, address) = killed_at(node, request(&parts), |progress| {
            progress.bytes_done * 4 >= progress.bytes * quarter
        })
        .await;
        assert!(first.rows >= rows_before, "what was read is not read again");
        rows_before = ROWS * (quarter - 1) / 4;
        node = start(folder.path(), &address);
        assert!(store(&node.address, "users-2").await.is_err());
    }
    for partitions in 1..PARTITIONS {
        let is_there = |progress: &v1::PushFilesResponse| progress.partitions_done >= partitions;
        let (_, address) = killed_at(node, request(&parts), is_there).await;
        node = start(folder.path(), &address);
        assert!(store(&node.address, "users-2").await.is_err());
    }
    let output = push(&node.address, &["--to", "users-2", parts.to_str().unwrap()]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout, format!("pushed users-2 with {ROWS} documents\n"), "{output:?}");
    assert_is_whole(&reader(&node.address, "users-2").await, |_| true);
    let node = start(folder.path(), &node.kill());
    assert_is_whole(&reader(&node.address, "users-2").await, |_| true);
}

/// Pushes a version, and kills the node after the version is in the definition and before it is
/// live; returns the node's address, or the node if the version was live too soon.
async fn killed_before_it_is_live(node: Daemon, files: &Path) -> Result<String, Daemon> {
    let users = store(&node.address, "users").await.unwrap();
    let mut client = PushesClient::connect(format!("http://{}", node.address)).await.unwrap();
    let ask = v1::PushFilesRequest { push_as: None, ..request(files) };
    let mut answers = client.push_files(ask).await.unwrap().into_inner();
    // The push continues while a client listens.
    let listening =
        tokio::spawn(async move { while answers.message().await.is_ok_and(|it| it.is_some()) {} });
    let before = users.definition().versions.clone();
    let is_known = loop {
        let now = users.refresh().await.unwrap().versions.clone();
        if now.live() != before.live() {
            break false;
        }
        if now.all().len() > before.all().len() {
            break true;
        }
    };
    let result = if is_known { Ok(node.kill()) } else { Err(node) };
    listening.await.unwrap();
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_killed_before_activation_resumes_without_a_second_version() {
    const ATTEMPTS: usize = 8;
    let (folder, files) = (tempfile::tempdir().unwrap(), Files::new());
    let parts = files.parts(2);
    let mut node = start(folder.path(), "127.0.0.1:0");
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    client.create_store(&spec()).await.unwrap();
    let mut address = None;
    for _ in 0..ATTEMPTS {
        match killed_before_it_is_live(node, &parts).await {
            Ok(killed_address) => {
                address = Some(killed_address);
                node = start(folder.path(), address.as_ref().unwrap());
                break;
            }
            Err(alive) => node = alive,
        }
    }
    assert!(address.is_some(), "each of {ATTEMPTS} pushes was live before it could be killed");
    let before = store(&node.address, "users").await.unwrap().definition().versions.clone();
    let known_version = before.all().last().unwrap();
    let output = push(&node.address, &[parts.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let now = store(&node.address, "users").await.unwrap().definition().versions.clone();
    assert_eq!((now.live(), now.next()), (known_version, before.next()), "the one that was begun");
    assert_is_whole(&reader(&node.address, "users").await, |_| true);
    let data = std::fs::read_dir(folder.path().join("data")).unwrap();
    let names = data.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("push-")).count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_command_reports_its_errors() {
    let (folder, files) = (tempfile::tempdir().unwrap(), Files::new());
    let node = start(folder.path(), "127.0.0.1:0");
    let data = folder.path().join("other");
    let bare_node = Daemon::start(&["--data-dir", data.to_str().unwrap()], "127.0.0.1:0");
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    client.create_store(&spec()).await.unwrap();
    let csv = files.csv();
    let file = csv.to_str().unwrap();
    for (node, arguments, words) in [
        (&node, &["--to", "new", "nowhere.csv"][..], "name a file or a folder"),
        (&node, &["--to", "users", file], "exists already"),
        (&node, &["--to", "new", "--max-null-rate", "age", file], "FIELD=RATE"),
        (&node, &["--to", "new", "--max-rows", "5", file], "rows, not 0 to 5"),
        (&node, &["--to", "new", "--format", "parquet", file], "the file is not Parquet"),
        (&node, &["--to", "new", "--partitions", "0", file], "at least 1 partition"),
        (&bare_node, &["--to", "new", file], "--snapshots"),
    ] {
        let output = push(&node.address, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let arguments = ["--to", "new", "--ignore", "score,seen", "--min-rows", "5", file];
    assert!(push(&node.address, &arguments).status.success());
    let has = |name: &str| ["member", "age", "name"].contains(&name);
    assert_is_whole(&reader(&node.address, "new").await, has);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_command_lists_activates_rolls_back_and_drops() {
    let (folder, files) = (tempfile::tempdir().unwrap(), Files::new());
    let node = start(folder.path(), "127.0.0.1:0");
    let client = Client::connect(&node.address, ClientOptions::default()).await.unwrap();
    client.create_store(&spec()).await.unwrap();
    let version = |arguments: &[&str]| {
        let mut command = Command::new(FOREBAYD);
        command.arg("version").args(arguments);
        let output = command.args(["--node", &node.address, "--store", "users"]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    };
    let error = version(&["rollback"]).unwrap_err();
    assert!(error.contains("no earlier live version"), "{error}");
    let output = push(&node.address, &[files.parts(2).to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(version(&["list"]).unwrap(), "1\n2  live\n");
    assert_eq!(version(&["rollback"]).unwrap(), "1  live\n2\n");
    assert_eq!(version(&["rollback"]).unwrap(), "1\n2  live\n");
    assert_eq!(version(&["activate", "1"]).unwrap(), "1  live\n2\n");
    assert_eq!(version(&["activate", "2"]).unwrap(), "1\n2  live\n");
    assert_eq!(version(&["drop", "1"]).unwrap(), "2  live\n");
}
