//! The command line of `forebayd`: its commands, and the module that runs each of them.

use clap::{Parser, Subcommand};
use forebay_core::Result;
use forebayd::PROGRAM;
use forebayd::config::DevSettings;

use crate::{backup, copy, dev, push, select, sql, training, verify, version, view};

/// Run Forebay in one process, or send a command to a running node.
#[derive(Parser)]
#[command(name = PROGRAM, version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all services of Forebay on loopback, for development.
    #[command(after_help = "Example:\n  forebayd dev --data-dir data --shard-memory 1GiB")]
    Dev(DevSettings),
    /// Copy shards of running replicators.
    Shard {
        #[command(subcommand)]
        command: ShardCommand,
    },
    /// Take and list backups of stores, at a running node.
    Backup {
        #[command(subcommand)]
        command: backup::BackupCommand,
    },
    /// Restore a store from its backups as a new store, at a running node.
    #[command(after_help = "Example:\n  forebayd restore --store users --to users-2 --before \
        2026-05-01T12:00:00Z")]
    Restore(backup::RestoreSettings),
    /// Bulk-load files as a new version of a store, or as a new store, at a running node.
    #[command(
        after_help = "Example:\n  forebayd push --store users --key user_id --min-rows 1000 \
        users.parquet"
    )]
    Push(push::PushSettings),
    /// List the versions of a store, activate one, roll back to the earlier live one, or drop one.
    Version {
        #[command(subcommand)]
        command: version::VersionCommand,
    },
    /// Compare two copies of a store and print the documents that differ.
    #[command(after_help = "Example:\n  forebayd verify --store users 127.0.0.1:7072 \
        file:///snapshots")]
    Verify(verify::VerifySettings),
    /// Apply, describe, list, verify and drop feature views, at a running node.
    View {
        #[command(subcommand)]
        command: view::ViewCommand,
    },
    /// Print retained events of a stream, at a running node.
    #[command(after_help = "Example:\n  forebayd select orders --equal city=Oslo --start \
        2026-05-01T12:00:00Z --limit 10")]
    Select(select::SelectSettings),
    /// Run an SQL statement over streams and their exports, at a running node.
    #[command(
        after_help = "Example:\n  forebayd sql \"SELECT city, count(*) FROM orders GROUP BY \
        city\""
    )]
    Sql(sql::SqlSettings),
    /// Export a stream to Parquet files, at a running node.
    #[command(after_help = "Example:\n  forebayd export orders")]
    Export(sql::ExportSettings),
    /// Join labels with the values that a feature view had at the labels' times, at a running node.
    #[command(after_help = "Example:\n  forebayd training-set --view spending --time at \
        --labels file:///labels.parquet --to file:///set")]
    TrainingSet(training::TrainingSettings),
    /// Check and print the configuration of `dev`.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Subcommand)]
enum ShardCommand {
    /// Copy a shard of a running replicator into a local data folder.
    #[command(after_help = "Example:\n  forebayd shard copy --from 127.0.0.1:7072 --store users \
        --partition 0 --rate 50MiB")]
    Copy(copy::CopySettings),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check a configuration and print it.
    #[command(after_help = "Example:\n  forebayd config check --config forebay.toml")]
    Check(DevSettings),
}

/// Returns the settings of `dev`, completed from their file. The flags follow the given number of
/// words of the command line.
fn settings(words: usize) -> Result<DevSettings> {
    let settings = DevSettings::parse(std::env::args_os().skip(words).collect())?;
    settings.check()?;
    Ok(settings)
}

/// Runs the command of a command line.
///
/// # Errors
/// As the command.
pub(crate) fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Dev(_) => settings(2).and_then(dev::run),
        Command::Shard { command: ShardCommand::Copy(settings) } => copy::run(settings),
        Command::Backup { command } => backup::run(command),
        Command::Restore(settings) => backup::run_restore(settings),
        Command::Push(settings) => push::run(settings),
        Command::Version { command } => version::run(command),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Splits a command line as a shell does; double quotes enclose spaces.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('"').enumerate();
        parts
            .flat_map(|(number, part)| match number % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    /// Checks that the help of a command without subcommands has an example of the command, and
    /// that the command accepts the example.
    fn check_example(command: &clap::Command, path: &str) {
        for subcommand in command.get_subcommands() {
            check_example(subcommand, &format!("{path} {}", subcommand.get_name()));
        }
        if !command.has_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("Example:\n  {path} ")), "{path}: {help}");
            let example = help.split_once("Example:\n  ").map_or("", |(_, example)| example);
            let parsed = Cli::command().try_get_matches_from(words(example));
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        let command = Cli::command();
        command.clone().debug_assert();
        check_example(&command, PROGRAM);
    }
}
