//! The settings of a replicator process.

use clap::Parser;
use forebay_core::Result;
use forebay_runtime::{
    CopySettings, DataSettings, ProcessSettings, ShardSettings, SnapshotSettings,
};
use forebay_shard::{Resources, ShardDirectory};
use forebay_shard_replica::shard_resources;

/// Name of the program.
pub const PROGRAM: &str = "forebay-replicator";
/// Folder of the shards in the data folder.
const SHARDS: &str = "shards";

/// Serves ordered reads, outcomes and the change stream; appends heartbeats and dead letters.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7072")))]
pub struct ReplicatorSettings {
    /// Settings of every process.
    #[command(flatten)]
    pub process: ProcessSettings,
    /// Folder of the shards.
    #[command(flatten)]
    pub data: DataSettings,
    /// Resources of the shards.
    #[command(flatten)]
    shards: ShardSettings,
    /// Limit on copies of shards.
    #[command(flatten)]
    pub copies: CopySettings,
    /// Folder of snapshots, from which shards bootstrap.
    #[command(flatten)]
    pub snapshots: SnapshotSettings,
}

impl ReplicatorSettings {
    /// Returns the directory of the shards.
    ///
    /// # Errors
    /// As [`shard_resources`].
    pub fn shards(&self) -> Result<ShardDirectory> {
        Ok(shard_directory(&self.data, shard_resources(&self.shards)?))
    }
}

/// Returns the directory of a replicator's shards.
pub fn shard_directory(data: &DataSettings, resources: Resources) -> ShardDirectory {
    ShardDirectory::new(data.data_dir.join(SHARDS), resources)
}
