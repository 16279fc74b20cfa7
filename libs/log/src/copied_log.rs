//! A log to which entries of other logs are copied: each once, whoever copies it and however often.
//!
//! Every entry says where it is from and which one of the same source was sent before it, and a
//! replica takes it only if that is the last one that it took from there (semantics.md 2).

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::change::{Entry, EntryBody, Source};
use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, LogId, Offset, PartitionId, PartitionRef, Position, SchemaVersion};
use forebay_core::{Error, Result};
use forebay_wire::entry::{decode_entry, encode_entry};

use crate::change_log::{ChangeLog, ReadLimit};
use crate::opening::find_log_id;

/// What is read back at once.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

/// Where an entry that is copied is from.
#[derive(Clone, Copy, Debug)]
pub struct CopiedFrom {
    /// The partition.
    pub partition: PartitionId,
    /// Its position there.
    pub position: Position,
    /// When it was appended there.
    pub append_time: Timestamp,
}

/// How far entries have come to a log, as they are read back from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedUpTo {
    /// The log.
    pub log_id: LogId,
    /// Up to where it was read back.
    pub next: Offset,
    /// Of each source the last position that came up to there.
    pub came: BTreeMap<PartitionId, Position>,
}

/// One partition that entries are copied to, as one copier knows it.
#[derive(Clone, Debug)]
pub struct CopiedLog {
    at: PartitionRef,
    up_to: CopiedUpTo,
    /// As this copier has it, with what it has sent since.
    sent: BTreeMap<PartitionId, Position>,
}

impl CopiedLog {
    /// Reads back what came to a partition, from its beginning on.
    ///
    /// # Errors
    /// `Unavailable` for a log without an entry yet; those of the log.
    pub async fn find(log: &dyn ChangeLog, at: PartitionRef) -> Result<Self> {
        let bounds = log.bounds(at).await?;
        let log_id = find_log_id(log, at, bounds).await?;
        let log_id = log_id.ok_or_else(|| Error::unavailable("a log without an entry yet"))?;
        let up_to = CopiedUpTo { log_id, next: bounds.start, came: BTreeMap::new() };
        Self::resume(log, at, up_to).await
    }

    /// Reads back what came to a partition since it was known how far entries had come.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn resume(log: &dyn ChangeLog, at: PartitionRef, up_to: CopiedUpTo) -> Result<Self> {
        let mut found = Self { at, up_to, sent: BTreeMap::new() };
        found.read_back(log).await?;
        found.sent = found.up_to.came.clone();
        Ok(found)
    }

    /// Which partition.
    pub fn partition(&self) -> PartitionRef {
        self.at
    }

    /// How far entries have come, as far as it was read back.
    pub fn up_to(&self) -> &CopiedUpTo {
        &self.up_to
    }

    /// Position of the last entry that was sent of a source.
    pub fn sent(&self, from: PartitionId) -> Option<Position> {
        self.sent.get(&from).copied()
    }

    /// Whether something else came than this copier has sent.
    pub fn is_overtaken(&self) -> bool {
        self.up_to.came != self.sent
    }

    /// Reads what the log holds by now, as a replica takes it.
    ///
    /// # Errors
    /// Those of the log.
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

    /// Appends an entry, unless it came before; answers whether it did. It is made with this
    /// version of the definition.
    ///
    /// # Errors
    /// Those of the log; whether it came is told by [`CopiedLog::find`] alone then.
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
