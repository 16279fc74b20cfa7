//! `forebayd copy`: makes a shard here that is a copy of a replicator's.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::PartitionId;
use forebay_core::limits::SHARD_MEMORY_BYTES_MIN;
use forebay_replicator_service::{CopyMoved, CopyOptions, CopyProgress, CopyTarget};
use forebay_shard::{Resources, ShardDirectory};
use tokio::sync::watch;

use crate::asked::address_parser;

/// What is copied, and where it goes.
#[derive(clap::Args)]
pub(crate) struct CopySettings {
    /// A replicator that has the shard.
    #[arg(long, value_name = "HOST:PORT", value_parser = address_parser())]
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
    /// Move the files of the source's shard as they are, instead of its rows: what was overwritten
    /// and deleted comes too, and only their bytes are compared. A copy that goes on keeps to what
    /// it was begun with.
    #[arg(long)]
    files: bool,
    /// Ranges of keys, or files, that are read side by side, 6 at most. Each takes 16 MiB of
    /// memory, beside 32 MiB for all, and six rows more where those are larger than 1 MiB.
    #[arg(long, default_value_t = 2)]
    streams: usize,
    /// Most bytes of keys and values, or of files, in a second; 0: as fast as it goes.
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
    let CopySettings { from, store, partition, data_dir, streams, .. } = settings;
    let (are_files_moved, bytes_per_second) = (settings.files, settings.bytes_per_second);
    let resources = Resources::new(SHARD_MEMORY_BYTES_MIN)?;
    let target = CopyTarget {
        directory: ShardDirectory::new(data_dir.join("shards"), resources),
        entropy: Arc::new(SystemEntropy),
        options: CopyOptions {
            streams,
            are_files_moved,
            bytes_per_second,
            ..CopyOptions::default()
        },
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
    let CopyProgress { moved, bytes, bytes_received, .. } = copied?;
    let came = format!("of {bytes} bytes, of which {bytes_received} came now");
    match moved {
        CopyMoved::Rows { digest, .. } => {
            println!("copied {} rows {came}, digest {:032x}", digest.rows, digest.sum);
        }
        CopyMoved::Files { ended, .. } => println!("copied {ended} files {came}"),
    }
    Ok(())
}

fn words(progress: &CopyProgress) -> String {
    let CopyProgress { moved, bytes, bytes_per_second, left, .. } = progress;
    let done = match moved {
        CopyMoved::Rows { digest, in_all } => {
            format!("{} of about {in_all} rows, {bytes} bytes", digest.rows)
        }
        CopyMoved::Files { ended, in_all, bytes_in_all } => {
            format!("{ended} of {in_all} files, {bytes} of {bytes_in_all} bytes")
        }
    };
    let speed = bytes_per_second / 1e6;
    let left = left.map_or("?".to_owned(), |left| left.as_secs().to_string());
    format!("{done}, {speed:.0} MB/s, {left} s left")
}
