//! The `forebayd` command: one process that serves all of Forebay on loopback.

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

/// Forebay in one process.
#[derive(Parser)]
#[command(name = "forebayd", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run writer, change log and change stream on loopback, for development.
    Dev(Settings),
    /// Make a shard here that is a copy of a running replicator's.
    Copy(copy::CopySettings),
    /// Take and list backups of stores, at a running node.
    Backup {
        #[command(subcommand)]
        command: backup::BackupCommand,
    },
    /// Make a store that is what another one was, by its backups, at a running node.
    Restore(backup::RestoreSettings),
    /// Make files of documents a version of a store's, or a store, at a running node.
    Push(push::PushSettings),
    /// List the versions of a store's documents, say which is live, drop one.
    Versions {
        #[command(subcommand)]
        command: push::VersionsCommand,
    },
    /// Compare two copies of a store's documents, and name those in which they differ.
    Verify(verify::VerifySettings),
    /// Apply, describe, list and drop feature views, at a running node.
    View {
        #[command(subcommand)]
        command: view::ViewCommand,
    },
    /// Print the retained events of a stream, at a running node.
    Select(select::SelectSettings),
    /// Ask a node a statement of SQL over streams and their exports.
    Sql(sql::SqlSettings),
    /// Have a node export a stream as files of Parquet.
    Export(sql::ExportSettings),
    /// Have a node join labels with the values of a feature view, each as of its moment.
    TrainingSet(training::TrainingSettings),
    /// Check and print the configuration that `dev` would run with.
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

/// Settings; each overrides the file, which overrides the defaults.
#[derive(clap::Args)]
struct Settings {
    /// A TOML file with any of the settings below.
    #[arg(long, env = "FOREBAY_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on; loopback only. Port 0 takes a free one [default: 127.0.0.1:7070].
    #[arg(long, env = "FOREBAY_LISTEN")]
    listen: Option<SocketAddr>,
    /// Which change log to run on [default: embedded].
    #[arg(long, env = "FOREBAY_CHANGE_LOG")]
    log: Option<LogKind>,
    /// Where the embedded log and the shards lie [default: forebay-data].
    #[arg(long, env = "FOREBAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// MiB of memory for blocks of the shards' files and for writes that are not on disk yet
    /// [default: 256].
    #[arg(long, env = "FOREBAY_SHARD_MEMORY_MIB")]
    shard_memory_mib: Option<u32>,
    /// MiB of memory that statements of SQL may have together [default: 256].
    #[arg(long, env = "FOREBAY_SQL_MEMORY_MIB")]
    sql_memory_mib: Option<u32>,
    /// Reads and writes the shards' files past the cache of the operating system.
    #[arg(long, env = "FOREBAY_DIRECT_IO")]
    direct_io: bool,
    /// What an acknowledgement of the embedded log survives [default: fsync].
    #[arg(long, env = "FOREBAY_DURABILITY")]
    durability: Option<Durability>,
    /// Some of Kafka's brokers, joined by commas.
    #[arg(long, env = "FOREBAY_BROKERS", value_delimiter = ',', value_name = "HOST:PORT")]
    brokers: Option<Vec<String>>,
    /// What the names of this node's Kafka topics begin with [default: forebay].
    #[arg(long, env = "FOREBAY_TOPIC_PREFIX")]
    topic_prefix: Option<String>,
    /// Where snapshots are kept: file:///…, s3://…, az://… or gs://…; without it there are none.
    #[arg(long, env = "FOREBAY_SNAPSHOTS", value_name = "URL")]
    snapshots: Option<String>,
    /// Where backups go, a folder of their own; without it none are taken or restored.
    #[arg(long, env = "FOREBAY_BACKUPS", value_name = "URL")]
    backups: Option<String>,
    /// Where streams are exported to, a folder of its own; without it they are not.
    #[arg(long, env = "FOREBAY_EXPORTS", value_name = "URL")]
    exports: Option<String>,
    /// Seconds between two snapshots of a partition [default: 900].
    #[arg(long, env = "FOREBAY_SNAPSHOT_EVERY_S")]
    snapshot_every_s: Option<u64>,
    /// Snapshots of a partition that are kept [default: 8].
    #[arg(long, env = "FOREBAY_SNAPSHOTS_KEPT")]
    snapshots_kept: Option<usize>,
    /// Seconds that a version of a store's documents stays that was live before a pushed one
    /// [default: 86400].
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
