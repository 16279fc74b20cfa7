//! The demo's Rust reader: follows the demo's stores with embedded readers, measures their
//! freshness while the load runs, then reads, ranks and dumps the documents. The messages are those
//! of `tools/demo/README.md`.

mod dump;
mod measure;
mod probe;
mod rank;
mod readers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use forebay::{Client, ClientOptions};
use forebay_demo::{Failure, exit_code, say};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::readers::Readers;

/// Follows the stores of a running `forebayd dev`.
#[derive(Parser)]
struct ReaderSettings {
    /// Address of the node.
    #[arg(long)]
    address: String,
    /// Number of this reader among the languages; its probes have their own keys.
    #[arg(long)]
    probe_key: i64,
}

/// The message that ends the load, with tokens and keys by store.
#[derive(Deserialize)]
struct Finish {
    tokens: BTreeMap<String, String>,
    keys: BTreeMap<String, PathBuf>,
    dump: PathBuf,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code("demo_reader", Err(error.into())),
    };
    let result = runtime.block_on(run(ReaderSettings::parse()));
    // A thread that still reads standard input must not delay the exit.
    runtime.shutdown_background();
    exit_code("demo_reader", result)
}

async fn run(settings: ReaderSettings) -> Result<(), Failure> {
    let began = Instant::now();
    let client = Client::connect(&settings.address, ClientOptions::default()).await?;
    let readers = Readers::open(&client).await?;
    let seconds = began.elapsed().as_secs_f64();
    say("ready", json!({ "language": "rust", "seconds": seconds }))?;

    let finish_task = tokio::task::spawn_blocking(hear_finish);
    let mut probe = probe::Probe::new(client, readers.probes.clone(), settings.probe_key).await?;
    let finish = tokio::select! {
        heard = finish_task => heard??,
        failed = probe.run() => return Err(failed),
    };
    readers.await_tokens(&finish.tokens).await?;
    let documents = json!({
        "movies": dump::documents(&readers.movies),
        "users": dump::documents(&readers.users),
    });
    let rows = dump::write(&readers, &finish.keys, &finish.dump)?;
    let ranking = rank::rank(&readers, &rows)?;
    say(
        "figures",
        json!({
            "documents": documents,
            "freshness": probe.figures(),
            "get": measure::gets(&readers.movies, &rows)?,
            "gather": measure::gathers(&readers.movies, &ranking.candidates)?,
            "user": ranking.user,
            "top": ranking.top,
        }),
    )?;
    Ok(())
}

/// Waits for the demo's message; the end of the input means that the demo is gone.
fn hear_finish() -> Result<Finish, Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.is_empty() {
        return Err("the demo has gone away".into());
    }
    let mut message: BTreeMap<String, Finish> = serde_json::from_str(&line)?;
    message.remove("finish").ok_or_else(|| "the only message is finish".into())
}
