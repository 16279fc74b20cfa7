//! Follows a store with checkpoints, until its input ends: `follow ADDRESS STORE DIRECTORY`.
//!
//! However the process ends, the next one on the same directory goes on from exactly one position:
//! behind an orderly end where this one was, behind a crash at the last checkpoint.

use std::time::Duration;

use forebay::{CheckpointOptions, Error, Read, Reader, ReaderOptions};

#[tokio::main]
async fn main() -> forebay::Result<()> {
    let usage = || Error::invalid_argument("usage: follow ADDRESS STORE DIRECTORY");
    let [address, store, directory] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| usage())?;
    let every = Duration::from_millis(10);
    let checkpoint = CheckpointOptions { every, ..CheckpointOptions::new(directory) };
    let options = ReaderOptions { checkpoint: Some(checkpoint), ..ReaderOptions::new(store) };
    let reader = Reader::open(&address, options).await?;
    reader.await_ready(Duration::from_secs(30)).await?;
    // Ready is fresh enough; behind this it has all that was acknowledged before.
    let partitions: Vec<_> = reader.schema().definition.partitions.partitions().collect();
    reader.wait(&Read::latest(Duration::from_secs(30)), &partitions).await?;
    println!("ready, {} partitions restored", reader.metrics().records.checkpoints.restored);

    // Whatever ends the input ends the process.
    let _ =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
            .await;
    reader.shut_down(Duration::from_secs(10)).await?;
    println!("{} checkpoints written", reader.metrics().records.checkpoints.written);
    Ok(())
}
