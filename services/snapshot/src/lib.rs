//! The snapshot service: maintains, for each partition, a verified snapshot in an object store, and
//! trims the partition's log to the retention of the store.
//!
//! The service reads the shards of replicators by the copy protocol, so no writer and no reader
//! waits for it, and reads the changes since the last snapshot from the log. Rules:
//! `proto/spec/snapshot.md`.

mod await_replica;
mod backup;
mod build;
mod context;
mod counts;
mod definitions;
mod new_store;
mod push;
mod repartition;
mod restore;
mod retention;
mod rollback;
mod scheduler;
mod service;
mod services;
mod settings;
mod version_admin;

pub use context::{BackupParts, PushParts, ReplicatorLocator, SnapshotOptions, SnapshotParts};
pub use counts::SnapshotCounts;
pub use push::{ChangedOutcome, ColumnNames, Format, Push, PushLimits, PushProgress, PushResult};
pub use restore::{PointInTime, RestoredStore};
pub use scheduler::Snapshots;
pub use services::SnapshotServices;
pub use settings::{PROGRAM, SnapshotFolders, SnapshotServiceSettings};
