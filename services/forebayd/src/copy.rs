//! `forebayd shard copy`: copies a shard of a replicator into a local data folder.

use std::path::PathBuf;
use std::sync::Arc;

use bytesize::ByteSize;
use forebay_core::Result;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::PartitionId;
use forebay_core::limits::SHARD_MEMORY_BYTES_MIN;
use forebay_replicator_service::{CopyMoved, CopyOptions, CopyProgress, CopyTarget};
use forebay_runtime::parse_size;
use forebay_shard::{Resources, ShardDirectory};
use tokio::sync::watch;

use crate::node_args::address_parser;

/// Arguments of `shard copy`.
#[derive(clap::Args)]
pub(crate) struct CopySettings {
    /// Address of a replicator that has the shard.
    #[arg(long, value_name = "HOST:PORT", value_parser = address_parser())]
    from: String,
    /// Name of the store.
    #[arg(long)]
    store: String,
    /// Number of the partition.
    #[arg(long)]
    partition: u32,
    /// Data folder for the copy. The node that uses this folder must not be running; after its next
    /// start the node follows the shard's log.
    #[arg(long, env = "FOREBAY_DATA_DIR", value_name = "DIR", default_value = "forebay-data")]
    data_dir: PathBuf,
    /// Copy the files of the source's shard instead of its rows. Overwritten and deleted data is
    /// copied, too, and only the bytes of the files are compared. A resumed copy keeps the mode
    /// with which it began.
    #[arg(long)]
    files: bool,
    /// Number of key ranges, or files, to read in parallel, at most 6. The copy takes 32 MiB of
    /// memory, and 16 MiB for each range or file; if rows are larger than 1 MiB, each range also
    /// takes six times the largest row.
    #[arg(long, default_value_t = 2)]
    parallelism: usize,
    /// Maximum size of keys and values, or of files, to copy per second, such as 50MiB [default: no
    /// limit].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    rate: Option<ByteSize>,
}

/// Copies the shard until it is complete; after an interrupted call, the next call resumes the
/// copy.
///
/// # Errors
/// As [`CopyTarget::copy`].
pub(crate) fn run(settings: CopySettings) -> Result<()> {
    forebay_runtime::run(copy(settings))
}

async fn copy(settings: CopySettings) -> Result<()> {
    let CopySettings { from, store, partition, data_dir, parallelism, .. } = settings;
    let are_files_moved = settings.files;
    let bytes_per_second = settings.rate.map_or(0, |rate| rate.as_u64());
    let resources = Resources::new(SHARD_MEMORY_BYTES_MIN)?;
    let target = CopyTarget {
        directory: ShardDirectory::new(data_dir.join("shards"), resources),
        entropy: Arc::new(SystemEntropy),
        options: CopyOptions {
            parallelism,
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
