//! Point-in-time recovery: selects the snapshot and the log that lead to a point in time.

use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset};
use forebay_core::{Error, Result};

use crate::backup::{LogSegment, PartitionBackup};
use crate::log_segment::KeptRecord;
use crate::manifest::SnapshotName;

/// Target of the recovery of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreTarget {
    /// The newest snapshot.
    Newest,
    /// The state before the first entry of this time or a later one.
    Before(Timestamp),
    /// The state after this offset of a log.
    Behind(LogId, Offset),
}

impl RestoreTarget {
    /// Returns whether a record comes after the target.
    pub fn is_passed_by(self, record: &KeptRecord<'_>) -> bool {
        match self {
            Self::Newest => false,
            Self::Before(time) => record.append_time >= time,
            Self::Behind(_, offset) => record.offset > offset,
        }
    }

    /// Returns whether a snapshot contains nothing after the target.
    fn may_begin_with(self, backup: &PartitionBackup) -> bool {
        match self {
            Self::Newest => true,
            Self::Before(time) => backup.progress.partition_time < time,
            Self::Behind(log_id, offset) => {
                backup.snapshot.log_id == log_id && backup.progress.offset_applied <= offset.next()
            }
        }
    }

    /// Returns whether a snapshot and its log contain everything before the target.
    fn is_reached_by(self, backup: &PartitionBackup) -> bool {
        match self {
            Self::Newest => true,
            Self::Before(time) => backup.progress.partition_time >= time,
            Self::Behind(_, offset) => backup.progress.offset_applied > offset,
        }
    }
}

/// A snapshot, and the log after it up to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreChain {
    /// Name of the initial snapshot.
    pub snapshot: SnapshotName,
    /// Log after the snapshot; recovery skips the records after the target.
    pub log: Vec<LogSegment>,
    /// Target of the recovery.
    pub target: RestoreTarget,
}

impl RestoreChain {
    /// Finds the shortest chain in the backups of a partition, the oldest first.
    ///
    /// # Errors
    /// `NotFound` if there is none; the error states the available range.
    pub fn find(backups: &[&PartitionBackup], target: RestoreTarget) -> Result<Self> {
        let first = backups.iter().rposition(|backup| target.may_begin_with(backup));
        let first = first.ok_or_else(|| too_early(backups))?;
        let mut reached = backups[first];
        let mut chain = Self { snapshot: reached.snapshot, log: Vec::new(), target };
        for backup in &backups[first + 1..] {
            if target.is_reached_by(reached) || !backup.follows(reached) {
                break;
            }
            chain.log.extend(backup.log.iter().cloned());
            reached = backup;
        }
        match target.is_reached_by(reached) {
            true => Ok(chain),
            false => {
                Err(too_late(reached, backups.iter().any(|backup| target.is_reached_by(backup))))
            }
        }
    }
}

fn too_early(backups: &[&PartitionBackup]) -> Error {
    let oldest = backups.first().map_or(Timestamp::MIN, |backup| backup.progress.partition_time);
    let message = format!(
        "no backup is old enough: the oldest backup of the partition is of {oldest}; choose a \
         later moment"
    );
    Error::not_found(message)
}

fn too_late(reached: &PartitionBackup, is_gap: bool) -> Error {
    let time = reached.progress.partition_time;
    let message = match is_gap {
        true => format!(
            "the log between two backups is missing, so the partition cannot be restored between \
             {time} and the next backup; restore a backup by its id, and set log_retention longer \
             than the interval of backups"
        ),
        false => format!(
            "the backups of the partition end at {time}; take a backup now, or choose an earlier \
             moment"
        ),
    };
    Error::not_found(message)
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::id::{Epoch, Position, SchemaVersion};
    use forebay_core::replica_state::Progress;

    use super::*;
    use crate::chunk::ChunkId;

    /// Returns a backup that ends at an offset, with one entry per second, and with the log since
    /// another offset.
    fn backup(log_id: u64, end: u64, log_from: Option<u64>) -> PartitionBackup {
        let (epoch, offset_applied) = (Epoch(0), Offset(end));
        let snapshot = SnapshotName { log_id: LogId(log_id), epoch, offset_applied, id: end };
        let partition_time = Timestamp::from_micros(end as i64 * 1_000_000);
        let (position, schema_version) = (Position::default(), SchemaVersion(1));
        let progress = Progress { position, offset_applied, partition_time, schema_version };
        let segment = |from: u64| LogSegment {
            offsets: Offset(from)..offset_applied,
            chunk: ChunkId::of(&from.to_le_bytes(), end),
        };
        PartitionBackup { snapshot, progress, log: log_from.map(segment).into_iter().collect() }
    }

    fn before(second: u64) -> RestoreTarget {
        RestoreTarget::Before(Timestamp::from_micros(second as i64 * 1_000_000))
    }

    fn found(backups: &[PartitionBackup], target: RestoreTarget) -> Result<(u64, Vec<u64>)> {
        let chain = RestoreChain::find(&backups.iter().collect::<Vec<_>>(), target)?;
        let log = chain.log.iter().map(|segment| segment.offsets.start.0).collect();
        Ok((chain.snapshot.id, log))
    }

    #[test]
    fn restore_starts_with_the_newest_snapshot_before_the_moment() {
        let backups = [backup(1, 10, None), backup(1, 20, Some(10)), backup(1, 30, Some(20))];
        assert_eq!(found(&backups, RestoreTarget::Newest).unwrap(), (30, vec![]));
        assert_eq!(found(&backups, before(11)).unwrap(), (10, vec![10]));
        assert_eq!(found(&backups, before(20)).unwrap(), (10, vec![10]));
        assert_eq!(found(&backups, before(21)).unwrap(), (20, vec![20]));
        let target_behind = |offset| RestoreTarget::Behind(LogId(1), Offset(offset));
        assert_eq!(found(&backups, target_behind(19)).unwrap(), (20, vec![]));
        assert_eq!(found(&backups, target_behind(18)).unwrap(), (10, vec![10]));
        assert_eq!(found(&backups, target_behind(29)).unwrap(), (30, vec![]));
    }

    #[test]
    fn backup_without_new_records_leaves_no_gap() {
        let backups = [backup(1, 10, None), backup(1, 10, None), backup(1, 20, Some(10))];
        assert_eq!(found(&backups, before(15)).unwrap(), (10, vec![10]));
    }

    #[test]
    fn unreachable_restore_target_reports_its_cause() {
        let backups = [backup(1, 10, None), backup(1, 20, None), backup(2, 30, None)];
        for (target, words) in [
            (before(10), "no backup is old enough"),
            (before(15), "log_retention"),
            (before(40), "take a backup now"),
            (RestoreTarget::Behind(LogId(3), Offset(15)), "no backup is old enough"),
            (RestoreTarget::Behind(LogId(1), Offset(15)), "log_retention"),
        ] {
            let error = found(&backups, target).unwrap_err();
            assert_eq!(error.code(), ErrorCode::NotFound);
            assert!(error.to_string().contains(words), "{target:?}: {error}");
        }
        assert!(RestoreChain::find(&[], RestoreTarget::Newest).is_err());
    }
}
