//! The `forebayd` command: one process that serves all of Forebay on loopback, and a client of
//! running nodes.

mod asked;
mod backup;
mod change_log;
mod copy;
mod dev;
mod push;
mod select;
mod sql;
mod training;
mod verify;
mod view;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_core::Result;
use forebayd::config::{DevConfig, Durability, LogKind};

/// Run Forebay in one process, or send a command to a running node.
#[derive(Parser)]
#[command(name = "forebayd", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all services of Forebay on loopback, for development.
    Dev(Settings),
    /// Copy a shard of a running replicator into a local data folder.
    Copy(copy::CopySettings),
    /// Take and list backups of stores, at a running node.
    Backup {
        #[command(subcommand)]
        command: backup::BackupCommand,
    },
    /// Restore a store from its backups as a new store, at a running node.
    Restore(backup::RestoreSettings),
    /// Bulk-load files as a new version of a store, or as a new store, at a running node.
    Push(push::PushSettings),
    /// List the versions of a store, make one live, or drop one.
    Versions {
        #[command(subcommand)]
        command: push::VersionsCommand,
    },
    /// Compare two copies of a store and print the documents that differ.
    Verify(verify::VerifySettings),
    /// Apply, describe, list, compare and drop feature views, at a running node.
    View {
        #[command(subcommand)]
        command: view::ViewCommand,
    },
    /// Print retained events of a stream, at a running node.
    Select(select::SelectSettings),
    /// Run an SQL statement over streams and their exports, at a running node.
    Sql(sql::SqlSettings),
    /// Export a stream to Parquet files, at a running node.
    Export(sql::ExportSettings),
    /// Join labels with the values that a feature view had at the labels' times, at a running node.
    TrainingSet(training::TrainingSettings),
    /// Check and print the configuration of `dev`.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check a configuration and print it.
    Check(Settings),
}

/// Settings of `dev`; flags and environment override the file, which overrides the defaults.
#[derive(clap::Args)]
struct Settings {
    /// TOML file with any of the settings below.
    #[arg(long, env = "FOREBAY_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on; loopback only. Port 0 picks a free port [default: 127.0.0.1:7070].
    #[arg(long, env = "FOREBAY_LISTEN")]
    listen: Option<SocketAddr>,
    /// Change log of the node [default: embedded].
    #[arg(long, env = "FOREBAY_CHANGE_LOG")]
    log: Option<LogKind>,
    /// Folder of the embedded log and the shards [default: forebay-data].
    #[arg(long, env = "FOREBAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Memory for cached blocks and write buffers of the shards, in MiB [default: 256].
    #[arg(long, env = "FOREBAY_SHARD_MEMORY_MIB")]
    shard_memory_mib: Option<u32>,
    /// Memory of all SQL statements together, in MiB [default: 256].
    #[arg(long, env = "FOREBAY_SQL_MEMORY_MIB")]
    sql_memory_mib: Option<u32>,
    /// Bypass the page cache of the operating system when reading and writing shards.
    #[arg(long, env = "FOREBAY_DIRECT_IO")]
    direct_io: bool,
    /// Durability of acknowledged writes in the embedded log [default: fsync].
    #[arg(long, env = "FOREBAY_DURABILITY")]
    durability: Option<Durability>,
    /// Addresses of some Kafka brokers, separated by commas.
    #[arg(long, env = "FOREBAY_BROKERS", value_delimiter = ',', value_name = "HOST:PORT")]
    brokers: Option<Vec<String>>,
    /// Prefix of the names of this node's Kafka topics [default: forebay].
    #[arg(long, env = "FOREBAY_TOPIC_PREFIX")]
    topic_prefix: Option<String>,
    /// Folder for snapshots: file:///…, s3://…, az://… or gs://…; without it, snapshots are
    /// disabled.
    #[arg(long, env = "FOREBAY_SNAPSHOTS", value_name = "URL")]
    snapshots: Option<String>,
    /// Folder for backups, separate from the snapshots; without it, backups and restores are
    /// disabled.
    #[arg(long, env = "FOREBAY_BACKUPS", value_name = "URL")]
    backups: Option<String>,
    /// Folder for exported streams, separate from all other data; without it, exports are disabled.
    #[arg(long, env = "FOREBAY_EXPORTS", value_name = "URL")]
    exports: Option<String>,
    /// Interval between two snapshots of a partition, in seconds [default: 900].
    #[arg(long, env = "FOREBAY_SNAPSHOT_EVERY_S")]
    snapshot_every_s: Option<u64>,
    /// Number of retained snapshots of a partition [default: 8].
    #[arg(long, env = "FOREBAY_SNAPSHOTS_KEPT")]
    snapshots_kept: Option<usize>,
    /// Time to retain the previous version of a store for a rollback, in seconds [default: 86400].
    #[arg(long, env = "FOREBAY_ROLLBACK_WINDOW_S")]
    rollback_window_s: Option<u64>,
}

impl Settings {
    fn resolve(self) -> Result<DevConfig> {
        let mut config = match &self.config {
            Some(path) => DevConfig::from_file(path)?,
            None => DevConfig::default(),
        };
        config.listen = self.listen.unwrap_or(config.listen);
        config.data_dir = self.data_dir.unwrap_or(config.data_dir);
        config.sql_memory_mib = self.sql_memory_mib.unwrap_or(config.sql_memory_mib);
        config.shard_memory_mib = self.shard_memory_mib.unwrap_or(config.shard_memory_mib);
        config.direct_io |= self.direct_io;
        config.durability = self.durability.unwrap_or(config.durability);
        config.log = self.log.unwrap_or(config.log);
        config.brokers = self.brokers.unwrap_or(config.brokers);
        config.topic_prefix = self.topic_prefix.unwrap_or(config.topic_prefix);
        config.snapshots = self.snapshots.or(config.snapshots);
        config.backups = self.backups.or(config.backups);
        config.exports = self.exports.or(config.exports);
        config.snapshot_every_s = self.snapshot_every_s.unwrap_or(config.snapshot_every_s);
        config.snapshots_kept = self.snapshots_kept.unwrap_or(config.snapshots_kept);
        config.rollback_window_s = self.rollback_window_s.unwrap_or(config.rollback_window_s);
        config.check()?;
        Ok(config)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .init();
    let result = match cli.command {
        Command::Dev(settings) => settings.resolve().and_then(dev::run),
        Command::Copy(settings) => copy::run(settings),
        Command::Backup { command } => backup::run(command),
        Command::Restore(settings) => backup::run_restore(settings),
        Command::Push(settings) => push::run(settings),
        Command::Versions { command } => push::run_versions(command),
        Command::Verify(settings) => verify::run(settings),
        Command::View { command } => view::run(command),
        Command::Select(settings) => select::run(settings),
        Command::Sql(settings) => sql::run(settings),
        Command::Export(settings) => sql::run_export(settings),
        Command::TrainingSet(settings) => training::run(settings),
        Command::Config { command: ConfigCommand::Check(settings) } => {
            settings.resolve().map(|config| println!("{config:#?}"))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebayd: {error}");
            ExitCode::FAILURE
        }
    }
}
