//! The snapshot service: maintains, for each partition, a verified snapshot in an object store, and
//! trims the partition's log to the retention of the store.
//!
//! The service reads the shards of replicators by the copy protocol, so no writer and no reader
//! waits for it, and reads the changes since the last snapshot from the log. Rules:
//! `proto/spec/snapshot.md`.

mod backup;
mod build;
mod counts;
mod define;
mod keeper;
mod moves;
mod new_store;
mod new_version;
mod push;
mod restore;
mod rollback;
mod service;
mod source;
mod standing;

pub use backup::{BackupParts, backup_store};
pub use counts::SnapshotCounts;
pub use keeper::{SnapshotOptions, SnapshotParts, Snapshots};
pub use push::{
    ColumnNames, FlippedChange, Format, Push, PushLimits, PushParts, PushProgress, PushService,
    Pushed,
};
pub use restore::{PointInTime, RestoredStore};
pub use service::BackupService;
pub use source::FindReplicator;
