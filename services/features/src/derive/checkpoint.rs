//! How far the events of a view were derived of one partition of its source, and had come to the
//! view's own logs: a shard with rows of our own. What a kill loses of it is derived again, and
//! found to have come.

use std::collections::BTreeMap;

use forebay_core::fold::{Applied, PartitionState};
use forebay_core::id::{LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::{Direction, KeyOrder};
use forebay_core::state_rows::Followed;
use forebay_core::{Error, Result};
use forebay_log::CopiedLog;
use forebay_shard::{Shard, ShardDirectory, ShardWriter};

use super::source::SourceLog;
use crate::rows::ValueRows;

const ORDER: KeyOrder = KeyOrder { primary: KeyType::Bytes, partition: None };

/// Keeps how far one partition was derived.
pub(super) struct Checkpoint {
    writer: ShardWriter,
    rows: ValueRows,
    /// What it holds of each partition of the view.
    kept: BTreeMap<PartitionId, Came>,
}

/// How far one of the view's logs was read back, and what had come by then of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) log_id: LogId,
    pub(super) next: Offset,
    pub(super) position: Option<Position>,
}

impl Checkpoint {
    /// Goes on with what an earlier process has left of a partition, or begins.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses; `Corrupt`.
    pub(super) fn open(
        directory: &ShardDirectory,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Self, SourceLog)> {
        let rows = ValueRows::new()?;
        let Some((writer, resumed)) = directory.resume(at, partitions, ORDER)? else {
            let (writer, kept) = (directory.create(at, ORDER)?, BTreeMap::new());
            let source = SourceLog::new(PartitionState::new(at, partitions), None);
            return Ok((Self { writer, rows, kept }, source));
        };
        let kept = read(writer.shard(), &rows)?;
        let source = SourceLog::new(resumed.state, resumed.followed.append_time);
        Ok((Self { writer, rows, kept }, source))
    }

    /// What had come to each of the view's partitions.
    pub(super) fn came(&self) -> &BTreeMap<PartitionId, Came> {
        &self.kept
    }

    /// Keeps that all was sent that the source's state has seen. Costs no disk access.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(super) fn keep(&mut self, source: &mut SourceLog, targets: &[CopiedLog]) -> Result<()> {
        let from = source.state.partition.partition;
        let Applied { clients, sources, .. } = source.take_changed();
        let mut applied = Applied { clients, sources, ..Applied::default() };
        for target in targets {
            let (partition, up_to) = (target.partition().partition, target.up_to());
            let position = up_to.came.get(&from).copied();
            let came = Came { log_id: up_to.log_id, next: up_to.next, position };
            if self.kept.insert(partition, came) != Some(came) {
                let row = self.rows.row(came.encode(), None)?;
                applied.writes.push((target_key(partition), Some(row)));
            }
        }
        let append_time = source.append_time;
        let followed = Followed { append_time, copy: 1, is_served: true, opened: None };
        self.writer.apply(&applied, &source.state, followed)
    }

    /// Puts what was kept on disk.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(super) fn flush(&self) -> Result<()> {
        self.writer.shard().flush()
    }
}

fn target_key(partition: PartitionId) -> Key {
    Key::from_identity_bytes(&partition.0.to_le_bytes())
}

fn read(shard: &Shard, rows: &ValueRows) -> Result<BTreeMap<PartitionId, Came>> {
    let view = shard.view()?;
    let mut found = view.scan(&ORDER.all(), Direction::Forward);
    let mut kept = BTreeMap::new();
    while let Some((key, row)) = found.next()? {
        let partition = key.as_bytes().try_into().map_err(|_| damaged())?;
        let came = Came::decode(rows.bytes(row)?).ok_or_else(damaged)?;
        kept.insert(PartitionId(u32::from_le_bytes(partition)), came);
    }
    Ok(kept)
}

fn damaged() -> Error {
    Error::corrupt("a checkpoint of a view's events is damaged; remove it: they are derived again")
}

impl Came {
    fn encode(self) -> Vec<u8> {
        let mut row = Vec::new();
        row.extend_from_slice(&self.log_id.0.to_le_bytes());
        row.extend_from_slice(&self.next.0.to_le_bytes());
        row.extend_from_slice(&self.position.map_or_else(Vec::new, |at| at.to_bytes().to_vec()));
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
    fn rows_are_read_back() {
        for position in [None, Some(Position { place: 3, ..Position::default() })] {
            let came = Came { log_id: LogId(7), next: Offset(9), position };
            assert_eq!(Came::decode(&came.encode()), Some(came));
            assert_eq!(Came::decode(&came.encode()[1..]), None);
        }
    }
}
