//! Options of a reader, as Python gives them, and as this process and its forked children use them.

use std::path::PathBuf;

use forebay::reads::{CheckpointOptions, PartitionFilter, SnapshotStore};
use forebay::schema::PartitionId;
use forebay::{Error, ReaderOptions};

use crate::error::CallError;
use crate::schema::duration_of;

/// Keywords of a reader.
pub(crate) struct ReaderKeywords {
    pub(crate) partitions: Option<Vec<u32>>,
    pub(crate) allow_incomplete_reads: bool,
    pub(crate) ready_max_staleness: Option<f64>,
    pub(crate) open_timeout: Option<f64>,
    pub(crate) checkpoint_dir: Option<PathBuf>,
    pub(crate) checkpoint_interval: Option<f64>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) spill_limit: u64,
    pub(crate) snapshots: Option<String>,
}

impl ReaderKeywords {
    /// Converts the keywords.
    ///
    /// # Errors
    /// `InvalidArgument` for a negative time, and for checkpoints without a directory.
    pub(crate) fn options(self, store: &str) -> Result<OpenOptions, CallError> {
        let mut options = ReaderOptions::new(store);
        if let Some(partitions) = self.partitions {
            let partitions = partitions.into_iter().map(PartitionId).collect();
            options.partitions = PartitionFilter::Only(partitions);
        }
        options.allow_incomplete_reads = self.allow_incomplete_reads;
        let or = |seconds: Option<f64>, unless| seconds.map_or(Ok(unless), duration_of);
        options.ready_max_staleness = or(self.ready_max_staleness, options.ready_max_staleness)?;
        options.open_timeout = or(self.open_timeout, options.open_timeout)?;
        options.checkpoint = checkpoint_options(self.checkpoint_dir, self.checkpoint_interval)?;
        options.memory_limit = self.memory_limit;
        options.spill_limit = self.spill_limit;
        Ok(OpenOptions { reader: options, snapshots: self.snapshots })
    }
}

/// The specification of a reader, valid in this process and in its forked children.
#[derive(Clone)]
pub(crate) struct OpenOptions {
    /// The options, without the snapshot store.
    pub(crate) reader: ReaderOptions,
    /// URL of the snapshot store, which has connections and locks of one process and so must be
    /// reopened.
    snapshots: Option<String>,
}

impl OpenOptions {
    /// Returns all options, for this process.
    ///
    /// # Errors
    /// Errors of [`SnapshotStore::open`].
    pub(crate) fn reader_options(&self) -> forebay::Result<ReaderOptions> {
        let snapshots = self.snapshots.as_deref().map(SnapshotStore::open).transpose()?;
        Ok(self.reader.clone().snapshots(snapshots))
    }
}

fn checkpoint_options(
    dir: Option<PathBuf>,
    interval: Option<f64>,
) -> Result<Option<CheckpointOptions>, CallError> {
    let Some(dir) = dir else {
        let message =
            "checkpoint_interval needs checkpoint_dir; name the directory of the checkpoints";
        return if interval.is_none() {
            Ok(None)
        } else {
            Err(Error::invalid_argument(message).into())
        };
    };
    let mut options = CheckpointOptions::new(dir);
    options.interval = interval.map_or(Ok(options.interval), duration_of)?;
    Ok(Some(options))
}
