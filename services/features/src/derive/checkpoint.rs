//! Checkpoint of one source partition of a view: how far its events were derived and appended to
//! the view's own logs. The checkpoint is a shard with rows of its own format. After a crash, the
//! lost part is derived again and recognized as already appended.

use std::collections::BTreeMap;

use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{
    LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::{Direction, KeyOrder};
use forebay_core::state_rows::FollowState;
use forebay_core::{Error, Result};
use forebay_entries::ExactlyOnceSink;
use forebay_shard::{Shard, ShardDirectory, ShardWriter};

use super::source::{SourceLog, StateChanges};
use crate::rows::ValueRows;

const ORDER: KeyOrder = KeyOrder { primary: KeyType::Bytes, partition: None };

/// Checkpoint of one source partition.
pub(super) struct Checkpoint {
    writer: ShardWriter,
    rows: ValueRows,
    /// The stored state of each partition of the view.
    appended: BTreeMap<PartitionId, LastAppended>,
}

/// Offset up to which one of the view's logs was read back, and the last source position that the
/// log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastAppended {
    pub(super) log_id: LogId,
    pub(super) next: Offset,
    pub(super) position: Option<Position>,
}

impl Checkpoint {
    /// Resumes the checkpoint that an earlier process has left for a partition of a store, or
    /// creates one.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses; `Corrupt`.
    pub(super) fn open(
        directory: &ShardDirectory,
        store: StoreId,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Self, SourceLog)> {
        let rows = ValueRows::new()?;
        let Some((writer, restored)) = directory.resume(at, partitions, ORDER)? else {
            let (writer, appended) = (directory.create(at, ORDER)?, BTreeMap::new());
            let source = SourceLog::new(store, PartitionState::new(at, partitions), None);
            return Ok((Self { writer, rows, appended }, source));
        };
        let appended = read(writer.shard(), &rows)?;
        let source = SourceLog::new(store, restored.state, restored.follow_state.append_time);
        Ok((Self { writer, rows, appended }, source))
    }

    /// Returns the state of each partition of the view.
    pub(super) fn appended(&self) -> &BTreeMap<PartitionId, LastAppended> {
        &self.appended
    }

    /// Records that all events up to the source's state were sent. Costs no disk access.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub(super) fn keep(
        &mut self,
        source: &mut SourceLog,
        targets: &[ExactlyOnceSink],
    ) -> Result<()> {
        let from = source.partition().partition;
        let StateChanges { clients, sources } = source.take_unsaved();
        let mut effects = FoldEffects { clients, sources, ..FoldEffects::default() };
        for target in targets {
            let (partition, progress) = (target.partition().partition, target.progress());
            let position = progress.received.get(&from).copied();
            let last = LastAppended { log_id: progress.log_id, next: progress.next, position };
            if self.appended.insert(partition, last) != Some(last) {
                let row = self.rows.row(last.encode(), None)?;
                effects.writes.push((target_key(partition), Some(row)));
            }
        }
        let append_time = source.append_time();
        let follow_state = FollowState { append_time, copy: 1, is_served: true, opened: None };
        self.writer.apply(&effects, source.state(), follow_state)
    }

    /// Flushes the checkpoint to disk.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub(super) fn flush(&self) -> Result<()> {
        self.writer.shard().flush()
    }
}

fn target_key(partition: PartitionId) -> Key {
    Key::from_identity_bytes(&partition.0.to_le_bytes())
}

fn read(shard: &Shard, rows: &ValueRows) -> Result<BTreeMap<PartitionId, LastAppended>> {
    let view = shard.view()?;
    let mut found = view.scan(&ORDER.all(), Direction::Forward);
    let mut appended = BTreeMap::new();
    while let Some((key, row)) = found.next()? {
        let partition = key.as_bytes().try_into().map_err(|_| damaged_error())?;
        let last = LastAppended::decode(rows.bytes(row)?).ok_or_else(damaged_error)?;
        appended.insert(PartitionId(u32::from_le_bytes(partition)), last);
    }
    Ok(appended)
}

fn damaged_error() -> Error {
    Error::corrupt(
        "the checkpoint of a view's derivation is damaged; remove the checkpoint, and the view \
         derives its events again",
    )
}

impl LastAppended {
    fn encode(self) -> Vec<u8> {
        let mut row = Vec::new();
        row.extend_from_slice(&self.log_id.0.to_le_bytes());
        row.extend_from_slice(&self.next.0.to_le_bytes());
        row.extend_from_slice(
            &self.position.map_or_else(Vec::new, |position| position.to_bytes().to_vec()),
        );
        row
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let (log_id, row) = row.split_first_chunk()?;
        let (next, row) = row.split_first_chunk()?;
        let position = match row {
            [] => None,
            row => Some(Position::from_bytes(row.try_into().ok()?)),
        };
        let next = Offset(u64::from_le_bytes(*next));
        Some(Self { log_id: LogId(u64::from_le_bytes(*log_id)), next, position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_rows_round_trip() {
        for position in [None, Some(Position { index_in_entry: 3, ..Position::default() })] {
            let last = LastAppended { log_id: LogId(7), next: Offset(9), position };
            assert_eq!(LastAppended::decode(&last.encode()), Some(last));
            assert_eq!(LastAppended::decode(&last.encode()[1..]), None);
        }
    }
}
