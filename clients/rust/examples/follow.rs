//! Follows a store with checkpoints until its input ends: `follow ADDRESS STORE DIRECTORY [alone]`.
//!
//! Any number of these processes on one directory share one copy; with `alone`, one process uses
//! the directory at a time. However a process ends, the next process on the same directory
//! continues from exactly one position: the position of the copy, or of the last checkpoint if the
//! copy is gone. Each line of the input is a token, in hex digits: the process prints all documents
//! as of the token, then an empty line.

use std::time::Duration;

use forebay::reads::{CheckpointOptions, ReadOptions, ScannedDocument};
use forebay::writes::Token;
use forebay::{Error, Reader, ReaderOptions, Result};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let usage = || Error::invalid_argument("usage: follow ADDRESS STORE DIRECTORY [alone]");
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (address, store, directory, is_shared) = match &arguments[..] {
        [address, store, directory] => (address, store, directory, true),
        [address, store, directory, how] if how == "alone" => (address, store, directory, false),
        _ => return Err(usage()),
    };
    let interval = Duration::from_millis(10);
    let checkpoint = CheckpointOptions::new(directory).interval(interval).is_shared(is_shared);
    let options = ReaderOptions::new(store).checkpoint(checkpoint);
    let reader = Reader::open(address, options).await?;
    reader.await_ready(PATIENCE).await?;
    // A ready reader is fresh enough; this wait adds everything that was acknowledged before.
    let partitions: Vec<_> = reader.definition().partitions.partitions().collect();
    reader.wait(&ReadOptions::latest(PATIENCE), &partitions).await?;
    println!("ready, {} partitions restored", reader.metrics().counts.checkpoints.restored);

    // The end of the input ends the process, whatever the reason.
    while let Some(line) = next_line().await {
        reader.await_token(&token(&line)?, PATIENCE).await?;
        print_documents(&reader)?;
    }
    reader.close(Duration::from_secs(10)).await?;
    println!("{} checkpoints written", reader.metrics().counts.checkpoints.written);
    Ok(())
}

async fn next_line() -> Option<String> {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()?.ok()).await.ok()?
}

fn token(line: &str) -> Result<Token> {
    let bytes = hex::decode(line);
    let bytes = bytes.map_err(|_| Error::invalid_argument("a token is written in hex digits"))?;
    Token::decode(&bytes)
}

fn print_documents(reader: &Reader) -> Result<()> {
    let print = |found: ScannedDocument<'_>| {
        let key = found.key.primary().with_bytes(|key| String::from_utf8_lossy(key).into_owned());
        println!("{key} {:?}", found.row.document()?);
        Ok(())
    };
    let mut scan = reader.scan();
    while reader.scan_next(&mut scan, None, 1_000, print)? > 0 {}
    println!();
    Ok(())
}
