//! Backups of a node whose clock jumps, with a backup that cannot be read for now or a wrong
//! listing: the newest backup is the one that was taken last, and nothing that a backup needs is
//! removed.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::clock::{Clock, ManualClock, SystemClock};
use forebay_snapshot_service::PointInTime;
use forebay_testkit::objects::ObjectFault;
use object_store::ObjectMeta;

use crate::{ExpectedDocuments, World, quiet, read, spec, write};

const HOUR_US: i64 = 3_600_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_taken_by_a_clock_set_back_is_the_newest_and_remains() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, mut parts) = world.start(data.path()).await;
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    parts.service.context.clock = clock.clone();
    let store = node.client().await.create_store(&spec(None)).await.unwrap();
    let (mut expected, mut past) = (ExpectedDocuments::new(), Vec::new());
    for (round, hours) in (0..).zip([0, -48, 24, -1, 400, -900]) {
        clock.advance_micros(hours * HOUR_US);
        let token = write(&store, &mut expected, round).await;
        let backup = parts.take("users", quiet).await.unwrap();
        past.push((backup, token, expected.clone()));
        let list = parts.backups.backups("users").await.unwrap();
        assert!(list.iter().eq(past.iter().map(|(backup, ..)| backup)), "in their order");
        assert!(list.windows(2).all(|pair| pair[1].follows(&pair[0])));
    }
    for (number, (backup, token, expected)) in past.iter().enumerate() {
        let name = format!("token-{number}");
        // A heartbeat may come between the first token and its backup, and no backed-up log reaches
        // the time before.
        let point = match number {
            0 => PointInTime::Backup(backup.name.id),
            _ => PointInTime::Token(token.clone()),
        };
        parts.restore("users", &name, &point, quiet).await.unwrap();
        assert_eq!(read(&node.address, &name).await.0, *expected, "{name}");
    }
    let (last, _, expected) = past.last().unwrap();
    parts.expire(last, 1).await.unwrap();
    let list = parts.backups.backups("users").await.unwrap();
    assert_eq!(list, std::slice::from_ref(last));
    parts.restore("users", "newest", &PointInTime::Newest, quiet).await.unwrap();
    assert_eq!(read(&node.address, "newest").await.0, *expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_backup_retains_its_chunks() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(data.path()).await;
    let store = node.client().await.create_store(&spec(None)).await.unwrap();
    let (mut expected, mut past) = (ExpectedDocuments::new(), Vec::new());
    for round in 0..3 {
        write(&store, &mut expected, round).await;
        past.push((parts.take("users", quiet).await.unwrap(), expected.clone()));
    }
    world.objects.pass(2 * parts.service.options.grace);
    let newest = &past[2].0;
    for (number, fault) in
        [ObjectFault::Cut, ObjectFault::Changed, ObjectFault::Refused].into_iter().enumerate()
    {
        let path = format!("{}.backup", newest.name);
        world.objects.decide(Some(Arc::new(move |object: &str, _| {
            object.ends_with(&path).then_some(fault)
        })));
        // No older backup is restored instead, and the data that only an older one needs is not
        // removed.
        let name = format!("newest-{number}");
        let error = parts.restore("users", &name, &PointInTime::Newest, quiet).await.unwrap_err();
        let codes = [ErrorCode::Corrupt, ErrorCode::Unavailable];
        assert!(codes.contains(&error.code()), "{fault:?}: {error}");
        parts.expire(newest, 1).await.unwrap_err();
        world.objects.decide(None);
        parts.restore("users", &name, &PointInTime::Newest, quiet).await.unwrap();
        assert_eq!(read(&node.address, &name).await.0, expected);
    }
    parts.expire(newest, 2).await.unwrap();
    for (backup, expected) in &past[1..] {
        let (name, point) = (format!("{}", backup.name), PointInTime::Backup(backup.name.id));
        parts.restore("users", &name, &point, quiet).await.unwrap();
        assert_eq!(read(&node.address, &name).await.0, *expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_list_of_backups_removes_no_retained_backup() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let (node, parts) = world.start(data.path()).await;
    let store = node.client().await.create_store(&spec(None)).await.unwrap();
    let (mut expected, mut past) = (ExpectedDocuments::new(), Vec::new());
    for round in 0..4 {
        write(&store, &mut expected, round).await;
        let midpoint = (write(&store, &mut expected, round + 5).await, expected.clone());
        write(&store, &mut expected, round + 1).await;
        past.push((parts.take("users", quiet).await.unwrap(), expected.clone(), midpoint));
    }
    let path_of = |number: usize| format!("{}.backup", past[number].0.name);
    let (newest, last, middle) = (&past[3].0, path_of(3), path_of(2));
    // A backup's snapshots expire once no backup names them, and their data is removed a grace
    // period later.
    let expire = async |keep| {
        world.objects.pass(parts.service.options.grace + Duration::from_secs(1));
        parts.expire(newest, keep).await.unwrap();
    };
    world.objects.edit_lists(Some(Arc::new(move |mut objects: Vec<_>| {
        let found = objects.iter().filter(|it: &&ObjectMeta| it.location.as_ref().ends_with(&last));
        let duplicates: Vec<_> = found.cloned().collect();
        objects.extend(duplicates.iter().chain(&duplicates).cloned());
        objects
    })));
    expire(3).await;
    world.objects.edit_lists(None);
    assert_eq!(parts.backups.backups("users").await.unwrap().len(), 3, "it was listed thrice");
    for missing_path in [middle, path_of(3)] {
        world.objects.edit_lists(Some(Arc::new(move |mut objects: Vec<_>| {
            objects.retain(|it: &ObjectMeta| !it.location.as_ref().ends_with(&missing_path));
            objects
        })));
        expire(3).await;
        world.objects.edit_lists(None);
        expire(3).await;
    }
    for (number, (backup, expected, _)) in past.iter().enumerate().skip(1) {
        let (name, point) = (format!("backup-{number}"), PointInTime::Backup(backup.name.id));
        parts.restore("users", &name, &point, quiet).await.unwrap();
        assert_eq!(read(&node.address, &name).await.0, *expected);
    }
    let (token, expected) = &past[3].2;
    let point = PointInTime::Token(token.clone());
    parts.restore("users", "between", &point, quiet).await.unwrap();
    assert_eq!(read(&node.address, "between").await.0, *expected, "by the newest one's log");
}
