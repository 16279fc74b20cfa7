//! The shard compared with a plain map: histories, restarts, views, expiry, damage.

mod support;

use std::ops::Bound;

use forebay_core::ErrorCode;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef};
use forebay_core::key::Key;
use forebay_core::key_order::Direction;
use forebay_core::row::row_expires_at;
use forebay_core::state_rows::FollowState;
use forebay_testkit::random::SeededRng;
use support::*;

#[test]
fn shard_equals_the_model_after_a_long_history_with_restarts() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (mut model, mut dice) = (world.model(), SeededRng::new(11));
    let mut replica = world.resume(dir.path());
    for round in 0..40 {
        for _ in 0..dice.below(60) {
            replica.step();
            model.step();
        }
        match dice.below(4) {
            0 => replica.writer.shard().flush().unwrap(),
            1 => {
                replica.writer.shard().flush().unwrap();
                replica.writer.shard().compact();
            }
            2 => {
                replica.writer.shard().flush().unwrap();
                drop(replica);
                replica = world.resume(dir.path());
            }
            _ => {}
        }
        if round % 5 == 0 {
            replica.assert_is(&model);
        }
    }
    replica.assert_is(&model);
    assert!(model.state.offset_applied.0 > 700, "all was dropped at least once");
    assert!(model.live().len() > 500, "{} documents", model.live().len());
}

#[test]
fn view_remains_at_its_position_during_writes() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (mut model, mut replica) = (world.model(), world.resume(dir.path()));
    for _ in 0..100 {
        replica.step();
        model.step();
    }
    let shard = replica.writer.shard().clone();
    let view = shard.view().unwrap();
    for _ in 0..700 {
        replica.step();
    }
    shard.flush().unwrap();
    assert_eq!(view.offset_applied(), model.state.offset_applied);
    assert_eq!(view.position(), model.state.position);
    assert_eq!((view.log_id(), view.schema_version()), (Some(LOG), model.state.schema_version));
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let rows = view.rows(keys.iter().map(Key::as_bytes)).unwrap();
    for (key, row) in keys.iter().zip(rows) {
        assert_eq!(row.as_ref(), model.rows.0.get(key.as_bytes()), "{key:?}");
    }
    assert_eq!(shard.view().unwrap().offset_applied(), replica.state.offset_applied);
    assert!(view.read_time(Timestamp::MIN) >= replica.state.partition_time);
}

#[test]
fn scans_go_both_ways_over_any_range_and_resume() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (mut model, mut replica) = (world.model(), world.resume(dir.path()));
    for _ in 0..300 {
        replica.step();
        model.step();
    }
    let (order, mut dice) = (world.order(), SeededRng::new(5));
    let view = replica.writer.shard().view().unwrap();
    for _ in 0..200 {
        let bound = |dice: &mut SeededRng| {
            let key = key(dice.below(KEYS)).as_bytes().to_vec();
            match dice.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let bounds = (bound(&mut dice), bound(&mut dice));
        let slices = (bounds.0.as_ref().map(|b| &b[..]), bounds.1.as_ref().map(|b| &b[..]));
        let range = order.range(None, slices.0, slices.1).unwrap();
        let is_in = |key: &[u8]| std::ops::RangeBounds::<[u8]>::contains(&slices, key);
        let mut expected: Vec<_> = model.rows.0.keys().filter(|key| is_in(key)).cloned().collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Vec::new();
            let mut range = range.clone();
            // The scan is split into small pages, each with a new iterator.
            loop {
                let mut scan = view.scan(&range, direction);
                let mut last = None;
                for _ in 0..97 {
                    let Some((key, row)) = scan.next().unwrap() else { break };
                    assert_eq!(model.rows.0.get(key.as_bytes()).map(Vec::as_slice), Some(row));
                    found.push(key.as_bytes().to_vec());
                    last = Some(key);
                }
                let Some(last) = last else { break };
                range = order.rest(&range, &last, direction).unwrap();
            }
            assert_eq!(found, expected, "{direction:?}");
            expected.reverse();
        }
    }
}

#[test]
fn expired_documents_leave_the_disk_once_their_expiry_time_is_durable() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut replica = world.resume(dir.path());
    for _ in 0..200 {
        replica.step();
    }
    let count_expired = |replica: &Replica<'_>, time: Timestamp| {
        let view = replica.writer.shard().view().unwrap();
        let mut scan = view.scan(&world.order().all(), Direction::Forward);
        let mut count = 0;
        while let Some((_, row)) = scan.next().unwrap() {
            count += u32::from(row_expires_at(row).is_some_and(|at| at <= time));
        }
        count
    };
    let on_disk = replica.state.partition_time;
    let before = count_expired(&replica, on_disk);
    assert!(before > 20, "{before} have expired");
    replica.writer.shard().flush().unwrap();
    replica.writer.shard().compact();
    assert_eq!(count_expired(&replica, on_disk), 0);
    // Documents that have expired only by the time in memory stay, because a kill goes back before
    // that time.
    for _ in 200..400 {
        replica.step();
    }
    let partition_time = replica.state.partition_time;
    let all = count_expired(&replica, partition_time);
    replica.writer.shard().compact();
    let count_left = count_expired(&replica, partition_time);
    assert!(
        count_left > 0 && count_expired(&replica, on_disk) == 0,
        "{count_left} of {all} are left"
    );
    replica.writer.shard().flush().unwrap();
    replica.writer.shard().compact();
    assert_eq!(count_expired(&replica, partition_time), 0);
}

#[test]
fn served_copy_replaces_unserved_copies() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let shards = directory(dir.path());
    let follow_state = |is_served| FollowState { is_served, copy: 1, ..FollowState::default() };
    let write = |number: u8, is_served| {
        let mut writer = shards.create(AT, world.order()).unwrap();
        let writes = vec![(Key::plain(&[number]).unwrap(), Some(vec![number]))];
        let effects = FoldEffects { writes, ..FoldEffects::default() };
        writer.apply(&effects, &PartitionState::new(AT, ONE), follow_state(is_served)).unwrap();
        writer.shard().flush().unwrap();
    };
    let found = || {
        let found = shards.resume(AT, ONE, world.order()).unwrap()?;
        let (writer, restored) = found;
        let row = |number: u8| writer.shard().row(&[number]).unwrap().is_some();
        let all: Vec<_> = (1..6).filter(|number| row(*number)).collect();
        Some((all, restored.follow_state.is_served))
    };
    assert_eq!(found(), None);
    write(1, false);
    write(2, false);
    assert_eq!(found(), Some((vec![2], false)), "the newest of those that are not served");
    write(3, true);
    write(4, false);
    assert_eq!(found(), Some((vec![3], true)), "a newer one was still built");
    write(5, true);
    assert_eq!(found(), Some((vec![5], true)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the others are gone");
    // With another number of partitions the keys belong to other shards.
    assert!(shards.resume(AT, PartitionCount(2), world.order()).unwrap().is_none());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn shard_is_open_once_and_of_its_own_partition() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut replica = world.resume(dir.path());
    (0..10).for_each(|_| drop(replica.step()));
    let shards = directory(dir.path());
    let error = shards.resume(AT, ONE, world.order()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    let shard = replica.writer.shard().clone();
    let writer = shards.remove(replica.writer).unwrap();
    assert!(writer.is_some(), "it is still read");
    drop(writer);
    shard.flush().unwrap();
    let (path, other) = (shard.path().to_owned(), PartitionId(9));
    drop(shard);
    let name = path.file_name().unwrap().to_str().unwrap().replace("-0000-", "-0009-");
    std::fs::rename(&path, path.with_file_name(name)).unwrap();
    let at = PartitionRef { partition: other, ..AT };
    assert!(shards.resume(at, ONE, world.order()).unwrap().is_none(), "it is none of this");
    assert!(shards.stores().unwrap().is_empty(), "and goes");
}

/// Simulates a kill during the removal of a shard, which removes files in any order.
#[test]
fn partially_removed_shard_is_whole_or_gone() {
    let world = World::new();
    let (mut dice, mut removals) = (SeededRng::new(3), 0);
    for round in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let mut replica = world.resume(dir.path());
        (0..100).for_each(|_| drop(replica.step()));
        replica.writer.shard().flush().unwrap();
        let path = replica.writer.shard().path().to_owned();
        let (state, rows) = (replica.state.clone(), replica.live());
        drop(replica);
        let mut files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|it| it.unwrap()).collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        // The first rounds remove a single file each, the later rounds several.
        let count = if round < 12 { 1 } else { 1 + dice.below(files.len()) };
        for number in 0..count {
            let at = if round < 12 { round % files.len() } else { dice.below(files.len()) };
            let name = files.swap_remove(at).path();
            std::fs::remove_file(&name).unwrap_or_else(|error| panic!("{number} {name:?} {error}"));
        }
        match directory(dir.path()).resume(AT, ONE, world.order()).unwrap() {
            Some((writer, restored)) => {
                assert_eq!(restored.state, state);
                for (key, row) in rows {
                    let found = writer.shard().row(key.as_bytes()).unwrap();
                    assert_eq!(found.as_deref(), Some(&row[..]));
                }
            }
            None => {
                removals += 1;
                assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            }
        }
    }
    assert!(removals > 3, "{removals}");
}

#[test]
fn damage_is_reported_and_never_read() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let mut model = world.model();
    let mut replica = world.resume(dir.path());
    for _ in 0..300 {
        replica.step();
        model.step();
    }
    replica.writer.shard().flush().unwrap();
    let path = replica.writer.shard().path().to_owned();
    drop(replica);
    for entry in std::fs::read_dir(&path).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "sst") {
            let mut bytes = std::fs::read(&file).unwrap();
            let place = bytes.len() / 3;
            bytes[place] ^= 0x40;
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let (writer, _) = directory(dir.path()).resume(AT, ONE, world.order()).unwrap().unwrap();
    let shard = writer.shard();
    let mut error_count = 0;
    for number in 0..KEYS {
        let key = key(number);
        match shard.row(key.as_bytes()) {
            Ok(row) => assert_eq!(row.as_deref(), model.rows.0.get(key.as_bytes()).map(|r| &r[..])),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
                error_count += 1;
            }
        }
    }
    assert!(error_count > 0, "some block was hit");
    let view = shard.view().unwrap();
    let mut scan = view.scan(&world.order().all(), Direction::Forward);
    let result = loop {
        match scan.next() {
            Ok(Some(_)) => {}
            result => break result.map(drop),
        }
    };
    assert_eq!(
        result.unwrap_err().code(),
        ErrorCode::Corrupt,
        "a scan never leaves out what it cannot read"
    );
}
