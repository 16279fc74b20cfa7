//! Starts of a node whose object store is down, or refuses access.

use std::sync::Arc;

use forebay_snapshot::Manifest;
use forebay_testkit::object_proxy::ObjectProxy;
use forebay_testkit::objects::ObjectFault;

use crate::daemon::read_error_with;
use crate::users::{ExpectedDocuments, assert_holds, reader, snapshots, spec, write};
use crate::{World, assert_all_is_whole, client};

const DOCUMENTS: i64 = 2_000;

/// Gives this fault to all calls from now on.
fn fail_all(way: &ObjectProxy, fault: ObjectFault) {
    way.decide(Some(Arc::new(move |_| Some(fault))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_starts_while_the_object_store_is_down_and_builds_once_it_is_back() {
    let world = World::new("down-at-start");
    let node = world.start("127.0.0.1:0");
    let store = client(&node.address).await.create_store(&spec()).await.unwrap();
    let mut expected = ExpectedDocuments::new();
    write(&store, &mut expected, 0..DOCUMENTS, 0).await;
    let first = snapshots(&world.straight(), &store, |_| true).await;
    let address = node.kill();

    // Every connection breaks off.
    fail_all(&world.way, ObjectFault::LostAnswer);
    let node = world.start(&address);
    let said = node.read_log();
    let is_told =
        |line: &&str| line.contains("folder not usable yet") && line.contains("Unavailable");
    assert_eq!(said.lines().filter(is_told).count(), 2, "{said}");
    let store = client(&node.address).await.store("users").await.unwrap();
    let token = write(&store, &mut expected, 0..DOCUMENTS, 1_000).await;

    world.way.decide(None);
    let ends: Vec<_> = first.iter().map(|at| at.progress.offset_applied).collect();
    let is_later =
        |found: &Manifest| found.progress.offset_applied > ends[found.at.partition.0 as usize];
    snapshots(&world.straight(), &store, is_later).await;
    assert_all_is_whole(&world.straight(), &store).await;
    let begun = reader(&node.address, &world.straight(), &token).await;
    assert_holds(&begun, &expected, 0..DOCUMENTS);
}

#[test]
fn node_without_permission_in_the_object_store_is_refused_with_the_fix() {
    let world = World::new("denied-at-start");
    fail_all(&world.way, ObjectFault::Refused);
    let data = world.data();
    let own = ["dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let arguments = [&own[..], &["--snapshots", &world.snapshots]].concat();
    let error = read_error_with(&arguments, &world.way.options());
    let is_told = error.contains("PermissionDenied") && error.contains("give the credentials");
    assert!(is_told, "{error}");
    assert!(!data.exists(), "the node opened its log");
}
