//! Configuration: defaults, then one TOML file, then the environment and flags. Unknown keys are
//! errors that name the key.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::limits::{
    ROLLBACK_WINDOW_S, SHARD_MEMORY_MIB, SNAPSHOT_EVERY_S, SNAPSHOTS_KEPT, SQL_MEMORY_MIB,
};
use forebay_core::{Error, Result};
use forebay_features_service::FeatureShards;
use forebay_serve::KafkaSettings;
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot::SnapshotStore;
use forebay_snapshot_service::{SnapshotOptions, backup_store};
use serde::{Deserialize, Serialize};

/// Durability of acknowledged writes in the embedded log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Survive a power cut: sync every group of writes before acknowledging it.
    #[default]
    Fsync,
    /// Survive a crash of the process only: the operating system writes to disk later.
    Buffered,
}

/// The change log of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// Files of this process.
    #[default]
    Embedded,
    /// Kafka topics; one broker is enough.
    Kafka,
}

/// The settings of `forebayd dev`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DevConfig {
    /// Address to listen on; loopback only.
    pub listen: SocketAddr,
    /// Change log of the node.
    pub log: LogKind,
    /// Folder of the embedded log and the shards.
    pub data_dir: PathBuf,
    /// Memory for cached blocks and write buffers of the shards, in MiB.
    pub shard_memory_mib: u32,
    /// Memory of all SQL statements together, in MiB.
    pub sql_memory_mib: u32,
    /// Whether shards bypass the page cache of the operating system.
    pub direct_io: bool,
    /// Durability of acknowledged writes in the embedded log.
    pub durability: Durability,
    /// `HOST:PORT` of some Kafka brokers; these brokers name the others.
    pub brokers: Vec<String>,
    /// Prefix of the node's topics: `PREFIX.control`, `PREFIX.store-7`.
    pub topic_prefix: String,
    /// URL of the folder of snapshots: `file:///…`, `s3://…`, `az://…` or `gs://…`; `None` disables
    /// snapshots.
    pub snapshots: Option<String>,
    /// URL of the folder of backups, a folder of its own; `None` disables backups and restores.
    pub backups: Option<String>,
    /// URL of the folder of exported streams, a folder of its own; `None` disables exports.
    pub exports: Option<String>,
    /// Interval between two snapshots of a partition, in seconds.
    pub snapshot_every_s: u64,
    /// Number of retained snapshots of a partition.
    pub snapshots_kept: usize,
    /// Time for which the previous live version of a store is retained for a rollback, in seconds.
    pub rollback_window_s: u64,
}

impl Default for DevConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            log: LogKind::default(),
            data_dir: PathBuf::from("forebay-data"),
            shard_memory_mib: SHARD_MEMORY_MIB,
            sql_memory_mib: SQL_MEMORY_MIB,
            direct_io: false,
            durability: Durability::default(),
            brokers: Vec::new(),
            topic_prefix: "forebay".to_owned(),
            snapshots: None,
            backups: None,
            exports: None,
            snapshot_every_s: SNAPSHOT_EVERY_S,
            snapshots_kept: SNAPSHOTS_KEPT,
            rollback_window_s: ROLLBACK_WINDOW_S,
        }
    }
}

impl DevConfig {
    /// Reads a TOML file; the defaults apply to missing keys.
    ///
    /// # Errors
    /// `InvalidArgument`, with the file, the line and the key.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::invalid_argument(format!("could not read {}: {error}", path.display()))
        })?;
        toml::from_str(&text)
            .map_err(|error| Error::invalid_argument(format!("{}: {error}", path.display())))
    }

    /// Returns the resources that all shards share, including those of feature views and streams.
    ///
    /// # Errors
    /// `LimitExceeded` for too little memory.
    pub fn shard_resources(&self) -> Result<Resources> {
        let resources = Resources::new((self.shard_memory_mib as usize) << 20)?;
        Ok(resources.with_direct_io(self.direct_io))
    }

    /// Returns the directory of the node's shards.
    pub fn shards(&self, resources: &Resources) -> ShardDirectory {
        ShardDirectory::new(self.data_dir.join("shards"), resources.clone())
    }

    /// Returns the storage of feature views and streams.
    ///
    /// # Errors
    /// `InvalidArgument` if the URL of exports names no folder.
    pub fn features(&self, resources: &Resources) -> Result<FeatureShards> {
        let shards = FeatureShards::new(self.data_dir.join("features"), resources.clone());
        let exports = self.exports.as_deref().map(SnapshotStore::open).transpose()?;
        Ok(shards.with_sql_memory_mib(self.sql_memory_mib).with_exports(exports))
    }

    /// Returns the storage of snapshots, if configured.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that names no folder.
    pub fn snapshot_store(&self) -> Result<Option<SnapshotStore>> {
        self.snapshots.as_deref().map(SnapshotStore::open).transpose()
    }

    /// Returns the storage of backups, if configured.
    ///
    /// # Errors
    /// As [`backup_store`].
    pub fn backup_store(&self) -> Result<Option<SnapshotStore>> {
        backup_store(self.backups.as_deref(), self.snapshots.as_deref())
    }

    /// Returns the options of the snapshots.
    ///
    /// # Errors
    /// `InvalidArgument` if the interval or the number of retained snapshots is 0.
    pub fn snapshot_options(&self) -> Result<SnapshotOptions> {
        let every = Duration::from_secs(self.snapshot_every_s);
        let rollback_window = Duration::from_secs(self.rollback_window_s);
        let options = SnapshotOptions::new(every, self.snapshots_kept)?;
        Ok(SnapshotOptions { rollback_window, ..options })
    }

    /// Checks that the settings are safe to run with.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the setting to change.
    pub fn check(&self) -> Result<()> {
        forebay_serve::check_loopback("forebayd dev", self.listen)?;
        self.snapshot_store()?;
        self.backup_store()?;
        self.snapshot_options()?;
        match self.log {
            LogKind::Embedded => self.check_no_brokers(),
            LogKind::Kafka => self.check_kafka(),
        }
    }

    fn check_no_brokers(&self) -> Result<()> {
        if self.brokers.is_empty() {
            return Ok(());
        }
        let message =
            "brokers are set, but the log is embedded; set log to kafka too, or set no brokers";
        Err(Error::invalid_argument(message))
    }

    fn check_kafka(&self) -> Result<()> {
        if self.brokers.is_empty() {
            let message = "the log is kafka, but no brokers are set; set brokers to HOST:PORT of \
                one of them, such as 127.0.0.1:9092 (infra/kafka shows how to start one)";
            return Err(Error::invalid_argument(message));
        }
        self.kafka().options().map(|_| ())
    }

    /// Returns the Kafka settings, for development.
    pub fn kafka(&self) -> KafkaSettings {
        let (brokers, topic_prefix) = (self.brokers.clone(), self.topic_prefix.clone());
        KafkaSettings { brokers, topic_prefix, dev: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_errors_that_name_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "listen = \"127.0.0.1:1\"\ndata_dri = \"x\"\n").unwrap();
        let error = DevConfig::from_file(file.path()).unwrap_err().to_string();
        assert!(error.contains("data_dri") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn a_file_overrides_only_what_it_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "durability = \"buffered\"\n").unwrap();
        let config = DevConfig::from_file(file.path()).unwrap();
        let expected = DevConfig { durability: Durability::Buffered, ..DevConfig::default() };
        assert_eq!(config, expected);
    }

    #[test]
    fn beyond_loopback_is_refused() {
        let listen = SocketAddr::from(([0, 0, 0, 0], 7070));
        let error = DevConfig { listen, ..DevConfig::default() }.check().unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:7070"));
    }

    #[test]
    fn kafka_needs_brokers_and_the_embedded_log_has_none() {
        let check = |text: &str| {
            let config: DevConfig = toml::from_str(text).unwrap();
            config.check().map_err(|error| error.to_string())
        };
        check("log = \"kafka\"\nbrokers = [\"127.0.0.1:9092\", \"b-2.zone:9092\"]").unwrap();
        for (text, word) in [
            ("log = \"kafka\"", "no brokers are set"),
            ("brokers = [\"127.0.0.1:9092\"]", "set log to kafka"),
            ("log = \"kafka\"\nbrokers = [\"127.0.0.1\"]", "`127.0.0.1` is no HOST:PORT"),
            ("log = \"kafka\"\nbrokers = [\"a:1,b:2\"]", "is no HOST:PORT"),
            ("log = \"kafka\"\nbrokers = [\"a:1\"]\ntopic_prefix = \"a b\"", "topic prefix"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains("InvalidArgument") && error.contains(word), "{error}");
        }
    }
}
