//! Checkpoints: what a partition was at one position, on this machine's disk, so that a restart
//! goes on from there: an image of the documents with the fold's state in it. The bytes are
//! `proto/spec/image.md`. A restart maps the newest one and goes on without reading it through;
//! each block is proved when it is first used.
//!
//! The tail writes them itself, between two groups of records: the fold's state and the documents
//! are then of exactly one position, and nothing needs to be copied or locked. The price is
//! that nothing is applied meanwhile, so three things bound it: a partition above `bytes_max` gets
//! no checkpoint, only what has changed is written, and the tail rests 19 times as long as a
//! checkpoint took before it writes the next. Reads go on at all times. A tail that ends in order
//! writes a last one, within a bound of time.
//!
//! A checkpoint is never needed: whatever cannot be used is ignored, with a record and a count, and
//! the partition bootstraps from its log; so it does, beside what it serves, when a block is found
//! damaged later that cannot be mended. One that was mended is written anew. Definitions are not in
//! it, they come from the catalog; nor are outcomes of conditional changes, which after a restart
//! are unknown.

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
/// A tail spends at most one part in this many, plus one, on checkpoints.
const REST_FACTOR: u32 = 19;

/// Where a reader writes checkpoints, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Directory for them; made when it is missing.
    pub dir: PathBuf,
    /// Whether readers of other processes, and others of this one, may use the directory too: they
    /// all answer from one copy of each partition, which one of them keeps; another goes on with
    /// it when that one ends, however it ends. Without it, and on a disk that is not the host's,
    /// one reader uses a partition's files at a time.
    pub is_shared: bool,
    /// Directory of a memory file system for the documents of shared copies, which lie in `dir`
    /// where there is none or it has no room. They stay there when the last reader ends, for the
    /// next one to go on with, until the machine restarts or a reader finds their `dir` removed.
    pub memory_dir: Option<PathBuf>,
    /// Time between two checkpoints of a partition; more where writing one takes long, or where
    /// partitions of the reader begin with an image: none is written meanwhile.
    pub every: Duration,
    /// Largest partition, in bytes of its keys and rows, of which checkpoints are written: while
    /// one is written, nothing of its partition is applied.
    pub bytes_max: u64,
}

impl CheckpointOptions {
    /// Checkpoints in this directory, shared, with the documents in the host's shared memory
    /// (`/dev/shm`) where there is one; every 10 s, of partitions of up to 4 GiB.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let every = Duration::from_millis(CHECKPOINT_EVERY_MS);
        let LiveDirectory { dir, memory_dir } = LiveDirectory::new(dir);
        Self { dir, is_shared: true, memory_dir, every, bytes_max: CHECKPOINT_BYTES_MAX }
    }
}

/// The directory of a reader's checkpoints, and of the copies that it shares.
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
    /// Opens the directory, if the reader is asked to write checkpoints.
    ///
    /// # Errors
    /// `InvalidArgument` for options that cannot be, `Unavailable` when it cannot be used.
    pub(crate) fn open(
        options: &ReaderOptions,
        disk: Option<&Arc<dyn Disk>>,
    ) -> Result<Option<Arc<Self>>> {
        let Some(options) = options.checkpoint.clone() else { return Ok(None) };
        if options.every.is_zero() {
            let message = "checkpoints every 0 s leave no time for anything else; raise `every`";
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

    /// The directory, and what it says of the store's name, before anybody is asked who knows;
    /// `None` where it says nothing. Makes nothing.
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

    /// Writes down what a store's name stands for.
    pub(crate) fn note_store(&self, name: &str, named: NamedStore) {
        if let Err(error) = named.write(&*self.disk, &self.options.dir, name) {
            tracing::debug!(store = %name, %error, "what its name stands for was not written");
        }
    }

    /// Where the copies lie that are shared here.
    pub(crate) fn live(&self) -> LiveDirectory {
        let CheckpointOptions { dir, memory_dir, .. } = self.options.clone();
        LiveDirectory { dir, memory_dir }
    }

    /// Whether other readers may answer from the copies that are kept here.
    pub(crate) fn is_shared(&self) -> bool {
        self.options.is_shared && self.is_of_host()
    }

    /// Whether other processes find it.
    pub(crate) fn is_of_host(&self) -> bool {
        self.disk.is_of_host()
    }

    fn unusable(&self, error: &io::Error) -> Error {
        Error::unavailable(format!(
            "could not use {} for checkpoints: {error}; correct the directory",
            self.options.dir.display()
        ))
    }

    /// What those are kept as of which there is a copy or a checkpoint here.
    pub(crate) fn stores(&self) -> BTreeSet<StoreId> {
        let names = self.disk.list(&self.options.dir).unwrap_or_default();
        let store = |name: &String| {
            let (store, _) = name.strip_prefix("live-").unwrap_or(name).split_once('-')?;
            let id = u64::from_str_radix(store, 16).ok().filter(|_| store.len() == 16)?;
            Some(StoreId(id))
        };
        names.iter().filter(|name| !name.ends_with(SUFFIX_LOCK)).filter_map(store).collect()
    }

    /// Removes what there is of a version of the documents that nobody follows any more: where
    /// another reader keeps it still, that one does so when it has let go.
    pub(crate) fn forget(self: &Arc<Self>, at: PartitionRef) {
        match self.try_keep(at) {
            Ok(Some(kept)) => kept.remove_all(),
            Ok(None) => {}
            Err(error) => tracing::debug!(%at, %error, "a version's copy was not removed"),
        }
    }

    /// The newest checkpoint of each partition of a store that has one, as their names tell.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn newest(&self, store: StoreId) -> Result<BTreeMap<PartitionId, PathBuf>> {
        let dir = &self.options.dir;
        let names = self.disk.list(dir).map_err(|error| refused("look for", &error))?;
        let prefix = format!("{:016x}-", store.0);
        let partition = |name: &String| {
            let (partition, serial) = name.strip_prefix(&prefix)?.split_once('-')?;
            serial.strip_suffix(SUFFIX)?;
            partition.parse().ok().map(PartitionId)
        };
        // Sorted by name, so the newest of a partition comes last.
        let found = names.iter().filter_map(|name| Some((partition(name)?, dir.join(name))));
        Ok(found.collect())
    }

    /// The newest checkpoint of a partition that lies in a folder, whoever keeps it.
    ///
    /// # Errors
    /// As [`CheckpointDirectory::open_file`]; `NotFound` where there is none.
    pub(crate) fn newest_in(
        dir: &Path,
        at: PartitionRef,
        partitions: PartitionCount,
    ) -> Result<(Image, ImageState)> {
        let options = CheckpointOptions::new(dir);
        let directory =
            Self { options, disk: Arc::new(RealDisk), is_swept: AtomicBool::new(false) };
        let newest = directory.newest(at.store)?.remove(&at.partition).ok_or_else(|| {
            let message = format!("there is no checkpoint of it in {}", dir.display());
            Error::not_found(message).with_partition(at.partition)
        })?;
        directory.open_file(&newest, at, partitions)
    }

    /// Opens a checkpoint and checks that it is of this partition.
    ///
    /// # Errors
    /// Those of [`Image::open`]; `Unsupported` for a checkpoint of something else.
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

    /// Removes what nobody can come to any more of copies that were shared, once.
    pub(crate) fn sweep(&self) {
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            self.live().sweep();
        }
    }

    /// The checkpoints of one partition, for the one reader that keeps them; `None` while that is
    /// another one.
    ///
    /// # Errors
    /// `Unavailable` when the directory cannot be used.
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

    /// As [`CheckpointDirectory::try_keep`], where nobody else may use the directory.
    ///
    /// # Errors
    /// `Conflict` while another reader does; `Unavailable`.
    pub(crate) fn keep(self: &Arc<Self>, at: PartitionRef) -> Result<Checkpoints> {
        self.try_keep(at)?.ok_or_else(|| {
            let message = format!(
                "{} is used by another reader; close it, or use another directory",
                self.options.dir.display()
            );
            Error::conflict(message).with_partition(at.partition)
        })
    }
}

/// Makes a directory. That its name is durable is tried only: without it a power cut may cost the
/// checkpoints, which costs a bootstrap.
fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let missing = dir.ancestors().take_while(|dir| disk.list(dir).is_err()).count();
    disk.create_dir(dir)?;
    for parent in dir.ancestors().skip(1).take(missing) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if let Err(error) = disk.sync_dir(parent) {
            tracing::debug!(dir = %parent.display(), %error, "a new name may not be durable");
        }
    }
    Ok(())
}

/// The checkpoints of one partition; belongs to its tail.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    directory: Arc<CheckpointDirectory>,
    at: PartitionRef,
    /// Highest serial that was used so far.
    serial: u64,
    due: Pin<Box<Sleep>>,
    /// Copy and offset of the last one written.
    last: Option<(u32, Offset)>,
    /// The file that this reader went on from.
    restored: Option<PathBuf>,
    /// Log and offset of one that is there, and that only its definition is missing for: none of
    /// that log from before it takes its place.
    kept: Option<(LogId, Offset)>,
    /// Why the last one was not written, if it was not.
    trouble: Option<ErrorCode>,
    /// Held until the tail ends.
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
    /// The files that may be used, the newest first; removes what a crash left of others.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn files(&mut self) -> Result<Vec<PathBuf>> {
        let serials = self.sweep(u64::MAX).map_err(|error| refused("look for", &error))?;
        self.serial = serials.last().copied().unwrap_or(0);
        Ok(serials.into_iter().rev().map(|serial| self.path(serial, SUFFIX)).collect())
    }

    /// Opens a file and checks that it is of this partition, as `empty` says it should be.
    ///
    /// # Errors
    /// Those of [`Image::open`]; `Unsupported` for a checkpoint of something else.
    pub(crate) fn open(&self, path: &Path, empty: &PartitionState) -> Result<(Image, ImageState)> {
        self.directory.open_file(path, empty.partition, empty.partitions)
    }

    /// Lets none of this log from before this offset take the place of what is there.
    pub(crate) fn keep_from(&mut self, log_id: Option<LogId>, offset: Offset) {
        // Files are looked at from the newest on.
        self.kept = self.kept.or(log_id.map(|log_id| (log_id, offset)));
    }

    /// Notes that what is there is what this copy was made of.
    pub(crate) fn note_restored(&mut self, copy: &Generation, file: &Path) {
        self.last = Some((copy.number(), copy.state().offset_applied));
        self.restored = Some(file.to_owned());
    }

    /// Removes the file that this reader went on from, and that was found damaged since: no later
    /// restart should go on from it. Answers whether there was one.
    pub(crate) fn drop_damaged(&mut self) -> bool {
        let Some(path) = self.restored.take() else { return false };
        self.remove(&path);
        self.last = None;
        true
    }

    /// Notes that the file that this reader went on from was damaged and mended: the next one is
    /// written although nothing has changed.
    pub(crate) fn note_mended(&mut self) {
        self.last = None;
    }

    /// Writes a checkpoint of a copy, if it has changed; answers whether it did.
    ///
    /// # Errors
    /// `LimitExceeded` for a partition that is too large, `Unavailable` when the disk refuses,
    /// `DeadlineExceeded` once it is late. The one before is still there then.
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
            let message = "the partition is too large for a checkpoint; raise bytes_max, or \
                           restart from the log";
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
            // Whatever is left goes at the next open, or behind the next one written.
            let _ = disk.remove(&aside);
            return Err(error);
        }
        self.last = Some(now);
        self.trouble = None;
        self.remove_fetched(None);
        if let Err(error) = self.sweep(self.serial) {
            tracing::debug!(at = %self.at, %error, "older checkpoints were not looked for");
        }
        Ok(true)
    }

    /// Whether this is another trouble than that of the one before.
    pub(crate) fn is_news(&mut self, error: &Error) -> bool {
        self.trouble.replace(error.code()) != Some(error.code())
    }

    /// Starts the wait for the next one, after one that took this long.
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

    /// Removes what is unfinished, and what is older than `keep` if that is there; answers the
    /// serials that are left, ascending. What cannot be removed goes another time.
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

    /// Removes all that is kept of the partition; the lock's file stays.
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
            tracing::debug!(path = %path.display(), %error, "a checkpoint was not removed");
        }
    }
}
