//! The replica of a store's partitions: it follows the logs into a storage, and gives the promises
//! of `tools/docs/src/semantics.md` 5 about what reads see: *absent* only after catch-up, a
//! position that never falls, read your writes, a bound on age, the latest.
//!
//! [`StoreReplica`] is the replica of a service, over the service's own [`Storage`]. The embedded
//! reader (`forebay-reader`) builds on the same parts, over an index in its process.
//!
//! Each layer imports only from itself and from the layers above it in this list. The imports
//! between the files have no circle.
//!
//! - *Rules*: `close_signal`, `age` (the bound on age), `readiness`, `connect` (the
//!   checks of a log), `barrier`, `read_options`, `options`.
//! - *State*: `progress` (what a tail publishes), `storage` (the traits of a storage),
//!   `memory_storage`, `partition_replica` (the fold's state and the writer of one partition),
//!   `quiesced_tasks` (work between two records), `partition`, `context` (what all parts of a
//!   replica share).
//! - *Files*: `checkpoint` (local files from which a restart resumes), `partial_file`, `bootstrap`
//!   (the start from a snapshot or a shard).
//! - *Calls*: `status`, `wait`.
//! - *Tasks*: `tail` (follows one partition), `store_replica`.
//!
//! The log, the catalog, the snapshots, the clock, randomness, the storage and the way to append a
//! barrier are arguments. A replica opens no socket, and no file other than its checkpoints and the
//! image of a snapshot that it bootstraps from.

mod age;
mod barrier;
mod bootstrap;
mod checkpoint;
mod close_signal;
mod connect;
mod context;
mod memory_storage;
mod options;
mod partial_file;
mod partition;
mod partition_replica;
mod progress;
mod quiesced_tasks;
mod read_options;
mod readiness;
mod status;
mod storage;
mod store_replica;
mod tail;
mod wait;

pub use age::{Freshness, check_bound};
pub use barrier::{Barriers, LogBarriers};
pub use checkpoint::{CheckpointFolder, Checkpoints, open_checkpoint, write_checkpoint};
pub use close_signal::{CloseSignal, TaskGuard, closed};
pub use connect::{LogConnection, connect, replica_backoff};
pub use context::{OnSchemaChange, ReplicaContext, SchemaChanges};
pub use memory_storage::MemoryStorage;
pub use options::{OnSkipped, PartitionFilter, ReplicaOptions, ReplicaParts, SkippedLogRecord};
pub use partition::{Partition, not_serving};
pub use partition_replica::{ApplyError, ApplyResult, PartitionReplica};
pub use progress::{
    CatchUp, CheckpointCounts, Counts, ProgressBoard, RebuildProgress, ReplicaProgress,
    ServedState, SnapshotDownload,
};
pub use quiesced_tasks::QuiescedTasks;
pub use read_options::{ReadOptions, ReadWait};
pub use readiness::Readiness;
pub use status::{PartitionStatus, ReaderStatus};
pub use storage::{MaintenanceWork, OpenedReplica, ReplicaWriter, Storage, VisitRow};
pub use store_replica::StoreReplica;
pub use tail::Tail;
