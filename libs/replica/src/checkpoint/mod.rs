//! Checkpoints: local files from which a restart resumes a partition. A checkpoint is an image of
//! the documents at one position, together with the fold's state; `proto/spec/image.md` defines the
//! bytes. A restart maps the newest checkpoint without reading it through; each block is verified
//! at its first use.
//!
//! The tail writes a checkpoint itself, between two groups of records: the fold's state and the
//! documents are then at exactly one position, and nothing needs to be copied or locked. The tail
//! applies no entries during the write, so four rules bound the cost:
//!
//! - a partition above `bytes_max` gets no checkpoint;
//! - an unchanged partition gets no new checkpoint;
//! - after each checkpoint the tail waits at least 19 times as long as the write took;
//! - a tail that shuts down in order writes a last checkpoint within a bound of time.
//!
//! Reads continue at all times.
//!
//! A checkpoint is optional. The tail ignores an unusable checkpoint, logs and counts it, and
//! bootstraps the partition from its log. If a block is found damaged later and cannot be repaired,
//! the tail rebuilds the partition from its log next to the replica that serves. A repaired
//! checkpoint is written again. Schema definitions are not in a checkpoint; they come from the
//! catalog. Outcomes of conditional changes are not in a checkpoint either; they are unknown after
//! a restart.

mod file;
mod folder;
mod image_download;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::fold::PartitionState;
use forebay_core::id::{LogId, Offset, PartitionRef};
use forebay_core::replica_state::PartitionUsage;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::Image;
use forebay_log::disk::DiskLock;
use forebay_snapshot::ImageState;
use tokio::time::Sleep;

use self::file::disk_error;
use self::folder::SUFFIX;
use crate::partition_replica::PartitionReplica;

pub(crate) use self::file::open_image;
pub use self::file::{open_checkpoint, write_checkpoint};
pub use self::folder::CheckpointFolder;

const SUFFIX_LOCK: &str = ".lock";
const SUFFIX_NEW: &str = ".checkpoint.new";
const SUFFIX_FETCHED: &str = ".fetched";
/// Factor between the duration of a checkpoint and the wait after it: a tail spends at most one
/// part in 20 (19 + 1) of its time on checkpoints.
const REST_FACTOR: u32 = 19;

/// The checkpoints of one partition; owned by its tail.
pub struct Checkpoints {
    folder: Arc<CheckpointFolder>,
    at: PartitionRef,
    /// Highest serial used so far.
    serial: u64,
    next_due: Pin<Box<Sleep>>,
    /// Number and offset of the replica in the last checkpoint written.
    last: Option<(u32, Offset)>,
    /// File that this reader resumed from.
    restored: Option<PathBuf>,
    /// Log and offset of an existing checkpoint that lacks only its schema definition: no
    /// checkpoint of an earlier offset of that log replaces it.
    kept_from: Option<(LogId, Offset)>,
    /// Error of the last checkpoint, if it failed.
    last_error: Option<ErrorCode>,
    /// Lock that the tail holds until it ends.
    #[expect(dead_code, reason = "held, and let go by its drop")]
    lock: Box<dyn DiskLock>,
}

/// Returns when a checkpoint is due.
pub(crate) async fn wait_until_due(checkpoints: &mut Option<Checkpoints>) {
    match checkpoints {
        Some(checkpoints) => checkpoints.next_due.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Checkpoints {
    /// Returns whether a file of this name is the lock of a partition.
    pub fn is_lock(name: &str) -> bool {
        name.ends_with(SUFFIX_LOCK)
    }

    /// Takes the lock of one partition and returns its checkpoints; `None` while another reader
    /// owns them.
    ///
    /// # Errors
    /// Returns `Unavailable` if the folder cannot be used.
    pub fn try_lock(folder: &Arc<CheckpointFolder>, at: PartitionRef) -> Result<Option<Self>> {
        let name = format!("{:016x}-{:04}{SUFFIX_LOCK}", at.store.0, at.partition.0);
        let lock = match folder.disk.lock(&folder.dir.join(name)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(folder.unusable(&error)),
        };
        let next_due = Box::pin(tokio::time::sleep(folder.interval));
        let (folder, last, kept_from, last_error) = (Arc::clone(folder), None, None, None);
        let restored = None;
        Ok(Some(Self {
            folder,
            at,
            serial: 0,
            next_due,
            last,
            restored,
            kept_from,
            last_error,
            lock,
        }))
    }

    /// Takes the lock as [`Checkpoints::try_lock`] does, for a folder that must not be shared.
    ///
    /// # Errors
    /// Returns `Conflict` while another reader holds the lock, and `Unavailable` if the folder
    /// cannot be used.
    pub fn lock(folder: &Arc<CheckpointFolder>, at: PartitionRef) -> Result<Self> {
        Self::try_lock(folder, at)?.ok_or_else(|| {
            let message = format!(
                "another reader uses {}; close that reader, or use another directory",
                folder.dir.display()
            );
            Error::conflict(message).with_partition(at.partition)
        })
    }

    /// Returns the usable files, newest first; removes unfinished files of a crash.
    ///
    /// # Errors
    /// Returns `Unavailable` if the directory cannot be listed.
    pub(crate) fn files(&mut self) -> Result<Vec<PathBuf>> {
        let serials = self.sweep(u64::MAX).map_err(|error| disk_error("look for", &error))?;
        self.serial = serials.last().copied().unwrap_or(0);
        Ok(serials.into_iter().rev().map(|serial| self.path(serial, SUFFIX)).collect())
    }

    /// Opens a file and checks that it belongs to the partition of `empty`.
    ///
    /// # Errors
    /// Returns the errors of [`Image::open`], and `Unsupported` for a checkpoint of another
    /// partition.
    pub(crate) fn open(&self, path: &Path, empty: &PartitionState) -> Result<(Image, ImageState)> {
        self.folder.open_file(path, empty.partition, empty.partitions)
    }

    /// Protects the existing checkpoint from being replaced by one of the same log at an earlier
    /// offset.
    pub(crate) fn keep_from(&mut self, log_id: Option<LogId>, offset: Offset) {
        // The caller goes from the newest file to the oldest, so the first call counts.
        self.kept_from = self.kept_from.or(log_id.map(|log_id| (log_id, offset)));
    }

    /// Notes that this replica was restored from `file`.
    pub(crate) fn note_restored(&mut self, replica: &PartitionReplica, file: &Path) {
        self.last = Some((replica.number(), replica.state().offset_applied));
        self.restored = Some(file.to_owned());
    }

    /// Removes the file that this reader resumed from, because it was found damaged: no later
    /// restart must resume from it. Returns whether there was such a file.
    pub(crate) fn drop_damaged(&mut self) -> bool {
        let Some(path) = self.restored.take() else { return false };
        self.remove(&path);
        self.last = None;
        true
    }

    /// Notes that damage in the file that this reader resumed from was repaired: the next
    /// checkpoint is written even if nothing changes.
    pub(crate) fn note_repaired_blocks(&mut self) {
        self.last = None;
    }

    /// Writes a checkpoint of a replica of this size, if the replica has changed; returns whether
    /// it did.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if the partition is too large, `Unavailable` if the disk refuses,
    /// and `DeadlineExceeded` once `is_late` returns true. After an error the previous checkpoint
    /// still exists.
    pub(crate) fn write(
        &mut self,
        replica: &PartitionReplica,
        usage: PartitionUsage,
        clock_error_us: Option<i64>,
        is_late: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let (log_id, offset) = (replica.state().log_id, replica.state().offset_applied);
        let now = (replica.number(), offset);
        let is_behind =
            |(kept_log_id, from): (LogId, Offset)| log_id == Some(kept_log_id) && offset < from;
        if self.last == Some(now) || self.kept_from.is_some_and(is_behind) {
            return Ok(false);
        }
        let Some(head) = replica.checkpoint_head(clock_error_us) else { return Ok(false) };
        let (bytes, bytes_max) = (usage.key_bytes + usage.row_bytes, self.folder.bytes_max);
        if bytes > bytes_max {
            let message = "the partition is too large for a checkpoint; raise bytes_max, or let \
                restarts read the log";
            return Err(Error::limit_exceeded(message, bytes_max, bytes));
        }
        self.serial += 1;
        let (new_path, path) = (self.path(self.serial, SUFFIX_NEW), self.path(self.serial, SUFFIX));
        let (disk, dir) = (&self.folder.disk, &self.folder.dir);
        let write_result = disk.create(&new_path).map_err(|error| disk_error("make", &error));
        let write_result = write_result
            .and_then(|file| write_checkpoint(&*file, &head, replica.writer(), is_late));
        let named = write_result.and_then(|_| {
            let named = disk.rename(&new_path, &path).and_then(|()| disk.sync_dir(dir));
            named.map_err(|error| disk_error("name", &error))
        });
        if let Err(error) = named {
            // If this removal fails, the next open or the next checkpoint removes the file.
            let _ = disk.remove(&new_path);
            return Err(error);
        }
        self.last = Some(now);
        self.last_error = None;
        self.remove_fetched(None);
        if let Err(error) = self.sweep(self.serial) {
            tracing::debug!(at = %self.at, %error, "older checkpoints not listed");
        }
        Ok(true)
    }

    /// Returns whether this error differs from the error of the previous attempt.
    pub(crate) fn is_news(&mut self, error: &Error) -> bool {
        self.last_error.replace(error.code()) != Some(error.code())
    }

    /// Starts the wait for the next checkpoint, after one that took `took_us`.
    pub(crate) fn rest(&mut self, took_us: i64) {
        let duration = Duration::from_micros(u64::try_from(took_us).unwrap_or(0));
        let wait = self.folder.interval.max(duration.saturating_mul(REST_FACTOR));
        self.next_due = Box::pin(tokio::time::sleep(wait));
    }

    fn path(&self, serial: u64, suffix: &str) -> PathBuf {
        self.folder.dir.join(format!("{}{serial:020}{suffix}", self.prefix()))
    }

    fn prefix(&self) -> String {
        format!("{:016x}-{:04}-", self.at.store.0, self.at.partition.0)
    }

    /// Removes unfinished files and, if the file of serial `keep` exists, older ones; returns the
    /// remaining serials, ascending. A later sweep retries a file that could not be removed.
    fn sweep(&self, keep: u64) -> io::Result<Vec<u64>> {
        let (disk, dir) = (&self.folder.disk, &self.folder.dir);
        let prefix = self.prefix();
        let mut serials = Vec::new();
        for name in disk.list(dir)? {
            let Some(rest) = name.strip_prefix(&prefix) else { continue };
            if rest.ends_with(SUFFIX_NEW) {
                self.remove(&dir.join(&name));
                continue;
            }
            let serial = rest.strip_suffix(SUFFIX).and_then(|serial| serial.parse::<u64>().ok());
            serials.extend(serial);
        }
        serials.sort_unstable();
        if serials.contains(&keep) {
            for serial in serials.extract_if(.., |serial| *serial < keep) {
                self.remove(&self.path(serial, SUFFIX));
            }
        }
        Ok(serials)
    }

    /// Removes all files of the partition except the lock's.
    pub fn remove_all(&self) {
        let (disk, dir) = (&self.folder.disk, &self.folder.dir);
        let prefix = self.prefix();
        let names = disk.list(dir).unwrap_or_default();
        let own_names = names.iter().filter(|name| name.starts_with(&prefix));
        own_names.for_each(|name| self.remove(&dir.join(name)));
    }

    fn remove(&self, path: &Path) {
        if let Err(error) = self.folder.disk.remove(path) {
            tracing::debug!(path = %path.display(), %error, "checkpoint not removed");
        }
    }
}
