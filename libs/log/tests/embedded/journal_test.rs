//! The journal makes a group over many partitions durable by one sync. The tests prove that no
//! crash loses journaled bytes, writes them over newer bytes, or exposes part of a group.

use forebay_core::ErrorCode;
use forebay_core::id::{Offset, PartitionCount, PartitionRef};
use forebay_log::ChangeLog;
use forebay_log::disk::sim::Loss;
use forebay_log::disk::{Disk, RealDisk, SimDisk};
use forebay_log::embedded_log::{CommitMode, EmbeddedLog, EmbeddedOptions};

use super::{
    STORE, at, code, create, entry, files, journals, open, read_all, segments, sim_disk,
    sim_options,
};

const PARTITIONS: u32 = 8;

/// Options with which one half of the journal takes two groups of [`append_groups`].
fn small_options() -> EmbeddedOptions {
    EmbeddedOptions { journal_bytes: 2 * (4_096 + 2_800), ..sim_options() }
}

fn sent(round: u64, partition: u32) -> bytes::Bytes {
    bytes::Bytes::from(vec![(round * 16 + u64::from(partition)) as u8; 100])
}

/// Appends one entry to each partition concurrently, once per round.
async fn append_groups(log: &EmbeddedLog, rounds: std::ops::Range<u64>) {
    for round in rounds {
        let appends = (0..PARTITIONS).map(|part| log.append(at(part), sent(round, part)));
        for appended in futures::future::join_all(appends).await {
            assert_eq!(appended.unwrap().offset, Offset(round));
        }
    }
}

/// Returns a log of `rounds` rounds; round 0, which is not journaled, creates the first segments.
async fn log_of(disk: &SimDisk, options: EmbeddedOptions, rounds: u64) -> EmbeddedLog {
    let log = open(disk, options).await.unwrap();
    create(&log, PARTITIONS).await;
    for part in 0..PARTITIONS {
        log.append(at(part), sent(0, part)).await.unwrap();
    }
    append_groups(&log, 1..rounds).await;
    log
}

/// Returns the number of rounds in each partition, after checking that every entry is the sent one.
async fn rounds_of(log: &EmbeddedLog, context: &str) -> Vec<u64> {
    let mut rounds = Vec::new();
    for part in 0..PARTITIONS {
        let records = read_all(log, at(part), Offset(0)).await.unwrap();
        for (round, record) in records.iter().enumerate() {
            assert_eq!(record.entry, sent(round as u64, part), "{context}: {part} at {round}");
        }
        rounds.push(records.len() as u64);
    }
    rounds
}

async fn assert_rounds(disk: &SimDisk, options: EmbeddedOptions, rounds: u64, context: &str) {
    let log = open(disk, options).await.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(rounds_of(&log, context).await, vec![rounds; PARTITIONS as usize], "{context}");
}

#[tokio::test]
async fn group_over_many_partitions_costs_one_sync() {
    for (journal_bytes, syncs_expected) in [(1 << 20, 1), (0, u64::from(PARTITIONS))] {
        let disk = sim_disk(1);
        let log = log_of(&disk, EmbeddedOptions { journal_bytes, ..sim_options() }, 2).await;
        let before = disk.counts();
        append_groups(&log, 2..3).await;
        assert_eq!(disk.counts().file_syncs - before.file_syncs, syncs_expected);
        // A group of a single partition is synced in its segment.
        let operations = disk.counts().operations;
        log.append(at(0), sent(3, 0)).await.unwrap();
        assert_eq!(disk.counts().operations - operations, 2);
        disk.power_cut(Loss::Everything);
        let log = open(&disk, sim_options()).await.unwrap();
        assert_eq!(rounds_of(&log, "after").await[..3], [4, 3, 3]);
    }
}

#[tokio::test]
async fn large_group_is_synced_in_its_segments() {
    let disk = sim_disk(1);
    let mut options = sim_options();
    (options.journal_bytes, options.segment_bytes) = (8 << 20, 8 << 20);
    let log = log_of(&disk, options, 2).await;
    let before = disk.counts().file_syncs;
    let large = bytes::Bytes::from(vec![1; 40_000]);
    let appends = (0..PARTITIONS).map(|part| log.append(at(part), large.clone()));
    futures::future::join_all(appends)
        .await
        .into_iter()
        .for_each(|appended| assert_eq!(appended.unwrap().offset, Offset(2)));
    assert_eq!(disk.counts().file_syncs - before, u64::from(PARTITIONS));
}

/// Proves that over many halves each group costs its own sync and about one segment sync, and that
/// no group costs many.
#[tokio::test]
async fn journal_halves_are_freed_as_fast_as_they_fill() {
    let disk = sim_disk(2);
    let mut options = small_options();
    options.segment_bytes = 1 << 20;
    options.journal_bytes = 2 * (4_096 + 16_000);
    let log = log_of(&disk, options.clone(), 2).await;
    let (mut syncs_max, first) = (0, disk.counts().file_syncs);
    for round in 2..100 {
        let before = disk.counts().file_syncs;
        append_groups(&log, round..round + 1).await;
        syncs_max = syncs_max.max(disk.counts().file_syncs - before);
    }
    // A group syncs its record and one or two segments; at the start of a half also the header.
    let all = disk.counts().file_syncs - first;
    assert!(syncs_max <= 4, "{syncs_max} syncs in one group");
    assert!((98..98 * 3).contains(&all), "{all} syncs");
    let says =
        segments(&disk).iter().map(|path| last_synced_bytes(&disk.bytes(path).unwrap())).min();
    let largest = segments(&disk).iter().map(|path| disk.bytes(path).unwrap().len()).max();
    disk.power_cut(Loss::Everything);
    let synced_bytes = segments(&disk).iter().map(|path| disk.bytes(path).unwrap().len()).min();
    assert!(
        largest > synced_bytes && synced_bytes.unwrap() > 5_000,
        "{synced_bytes:?} bytes synced of {largest:?}"
    );
    assert!(says > Some(5_000) && says <= synced_bytes, "{says:?} said of {synced_bytes:?}");
    assert_rounds(&disk, options, 100, "after a power cut").await;
}

/// Returns the number of bytes of a segment that its last frame says to be durable.
fn last_synced_bytes(segment: &[u8]) -> usize {
    let frame = &segment[segment.len() - 32 - 100..];
    u64::from_le_bytes(frame[24..32].try_into().unwrap()) as usize
}

#[tokio::test]
async fn crash_during_a_replay_loses_nothing() {
    for rounds in [2, 3, 6] {
        for loss in [Loss::Everything, Loss::TornPrefix, Loss::RandomSectors] {
            for operations in 0_u64.. {
                let disk = sim_disk(operations);
                let log = log_of(&disk, small_options(), rounds).await;
                disk.power_cut(Loss::Everything);
                drop(log);
                assert_eq!(journals(&disk).len(), 1);
                disk.die_after(operations);
                let is_open = open(&disk, small_options()).await.is_ok();
                disk.power_cut(loss);
                let context = format!("{rounds} rounds, {loss:?}, {operations} operations");
                assert_rounds(&disk, small_options(), rounds, &context).await;
                assert_eq!(journals(&disk), [] as [std::path::PathBuf; 0], "{context}");
                if is_open {
                    assert!(operations > 20, "{context}");
                    break;
                }
            }
        }
    }
}

/// Proves that a last record that is torn at any sector or byte loses only its whole group.
#[tokio::test]
async fn torn_record_ends_the_journal() {
    let disk = sim_disk(3);
    let _log = log_of(&disk, sim_options(), 4).await;
    disk.power_cut(Loss::Everything);
    let journal = journals(&disk).pop().unwrap();
    let original_bytes = disk.bytes(&journal).unwrap();
    let record_bytes = 16 + PARTITIONS as usize * (32 + 32 + 100);
    let last = 4_096 + 2 * record_bytes;
    assert!(original_bytes[last..last + 4] == ((record_bytes - 16) as u32).to_le_bytes());
    assert!(original_bytes[last + record_bytes..8_192].iter().all(|byte| *byte == 0));
    let before: Vec<_> =
        segments(&disk).into_iter().map(|path| (disk.bytes(&path).unwrap(), path)).collect();
    for kept_bytes in (0..record_bytes).step_by(7) {
        let torn_range = last + kept_bytes..last + record_bytes;
        disk.damage(&journal, |bytes| bytes[torn_range].fill(0)).unwrap();
        assert_rounds(&disk, sim_options(), 3, &format!("{kept_bytes} bytes kept")).await;
        disk.power_cut(Loss::Everything);
        drop(disk.create(&journal).unwrap());
        disk.sync_dir("/data/logs".as_ref()).unwrap();
        disk.damage(&journal, |bytes| bytes.clone_from(&original_bytes)).unwrap();
        for (bytes, path) in &before {
            disk.damage(path, |segment| segment.clone_from(bytes)).unwrap();
        }
    }
    assert_rounds(&disk, sim_options(), 4, "whole").await;
}

/// Returns a disk whose journal uses both halves, after a power cut that lost every segment's
/// unsynced bytes, and the number of rounds.
async fn crash_before_write_back() -> (SimDisk, u64) {
    let disk = sim_disk(4);
    let _log = log_of(&disk, small_options(), 4).await;
    disk.power_cut(Loss::Everything);
    (disk, 4)
}

#[tokio::test]
async fn flipped_journal_bit_is_detected_or_costs_only_the_last_group() {
    let (sound, rounds) = crash_before_write_back().await;
    let journal = journals(&sound).pop().unwrap();
    let journal_bytes = sound.bytes(&journal).unwrap().len();
    let (mut found, mut cuts) = (0, 0);
    for place in (0..journal_bytes).filter(|place| place % 6_896 < 40 || place % 3 == 0) {
        let (disk, _) = crash_before_write_back().await;
        disk.damage(&journal, |bytes| bytes[place] ^= 1 << (place % 8)).unwrap();
        let context = format!("byte {place}");
        match open(&disk, small_options()).await {
            Ok(log) => {
                let read = rounds_of(&log, &context).await;
                // If a segment was synced after the record, the group is complete in that segment.
                let is_kept = |read: &u64| (rounds - 1..=rounds).contains(read);
                assert!(read.iter().all(is_kept), "{context}: {read:?}");
                cuts += u64::from(read.iter().any(|read| *read < rounds));
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Corrupt, "{context}: {error}");
                assert!(error.message().contains("0000.journal.new"), "{context}: {error}");
                assert!(error.message().contains("at byte "), "{context}: {error}");
                // A second open fails with the same error.
                assert_eq!(open(&disk, small_options()).await.err(), Some(error), "{context}");
                found += 1;
            }
        }
    }
    assert!(found > 500 && cuts > 200, "{found} found, {cuts} cut");
}

/// Proves that bytes that a journal says were acknowledged are not truncated as a torn tail, at the
/// second attempt either.
#[tokio::test]
async fn damage_before_journaled_bytes_is_no_torn_tail() {
    // A half takes one group, and some segments are synced only when the half is started again. The
    // frames of the last group were written earlier, and therefore do not say that the frames
    // before them are durable.
    let options = EmbeddedOptions { journal_bytes: 2 * (4_096 + 2_600), ..sim_options() };
    let disk = sim_disk(12);
    let _log = log_of(&disk, options.clone(), 4).await;
    disk.power_cut(Loss::Everything);
    let segment = segments(&disk).pop().unwrap();
    let frame_bytes = 32 + 100;
    assert_eq!(disk.bytes(&segment).unwrap().len(), 40 + 4 * frame_bytes);
    disk.damage(&segment, |bytes| bytes[40 + frame_bytes + 8] ^= 1).unwrap();
    for _ in 0..2 {
        let error = open(&disk, options.clone()).await.err().unwrap();
        assert_eq!(error.code(), ErrorCode::Corrupt);
        assert!(error.message().contains("0007/00000000000000000000.seg"), "{error}");
        assert!(error.message().contains("at byte 172"), "{error}");
        disk.power_cut(Loss::Everything);
    }
    disk.damage(&segment, |bytes| bytes.truncate(40 + frame_bytes + 8)).unwrap();
    assert_eq!(code(open(&disk, options).await.map(drop)), ErrorCode::Corrupt);
}

#[tokio::test]
async fn newer_journal_asks_for_an_upgrade() {
    let (disk, _) = crash_before_write_back().await;
    disk.damage(&journals(&disk)[0], |bytes| {
        bytes[4] = 2;
        let checksum = crc32c::crc32c(&bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
    })
    .unwrap();
    assert_eq!(code(open(&disk, small_options()).await.map(drop)), ErrorCode::UpgradeNeeded);
}

/// Proves that a build without journals opens a directory that was closed, and refuses a directory
/// that was not: that build takes the journal for a store's directory to remove, and fails to
/// remove it.
#[tokio::test]
async fn journal_is_removed_at_close_and_otherwise_stops_older_builds() {
    let (disk, rounds) = crash_before_write_back().await;
    let journal = journals(&disk).pop().unwrap();
    assert!(disk.remove_dir(&journal).is_err());
    let real = tempfile::tempdir().unwrap();
    let file = real.path().join(journal.file_name().unwrap());
    std::fs::write(&file, "a journal").unwrap();
    assert!(RealDisk.remove_dir(&file).is_err() && file.exists());

    let log = open(&disk, small_options()).await.unwrap();
    append_groups(&log, rounds..rounds + 3).await;
    assert_eq!(journals(&disk).len(), 1);
    log.close().await;
    disk.power_cut(Loss::Everything);
    assert_eq!(disk.list("/data/logs".as_ref()).unwrap(), ["0000000000000000", "000000000000feed"]);
    assert_rounds(&disk, small_options(), rounds + 3, "closed").await;
}

/// Proves that records of a deleted store change nothing, and never the store that was created
/// under the same name later.
#[tokio::test]
async fn journal_of_a_deleted_store_does_not_overwrite_its_recreation() {
    for (entries, loss) in [(0, Loss::Everything), (1, Loss::Everything), (1, Loss::TornPrefix)] {
        let disk = sim_disk(5);
        let log = log_of(&disk, sim_options(), 3).await;
        log.delete(STORE).await.unwrap();
        create(&log, PARTITIONS).await;
        let appends = (0..entries).map(|_| log.append(at(1), entry(77)));
        for appended in futures::future::join_all(appends).await {
            assert_eq!(appended.unwrap().offset, Offset(0));
        }
        disk.power_cut(loss);
        let log = open(&disk, sim_options()).await.unwrap();
        let read = read_all(&log, at(1), Offset(0)).await.unwrap();
        assert_eq!(read.len(), entries, "{entries} entries, {loss:?}");
        assert!(read.iter().all(|record| record.entry == entry(77)));
        assert!(read_all(&log, at(0), Offset(0)).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn replay_skips_trimmed_segments_and_deleted_stores() {
    let disk = sim_disk(6);
    let mut options = sim_options();
    (options.segment_bytes, options.journal_bytes) = (500, 1 << 20);
    let log = log_of(&disk, options.clone(), 12).await;
    log.trim(at(0), Offset(9)).await.unwrap();
    let start = log.bounds(at(0)).await.unwrap().start;
    assert!(start > Offset(5), "nothing was trimmed");
    disk.power_cut(Loss::Everything);
    let log = open(&disk, options.clone()).await.unwrap();
    assert_eq!(log.bounds(at(0)).await.unwrap().start, start);
    assert_eq!(read_all(&log, at(0), start).await.unwrap().len() as u64, 12 - start.0);
    append_groups(&log, 12..14).await;
    log.delete(STORE).await.unwrap();
    // The log does not sync dirty segments of a deleted store.
    let syncs = disk.counts().file_syncs;
    log.close().await;
    assert_eq!(disk.counts().file_syncs - syncs, 1);
    let log = open(&disk, options).await.unwrap();
    assert_eq!(code(log.bounds(at(0)).await), ErrorCode::NotFound);
}

#[tokio::test]
async fn failed_journal_sync_stops_the_log_for_good() {
    let disk = sim_disk(7);
    let log = log_of(&disk, sim_options(), 3).await;
    disk.fail_syncs(1);
    let appends = (0..PARTITIONS).map(|part| log.append(at(part), sent(3, part)));
    for result in futures::future::join_all(appends).await {
        assert_eq!(code(result), ErrorCode::UnknownOutcome);
    }
    assert!(log.failed().await.message().contains("0000.journal.new"));
    let operations = disk.counts().operations;
    assert_eq!(code(log.append(at(0), entry(1)).await), ErrorCode::Unavailable);
    log.close().await;
    assert_eq!(disk.counts().operations, operations, "the disk was asked again");
    // A restart of the process finds the whole group in the page cache.
    let log = open(&disk, sim_options()).await.unwrap();
    assert_eq!(rounds_of(&log, "restarted").await, [4; PARTITIONS as usize]);
    disk.power_cut(Loss::Everything);
    assert_rounds(&disk, sim_options(), 4, "after what was read").await;
}

#[tokio::test]
async fn failed_journal_write_stops_the_log_and_preserves_acknowledged_entries() {
    for seed in 0..40 {
        let disk = sim_disk(seed);
        let log = log_of(&disk, sim_options(), 3).await;
        // The committer writes the group's segments first.
        let group = async {
            let appends = (0..PARTITIONS).map(|part| log.append(at(part), sent(3, part)));
            futures::future::join_all(appends).await
        };
        disk.fail_write_after(u64::from(PARTITIONS));
        for result in group.await {
            assert_eq!(code(result), ErrorCode::UnknownOutcome);
        }
        disk.power_cut(Loss::RandomSectors);
        let log = open(&disk, sim_options()).await.unwrap();
        let rounds = rounds_of(&log, "after").await;
        assert!(rounds.iter().all(|rounds| (3..=4).contains(rounds)), "{rounds:?}");
    }
}

/// Proves that a failed late sync of a segment stops the log while the journal still has the bytes.
#[tokio::test]
async fn failed_late_sync_stops_the_log_and_loses_nothing() {
    let mut late = 0;
    for skipped in 0..24 {
        let disk = sim_disk(skipped);
        let log = log_of(&disk, small_options(), 2).await;
        let mut acknowledged = 2;
        disk.fail_sync_after(skipped);
        for round in 2..12 {
            let appends = (0..PARTITIONS).map(|part| log.append(at(part), sent(round, part)));
            let appended = futures::future::join_all(appends).await;
            if appended.iter().any(Result::is_err) {
                assert!(appended.iter().all(Result::is_err));
                late +=
                    u64::from(appended[0].as_ref().unwrap_err().code() == ErrorCode::Unavailable);
                break;
            }
            acknowledged = round + 1;
        }
        assert_eq!(code(log.append(at(0), entry(1)).await), ErrorCode::Unavailable);
        log.close().await;
        disk.power_cut([Loss::Everything, Loss::RandomSectors][skipped as usize % 2]);
        let log = open(&disk, small_options()).await.unwrap();
        let rounds = rounds_of(&log, "after").await;
        let expected = acknowledged..=acknowledged + 1;
        assert!(rounds.iter().all(|rounds| expected.contains(rounds)), "{rounds:?}, {expected:?}");
    }
    assert!(late > 3, "only {late} of the failed syncs were late ones");
}

#[tokio::test]
async fn disk_without_room_for_a_journal_accepts_entries() {
    let disk = sim_disk(8);
    let log = open(&disk, sim_options()).await.unwrap();
    create(&log, PARTITIONS).await;
    disk.set_bytes_max(Some(disk.bytes_held() + 100_000));
    append_groups(&log, 0..3).await;
    assert!(disk.bytes_held() < 10_000, "little room, and a journal takes it");
    disk.set_bytes_max(None);
    append_groups(&log, 3..4).await;
    assert!(journals(&disk).is_empty(), "it is tried again at the next start only");
    disk.power_cut(Loss::Everything);
    let log = open(&disk, sim_options()).await.unwrap();
    append_groups(&log, 4..5).await;
    assert_eq!(journals(&disk).len(), 1);
    disk.power_cut(Loss::Everything);
    assert_rounds(&disk, sim_options(), 5, "after").await;
}

#[tokio::test]
async fn log_works_without_a_journal_that_cannot_be_written() {
    for successes in [0, 1] {
        let disk = sim_disk(successes);
        let log = open(&disk, sim_options()).await.unwrap();
        create(&log, PARTITIONS).await;
        // The group creates and writes each segment before it needs a journal.
        disk.fail_write_after(2 * u64::from(PARTITIONS) + successes);
        append_groups(&log, 0..3).await;
        assert_eq!(disk.counts().failed_writes, 1);
        assert_eq!(files(&disk, ".making"), [] as [std::path::PathBuf; 0]);
        assert!(journals(&disk).is_empty());
        disk.power_cut(Loss::Everything);
        assert_rounds(&disk, sim_options(), 3, "after").await;
    }
}

/// Proves that a start with fewer committers replays the journals of all earlier committers.
#[tokio::test]
async fn journals_of_former_committers_are_replayed() {
    let disk = sim_disk(9);
    let mut options = sim_options();
    options.commit = CommitMode::Threads(3);
    let log = open(&disk, options).await.unwrap();
    log.create(STORE, PartitionCount(PARTITIONS)).await.unwrap();
    let mut rounds = 0;
    while journals(&disk).len() < 2 {
        append_groups(&log, rounds..rounds + 1).await;
        rounds += 1;
        assert!(rounds < 10_000, "no two committers had groups");
    }
    disk.power_cut(Loss::Everything);
    assert_rounds(&disk, sim_options(), rounds, "one committer").await;
    assert!(journals(&disk).is_empty());
}

#[tokio::test]
async fn unfinished_journal_is_removed() {
    let disk = sim_disk(10);
    let log = log_of(&disk, sim_options(), 1).await;
    log.append(PartitionRef::CONTROL, entry(1)).await.unwrap();
    log.close().await;
    disk.create("/data/logs/0001.journal.making".as_ref()).unwrap();
    assert_rounds(&disk, sim_options(), 1, "opened").await;
    assert!(files(&disk, ".making").is_empty());
}
