//! The demo's loader: creates streams, stores and views, replays ratings in time order, most of
//! them through write streams and the last ones as single writes, and waits for the views' values.
//! The messages are those of `tools/demo/README.md`.

mod create;
mod features;
mod pulse;
mod ratings;
mod replay;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay::{Client, ClientOptions};
use forebay_demo::{Failure, exit_code};

use crate::create::create;
use crate::ratings::read_ratings;
use crate::replay::replay;

/// Replays ratings into a running `forebayd dev`.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create streams, stores and views.
    Create(LoadSettings),
    /// Replay the ratings.
    Replay {
        #[command(flatten)]
        settings: LoadSettings,
        /// Insert one event too many, for the oracle to find.
        #[arg(long)]
        plant: bool,
    },
}

#[derive(clap::Args)]
struct LoadSettings {
    /// Address of the node, with `http://`.
    #[arg(long)]
    address: String,
    /// The ratings, oldest first, as CSV.
    #[arg(long)]
    ratings: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code("demo_load", run(Cli::parse()).await)
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let settings = match &cli.command {
        Command::Create(settings) | Command::Replay { settings, .. } => settings,
    };
    let client = Client::connect(&settings.address, ClientOptions::default()).await?;
    let ratings = read_ratings(&settings.ratings)?;
    match &cli.command {
        Command::Create(_) => create(&client, &settings.address, &ratings).await,
        Command::Replay { plant, .. } => replay(&client, ratings, *plant).await,
    }
}
