//! The `forebayd` command: one process that serves all of Forebay on loopback, and a client of
//! running nodes.

mod backup;
mod change_log;
mod copy;
mod dev;
mod node_args;
mod push;
mod select;
mod sql;
mod training;
mod verify;
mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_core::Result;
use forebayd::config::DevSettings;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const PROGRAM: &str = "forebayd";

/// Run Forebay in one process, or send a command to a running node.
#[derive(Parser)]
#[command(name = PROGRAM, version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all services of Forebay on loopback, for development.
    Dev(DevSettings),
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
    Check(DevSettings),
}

/// Returns the settings of `dev`, completed from their file. The flags follow the given number of
/// words of the command line.
fn settings(words: usize) -> Result<DevSettings> {
    let settings = DevSettings::parse(std::env::args_os().skip(words).collect())?;
    settings.check()?;
    Ok(settings)
}

fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Dev(_) => settings(2).and_then(dev::run),
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
        Command::Config { command: ConfigCommand::Check(_) } => {
            settings(3).map(|settings| println!("{settings:#?}"))
        }
    }
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, run)
}
