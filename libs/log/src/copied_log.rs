//! A log that receives copies of entries from other logs: each entry once, no matter how many
//! copiers there are and how often they copy.
//!
//! Every copied entry names its source position and the previous position that was sent from the
//! same source. A replica applies an entry only if that previous position is the last one that the
//! replica applied from that source (`tools/docs/src/semantics.md`, section 2).

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::change::{Entry, EntryBody, Source};
use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, LogId, Offset, PartitionId, PartitionRef, Position, SchemaVersion};
use forebay_core::{Error, Result};
use forebay_wire::entry::{decode_entry, encode_entry};

use crate::change_log::{ChangeLog, ReadLimit};
use crate::opening::find_log_id;

/// Limit of one read while a copier reads back.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

/// Source of a copied entry.
#[derive(Clone, Copy, Debug)]
pub struct CopiedFrom {
    /// Source partition.
    pub partition: PartitionId,
    /// Position of the entry in the source partition.
    pub position: Position,
    /// Time at which the source log appended the entry.
    pub append_time: Timestamp,
}

/// Progress of the copies in a log, as read back from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedUpTo {
    /// Id of the log.
    pub log_id: LogId,
    /// First offset that was not read back.
    pub next: Offset,
    /// Last position of each source below `next`.
    pub came: BTreeMap<PartitionId, Position>,
}

/// A partition that receives copies, as one copier knows it.
#[derive(Clone, Debug)]
pub struct CopiedLog {
    at: PartitionRef,
    up_to: CopiedUpTo,
    /// Last position of each source, including the entries that this copier has sent since.
    sent: BTreeMap<PartitionId, Position>,
}

impl CopiedLog {
    /// Reads back the copies in a partition from the start of its log.
    ///
    /// # Errors
    /// `Unavailable` for a log without an entry; the errors of the log.
    pub async fn find(log: &dyn ChangeLog, at: PartitionRef) -> Result<Self> {
        let bounds = log.bounds(at).await?;
        let log_id = find_log_id(log, at, bounds).await?;
        let log_id =
            log_id.ok_or_else(|| Error::unavailable("the log has no entry yet; try again"))?;
        let up_to = CopiedUpTo { log_id, next: bounds.start, came: BTreeMap::new() };
        Self::resume(log, at, up_to).await
    }

    /// Reads back the copies in a partition from an earlier [`CopiedUpTo`] on.
    ///
    /// # Errors
    /// The errors of the log.
    pub async fn resume(log: &dyn ChangeLog, at: PartitionRef, up_to: CopiedUpTo) -> Result<Self> {
        let mut found = Self { at, up_to, sent: BTreeMap::new() };
        found.read_back(log).await?;
        found.sent = found.up_to.came.clone();
        Ok(found)
    }

    /// Returns the partition that receives the copies.
    pub fn partition(&self) -> PartitionRef {
        self.at
    }

    /// Returns the progress as read back.
    pub fn up_to(&self) -> &CopiedUpTo {
        &self.up_to
    }

    /// Returns the position of the last entry that this copier sent from a source.
    pub fn sent(&self, from: PartitionId) -> Option<Position> {
        self.sent.get(&from).copied()
    }

    /// Returns whether the log contains other copies than this copier has sent, so that this copier
    /// is fenced.
    pub fn is_overtaken(&self) -> bool {
        self.up_to.came != self.sent
    }

    /// Reads the rest of the log by the rule by which a replica applies copies.
    ///
    /// # Errors
    /// The errors of the log.
    pub async fn read_back(&mut self, log: &dyn ChangeLog) -> Result<()> {
        let end = log.bounds(self.at).await?.end;
        let CopiedUpTo { log_id, next, came } = &mut self.up_to;
        while *next < end {
            let read = log.read(self.at, *next, READ).await?;
            let Some(last) = read.records.last() else { break };
            *next = last.offset.next();
            for record in &read.records {
                let Ok(entry) = decode_entry(&record.entry) else { continue };
                let Some(source) = entry.source.filter(|_| entry.log_id == *log_id) else {
                    continue;
                };
                if came.get(&source.partition).copied() == source.previous {
                    came.insert(source.partition, source.position);
                }
            }
        }
        Ok(())
    }

    /// Appends an entry unless it was copied before; returns whether it was appended.
    /// `schema_version` is the version of the definition that the entry was written with.
    ///
    /// # Errors
    /// The errors of the log. After an error, only [`CopiedLog::find`] shows whether the entry was
    /// appended.
    pub async fn send(
        &mut self,
        log: &dyn ChangeLog,
        from: CopiedFrom,
        schema_version: SchemaVersion,
        body: EntryBody,
    ) -> Result<bool> {
        let CopiedFrom { partition, position, append_time } = from;
        let previous = self.sent(partition);
        if previous.is_some_and(|previous| previous >= position) {
            return Ok(false);
        }
        let source = Some(Source { partition, position, previous, append_time, is_moved: true });
        let log_id = self.up_to.log_id;
        let entry = Entry { log_id, epoch: Epoch(0), schema_version, source, body };
        log.append(self.at, encode_entry(&entry)?).await?;
        self.sent.insert(partition, position);
        Ok(true)
    }
}
