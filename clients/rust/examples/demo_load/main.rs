//! The demo's loader: creates the stores, then replays ratings in time order, most of them through
//! write streams and the last ones as single writes. Speaks the messages of `tools/demo/README.md`.

#[path = "../demo/mod.rs"]
mod demo;
mod ratings;
mod replay;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay::{Client, ClientOptions};
use serde_json::json;

use crate::demo::{Failure, ended, say};
use crate::ratings::{create_stores, read_ratings};
use crate::replay::replay;

/// Replays ratings into a running `forebayd dev`.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the stores movies, users and probes.
    Create(Settings),
    /// Replay the ratings.
    Replay {
        #[command(flatten)]
        settings: Settings,
        /// Write one change too many, for the oracle to find.
        #[arg(long)]
        plant: bool,
    },
}

#[derive(clap::Args)]
struct Settings {
    /// Address of the writer.
    #[arg(long)]
    address: String,
    /// The ratings, oldest first, as CSV.
    #[arg(long)]
    ratings: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    ended("demo_load", run(Cli::parse()).await)
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let settings = match &cli.command {
        Command::Create(settings) | Command::Replay { settings, .. } => settings,
    };
    let client = Client::connect(&settings.address, ClientOptions::default()).await?;
    let ratings = read_ratings(&settings.ratings)?;
    match cli.command {
        Command::Create(_) => {
            let stores = create_stores(&client, &ratings).await?;
            say("created", json!({ "stores": stores }))?;
            Ok(())
        }
        Command::Replay { plant, .. } => replay(&client, ratings, plant).await,
    }
}
