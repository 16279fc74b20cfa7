//! The embedded reader: an in-process replica of some or all partitions of a store.
//!
//! The replica is that of `forebay-replica`, over an index in the memory of the process: a task per
//! partition (the *tail*) follows the partition's log and applies its entries to the index; reads
//! use only the index. `tools/docs/src/semantics.md` 5 defines what a read promises: *absent* only
//! after catch-up, a position that never falls, read your writes, a bound on age, the latest. The
//! modules divide the work:
//!
//! - `reader`, `read` and `local_reads` are the calls;
//! - `versions` follows the store versions, `followed_version` is one of them;
//! - `store_lookup`, `local_open` and `version_opener` open a version;
//! - `index_storage` is the index as the storage of a replica;
//! - `standby` waits for a shared copy that another reader owns;
//! - `checkpoint_directory`, `store_note` and `memory_limit` are the host's files and memory.
//!
//! `verify` compares a reader with a shard, a snapshot or a checkpoint, or two of these with each
//! other.
//!
//! `memory` is a reader without a log, for tests of programs that read.
//!
//! The log, the catalog, the snapshots, the clock, randomness, the disk and the way to append a
//! barrier are arguments. The reader opens no socket, and no file other than its checkpoints and
//! the image of a snapshot that it bootstraps from.

mod checkpoint_directory;
mod followed_version;
mod index_storage;
mod local_open;
mod local_reads;
mod memory;
mod memory_limit;
mod options;
mod reader;
mod reads;
mod standby;
mod store_lookup;
mod store_note;
mod verify;
mod version_opener;
mod versions;

pub use forebay_core::replica_state::Phase;
pub use forebay_index::DocumentKey;
pub use forebay_replica::{
    Barriers, CatchUp, CheckpointCounts, Counts, LogBarriers, OnSchemaChange, PartitionFilter,
    PartitionStatus, ReadOptions, ReaderStatus, RebuildProgress, SnapshotDownload,
};
pub use local_reads::ReaderView;
pub use memory::{MemoryReader, SimulatedState};
pub use options::{CheckpointOptions, ReaderOptions, ReaderParts};
pub use reader::{Reader, ReaderMetrics};
pub use verify::{
    DifferenceKind, DigestScan, OfflineCopy, ReaderCopy, ShardCopy, StartScan, Verification,
    VerifiedCopy, VerifyLog, verify,
};
