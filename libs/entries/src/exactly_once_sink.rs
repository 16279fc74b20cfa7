//! The sink of copies: a partition that receives entries from other logs, each once, no matter how
//! many copiers there are and how often they copy.
//!
//! Every copied entry names its source position and the previous position that was sent from the
//! same source. A replica applies an entry only if that previous position is the last one that the
//! replica applied from that source (`tools/docs/src/semantics.md`, section 2).

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::change::{Entry, EntryBody, Source};
use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset, PartitionId, PartitionRef, Position, SchemaVersion};
use forebay_core::{Error, Result};
use forebay_log::{ChangeLog, ReadLimit};
use forebay_wire::entry::{decode_entry, encode_entry};

use crate::log_identity::find_log_id;

/// Limit of one read while a copier reads back.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

/// Source of a copied entry.
#[derive(Clone, Copy, Debug)]
pub struct CopyOrigin {
    /// Source partition.
    pub partition: PartitionId,
    /// Position of the entry in the source partition.
    pub position: Position,
    /// Time at which the source log appended the entry.
    pub append_time: Timestamp,
}

/// Progress of the copies in a log, as read back from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkProgress {
    /// Id of the log.
    pub log_id: LogId,
    /// First offset that was not read back.
    pub next: Offset,
    /// Last position of each source below `next`.
    pub received: BTreeMap<PartitionId, Position>,
}

/// A partition that receives copies, as one copier knows it.
#[derive(Clone, Debug)]
pub struct ExactlyOnceSink {
    at: PartitionRef,
    progress: SinkProgress,
    /// Last position of each source, including the entries that this copier has sent since.
    sent: BTreeMap<PartitionId, Position>,
}

impl ExactlyOnceSink {
    /// Reads back the copies in a partition from the start of its log.
    ///
    /// # Errors
    /// `Unavailable` for a log without an entry; the errors of the log.
    pub async fn find(log: &dyn ChangeLog, at: PartitionRef) -> Result<Self> {
        let bounds = log.bounds(at).await?;
        let log_id = find_log_id(log, at, bounds).await?;
        let log_id =
            log_id.ok_or_else(|| Error::unavailable("the log has no entry yet; try again"))?;
        let progress = SinkProgress { log_id, next: bounds.start, received: BTreeMap::new() };
        Self::resume(log, at, progress).await
    }

    /// Reads back the copies in a partition from an earlier [`SinkProgress`] on.
    ///
    /// # Errors
    /// The errors of the log.
    pub async fn resume(
        log: &dyn ChangeLog,
        at: PartitionRef,
        progress: SinkProgress,
    ) -> Result<Self> {
        let mut found = Self { at, progress, sent: BTreeMap::new() };
        found.read_back(log).await?;
        found.sent = found.progress.received.clone();
        Ok(found)
    }

    /// Returns the partition that receives the copies.
    pub fn partition(&self) -> PartitionRef {
        self.at
    }

    /// Returns the progress as read back.
    pub fn progress(&self) -> &SinkProgress {
        &self.progress
    }

    /// Returns the position of the last entry that this copier sent from a source.
    pub fn sent(&self, from: PartitionId) -> Option<Position> {
        self.sent.get(&from).copied()
    }

    /// Returns whether the log contains other copies than this copier has sent, so that this copier
    /// is fenced.
    pub fn is_fenced(&self) -> bool {
        self.progress.received != self.sent
    }

    /// Reads the rest of the log by the rule by which a replica applies copies.
    ///
    /// # Errors
    /// The errors of the log.
    pub async fn read_back(&mut self, log: &dyn ChangeLog) -> Result<()> {
        let end = log.bounds(self.at).await?.end;
        let SinkProgress { log_id, next, received } = &mut self.progress;
        while *next < end {
            let read = log.read(self.at, *next, READ).await?;
            let Some(last) = read.records.last() else { break };
            *next = last.offset.next();
            for record in &read.records {
                let Ok(entry) = decode_entry(&record.entry) else { continue };
                let Some(source) = entry.source.filter(|_| entry.log_id == *log_id) else {
                    continue;
                };
                if received.get(&source.partition).copied() == source.previous {
                    received.insert(source.partition, source.position);
                }
            }
        }
        Ok(())
    }

    /// Appends an entry unless it was copied before; returns whether it was appended.
    /// `schema_version` is the version of the definition that the entry was written with.
    ///
    /// # Errors
    /// The errors of the log. After an error, only [`ExactlyOnceSink::find`] shows whether the
    /// entry was appended.
    pub async fn send(
        &mut self,
        log: &dyn ChangeLog,
        from: CopyOrigin,
        schema_version: SchemaVersion,
        body: EntryBody,
    ) -> Result<bool> {
        let CopyOrigin { partition, position, append_time } = from;
        let previous = self.sent(partition);
        if previous.is_some_and(|previous| previous >= position) {
            return Ok(false);
        }
        let source =
            Some(Source { partition, position, previous, append_time, is_forwarded: true });
        let log_id = self.progress.log_id;
        let entry = Entry { source, ..Entry::original(log_id, schema_version, body) };
        log.append(self.at, encode_entry(&entry)?).await?;
        self.sent.insert(partition, position);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_core::clock::SystemClock;
    use forebay_core::entropy::SeededEntropy;
    use forebay_core::id::{Epoch, PartitionCount, StoreId};
    use forebay_log::MemoryLog;

    use super::*;
    use crate::log_identity::open_log;

    const AT: PartitionRef = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
    const FROM: PartitionId = PartitionId(3);

    fn position(offset: u64) -> Position {
        Position { epoch: Epoch(0), offset: Offset(offset), index_in_entry: 0 }
    }

    /// Sends a copy of the entry at this offset; returns whether it was appended.
    async fn send(sink: &mut ExactlyOnceSink, log: &MemoryLog, offset: u64) -> bool {
        let append_time = Timestamp::from_micros(1);
        let from = CopyOrigin { partition: FROM, position: position(offset), append_time };
        sink.send(log, from, SchemaVersion(1), EntryBody::Heartbeat).await.unwrap()
    }

    #[tokio::test]
    async fn sink_takes_each_copy_once_and_fences_the_overtaken_copier() {
        let log = MemoryLog::new(Arc::new(SystemClock));
        log.create(AT.store, PartitionCount(1)).await.unwrap();
        open_log(&log, &SeededEntropy::new(1), AT).await.unwrap();
        let mut first = ExactlyOnceSink::find(&log, AT).await.unwrap();
        let mut second = ExactlyOnceSink::find(&log, AT).await.unwrap();
        assert!(send(&mut first, &log, 4).await);
        assert!(!send(&mut first, &log, 4).await);
        // The second copier does not know the first copy, so replicas skip its entry.
        assert!(send(&mut second, &log, 5).await);
        first.read_back(&log).await.unwrap();
        second.read_back(&log).await.unwrap();
        assert!(!first.is_fenced() && second.is_fenced());
        let restarted = ExactlyOnceSink::find(&log, AT).await.unwrap();
        assert_eq!(restarted.sent(FROM), Some(position(4)));
        let progress = first.progress().clone();
        let sink = ExactlyOnceSink::resume(&log, AT, progress).await.unwrap();
        assert_eq!(sink.progress(), restarted.progress());
    }
}
