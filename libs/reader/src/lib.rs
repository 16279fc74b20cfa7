//! The embedded reader: a live copy of some or all partitions of a store, inside the process that
//! reads it.
//!
//! One task per partition follows its log and applies what it reads to the index; reads go to the
//! index alone. What a read promises (absent only after catch-up, a position that never falls, read
//! your writes, a bound on age, the latest) is `semantics.md` 5, and each promise has its file:
//! `tail` and `generation` apply, `connect` checks the log, `progress` is what the tail publishes,
//! `age`, `wait` and `barrier` are what reads ask for, `ready` and `status` are what operators ask
//! for, `checkpoint` is what a restart goes on from, and `bootstrap` what a copy begins with.
//!
//! `verify` compares a reader with a shard, a snapshot or a checkpoint, or two of those.
//!
//! `memory` is a reader without a log, for tests of programs that read.
//!
//! The log, the catalog, the snapshots, the clock, randomness, the disk and the way to append a
//! barrier are arguments; the reader opens no socket, and no file but those of its checkpoints and
//! of a snapshot that it begins with.

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
