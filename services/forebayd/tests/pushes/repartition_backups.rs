//! Backups of a store during and after a repartition, at a node as a process; and their restores.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use forebay_core::clock::{Clock, SystemClock};

use crate::daemon::{Daemon, FOREBAYD};
use crate::repartition::Moment::{Known, WritesPaused};
use crate::repartition::{
    Writers, assert_is_whole, comes, create, eventually, file, is_live, is_pushed, push,
    read_lists, reader,
};
use crate::url;

fn start(folder: &Path) -> Daemon {
    let [data, snapshots, backups] = ["data", "snapshots", "backups"].map(|name| folder.join(name));
    for folder in [&snapshots, &backups] {
        std::fs::create_dir(folder).unwrap();
    }
    let (snapshots, backups) = (url(&snapshots), url(&backups));
    let data = ["--data-dir", data.to_str().unwrap()];
    let arguments = ["--snapshots", &snapshots, "--backups", &backups, "--rollback-window", "5s"];
    Daemon::start(&[&data[..], &arguments].concat(), "127.0.0.1:0")
}

/// Runs a command about the store; returns its output.
fn command(verb: &[&str], node: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(FOREBAYD);
    command.args(verb).args(["--node", node, "--store", "users"]).args(arguments);
    let output = tokio::task::block_in_place(|| command.output().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Takes a backup; returns its id.
fn take(node: &str) -> String {
    let output = command(&["backup", "take"], node, &[]);
    output.split_whitespace().nth(1).unwrap().to_owned()
}

/// Returns a time after all acknowledged writes, in the form that a restore takes.
fn now() -> String {
    std::thread::sleep(Duration::from_millis(2));
    let since_epoch = Duration::from_micros(SystemClock.now().as_micros() as u64);
    humantime::format_rfc3339_micros(UNIX_EPOCH + since_epoch).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_during_and_after_a_repartition_restore_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let (node, file) = (start(folder.path()), file(folder.path()));
    let address = node.address.clone();
    let store = create(&address).await;
    let writers = Writers::start(&[&address]).await;
    writers.go_on().await;
    // Each backup, with the writes acknowledged before it and its time.
    let mut backups = vec![(writers.now(), now(), take(&address))];
    let push_address = address.clone();
    let pushing = tokio::spawn(async move { push(&push_address, &file).await });
    comes(Known, &store, &address).await;
    let first_numbers = writers.next();
    backups.push((writers.now(), now(), take(&address)));
    comes(WritesPaused, &store, &address).await;
    backups.push((writers.now(), now(), take(&address)));
    is_live(&store).await;
    writers.go_on().await;
    backups.push((writers.now(), now(), take(&address)));
    assert_eq!(pushing.await.unwrap(), Some(2));
    eventually("nothing comes from the partitions from before", async || {
        let versions = &store.refresh().await.unwrap().versions;
        versions.all().len() == 1 && versions.live().repartition_source.is_none()
    })
    .await;
    writers.go_on().await;
    backups.push((writers.now(), now(), take(&address)));
    let histories = writers.stop().await;
    let source = read_lists(&reader(&address, "users").await).await;
    histories.assert_is_in(&source, &first_numbers);
    let last = take(&address);

    for (number, (end_numbers, time, id)) in backups.iter().enumerate() {
        let mut points = vec![("--backup", id)];
        // While writes are paused no log grows, and no backed-up log leads to the first backup of a
        // version.
        if number == 1 {
            points.push(("--before", time));
        }
        for (point, value) in points {
            let name = format!("taken-{number}{point}");
            command(&["restore"], &address, &["--to", &name, point, value]);
            let restored_reader = reader(&address, &name).await;
            let found = read_lists(&restored_reader).await;
            let is_pushed = is_pushed(&restored_reader);
            assert!(number < 3 || is_pushed, "it was live");
            assert!(number > 1 || !is_pushed, "it was not live");
            assert_is_whole(&restored_reader, is_pushed);
            let first_numbers =
                if is_pushed { &first_numbers } else { &vec![0; first_numbers.len()] };
            histories.assert_is_in_until(&found, first_numbers, end_numbers);
        }
    }
    command(&["restore"], &address, &["--to", "last", "--backup", &last]);
    let restored_reader = reader(&address, "last").await;
    assert_eq!(read_lists(&restored_reader).await, source);
    assert_is_whole(&restored_reader, true);
}
