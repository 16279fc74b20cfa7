//! The settings of a features service process.

use clap::Parser;
use forebay_core::Result;
use forebay_runtime::{
    DataSettings, ExportSettings, ProcessSettings, ShardSettings, SnapshotSettings, SqlSettings,
};
use forebay_shard_replica::shard_resources;

use crate::parts::FeatureShards;

/// Name of the program.
pub const PROGRAM: &str = "forebay-features";

/// Maintains feature views; stores, selects and exports the events of streams.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7074")))]
pub struct FeatureSettings {
    /// Settings of every process.
    #[command(flatten)]
    pub process: ProcessSettings,
    /// Folder of the shards.
    #[command(flatten)]
    pub data: DataSettings,
    /// Resources of the shards.
    #[command(flatten)]
    shards: ShardSettings,
    /// Resources of SQL statements.
    #[command(flatten)]
    sql: SqlSettings,
    /// Folder of snapshots, from which shards bootstrap.
    #[command(flatten)]
    pub snapshots: SnapshotSettings,
    /// Folder of exported streams.
    #[command(flatten)]
    exports: ExportSettings,
}

impl FeatureSettings {
    /// Returns the storage of the service.
    ///
    /// # Errors
    /// As [`shard_resources`] and [`FeatureShards::with_settings`].
    pub fn shards(&self) -> Result<FeatureShards> {
        let resources = shard_resources(&self.shards)?;
        FeatureShards::with_settings(&self.data, resources, &self.sql, &self.exports)
    }
}
