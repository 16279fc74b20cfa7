//! Snapshots of partitions in an object store. A snapshot consists of an image of the documents at
//! one position, the later changes as further layers, and a manifest that names both by their
//! hashes.
//!
//! The source of truth of a partition is its newest verified snapshot and the log after it.
//! Therefore a snapshot counts only after all of it was read back, and nothing is removed that a
//! snapshot that counts may need. A backup consists of a snapshot of each partition, and of the
//! logs since the previous backup. Formats and rules: `proto/spec/snapshot.md` and
//! `proto/spec/backup.md`.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use forebay_core::id::{PartitionId, PartitionRef, StoreId};
//! use forebay_snapshot::SnapshotStore;
//!
//! let folder = tempfile::tempdir().unwrap();
//! let snapshots = SnapshotStore::open(&format!("file://{}", folder.path().display()))?;
//! let at = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
//! assert!(snapshots.partition(at).newest(None).await?.is_none(), "none was built yet");
//! # Ok::<(), forebay_core::Error>(()) }).unwrap();
//! ```

mod backup;
mod backup_store;
mod build;
mod chunk;
mod delta;
mod error;
mod files;
mod frame;
mod gc;
mod image_state;
mod loaded_partition;
mod log_segment;
mod manifest;
mod partition;
mod point_in_time;
mod remote;
mod remote_export;
mod restore_chain;
mod store;
mod upload;
mod write_once_folder;
mod write_once_object;

pub use forebay_index::Image;

pub use backup::{Backup, BackupName, LogSegment, PartitionBackup};
pub use build::{BuiltImage, ImageBuilder};
pub use chunk::{ChunkHash, ChunkId, decode_chunk, encode_chunk};
pub use delta::{DeltaBlocks, WRITES_AT_ONCE, delta_rows, delta_writes};
pub use files::FoundFile;
pub use gc::GcStats;
pub use image_state::ImageState;
pub use loaded_partition::{LoadBase, LoadedPartition};
pub use log_segment::{KeptRecord, LogBlocks, kept_records};
pub use manifest::{BaseLayer, DeltaLayer, Manifest, SnapshotName};
pub use partition::{ListedSnapshot, PartitionSnapshots};
pub use point_in_time::{NewLog, PointInTimePartition};
pub use remote_export::{RemoteShardExport, ShardState};
pub use restore_chain::{RestoreChain, RestoreTarget};
pub use store::SnapshotStore;
pub use upload::{ChunkUpload, ImageUpload};
