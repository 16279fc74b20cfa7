//! The files of a live partition's spaces: creating, finding, mapping and removing them.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::header::{About, HeaderFile, NAME_BYTES_MAX, boot_id};
use super::takeover::begin_anew;
use super::{LiveDirectory, refused};
use crate::header::{Published, Status};
use crate::memory::{BORROWED, Memory, SPACE_ABOUT_AT, SpillPlace};
use crate::storage::{SeededHash, Space};
use crate::table::FIRST_SERIAL;

/// Free space that a memory file system must have before a space is created there.
const ROOM_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// Attempts to map a space while the holder switches to another one.
const TRIES_MAX: usize = 100;
/// Age below which an unreferenced space is not removed.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(60);
const PREFIX: &str = "forebay-";

/// The names of one partition's spaces. The lowest bit of a space's number says whether the space
/// is next to the header.
#[derive(Clone, Debug)]
pub(crate) struct Spaces {
    header: PathBuf,
    dir: PathBuf,
    memory_dir: Option<PathBuf>,
    name: String,
    /// Whether the memory file system has run out of room for a space before.
    is_memory_full: bool,
}

impl Spaces {
    fn new(at: &LiveDirectory, about: &About, store: StoreId, partition: PartitionId) -> Self {
        let (token, store_id, partition_id) = (about.token, store.0, partition.0);
        Self {
            header: at.header(store, partition),
            dir: at.dir.clone(),
            memory_dir: about.memory_dir.clone(),
            name: format!("{PREFIX}{token:016x}-{store_id:016x}-{partition_id:04}"),
            is_memory_full: false,
        }
    }

    fn path(&self, generation: u64) -> PathBuf {
        let (dir, name) = (&self.dir, format!("{}-{}", self.name, generation >> 1));
        let is_beside = generation & 1 == 1;
        self.memory_dir.as_ref().filter(|_| !is_beside).unwrap_or(dir).join(name)
    }

    /// Returns the possible names of a space's link to its donor's file: in the directory of that
    /// file.
    fn borrowed(&self, generation: u64) -> Vec<PathBuf> {
        let name = format!("{}-{}{BORROWED}", self.name, generation >> 1);
        self.memory_dir.iter().chain([&self.dir]).map(|dir| dir.join(&name)).collect()
    }

    /// The text in a space that names the header leading to the space.
    fn about(&self) -> &[u8] {
        let name = self.header.to_str().unwrap_or("").as_bytes();
        &name[..name.len().min(NAME_BYTES_MAX)]
    }

    /// The spill file of a space, always on disk.
    fn spill(&self, generation: u64) -> SpillPlace {
        let path = self.dir.join(format!("{}-{}.spill", self.name, generation >> 1));
        SpillPlace::Named(path, self.about().to_vec())
    }

    /// Creates an empty space with the number after `behind`, with at most this many addresses,
    /// borrowing all memory of a donor if there is one.
    ///
    /// # Errors
    /// The errors of [`Memory::create_live`]; `NotFound` if the donor is gone.
    pub(crate) fn create(
        &self,
        behind: u64,
        hash: SeededHash,
        addresses: u64,
        lender: Option<&Lender>,
    ) -> Result<Arc<Space>> {
        let number = (behind >> 1) + 1;
        let has_room = |dir: &PathBuf| {
            let free = rustix::fs::statvfs(dir).map(|at| at.f_bavail.saturating_mul(at.f_frsize));
            free.is_ok_and(|free| free >= ROOM_BYTES_MIN)
        };
        let in_memory = !self.is_memory_full && self.memory_dir.as_ref().is_some_and(has_room);
        if in_memory {
            match self.create_as(number << 1, hash, addresses, lender) {
                Err(error) if error.code() == ErrorCode::LimitExceeded => {}
                made => return made,
            }
        }
        self.create_as(number << 1 | 1, hash, addresses, lender)
    }

    fn create_as(
        &self,
        generation: u64,
        hash: SeededHash,
        addresses: u64,
        lender: Option<&Lender>,
    ) -> Result<Arc<Space>> {
        let path = self.path(generation);
        // This file was left by a holder that was killed before any reader could reach it.
        self.remove(generation);
        let made = match lender {
            None => Memory::create_live(&path, addresses, self.about()),
            Some(lender) => {
                let beside = lender.path.parent();
                let mut names = self.borrowed(generation).into_iter();
                let name = names.find(|name| name.parent() == beside).ok_or_else(|| {
                    Error::unsupported("records cannot be shared with another reader's directory")
                })?;
                let lend = |name: &Path| lender.lend(name);
                Memory::create_borrowing(&path, addresses, self.about(), &name, lend)
            }
        };
        let memory = made.inspect_err(|_| self.remove(generation))?;
        memory.spill_to(self.spill(generation));
        let words = memory.words();
        words.hash_seed.store(hash.seed(), Ordering::Relaxed);
        words.serial.store(FIRST_SERIAL, Ordering::Release);
        Ok(Arc::new(Space { memory, hash, generation }))
    }

    /// Notes that a space found no room; returns whether the next space may have more, because it
    /// will be next to the header.
    pub(crate) fn note_full(&mut self, generation: u64) -> bool {
        let is_in_memory = self.memory_dir.is_some() && generation & 1 == 0;
        self.is_memory_full |= is_in_memory;
        is_in_memory
    }

    /// Maps a space.
    ///
    /// # Errors
    /// The errors of [`Memory::open_live`].
    pub(crate) fn open(&self, generation: u64, is_written: bool) -> Result<Arc<Space>> {
        let borrowed = self.borrowed(generation);
        let memory = Memory::open_live(&self.path(generation), is_written, &borrowed)?;
        memory.spill_to(self.spill(generation));
        let hash = SeededHash::of_seed(memory.words().hash_seed.load(Ordering::Acquire));
        Ok(Arc::new(Space { memory, hash, generation }))
    }

    /// Removes the names of a space and of its spill file; processes that have them open continue.
    pub(crate) fn remove(&self, generation: u64) {
        // Remaining files are removed when the next holder sweeps.
        drop(std::fs::remove_file(self.path(generation)));
        for borrowed in self.borrowed(generation) {
            drop(std::fs::remove_file(borrowed));
        }
        if let SpillPlace::Named(spill, _) = self.spill(generation) {
            drop(std::fs::remove_file(spill));
        }
    }
}

/// A donor: a space of another version of the same partition, whose records a new space borrows.
#[derive(Debug)]
pub(crate) struct Lender {
    /// The space as its readers map it.
    pub(crate) space: Arc<Space>,
    path: PathBuf,
    /// The possible names of the donor's own link to a space that it has borrowed from.
    borrowed: Vec<PathBuf>,
}

impl Lender {
    /// Opens the space of a partition that is live now.
    ///
    /// # Errors
    /// `NotFound` without a live copy; those of [`Attach::space`].
    pub(crate) fn open(at: &LiveDirectory, store: StoreId, partition: PartitionId) -> Result<Self> {
        let (_, space, attach) = Attach::open(at, store, partition)?;
        let path = attach.spaces.path(space.generation);
        let borrowed = attach.spaces.borrowed(space.generation);
        Ok(Self { space, path, borrowed })
    }

    /// Gives the donor's file one more name, and lends all its memory; returns the number of bytes.
    fn lend(&self, name: &Path) -> Result<u64> {
        let gone = || Error::not_found("the donor's file is gone");
        std::fs::hard_link(&self.path, name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => gone(),
            _ => refused("link", &self.path, &error),
        })?;
        // This mapping writes the space's words and nothing else.
        Ok(Memory::open_live(name, true, &self.borrowed)?.lend())
    }
}

/// The access of a process to the spaces of a live partition that it reads.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) lock: Mutex<()>,
    spaces: Spaces,
}

impl Attach {
    /// Opens a header for reads, and the space that is live now.
    ///
    /// # Errors
    /// `NotFound` without a live copy; those of [`Attach::space`].
    pub(crate) fn open(
        at: &LiveDirectory,
        store: StoreId,
        partition: PartitionId,
    ) -> Result<(Published, Arc<Space>, Self)> {
        let header = HeaderFile::open(&at.header(store, partition), false)?;
        let spaces = Spaces::new(at, header.about(), store, partition);
        let (published, lock) = (Published::Shared(Arc::new(header)), Mutex::new(()));
        let attach = Self { lock, spaces };
        let space = attach.space(&published)?;
        Ok((published, space, attach))
    }

    /// Opens the space that is live now.
    ///
    /// # Errors
    /// `Unavailable` when the space cannot be mapped.
    pub(crate) fn space(&self, published: &Published) -> Result<Arc<Space>> {
        for _ in 0..TRIES_MAX {
            match self.spaces.open(published.load_generation(), false) {
                // The file was removed after the number was loaded: the next space exists already.
                Err(error) if error.code() == ErrorCode::NotFound => std::thread::yield_now(),
                opened => return opened,
            }
        }
        let message = "the file of the shared copy is gone; open the reader again";
        Err(Error::unavailable(message))
    }
}

/// Opens a header for its holder; returns its words and the names of its spaces.
pub(super) fn header_to_write(
    at: &LiveDirectory,
    store: StoreId,
    partition: PartitionId,
) -> Result<(Published, Spaces)> {
    let header = HeaderFile::open(&at.header(store, partition), true)?;
    let spaces = Spaces::new(at, header.about(), store, partition);
    Ok((Published::Shared(Arc::new(header)), spaces))
}

/// Ensures that a partition has a header of this boot.
pub(crate) fn make(
    at: &LiveDirectory,
    store: StoreId,
    partition: PartitionId,
    hash: SeededHash,
    addresses: u64,
) -> Result<()> {
    let path = at.header(store, partition);
    match header_to_write(at, store, partition) {
        Ok((published, spaces)) => return keep_or_begin(&published, &spaces, hash, addresses),
        Err(error) if error.code() == ErrorCode::Unavailable => return Err(error),
        Err(_) => {}
    }
    let mut salt = hash.seed().to_le_bytes().to_vec();
    salt.extend(path.as_os_str().as_encoded_bytes());
    salt.extend(std::process::id().to_le_bytes());
    let memory_dir = at.memory_dir.clone();
    let about = About { boot: boot_id(), token: xxh3_64(&salt), memory_dir };
    let spaces = Spaces::new(at, &about, store, partition);
    let space = spaces.create(0, hash, addresses, None)?;
    let aside = path.with_extension("new");
    let header = HeaderFile::create(&aside, about)?;
    let words = header.words();
    words.publish(&Status { generation: space.generation, ..Status::START });
    words.store_generation(space.generation);
    std::fs::rename(&aside, &path).map_err(|error| refused("name", &path, &error))
}

/// Leaves a copy as it is if its space exists. The space may be gone: the memory file system of a
/// container, for example, ends with the container.
fn keep_or_begin(
    published: &Published,
    spaces: &Spaces,
    hash: SeededHash,
    addresses: u64,
) -> Result<()> {
    match spaces.open(published.load_generation(), false) {
        Ok(_) => Ok(()),
        Err(error) if error.code() == ErrorCode::Unavailable => Err(error),
        Err(_) => begin_anew(published, spaces, hash, addresses).map(drop),
    }
}

/// Removes the header of a partition, and its space.
pub(super) fn remove(at: &LiveDirectory, store: StoreId, partition: PartitionId) {
    let path = at.header(store, partition);
    if let Ok(header) = HeaderFile::open(&path, false) {
        let spaces = Spaces::new(at, header.about(), store, partition);
        spaces.remove(header.words().load_generation());
    }
    // A remaining header is found and replaced by the next holder.
    drop(std::fs::remove_file(&path));
}

/// Removes spaces that no header leads to: those of removed directories, of an earlier boot, and of
/// killed holders. A space that cannot be removed stays for a later sweep.
pub(super) fn sweep(at: &LiveDirectory) {
    // The link to a donor's file becomes removable once its borrower is gone, so links come second.
    for is_borrowed in [false, true] {
        for dir in at.memory_dir.iter().chain([&at.dir]) {
            drop(sweep_one(at, dir, is_borrowed));
        }
    }
}

/// Sweeps one directory: its spaces, or the links of spaces to donors' files.
fn sweep_one(at: &LiveDirectory, dir: &Path, is_borrowed: bool) -> std::io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let (names, now) = (std::fs::read_dir(dir)?, time_in(dir)?);
    for entry in names.flatten() {
        let name = entry.file_name();
        let is_asked = name.to_str().is_some_and(|name| {
            name.starts_with(PREFIX) && name.ends_with(BORROWED) == is_borrowed
        });
        let is_own = entry.metadata().is_ok_and(|at| at.is_file() && at.uid() == own);
        let modified = entry.metadata().and_then(|at| at.modified());
        // A recent space may not have its header yet.
        let is_old = modified.is_ok_and(|at| at + ORPHAN_AGE_MIN < now);
        if is_asked && is_own && is_old && !is_in_use(at, &entry.path()) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
    Ok(())
}

/// Returns the current time by the clock that dates files in a directory.
fn time_in(dir: &Path) -> std::io::Result<SystemTime> {
    let path = dir.join(format!("{PREFIX}now-{}", std::process::id()));
    let modified = File::create(&path).and_then(|file| file.metadata()?.modified());
    std::fs::remove_file(&path)?;
    modified
}

/// Whether a file is in use: a space, or the link of a space to a donor's file.
fn is_in_use(at: &LiveDirectory, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    match name.strip_suffix(BORROWED) {
        Some(borrower) => {
            let mut dirs = at.memory_dir.iter().chain([&at.dir]);
            dirs.any(|dir| dir.join(borrower).exists())
        }
        None => is_led_to(path),
    }
}

/// Whether the header that a space belongs to exists and has the same token.
fn is_led_to(space: &Path) -> bool {
    let mut about = vec![0; NAME_BYTES_MAX];
    let read = File::open(space).and_then(|file| file.read_exact_at(&mut about, SPACE_ABOUT_AT));
    let end = about.iter().position(|byte| *byte == 0).unwrap_or(about.len());
    let header = std::str::from_utf8(&about[..end]);
    let (Ok(()), Ok(header)) = (read, header) else { return true };
    if header.is_empty() {
        // The space is being created, or the name of its header is not recorded.
        return true;
    }
    let token = match HeaderFile::open(Path::new(header), false) {
        Ok(header) => header.about().token,
        Err(error) => return error.code() != ErrorCode::NotFound,
    };
    let name = space.file_name().and_then(|name| name.to_str()).unwrap_or("");
    name.starts_with(&format!("{PREFIX}{token:016x}-"))
}
