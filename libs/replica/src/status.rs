//! The status of a replica: phase, position, lag, age and errors, per partition.

use std::time::Duration;

use forebay_core::Error;
use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset, PartitionId, Position, SchemaVersion};
use forebay_core::replica_state::Phase;

use crate::context::ReplicaContext;
use crate::progress::{CatchUp, Counts, RebuildProgress, SnapshotDownload, percent};

/// The status of one partition at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionStatus {
    /// Id of the partition.
    pub partition: PartitionId,
    /// Phase of the partition, which decides whether it answers.
    pub phase: Phase,
    /// Number of the replica that serves, from 1; each rebuild takes the next number.
    pub generation: u32,
    /// Id of the log that the serving replica comes from; `None` before its first entry.
    pub log_id: Option<LogId>,
    /// Position of the last entry applied; `None` before the first.
    pub position: Option<Position>,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// End of the log, as last received.
    pub end_offset: Offset,
    /// Records between `offset_applied` and `end_offset`.
    pub lag_records: u64,
    /// Largest possible age of the served data, clock error included; `None` while it is unknown.
    pub age: Option<Duration>,
    /// Largest possible distance of this process's clock from the log's; `None` until it is
    /// measured.
    pub clock_error: Option<Duration>,
    /// Newest schema version that the partition has seen.
    pub schema_version: SchemaVersion,
    /// Documents in the replica; expired documents count until they are reclaimed.
    pub documents: u64,
    /// Bytes of the documents' keys and rows.
    pub document_bytes: u64,
    /// Catch-up of the first replica; complete once the partition serves.
    pub catch_up: CatchUp,
    /// Download of the snapshot that the replica will start from, while it runs or waits for its
    /// turn.
    pub snapshot_download: Option<SnapshotDownload>,
    /// The replica that is built next to the serving one, if any.
    pub rebuild: Option<RebuildProgress>,
    /// Error for which the partition applies nothing until this process is upgraded or restarted.
    pub fatal_error: Option<Error>,
    /// Error for which the partition applies nothing at the moment.
    pub last_error: Option<Error>,
    /// Counters of the partition's records since the replica was opened.
    pub counts: Counts,
}

/// The status of a replica at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderStatus {
    /// Name of the store.
    pub store: String,
    /// Whether the process should receive traffic; not after the close.
    pub is_ready: bool,
    /// The phase of the partition that is furthest from serving.
    pub phase: Phase,
    /// Completed part of all first replicas, 0 to 100: of their snapshots while any is being
    /// fetched, then of the logs after the snapshots.
    pub bootstrap_percent: u8,
    /// Time until all first replicas are complete, at the mean rate since open; `None` before there
    /// is a rate, zero when they are complete.
    pub bootstrap_remaining: Option<Duration>,
    /// Highest age of the partitions; `None` while an age is unknown.
    pub age: Option<Duration>,
    /// Newest schema version that any partition has seen.
    pub schema_version: SchemaVersion,
    /// All followed partitions, in order.
    pub partitions: Vec<PartitionStatus>,
}

impl ReplicaContext {
    /// Returns the status of the replica and of each partition.
    pub fn status(&self) -> ReaderStatus {
        let now = self.parts.clock.now();
        let is_ready = self.close_signal.check().is_ok() && self.observe_readiness(now);
        let partitions: Vec<_> = self.partition_statuses(now).collect();
        let phase = [Phase::Poisoned, Phase::Bootstrapping]
            .into_iter()
            .find(|phase| partitions.iter().any(|partition| partition.phase == *phase))
            .unwrap_or(Phase::Serving);
        let ages = partitions.iter().map(|partition| partition.age);
        let (done, total) = work(&partitions);
        ReaderStatus {
            store: self.name.clone(),
            is_ready,
            phase,
            bootstrap_percent: percent(done, total),
            bootstrap_remaining: remaining(now.micros_since(self.opened_at), done, total),
            age: ages.collect::<Option<Vec<_>>>().and_then(|ages| ages.into_iter().max()),
            schema_version: self.schema_version(),
            partitions,
        }
    }

    fn partition_statuses(&self, now: Timestamp) -> impl Iterator<Item = PartitionStatus> {
        self.followed().map(move |partition| {
            let current = partition.board.current();
            let freshness = partition.board.freshness();
            let usage = self.storage.usage(partition.at.partition);
            let served = current.served;
            PartitionStatus {
                partition: partition.at.partition,
                phase: current.phase,
                generation: current.generation,
                log_id: served.log_id,
                position: served.position,
                offset_applied: served.offset_applied,
                end_offset: current.end_offset,
                lag_records: current.end_offset.0.saturating_sub(served.offset_applied.0),
                age: freshness.age(now),
                clock_error: freshness.clock_error(),
                schema_version: served.schema_version,
                documents: usage.documents,
                document_bytes: usage.key_bytes + usage.row_bytes,
                catch_up: current.catch_up,
                snapshot_download: current.snapshot_download,
                rebuild: current.rebuild,
                fatal_error: current.fatal_error,
                last_error: current.last_error,
                counts: current.counts,
            }
        })
    }
}

/// Returns the completed and the total work of all first replicas.
fn work(partitions: &[PartitionStatus]) -> (u64, u64) {
    let downloads: Vec<_> =
        partitions.iter().filter_map(|partition| partition.snapshot_download).collect();
    if !downloads.is_empty() {
        // Bytes and offsets have no common unit, and the downloads come first. Partitions whose
        // download is complete had about as many bytes.
        let add = |(done, all), download: &SnapshotDownload| {
            (done + download.bytes, all + download.bytes_in_all)
        };
        let (done, all) = downloads.iter().fold((0, 0), add);
        let has_begun = |status: &&PartitionStatus| {
            status.snapshot_download.is_none() && status.counts.bootstraps > 0
        };
        let begun_count = partitions.iter().filter(has_begun).count() as u64;
        let fetched = begun_count * (all / downloads.len() as u64);
        return (done + fetched, all + fetched);
    }
    let done = partitions.iter().map(|partition| partition.catch_up.done()).sum();
    (done, partitions.iter().map(|partition| partition.catch_up.total()).sum())
}

fn remaining(since_open_us: i64, done: u64, total: u64) -> Option<Duration> {
    if done >= total {
        return Some(Duration::ZERO);
    }
    let since_open_us = u64::try_from(since_open_us).ok().filter(|_| done > 0)?;
    let left_us = u128::from(since_open_us) * u128::from(total - done) / u128::from(done);
    Some(Duration::from_micros(u64::try_from(left_us).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(snapshot_download: Option<SnapshotDownload>, bootstraps: u64) -> PartitionStatus {
        PartitionStatus {
            partition: PartitionId(0),
            phase: Phase::Bootstrapping,
            generation: 1,
            log_id: None,
            position: None,
            offset_applied: Offset(0),
            end_offset: Offset(0),
            lag_records: 0,
            age: None,
            clock_error: None,
            schema_version: SchemaVersion(0),
            documents: 0,
            document_bytes: 0,
            catch_up: CatchUp { start: Offset(0), offset_applied: Offset(3), target: Offset(9) },
            snapshot_download,
            rebuild: None,
            fatal_error: None,
            last_error: None,
            counts: Counts { bootstraps, ..Counts::default() },
        }
    }

    #[test]
    fn fetched_bytes_count_while_other_partitions_fetch() {
        let download = |bytes| Some(SnapshotDownload { bytes, bytes_in_all: 100 });
        let (waiting, half_fetched) = (partition(download(0), 0), partition(download(50), 0));
        assert_eq!(work(&[half_fetched.clone(), waiting.clone()]), (50, 200));
        let begun_partition = partition(None, 1);
        assert_eq!(work(&[begun_partition.clone(), half_fetched]), (150, 200));
        assert_eq!(work(&[begun_partition.clone(), waiting]), (100, 200));
        assert_eq!(
            work(&[begun_partition.clone(), begun_partition]),
            (6, 18),
            "then what is left of the logs counts"
        );
    }

    #[test]
    fn remaining_time_follows_the_mean_rate() {
        assert_eq!(remaining(1_000, 0, 10), None);
        assert_eq!(remaining(1_000, 10, 10), Some(Duration::ZERO));
        assert_eq!(remaining(1_000, 2, 10), Some(Duration::from_micros(4_000)));
        assert_eq!(remaining(-5, 2, 10), None);
    }
}
