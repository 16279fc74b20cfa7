//! Manifests of backups. A backup names the snapshot of each partition of a store, and the log of
//! the partition since the previous backup. Format and rules: `proto/spec/backup.md`. Decoders
//! accept any bytes.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::replica_state::Progress;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_wire::v1;

use crate::chunk::ChunkId;
use crate::frame::Frame;
use crate::manifest::{SnapshotName, of_wire, to_wire};

const FRAME: Frame =
    Frame { magic: u32::from_le_bytes(*b"FBBK"), description: "the manifest of a backup" };

/// Name of a backup's object; later backups have greater names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackupName {
    /// Start time of the backup by the clock of its taker; always greater than the time of every
    /// existing backup.
    pub taken_at: Timestamp,
    /// Id of the backup.
    pub id: u64,
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:016x}", self.taken_at.as_micros().max(0), self.id)
    }
}

impl BackupName {
    /// Parses a name; returns `None` for any other text.
    pub fn parse(name: &str) -> Option<Self> {
        let (time, id) = name.split_once('-')?;
        let taken_at = Timestamp::from_micros(time.parse().ok()?);
        let parsed = Self { taken_at, id: u64::from_str_radix(id, 16).ok()? };
        Some(parsed).filter(|parsed| parsed.to_string() == name)
    }
}

/// A backup of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// Name of the backup.
    pub name: BackupName,
    /// Newest earlier backup of a store of this name, even if it was another store.
    pub before: Option<BackupName>,
    /// Id of the store.
    pub store: StoreId,
    /// All definitions of the store, by ascending version.
    pub definitions: Vec<Definition>,
    /// Partitions in ascending order.
    pub partitions: Vec<PartitionBackup>,
}

/// A partition in a backup.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionBackup {
    /// Name of the snapshot.
    pub snapshot: SnapshotName,
    /// Progress of the snapshot.
    pub progress: Progress,
    /// Log from the previous backup up to this one; empty if unknown.
    pub log: Vec<LogSegment>,
}

/// Records of a log, in one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSegment {
    /// Offsets that the segment covers without gaps.
    pub offsets: Range<Offset>,
    /// Chunk with the records.
    pub chunk: ChunkId,
}

impl Backup {
    /// Returns the newest definition.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub fn definition(&self) -> Result<&Definition> {
        self.definitions.last().ok_or_else(|| FRAME.damaged("the definition is missing"))
    }

    /// Returns the number of partitions.
    pub fn partition_count(&self) -> PartitionCount {
        PartitionCount(self.partitions.len() as u32)
    }

    /// Returns the reference to a partition of the store.
    pub fn at(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.store, partition }
    }

    /// Returns the time up to which the backup contains all entries of every partition.
    pub fn whole_until(&self) -> Timestamp {
        let times = self.partitions.iter().map(|partition| partition.progress.partition_time);
        times.min().unwrap_or(Timestamp::MIN)
    }

    /// Returns whether the logs in this backup connect it to the previous one.
    pub fn follows(&self, before: &Self) -> bool {
        let partitions = before.partitions.iter().zip(&self.partitions);
        self.store == before.store
            && self.partitions.len() == before.partitions.len()
            && partitions.into_iter().all(|(before, after)| after.follows(before))
    }

    /// Encodes the manifest.
    ///
    /// # Errors
    /// `LimitExceeded` if the manifest is too large to be read.
    pub fn encode(&self) -> Result<Bytes> {
        let segment = |segment: &LogSegment| v1::LogSegment {
            from: segment.offsets.start.0,
            to: segment.offsets.end.0,
            chunk: Some(segment.chunk.into()),
        };
        let partition = |partition: &PartitionBackup| v1::BackupPartition {
            snapshot: partition.snapshot.to_string(),
            at: Some(to_wire(&partition.progress)),
            log: partition.log.iter().map(segment).collect(),
        };
        FRAME.encode(&v1::BackupManifest {
            backup_id: self.name.id,
            store_id: self.store.0,
            store: self.definition()?.name.clone(),
            taken_at_us: self.name.taken_at.as_micros(),
            definitions: self.definitions.iter().map(Into::into).collect(),
            partitions: self.partitions.iter().map(partition).collect(),
            before: self.before.map(|before| before.to_string()),
        })
    }

    /// Decodes a manifest.
    ///
    /// # Errors
    /// `Unsupported` for a format that this build does not know; `Corrupt` for damage.
    pub fn decode(object: &[u8]) -> Result<Self> {
        let wire: v1::BackupManifest = FRAME.decode(object)?;
        let definitions = wire.definitions.into_iter().map(Definition::try_from);
        let taken_at = Timestamp::from_micros(wire.taken_at_us);
        let before = |name: &String| {
            BackupName::parse(name)
                .ok_or_else(|| FRAME.damaged("the manifest names no previous backup"))
        };
        let backup = Self {
            name: BackupName { taken_at, id: wire.backup_id },
            before: wire.before.as_ref().map(before).transpose()?,
            store: StoreId(wire.store_id),
            definitions: definitions.collect::<Result<_>>()?,
            partitions: wire.partitions.iter().map(partition_of).collect::<Result<_>>()?,
        };
        backup.check(&wire.store)?;
        Ok(backup)
    }

    fn check(&self, store: &str) -> Result<()> {
        let newest = self.definition()?;
        let versions: Vec<_> =
            self.definitions.iter().map(|definition| definition.version).collect();
        let is_ascending = versions.windows(2).all(|pair| pair[0] < pair[1]);
        let is_of_store = |definition: &Definition| definition.store == self.store;
        if !is_ascending || !self.definitions.iter().all(is_of_store) || newest.name != store {
            return Err(FRAME.damaged("the definitions are of another store, or out of order"));
        }
        if self.before.is_some_and(|before| before >= self.name) {
            return Err(FRAME.damaged("the name of the previous backup is invalid"));
        }
        if newest.partitions != self.partition_count() {
            return Err(FRAME.damaged("the partitions are not the partitions of the store"));
        }
        self.partitions.iter().try_for_each(PartitionBackup::check)
    }
}

impl PartitionBackup {
    /// Returns whether the log connects this backup of the partition to an earlier one.
    pub fn follows(&self, before: &Self) -> bool {
        let (from, to) = (before.progress.offset_applied, self.progress.offset_applied);
        let begins = self.log.first().map_or(to, |segment| segment.offsets.start);
        self.snapshot.log_id == before.snapshot.log_id && begins == from
    }

    fn check(&self) -> Result<()> {
        let mut last_end = None;
        for LogSegment { offsets, .. } in &self.log {
            if offsets.start >= offsets.end
                || last_end.is_some_and(|last_end| last_end != offsets.start)
            {
                return Err(FRAME.damaged("the log has gaps"));
            }
            last_end = Some(offsets.end);
        }
        if last_end.is_some_and(|last_end| last_end != self.progress.offset_applied) {
            return Err(FRAME.damaged("the log ends at another offset than the backup"));
        }
        Ok(())
    }
}

fn partition_of(wire: &v1::BackupPartition) -> Result<PartitionBackup> {
    let segment = |wire: &v1::LogSegment| {
        let chunk =
            wire.chunk.as_ref().ok_or_else(|| FRAME.damaged("a log segment has no bytes"))?;
        let offsets = Offset(wire.from)..Offset(wire.to);
        Ok(LogSegment { offsets, chunk: chunk.try_into()? })
    };
    Ok(PartitionBackup {
        snapshot: wire.snapshot.parse().map_err(|error: Error| FRAME.damaged(error.message()))?,
        progress: of_wire(wire.at.as_ref())?,
        log: wire.log.iter().map(segment).collect::<Result<_>>()?,
    })
}
