//! The state of a replica next to its documents, as plain data: progress, usage, phase, and the
//! cursor in the log. Replicas of every storage, images and snapshots share these types.

use crate::clock::Timestamp;
use crate::fold::PartitionState;
use crate::id::{Epoch, LogId, Offset, Position, SchemaVersion};

/// The phase of a partition: whether it may answer *absent*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The partition has not caught up yet: reads answer `Unavailable` unless partial answers are
    /// allowed.
    #[default]
    Bootstrapping = 0,
    /// The partition has caught up once and answers, with its age.
    Serving = 1,
    /// An invariant broke: reads answer `Internal` until the partition is rebuilt.
    Poisoned = 2,
}

impl Phase {
    /// Returns the phase of a word in shared memory; an unknown word is [`Self::Poisoned`].
    #[inline]
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Bootstrapping,
            1 => Self::Serving,
            _ => Self::Poisoned,
        }
    }

    /// Returns the phase's name in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bootstrapping => "bootstrapping",
            Self::Serving => "serving",
            Self::Poisoned => "poisoned",
        }
    }
}

/// The point in its history that a partition's documents are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Position of the last entry applied.
    pub position: Position,
    /// First offset not yet applied.
    pub offset_applied: Offset,
    /// Running maximum of append times.
    pub partition_time: Timestamp,
    /// Newest schema version that the partition has seen; 0 before the first.
    pub schema_version: SchemaVersion,
}

impl Progress {
    /// The state before the first entry.
    pub const START: Self = Self {
        position: Position { epoch: Epoch(0), offset: Offset(0), index_in_entry: 0 },
        offset_applied: Offset(0),
        partition_time: Timestamp::MIN,
        schema_version: SchemaVersion(0),
    };
}

impl From<&PartitionState> for Progress {
    fn from(state: &PartitionState) -> Self {
        Self {
            position: state.position,
            offset_applied: state.offset_applied,
            partition_time: state.partition_time,
            schema_version: state.schema_version,
        }
    }
}

/// The amount that a partition stores; expired documents count until they are reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionUsage {
    /// Number of documents.
    pub documents: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their rows.
    pub row_bytes: u64,
    /// Bytes of memory that the documents and their index take.
    pub memory_bytes: u64,
}

impl PartitionUsage {
    /// Adds a document.
    pub fn gain(&mut self, key_bytes: usize, row_bytes: usize) {
        self.documents += 1;
        self.key_bytes += key_bytes as u64;
        self.row_bytes += row_bytes as u64;
    }

    /// Removes a document. The counts saturate at 0, because an image may state less than it
    /// contains.
    pub fn lose(&mut self, key_bytes: usize, row_bytes: usize) {
        self.documents = self.documents.saturating_sub(1);
        self.key_bytes = self.key_bytes.saturating_sub(key_bytes as u64);
        self.row_bytes = self.row_bytes.saturating_sub(row_bytes as u64);
    }
}

/// The log and its clock, as the process that writes a replica last saw them: for a successor that
/// takes the replica over, and for other processes that read it and do not see the fold's state. A
/// shard stores only a part of these facts, because its head row holds the fold's state, too; see
/// [`crate::state_rows`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCursor {
    /// Id of the log.
    pub log_id: Option<LogId>,
    /// Append time of the last entry applied.
    pub append_time: Option<Timestamp>,
    /// Largest difference between the log's clock and the reader's, in microseconds.
    pub clock_error_us: Option<i64>,
    /// Start and end of the log when the copy was opened.
    pub opened: Option<(Offset, Offset)>,
    /// Number of drop-alls that were applied.
    pub drop_all_count: u32,
    /// Number of the copy, from 1; 0 before the first.
    pub copy: u32,
}

/// The state in which the previous owner left a replica; the new owner continues from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaState {
    /// The fold's state.
    pub state: PartitionState,
    /// The previous owner's cursor in the log.
    pub cursor: LogCursor,
    /// Whether reads are answered from the replica.
    pub phase: Phase,
}
