//! A power cut at every single operation of a workload. The tests prove that every acknowledged
//! record survives, and that the log is exactly a prefix of the sent entries.

use std::collections::BTreeMap;

use forebay_core::ErrorCode;
use forebay_core::clock::ManualClock;
use forebay_core::id::{Offset, PartitionRef};
use forebay_log::disk::SimDisk;
use forebay_log::disk::sim::Loss;
use forebay_log::embedded_log::{Durability, EmbeddedLog, OpenVerification};
use forebay_log::{AppendReceipt, Bounds, ChangeLog};

use super::{
    STORE, at, clock, code, create, entry, journals, open, open_at, read_all, sim_disk, sim_options,
};

/// Requests and answers of a workload.
#[derive(Default)]
struct WorkloadLedger {
    is_created: bool,
    is_deleted: bool,
    /// Entries sent to each partition, in order, including entries in flight.
    sent: BTreeMap<PartitionRef, Vec<u64>>,
    acknowledged: Vec<(PartitionRef, u64, AppendReceipt)>,
    /// Highest `before` of a trim that was sent.
    trim_before: u64,
}

/// Appends to three partitions, several at once, and rolls, trims and deletes; ends at the first
/// error.
async fn work(
    log: &EmbeddedLog,
    clock: &ManualClock,
    ledger: &mut WorkloadLedger,
) -> Result<(), forebay_core::Error> {
    log.create(STORE, forebay_core::id::PartitionCount(3)).await?;
    ledger.is_created = true;
    for round in 0..12_u64 {
        clock.advance_micros(1_000);
        let lanes = [at(0), at(0), at(1), PartitionRef::CONTROL];
        let numbers = lanes.iter().zip(0..).map(|(at, lane)| (*at, round * 10 + lane));
        let mut appends = Vec::new();
        for (at, number) in numbers {
            ledger.sent.entry(at).or_default().push(number);
            appends.push(async move { (at, number, log.append(at, entry(number * 7)).await) });
        }
        let mut failure = None;
        for (at, number, result) in futures::future::join_all(appends).await {
            match result {
                Ok(appended) => ledger.acknowledged.push((at, number, appended)),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if round == 8 {
            ledger.trim_before = 9;
            log.trim(at(0), Offset(9)).await?;
        }
    }
    ledger.is_deleted = true;
    log.delete(STORE).await
}

/// Compares the log after a crash with the requests and answers of the workload.
async fn check(log: &EmbeddedLog, ledger: &WorkloadLedger, context: &str) {
    for (partition, sent) in &ledger.sent {
        let bounds = match log.bounds(*partition).await {
            Ok(bounds) => bounds,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::NotFound, "{context}");
                assert!(ledger.is_deleted && partition.store == STORE, "{context}: {partition}");
                continue;
            }
        };
        assert!(bounds.start.0 <= ledger.trim_before, "{context}: {partition} lost its start");
        let records = read_all(log, *partition, bounds.start).await.unwrap();
        assert_eq!(bounds.end.0, bounds.start.0 + records.len() as u64, "{context}");
        for record in &records {
            let number = sent[record.offset.0 as usize];
            assert_eq!(record.entry, entry(number * 7), "{context}: no prefix in {partition}");
        }
        for (at, number, appended) in &ledger.acknowledged {
            if at == partition && appended.offset >= bounds.start {
                let found = records.get((appended.offset.0 - bounds.start.0) as usize);
                let found = found.map(|record| (&record.entry[..], record.append_time));
                let expected = (&entry(number * 7)[..], appended.append_time);
                assert_eq!(found, Some(expected), "{context}: acknowledged {number} is gone");
            }
        }
    }
}

/// Result of a run of the workload.
struct RunOutcome {
    is_complete: bool,
    /// Whether the crash left a journal.
    has_journal: bool,
}

/// Runs the workload on a disk that dies after some operations, and checks the remains twice: the
/// second time after another crash in the middle of recovery. Each half of the journal takes one
/// group, or a few.
async fn crash_at(operations: u64, loss: Loss, durability: Durability) -> RunOutcome {
    let context = format!("power gone after {operations} operations, loss {loss:?}");
    let disk = sim_disk(operations);
    let mut options = sim_options();
    options.segment_bytes = 900;
    options.durability = durability;
    options.journal_bytes = 2 * [4_096 + 1_200, 4_096 + 4_000][operations as usize % 2];
    disk.die_after(operations);
    let mut ledger = WorkloadLedger::default();
    options.open_verification = [OpenVerification::AllSegments, OpenVerification::ActiveSegments]
        [operations as usize / 2 % 2];
    let clock = clock();
    let result = match open_at(&disk, options.clone(), clock.clone()).await {
        Ok(log) => work(&log, &clock, &mut ledger).await,
        Err(error) => Err(error),
    };
    let is_complete = result.is_ok();
    disk.power_cut(loss);
    let has_journal = !journals(&disk).is_empty();
    disk.die_after(operations % 23);
    let _ = open(&disk, options.clone()).await;
    disk.power_cut(loss);
    let log =
        open(&disk, options.clone()).await.unwrap_or_else(|error| panic!("{context}: {error}"));
    if durability == Durability::Buffered {
        ledger.acknowledged.clear();
        ledger.is_created = false;
    }
    if ledger.is_created && !ledger.is_deleted {
        log.bounds(at(2)).await.unwrap();
    }
    if ledger.is_created || log.bounds(at(0)).await.is_ok() {
        check(&log, &ledger, &context).await;
    }
    // The log accepts appends again, although its clock has fallen.
    for partition in [at(0), at(1), PartitionRef::CONTROL] {
        let Ok(Bounds { start, end, .. }) = log.bounds(partition).await else { continue };
        // The crash may have left a last segment without frames.
        log.trim(partition, end).await.unwrap();
        log.append(partition, entry(2)).await.unwrap();
        let start = start.max(log.bounds(partition).await.unwrap().start);
        let records = read_all(&log, partition, start).await.unwrap();
        assert!(records.is_sorted_by_key(|record| record.append_time), "{context}: a time falls");
    }
    let after = log.append(PartitionRef::CONTROL, entry(1)).await.unwrap();
    drop(log);
    tokio::task::yield_now().await;
    disk.power_cut(Loss::Everything);
    if durability == Durability::Fsync {
        let log = open(&disk, options).await.unwrap();
        let last = read_all(&log, PartitionRef::CONTROL, after.offset).await.unwrap();
        assert_eq!(last.len(), 1, "{context}: what was appended after the recovery is gone");
    }
    RunOutcome { is_complete, has_journal }
}

async fn crash_everywhere(durability: Durability) {
    for loss in [Loss::Everything, Loss::TornPrefix, Loss::RandomSectors] {
        let (mut operations, mut with_journal) = (0, 0);
        loop {
            let outcome = crash_at(operations, loss, durability).await;
            with_journal += u64::from(outcome.has_journal);
            if outcome.is_complete {
                break;
            }
            operations += 1;
        }
        assert!(operations > 100, "the workload had only {operations} operations");
        match durability {
            Durability::Fsync => assert!(with_journal > 50, "only {with_journal} journals"),
            Durability::Buffered => assert_eq!(with_journal, 0),
        }
    }
}

#[tokio::test]
async fn acknowledged_entries_survive_a_power_cut_at_every_operation() {
    crash_everywhere(Durability::Fsync).await;
}

#[tokio::test]
async fn buffered_log_is_a_prefix_after_a_power_cut_at_every_operation() {
    crash_everywhere(Durability::Buffered).await;
}

#[tokio::test]
async fn closed_buffered_log_is_durable() {
    let disk = sim_disk(1);
    let mut options = sim_options();
    options.durability = Durability::Buffered;
    let log = open(&disk, options.clone()).await.unwrap();
    create(&log, 1).await;
    for number in 0..30 {
        log.append(at(0), entry(number)).await.unwrap();
    }
    log.close().await;
    assert_eq!(code(log.append(at(0), entry(1)).await), ErrorCode::Closed);
    disk.power_cut(Loss::Everything);
    let log = open(&disk, options).await.unwrap();
    assert_eq!(read_all(&log, at(0), Offset(0)).await.unwrap().len(), 30);
}

/// Proves that the checks notice a disk that loses acknowledged bytes.
#[tokio::test]
async fn checks_notice_a_disk_that_loses_acknowledged_bytes() {
    let disk: SimDisk = sim_disk(3);
    let log = open(&disk, sim_options()).await.unwrap();
    let mut ledger = WorkloadLedger::default();
    create(&log, 3).await;
    for number in 0..5 {
        ledger.sent.entry(at(0)).or_default().push(number);
        let appended = log.append(at(0), entry(number * 7)).await.unwrap();
        ledger.acknowledged.push((at(0), number, appended));
    }
    disk.power_cut(Loss::Everything);
    let segment = super::segments(&disk).pop().unwrap();
    disk.damage(&segment, |bytes| bytes.truncate(bytes.len() - 1)).unwrap();
    let log = open(&disk, sim_options()).await.unwrap();
    let checked = tokio::spawn(async move { check(&log, &ledger, "planted").await }).await;
    assert!(checked.is_err(), "an acknowledged record was lost and nobody noticed");
}
