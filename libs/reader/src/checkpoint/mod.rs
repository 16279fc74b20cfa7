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
//! A checkpoint is optional. The reader ignores an unusable checkpoint, logs and counts it, and
//! bootstraps the partition from its log. If a block is found damaged later and cannot be repaired,
//! the reader rebuilds the partition from its log next to the replica that serves. A repaired
//! checkpoint is written again. Schema definitions are not in a checkpoint; they come from the
//! catalog. Outcomes of conditional changes are not in a checkpoint either; they are unknown after
//! a restart.

mod fetched;
mod file;
#[cfg(test)]
mod round_trip_test;
mod store_file;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::fold::PartitionState;
use forebay_core::id::{LogId, Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::limits::{CHECKPOINT_BYTES_MAX, CHECKPOINT_EVERY_MS};
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{Image, LiveDirectory};
use forebay_log::disk::{Disk, DiskLock, RealDisk};
use forebay_snapshot::ImageState;
use tokio::time::Sleep;

use crate::generation::Generation;
use crate::options::ReaderOptions;

use self::file::refused;

pub(crate) use self::file::{open as open_checkpoint, open_image};
pub(crate) use self::store_file::NamedStore;

const SUFFIX_LOCK: &str = ".lock";
const SUFFIX: &str = ".checkpoint";
const SUFFIX_NEW: &str = ".checkpoint.new";
const SUFFIX_FETCHED: &str = ".fetched";
/// Factor between the duration of a checkpoint and the wait after it: a tail spends at most one
/// part in 20 (19 + 1) of its time on checkpoints.
const REST_FACTOR: u32 = 19;

/// Options for the directory and the frequency of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Directory of the checkpoints; created if it is missing.
    pub dir: PathBuf,
    /// Whether other readers, in this process or another, may use the directory as well. Readers
    /// that share a directory answer from one copy of each partition, which one of them owns; if
    /// the owner ends, in whatever way, another reader takes the copy over. If this is false, or if
    /// the disk is not the host's, only one reader at a time uses a partition's files.
    pub is_shared: bool,
    /// Directory of a memory file system for the documents of shared copies. If there is no such
    /// directory, or if it has no space, the documents are in `dir`. Documents in memory outlive
    /// the last reader, so that the next reader resumes from them, until the machine restarts or a
    /// reader finds their `dir` removed.
    pub memory_dir: Option<PathBuf>,
    /// Time between two checkpoints of a partition. The time is longer if a write takes long, or
    /// while a partition of the reader starts from an image: no checkpoint is written during that
    /// time.
    pub every: Duration,
    /// Largest partition, in bytes of its keys and rows, that gets checkpoints: the tail applies
    /// nothing while it writes one.
    pub bytes_max: u64,
}

impl CheckpointOptions {
    /// Returns options for shared checkpoints in this directory, every 10 s, for partitions of up
    /// to 4 GiB, with the documents in the host's shared memory (`/dev/shm`) if there is one.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let every = Duration::from_millis(CHECKPOINT_EVERY_MS);
        let LiveDirectory { dir, memory_dir } = LiveDirectory::new(dir);
        Self { dir, is_shared: true, memory_dir, every, bytes_max: CHECKPOINT_BYTES_MAX }
    }
}

/// The directory of a reader's checkpoints and of its shared copies.
pub(crate) struct CheckpointDirectory {
    options: CheckpointOptions,
    disk: Arc<dyn Disk>,
    is_swept: AtomicBool,
}

impl fmt::Debug for CheckpointDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckpointDirectory").field(&self.options.dir).finish()
    }
}

impl CheckpointDirectory {
    /// Opens the directory, if the options request checkpoints.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for invalid options, and `Unavailable` if the directory cannot be
    /// used.
    pub(crate) fn open(
        options: &ReaderOptions,
        disk: Option<&Arc<dyn Disk>>,
    ) -> Result<Option<Arc<Self>>> {
        let Some(options) = options.checkpoint.clone() else { return Ok(None) };
        if options.every.is_zero() {
            let message = "the interval of checkpoints is 0 s; raise `every`";
            return Err(Error::invalid_argument(message));
        }
        let disk = disk.cloned().ok_or_else(|| {
            Error::invalid_argument("checkpoints need a disk; pass one in the reader's parts")
        })?;
        let directory = Self { options, disk, is_swept: AtomicBool::new(false) };
        make_dir(&*directory.disk, &directory.options.dir)
            .map_err(|error| directory.unusable(&error))?;
        Ok(Some(Arc::new(directory)))
    }

    /// Returns the directory and its note about the store's name, before the control log is
    /// queried; `None` if there is no note. Creates nothing.
    pub(crate) fn named_store(
        options: &ReaderOptions,
        disk: Option<&Arc<dyn Disk>>,
    ) -> Option<(Arc<Self>, NamedStore)> {
        let asked = options.checkpoint.as_ref();
        let is_one = |it: &&CheckpointOptions| it.is_shared && !it.every.is_zero();
        let asked = asked.filter(is_one).filter(|_| !options.keep_outcomes)?;
        let disk = disk.filter(|disk| disk.is_of_host())?;
        let named = NamedStore::read(&**disk, &asked.dir, &options.store)?;
        let (options, disk) = (asked.clone(), Arc::clone(disk));
        Some((Arc::new(Self { options, disk, is_swept: AtomicBool::new(false) }), named))
    }

    /// Writes the note of the store that a name stands for.
    pub(crate) fn note_store(&self, name: &str, named: NamedStore) {
        if let Err(error) = named.write(&*self.disk, &self.options.dir, name) {
            tracing::debug!(store = %name, %error, "store id of a name not written");
        }
    }

    /// Returns the location of the shared copies.
    pub(crate) fn live(&self) -> LiveDirectory {
        let CheckpointOptions { dir, memory_dir, .. } = self.options.clone();
        LiveDirectory { dir, memory_dir }
    }

    /// Returns whether other readers may answer from the copies of this directory.
    pub(crate) fn is_shared(&self) -> bool {
        self.options.is_shared && self.is_of_host()
    }

    /// Returns whether other processes see the directory.
    pub(crate) fn is_of_host(&self) -> bool {
        self.disk.is_of_host()
    }

    fn unusable(&self, error: &io::Error) -> Error {
        Error::unavailable(format!(
            "could not use {} for checkpoints: {error}; correct the directory",
            self.options.dir.display()
        ))
    }

    /// Returns the storage ids of the store versions that have a copy or a checkpoint here.
    pub(crate) fn stores(&self) -> BTreeSet<StoreId> {
        let names = self.disk.list(&self.options.dir).unwrap_or_default();
        let store = |name: &String| {
            let (store, _) = name.strip_prefix("live-").unwrap_or(name).split_once('-')?;
            let id = u64::from_str_radix(store, 16).ok().filter(|_| store.len() == 16)?;
            Some(StoreId(id))
        };
        names.iter().filter(|name| !name.ends_with(SUFFIX_LOCK)).filter_map(store).collect()
    }

    /// Removes the files of a store version that nothing follows any more. If another reader still
    /// owns them, that reader removes them when it releases them.
    pub(crate) fn forget(self: &Arc<Self>, at: PartitionRef) {
        match self.try_keep(at) {
            Ok(Some(kept)) => kept.remove_all(),
            Ok(None) => {}
            Err(error) => tracing::debug!(%at, %error, "replica of a dropped version not removed"),
        }
    }

    /// Returns the newest checkpoint of each partition of a store that has one, judged by the file
    /// names.
    ///
    /// # Errors
    /// Returns `Unavailable` if the directory cannot be listed.
    pub(crate) fn newest(&self, store: StoreId) -> Result<BTreeMap<PartitionId, PathBuf>> {
        let dir = &self.options.dir;
        let names = self.disk.list(dir).map_err(|error| refused("look for", &error))?;
        let prefix = format!("{:016x}-", store.0);
        let partition = |name: &String| {
            let (partition, serial) = name.strip_prefix(&prefix)?.split_once('-')?;
            serial.strip_suffix(SUFFIX)?;
            partition.parse().ok().map(PartitionId)
        };
        // Names are sorted, so the newest checkpoint of a partition is the last.
        let found = names.iter().filter_map(|name| Some((partition(name)?, dir.join(name))));
        Ok(found.collect())
    }

    /// Opens the newest checkpoint of a partition in a folder, regardless of its owner.
    ///
    /// # Errors
    /// Returns the errors of [`CheckpointDirectory::open_file`], and `NotFound` if there is no
    /// checkpoint.
    pub(crate) fn newest_in(
        dir: &Path,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Image, ImageState)> {
        let options = CheckpointOptions::new(dir);
        let directory =
            Self { options, disk: Arc::new(RealDisk), is_swept: AtomicBool::new(false) };
        let newest = directory.newest(at.store)?.remove(&at.partition).ok_or_else(|| {
            let message = format!("there is no checkpoint of the partition in {}", dir.display());
            Error::not_found(message).with_partition(at.partition)
        })?;
        directory.open_file(&newest, at, partitions)
    }

    /// Opens a checkpoint and checks that it belongs to this partition.
    ///
    /// # Errors
    /// Returns the errors of [`Image::open`], and `Unsupported` for a checkpoint of another
    /// partition.
    pub(crate) fn open_file(
        &self,
        path: &Path,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Image, ImageState)> {
        let file = self.disk.open(path).map_err(|error| refused("open", &error))?;
        let (image, head) = file::open(file)?;
        image.about().check_is_of(at, partitions)?;
        Ok((image, head))
    }

    /// Removes unreachable files of shared copies; only the first call does.
    pub(crate) fn sweep(&self) {
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            self.live().sweep();
        }
    }

    /// Takes the lock of one partition and returns its checkpoints; `None` while another reader
    /// owns them.
    ///
    /// # Errors
    /// Returns `Unavailable` if the directory cannot be used.
    pub(crate) fn try_keep(self: &Arc<Self>, at: PartitionRef) -> Result<Option<Checkpoints>> {
        let name = format!("{:016x}-{:04}{SUFFIX_LOCK}", at.store.0, at.partition.0);
        let lock = match self.disk.lock(&self.options.dir.join(name)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(self.unusable(&error)),
        };
        let due = Box::pin(tokio::time::sleep(self.options.every));
        let (directory, last, kept, trouble) = (Arc::clone(self), None, None, None);
        let restored = None;
        let of = Checkpoints { directory, at, serial: 0, due, last, restored, kept, trouble, lock };
        Ok(Some(of))
    }

    /// Takes the lock as [`CheckpointDirectory::try_keep`] does, for a directory that must not be
    /// shared.
    ///
    /// # Errors
    /// Returns `Conflict` while another reader holds the lock, and `Unavailable` if the directory
    /// cannot be used.
    pub(crate) fn keep(self: &Arc<Self>, at: PartitionRef) -> Result<Checkpoints> {
        self.try_keep(at)?.ok_or_else(|| {
            let message = format!(
                "another reader uses {}; close that reader, or use another directory",
                self.options.dir.display()
            );
            Error::conflict(message).with_partition(at.partition)
        })
    }
}

/// Creates a directory, and tries to make its name durable: if that fails, a power cut may cost the
/// checkpoints, which costs a bootstrap.
fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let missing = dir.ancestors().take_while(|dir| disk.list(dir).is_err()).count();
    disk.create_dir(dir)?;
    for parent in dir.ancestors().skip(1).take(missing) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if let Err(error) = disk.sync_dir(parent) {
            tracing::debug!(dir = %parent.display(), %error, "checkpoint directory not synced");
        }
    }
    Ok(())
}

/// The checkpoints of one partition; owned by its tail.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    directory: Arc<CheckpointDirectory>,
    at: PartitionRef,
    /// Highest serial used so far.
    serial: u64,
    due: Pin<Box<Sleep>>,
    /// Number and offset of the replica in the last checkpoint written.
    last: Option<(u32, Offset)>,
    /// File that this reader resumed from.
    restored: Option<PathBuf>,
    /// Log and offset of an existing checkpoint that lacks only its schema definition: no
    /// checkpoint of an earlier offset of that log replaces it.
    kept: Option<(LogId, Offset)>,
    /// Error of the last checkpoint, if it failed.
    trouble: Option<ErrorCode>,
    /// Lock that the tail holds until it ends.
    #[expect(dead_code, reason = "held, and let go by its drop")]
    lock: Box<dyn DiskLock>,
}

/// Returns when a checkpoint is due.
pub(crate) async fn due(checkpoints: &mut Option<Checkpoints>) {
    match checkpoints {
        Some(checkpoints) => checkpoints.due.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Checkpoints {
    /// Returns the usable files, newest first; removes unfinished files of a crash.
    ///
    /// # Errors
    /// Returns `Unavailable` if the directory cannot be listed.
    pub(crate) fn files(&mut self) -> Result<Vec<PathBuf>> {
        let serials = self.sweep(u64::MAX).map_err(|error| refused("look for", &error))?;
        self.serial = serials.last().copied().unwrap_or(0);
        Ok(serials.into_iter().rev().map(|serial| self.path(serial, SUFFIX)).collect())
    }

    /// Opens a file and checks that it belongs to the partition of `empty`.
    ///
    /// # Errors
    /// Returns the errors of [`Image::open`], and `Unsupported` for a checkpoint of another
    /// partition.
    pub(crate) fn open(&self, path: &Path, empty: &PartitionState) -> Result<(Image, ImageState)> {
        self.directory.open_file(path, empty.partition, empty.partitions)
    }

    /// Protects the existing checkpoint from being replaced by one of the same log at an earlier
    /// offset.
    pub(crate) fn keep_from(&mut self, log_id: Option<LogId>, offset: Offset) {
        // The caller goes from the newest file to the oldest, so the first call counts.
        self.kept = self.kept.or(log_id.map(|log_id| (log_id, offset)));
    }

    /// Notes that this replica was restored from `file`.
    pub(crate) fn note_restored(&mut self, copy: &Generation, file: &Path) {
        self.last = Some((copy.number(), copy.state().offset_applied));
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
    pub(crate) fn note_mended(&mut self) {
        self.last = None;
    }

    /// Writes a checkpoint of a replica, if the replica has changed; returns whether it did.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if the partition is too large, `Unavailable` if the disk refuses,
    /// and `DeadlineExceeded` once `is_late` returns true. After an error the previous checkpoint
    /// still exists.
    pub(crate) fn write(
        &mut self,
        copy: &Generation,
        clock_error_us: Option<i64>,
        is_late: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let (log_id, offset) = (copy.state().log_id, copy.state().offset_applied);
        let now = (copy.number(), offset);
        let is_behind = |(kept, from): (LogId, Offset)| log_id == Some(kept) && offset < from;
        if self.last == Some(now) || self.kept.is_some_and(is_behind) {
            return Ok(false);
        }
        let Some(head) = copy.checkpoint_head(clock_error_us) else { return Ok(false) };
        let Some(writer) = copy.writer().as_index() else { return Ok(false) };
        let held = writer.held();
        let (bytes, bytes_max) =
            (held.key_bytes + held.row_bytes, self.directory.options.bytes_max);
        if bytes > bytes_max {
            let message = "the partition is too large for a checkpoint; raise bytes_max, or let \
                restarts read the log";
            return Err(Error::limit_exceeded(message, bytes_max, bytes));
        }
        self.serial += 1;
        let (aside, path) = (self.path(self.serial, SUFFIX_NEW), self.path(self.serial, SUFFIX));
        let (disk, dir) = (&self.directory.disk, &self.directory.options.dir);
        let written = disk.create(&aside).map_err(|error| refused("make", &error));
        let written = written.and_then(|file| file::write(&*file, &head, writer, is_late));
        let named = written.and_then(|_| {
            let named = disk.rename(&aside, &path).and_then(|()| disk.sync_dir(dir));
            named.map_err(|error| refused("name", &error))
        });
        if let Err(error) = named {
            // If this removal fails, the next open or the next checkpoint removes the file.
            let _ = disk.remove(&aside);
            return Err(error);
        }
        self.last = Some(now);
        self.trouble = None;
        self.remove_fetched(None);
        if let Err(error) = self.sweep(self.serial) {
            tracing::debug!(at = %self.at, %error, "older checkpoints not listed");
        }
        Ok(true)
    }

    /// Returns whether this error differs from the error of the previous attempt.
    pub(crate) fn is_news(&mut self, error: &Error) -> bool {
        self.trouble.replace(error.code()) != Some(error.code())
    }

    /// Starts the wait for the next checkpoint, after one that took `took_us`.
    pub(crate) fn rest(&mut self, took_us: i64) {
        let took = Duration::from_micros(u64::try_from(took_us).unwrap_or(0));
        let wait = self.directory.options.every.max(took.saturating_mul(REST_FACTOR));
        self.due = Box::pin(tokio::time::sleep(wait));
    }

    fn path(&self, serial: u64, suffix: &str) -> PathBuf {
        self.directory.options.dir.join(format!("{}{serial:020}{suffix}", self.prefix()))
    }

    fn prefix(&self) -> String {
        format!("{:016x}-{:04}-", self.at.store.0, self.at.partition.0)
    }

    /// Removes unfinished files and, if the file of serial `keep` exists, older ones; returns the
    /// remaining serials, ascending. A later sweep retries a file that could not be removed.
    fn sweep(&self, keep: u64) -> io::Result<Vec<u64>> {
        let (disk, dir) = (&self.directory.disk, &self.directory.options.dir);
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
    fn remove_all(&self) {
        let (disk, dir) = (&self.directory.disk, &self.directory.options.dir);
        if self.directory.is_of_host() {
            self.directory.live().remove(self.at.store, [self.at.partition]);
        }
        let prefix = self.prefix();
        let names = disk.list(dir).unwrap_or_default();
        let own = names.iter().filter(|name| name.starts_with(&prefix));
        own.for_each(|name| self.remove(&dir.join(name)));
    }

    fn remove(&self, path: &Path) {
        if let Err(error) = self.directory.disk.remove(path) {
            tracing::debug!(path = %path.display(), %error, "checkpoint not removed");
        }
    }
}
