//! The embedded reader: an in-process replica of some or all partitions of a store.
//!
//! A task per partition (the *tail*) follows the partition's log and applies its entries to the
//! index; reads use only the index. `tools/docs/src/semantics.md` 5 defines what a read promises:
//! *absent* only after catch-up, a position that never falls, read your writes, a bound on age, the
//! latest. The modules divide the work:
//!
//! - `tail` and `generation` apply entries;
//! - `connect` checks the log;
//! - `progress` holds what the tail publishes;
//! - `age`, `wait` and `barrier` serve the options of a read;
//! - `ready` and `status` serve operators;
//! - `checkpoint` writes and restores local checkpoints;
//! - `bootstrap` starts a replica from a snapshot.
//!
//! `verify` compares a reader with a shard, a snapshot or a checkpoint, or two of these with each
//! other.
//!
//! `memory` is a reader without a log, for tests of programs that read.
//!
//! The log, the catalog, the snapshots, the clock, randomness, the disk and the way to append a
//! barrier are arguments. The reader opens no socket, and no file other than its checkpoints and
//! the image of a snapshot that it bootstraps from.

mod age;
mod arriving;
mod at_rest;
mod barrier;
mod begin;
mod bootstrap;
mod budget;
mod callback;
mod checkpoint;
mod closing;
mod connect;
mod follow;
mod generation;
mod memory;
mod metrics;
mod options;
mod partition;
mod progress;
mod read;
mod reader;
mod ready;
mod shared;
mod status;
mod storage;
mod store_follower;
mod tail;
mod verify;
mod versions;
mod wait;

pub use barrier::{Barriers, LogBarriers};
pub use checkpoint::CheckpointOptions;
pub use memory::{Forced, MemoryReader};
pub use metrics::ReaderMetrics;
pub use options::{OnSkipped, PartitionFilter, ReaderOptions, ReaderParts, Skipped};
pub use progress::{CatchUp, CheckpointCounts, Counts, Fetching, Phase, Rebuilding};
pub use read::Read;
pub use reader::Reader;
pub use shared::OnSchemaChange;
pub use status::{PartitionStatus, ReaderStatus};
pub use storage::{CopyWriter, OpenedCopy, Storage};
pub use store_follower::StoreFollower;
pub use verify::{
    BeginPass, Difference, Pass, PastCopy, ReaderCopy, ShardCopy, Verified, VerifiedCopy,
    VerifyLog, verify,
};
