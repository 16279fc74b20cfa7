//! The `forebayd` command: one process that serves all of Forebay on loopback.

mod dev;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_core::Result;
use forebayd::config::{DevConfig, Durability};

/// Forebay in one process.
#[derive(Parser)]
#[command(name = "forebayd", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run writer, embedded log and change stream on loopback, for development.
    Dev(Settings),
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
    /// Where the embedded log lies [default: forebay-data].
    #[arg(long, env = "FOREBAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// What an acknowledgement survives [default: fsync].
    #[arg(long, env = "FOREBAY_DURABILITY")]
    durability: Option<Durability>,
}

impl Settings {
    fn resolve(self) -> Result<DevConfig> {
        let mut config = match &self.config {
            Some(path) => DevConfig::from_file(path)?,
            None => DevConfig::default(),
        };
        config.listen = self.listen.unwrap_or(config.listen);
        config.data_dir = self.data_dir.unwrap_or(config.data_dir);
        config.durability = self.durability.unwrap_or(config.durability);
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
