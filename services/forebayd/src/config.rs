//! The settings of `forebayd dev`: flags, then the environment, then one TOML file, then defaults.

use std::path::PathBuf;

use forebay_core::{Error, Result};
use forebay_features_service::FeatureShards;
use forebay_replicator_service::shard_directory;
use forebay_runtime::{
    DataSettings, ExportSettings, KafkaSettings, ListenSettings, ShardSettings, SnapshotSchedule,
    SnapshotSettings, SqlSettings, check_loopback,
};
use forebay_shard::{Resources, ShardDirectory};
use forebay_shard_replica::shard_resources;
use forebay_snapshot_service::{SnapshotFolders, SnapshotOptions};

/// Durability of acknowledged writes in the embedded log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// Survive a power cut: sync every group of writes before acknowledging it.
    #[default]
    Fsync,
    /// Survive a crash of the process only: the operating system writes to disk later.
    Buffered,
}

/// The change log of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogKind {
    /// Files of this process.
    #[default]
    Embedded,
    /// Kafka topics; one broker is enough.
    Kafka,
}

/// Settings of `dev`; flags override the environment, which overrides the file.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7070")))]
pub struct DevSettings {
    /// TOML file with any of the settings below, with `_` for `-`: shard_memory = "256MiB".
    #[arg(long, env = "FOREBAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address of the node.
    #[command(flatten)]
    pub listen: ListenSettings,
    /// Change log of the node.
    #[arg(long, env = "FOREBAY_CHANGE_LOG", value_enum, default_value_t)]
    pub change_log: LogKind,
    /// Folder of the embedded log and the shards.
    #[command(flatten)]
    pub data: DataSettings,
    /// Resources of all shards.
    #[command(flatten)]
    pub shards: ShardSettings,
    /// Resources of SQL statements.
    #[command(flatten)]
    pub sql: SqlSettings,
    /// Durability of acknowledged writes in the embedded log.
    #[arg(long, env = "FOREBAY_DURABILITY", value_enum, default_value_t)]
    pub durability: Durability,
    /// Brokers of a log on Kafka.
    #[command(flatten)]
    pub kafka: KafkaSettings,
    /// Folder of snapshots; without it, snapshots are disabled.
    #[command(flatten)]
    pub snapshots: SnapshotSettings,
    /// Folder for backups, separate from the snapshots; without it, backups and restores are
    /// disabled.
    #[arg(long, env = "FOREBAY_BACKUPS", value_name = "URL")]
    pub backups: Option<String>,
    /// Folder of exported streams.
    #[command(flatten)]
    pub exports: ExportSettings,
    /// Schedule of the snapshots.
    #[command(flatten)]
    pub schedule: SnapshotSchedule,
}

impl Default for DevSettings {
    fn default() -> Self {
        Self {
            config: None,
            listen: ListenSettings { listen: ([127, 0, 0, 1], 7070).into() },
            change_log: LogKind::default(),
            data: DataSettings::default(),
            shards: ShardSettings::default(),
            sql: SqlSettings::default(),
            durability: Durability::default(),
            kafka: KafkaSettings::default(),
            snapshots: SnapshotSettings::default(),
            backups: None,
            exports: ExportSettings::default(),
            schedule: SnapshotSchedule::default(),
        }
    }
}

impl DevSettings {
    /// Returns the resources that all shards share, including those of feature views and streams.
    ///
    /// # Errors
    /// As [`shard_resources`].
    pub fn shard_resources(&self) -> Result<Resources> {
        shard_resources(&self.shards)
    }

    /// Returns the directory of the node's shards.
    pub fn shards(&self, resources: &Resources) -> ShardDirectory {
        shard_directory(&self.data, resources.clone())
    }

    /// Returns the storage of feature views and streams.
    ///
    /// # Errors
    /// `InvalidArgument` if the URL of exports names no folder.
    pub fn features(&self, resources: &Resources) -> Result<FeatureShards> {
        FeatureShards::with_settings(&self.data, resources.clone(), &self.sql, &self.exports)
    }

    /// Opens the folders of snapshots and backups, without a request; `None` if no folder of
    /// snapshots is configured.
    ///
    /// # Errors
    /// As [`SnapshotFolders::open`].
    pub fn snapshot_folders(&self) -> Result<Option<SnapshotFolders>> {
        SnapshotFolders::open(&self.snapshots, self.backups.as_deref())
    }

    /// Returns the options of the snapshots.
    ///
    /// # Errors
    /// `InvalidArgument` if the interval or the number of retained snapshots is 0.
    pub fn snapshot_options(&self) -> Result<SnapshotOptions> {
        SnapshotOptions::with_schedule(&self.schedule)
    }

    /// Checks that the settings are safe to run with.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the setting to change.
    pub fn check(&self) -> Result<()> {
        check_loopback("forebayd dev", self.listen.listen)?;
        self.snapshot_folders()?;
        self.snapshot_options()?;
        match self.change_log {
            LogKind::Embedded => self.check_no_brokers(),
            LogKind::Kafka => self.kafka.dev_options().map(|_| ()),
        }
    }

    fn check_no_brokers(&self) -> Result<()> {
        if self.kafka.brokers.is_empty() {
            return Ok(());
        }
        let message = "brokers are set, but the change log is embedded; set change_log to kafka \
            too, or set no brokers";
        Err(Error::invalid_argument(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_beyond_loopback_is_refused() {
        let listen = ListenSettings { listen: ([0, 0, 0, 0], 7070).into() };
        let error = DevSettings { listen, ..DevSettings::default() }.check().unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:7070"));
    }
}
