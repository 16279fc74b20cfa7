//! `forebayd copy`: makes a shard here that is a copy of a replicator's.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::PartitionId;
use forebay_core::limits::SHARD_MEMORY_BYTES_MIN;
use forebay_replicator_service::{CopyOptions, CopyProgress, CopyTarget};
use forebay_shard::{Resources, ShardDirectory};
use tokio::sync::watch;

/// What is copied, and where it goes.
#[derive(clap::Args)]
pub(crate) struct CopySettings {
    /// A replicator that has the shard.
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// The store.
    #[arg(long)]
    store: String,
    /// Number of the partition.
    #[arg(long)]
    partition: u32,
    /// The data folder of the node that is to follow the shard from then on; it does not run now.
    #[arg(long, env = "FOREBAY_DATA_DIR", default_value = "forebay-data")]
    data_dir: PathBuf,
    /// Ranges of keys that are read side by side; each takes some 8 MiB of memory.
    #[arg(long, default_value_t = 2)]
    streams: usize,
    /// Most bytes of keys and values in a second; 0: as fast as it goes.
    #[arg(long, default_value_t = 0)]
    bytes_per_second: u64,
}

/// Copies until the shard is there; a call behind a broken one goes on with it.
///
/// # Errors
/// As [`CopyTarget::copy`].
pub(crate) fn run(settings: CopySettings) -> Result<()> {
    forebay_serve::run(copy(settings))
}

async fn copy(settings: CopySettings) -> Result<()> {
    let CopySettings { from, store, partition, data_dir, streams, bytes_per_second } = settings;
    let resources = Resources::new(SHARD_MEMORY_BYTES_MIN)?;
    let target = CopyTarget {
        directory: ShardDirectory::new(data_dir.join("shards"), resources),
        entropy: Arc::new(SystemEntropy),
        options: CopyOptions { streams, bytes_per_second, ..CopyOptions::default() },
    };
    let progress = watch::Sender::new(CopyProgress::default());
    let mut told = progress.subscribe();
    let telling = tokio::spawn(async move {
        while told.changed().await.is_ok() {
            eprintln!("{}", words(&told.borrow_and_update()));
        }
    });
    let copied = target.copy(&from, &store, PartitionId(partition), &progress).await;
    telling.abort();
    let ended = copied?;
    println!(
        "copied {} rows of {} bytes, of which {} came now, digest {:032x}",
        ended.digest.rows, ended.bytes, ended.bytes_received, ended.digest.sum
    );
    Ok(())
}

fn words(progress: &CopyProgress) -> String {
    let CopyProgress { digest, rows_in_all, bytes, bytes_per_second, left, .. } = progress;
    let speed = bytes_per_second / 1e6;
    let left = left.map_or("?".to_owned(), |left| left.as_secs().to_string());
    let rows = digest.rows;
    format!("{rows} of about {rows_in_all} rows, {bytes} bytes, {speed:.0} MB/s, {left} s left")
}
