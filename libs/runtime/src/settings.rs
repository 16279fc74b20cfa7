//! Groups of settings that several programs share. A program flattens the groups that it needs, so
//! a setting has the same flag, the same variable and the same default everywhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use forebay_core::Result;
use forebay_core::limits::{
    ROLLBACK_WINDOW_S, SHARD_MEMORY_MIB, SNAPSHOT_EVERY_S, SNAPSHOTS_KEPT, SQL_MEMORY_MIB,
};
use forebay_snapshot::SnapshotStore;

/// The address of a process. Each program sets a default of its own, by `mut_arg`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ListenSettings {
    /// Address to listen on; loopback only. Port 0 picks a free port.
    // A required argument stays required even if a program sets a default.
    #[arg(long, env = "FOREBAY_LISTEN", value_name = "HOST:PORT", required = false)]
    pub listen: SocketAddr,
}

/// The data folder of a process.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct DataSettings {
    /// Folder of the data of this process.
    #[arg(long, env = "FOREBAY_DATA_DIR", value_name = "DIR", default_value = "forebay-data")]
    pub data_dir: PathBuf,
}

/// The resources of the shards of a process.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ShardSettings {
    /// Memory for cached blocks and write buffers of the shards, such as 256MiB.
    #[arg(
        long,
        env = "FOREBAY_SHARD_MEMORY",
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "256MiB",
    )]
    pub shard_memory: ByteSize,
    /// Bypass the page cache of the operating system when reading and writing shards.
    #[arg(long, env = "FOREBAY_DIRECT_IO")]
    pub direct_io: bool,
}

/// The resources of SQL statements.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct SqlSettings {
    /// Memory of all SQL statements together, such as 256MiB.
    #[arg(
        long,
        env = "FOREBAY_SQL_MEMORY",
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "256MiB",
    )]
    pub sql_memory: ByteSize,
}

/// The folder of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct SnapshotSettings {
    /// Folder of the snapshots, from which replicas bootstrap: file:///…, s3://…, az://… or gs://….
    #[arg(long, env = "FOREBAY_SNAPSHOTS", value_name = "URL")]
    pub snapshots: Option<String>,
}

/// The schedule and the retention of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct SnapshotSchedule {
    /// Interval between two snapshots of a partition, such as 15m.
    #[arg(long, env = "FOREBAY_SNAPSHOT_INTERVAL", value_name = "DURATION", default_value = "15m")]
    pub snapshot_interval: humantime::Duration,
    /// Number of retained snapshots of a partition.
    #[arg(
        long,
        env = "FOREBAY_SNAPSHOT_RETENTION",
        value_name = "SNAPSHOTS",
        default_value_t = SNAPSHOTS_KEPT,
    )]
    pub snapshot_retention: usize,
    /// Time to retain the previous version of a store for a rollback, such as 24h.
    #[arg(long, env = "FOREBAY_ROLLBACK_WINDOW", value_name = "DURATION", default_value = "24h")]
    pub rollback_window: humantime::Duration,
}

/// The limit on copies of shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct CopySettings {
    /// Maximum size of all copies of shards per second, such as 50MiB [default: no limit].
    #[arg(long, env = "FOREBAY_COPY_RATE", value_name = "SIZE", value_parser = parse_size)]
    pub copy_rate: Option<ByteSize>,
}

/// The folder of exports.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ExportSettings {
    /// Folder for exported streams, separate from all other data; without it, exports are disabled.
    #[arg(long, env = "FOREBAY_EXPORTS", value_name = "URL")]
    pub exports: Option<String>,
}

impl Default for DataSettings {
    fn default() -> Self {
        Self { data_dir: PathBuf::from("forebay-data") }
    }
}

impl Default for ShardSettings {
    fn default() -> Self {
        Self { shard_memory: ByteSize::mib(SHARD_MEMORY_MIB.into()), direct_io: false }
    }
}

impl Default for SqlSettings {
    fn default() -> Self {
        Self { sql_memory: ByteSize::mib(SQL_MEMORY_MIB.into()) }
    }
}

impl Default for SnapshotSchedule {
    fn default() -> Self {
        Self {
            snapshot_interval: Duration::from_secs(SNAPSHOT_EVERY_S).into(),
            snapshot_retention: SNAPSHOTS_KEPT,
            rollback_window: Duration::from_secs(ROLLBACK_WINDOW_S).into(),
        }
    }
}

impl ShardSettings {
    /// Returns the memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        bytes_of(self.shard_memory)
    }
}

impl SqlSettings {
    /// Returns the memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        bytes_of(self.sql_memory)
    }
}

impl CopySettings {
    /// Returns the limit in bytes per second; 0: no limit.
    pub fn bytes_per_second(&self) -> u64 {
        self.copy_rate.map_or(0, |rate| rate.as_u64())
    }
}

impl SnapshotSettings {
    /// Opens the folder, if one is set.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that names no folder.
    pub fn open(&self) -> Result<Option<SnapshotStore>> {
        self.snapshots.as_deref().map(SnapshotStore::open).transpose()
    }
}

impl ExportSettings {
    /// Opens the folder, if one is set.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that names no folder.
    pub fn open(&self) -> Result<Option<SnapshotStore>> {
        self.exports.as_deref().map(SnapshotStore::open).transpose()
    }
}

fn bytes_of(size: ByteSize) -> usize {
    usize::try_from(size.as_u64()).unwrap_or(usize::MAX)
}

/// Parses a size such as `256MiB`, for clap.
///
/// # Errors
/// A number without a unit is refused, with the way to write it; the unit is never guessed.
pub fn parse_size(text: &str) -> std::result::Result<ByteSize, String> {
    if text.trim().parse::<f64>().is_ok() {
        let text = text.trim();
        return Err(format!("the size has no unit; write {text}MiB, or another of B, KiB, GiB"));
    }
    text.parse()
        .map_err(|_| "the size is invalid; write a number and a unit, such as 256MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7070")))]
    struct TestSettings {
        #[command(flatten)]
        listen: ListenSettings,
        #[command(flatten)]
        data: DataSettings,
        #[command(flatten)]
        shards: ShardSettings,
        #[command(flatten)]
        sql: SqlSettings,
        #[command(flatten)]
        schedule: SnapshotSchedule,
    }

    fn refusal(argument: &str) -> String {
        TestSettings::try_parse_from(["test", argument]).err().unwrap().to_string()
    }

    #[test]
    fn flags_and_settings_in_code_have_the_same_defaults() {
        let all = TestSettings::try_parse_from(["test"]).unwrap();
        assert_eq!(all.listen.listen, SocketAddr::from(([127, 0, 0, 1], 7070)));
        assert_eq!(all.data, DataSettings::default());
        assert_eq!(all.shards, ShardSettings::default());
        assert_eq!(all.sql, SqlSettings::default());
        assert_eq!(all.schedule, SnapshotSchedule::default());
    }

    #[test]
    fn setting_values_carry_their_units() {
        let arguments = ["test", "--shard-memory=1.5GiB", "--snapshot-interval=1h 30m"];
        let all = TestSettings::try_parse_from(arguments).unwrap();
        assert_eq!(all.shards.shard_memory.as_u64(), 3 << 29);
        assert_eq!(*all.schedule.snapshot_interval, Duration::from_secs(90 * 60));
    }

    #[test]
    fn value_without_a_unit_is_refused_with_the_unit_to_write() {
        for argument in ["--shard-memory=256", "--sql-memory=64.5"] {
            let refusal = refusal(argument);
            assert!(refusal.contains("has no unit") && refusal.contains("MiB"), "{refusal}");
        }
        for argument in ["--snapshot-interval=900", "--rollback-window=86400"] {
            let refusal = refusal(argument);
            assert!(refusal.contains("time unit needed"), "{refusal}");
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused() {
        for argument in ["--shard-memory=much", "--shard-memory=-1MiB", "--shard-memory="] {
            assert!(refusal(argument).contains("such as 256MiB"), "{argument}");
        }
    }
}
