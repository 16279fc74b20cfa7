//! The files of a live partition's spaces: made, found, mapped and removed.

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

/// Room that a memory file system must have left before a space is begun there.
const ROOM_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// Tries to map a space while the holder goes on to another one.
const TRIES_MAX: usize = 100;
/// How long a space is left alone that no header leads to.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(60);
const PREFIX: &str = "forebay-";

/// The names of one partition's spaces. A space's number has a bit, the lowest, that says whether
/// it lies beside the header.
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

    /// What a space's own name for what it has borrowed may be: beside the lender's.
    fn borrowed(&self, generation: u64) -> Vec<PathBuf> {
        let name = format!("{}-{}{BORROWED}", self.name, generation >> 1);
        self.memory_dir.iter().chain([&self.dir]).map(|dir| dir.join(&name)).collect()
    }

    /// What a space says of the header that leads to it.
    fn about(&self) -> &[u8] {
        let name = self.header.to_str().unwrap_or("").as_bytes();
        &name[..name.len().min(NAME_BYTES_MAX)]
    }

    /// Where the documents of a space are spilled: always on disk.
    fn spill(&self, generation: u64) -> SpillPlace {
        let path = self.dir.join(format!("{}-{}.spill", self.name, generation >> 1));
        SpillPlace::Named(path, self.about().to_vec())
    }

    /// Makes an empty space with the number behind this one, with at most so many addresses, and
    /// with all that a lender has.
    ///
    /// # Errors
    /// Those of [`Memory::create_live`]; `NotFound` where the lender is gone.
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
        // Left by a holder that was killed before anybody could come to it.
        self.remove(generation);
        let made = match lender {
            None => Memory::create_live(&path, addresses, self.about()),
            Some(lender) => {
                let beside = lender.path.parent();
                let mut names = self.borrowed(generation).into_iter();
                let name = names.find(|name| name.parent() == beside).ok_or_else(|| {
                    Error::unsupported("nothing is borrowed of another reader's directory")
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

    /// Notes that a space found no room; answers whether the next one may have more: it lies beside
    /// the header then.
    pub(crate) fn note_full(&mut self, generation: u64) -> bool {
        let is_in_memory = self.memory_dir.is_some() && generation & 1 == 0;
        self.is_memory_full |= is_in_memory;
        is_in_memory
    }

    /// Maps a space.
    ///
    /// # Errors
    /// Those of [`Memory::open_live`].
    pub(crate) fn open(&self, generation: u64, is_written: bool) -> Result<Arc<Space>> {
        let borrowed = self.borrowed(generation);
        let memory = Memory::open_live(&self.path(generation), is_written, &borrowed)?;
        memory.spill_to(self.spill(generation));
        let hash = SeededHash::of_seed(memory.words().hash_seed.load(Ordering::Acquire));
        Ok(Arc::new(Space { memory, hash, generation }))
    }

    /// Takes a space's name away, and that of its spill file; whoever has them open goes on.
    pub(crate) fn remove(&self, generation: u64) {
        // What stays goes when the next holder sweeps.
        drop(std::fs::remove_file(self.path(generation)));
        for borrowed in self.borrowed(generation) {
            drop(std::fs::remove_file(borrowed));
        }
        if let SpillPlace::Named(spill, _) = self.spill(generation) {
            drop(std::fs::remove_file(spill));
        }
    }
}

/// A space of another version of the same partition, of which a new one borrows what both have.
#[derive(Debug)]
pub(crate) struct Lender {
    /// As its readers have it.
    pub(crate) space: Arc<Space>,
    path: PathBuf,
    /// What its own name for what it has borrowed itself may be.
    borrowed: Vec<PathBuf>,
}

impl Lender {
    /// The space that is live now of a partition.
    ///
    /// # Errors
    /// `NotFound` without a live copy; those of [`Attach::space`].
    pub(crate) fn open(at: &LiveDirectory, store: StoreId, partition: PartitionId) -> Result<Self> {
        let (_, space, attach) = Attach::open(at, store, partition)?;
        let path = attach.spaces.path(space.generation);
        let borrowed = attach.spaces.borrowed(space.generation);
        Ok(Self { space, path, borrowed })
    }

    /// Gives its file one more name, and lends all that it has; answers how many bytes.
    fn lend(&self, name: &Path) -> Result<u64> {
        let gone = || Error::not_found("what was to be borrowed is gone");
        std::fs::hard_link(&self.path, name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => gone(),
            _ => refused("link", &self.path, &error),
        })?;
        // Its words are written, nothing else.
        Ok(Memory::open_live(name, true, &self.borrowed)?.lend())
    }
}

/// How a process comes to the space of a live partition that it reads.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) lock: Mutex<()>,
    spaces: Spaces,
}

impl Attach {
    /// A header to read by, and the space that is live now.
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

    /// The space that is live now.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be mapped.
    pub(crate) fn space(&self, published: &Published) -> Result<Arc<Space>> {
        for _ in 0..TRIES_MAX {
            match self.spaces.open(published.load_generation(), false) {
                // Removed since the number was loaded: the next one is there already.
                Err(error) if error.code() == ErrorCode::NotFound => std::thread::yield_now(),
                opened => return opened,
            }
        }
        let message = "the file of a live copy is gone; open the reader again";
        Err(Error::unavailable(message))
    }
}

/// The words of a partition to be held, and the names of its spaces.
pub(super) fn header_to_write(
    at: &LiveDirectory,
    store: StoreId,
    partition: PartitionId,
) -> Result<(Published, Spaces)> {
    let header = HeaderFile::open(&at.header(store, partition), true)?;
    let spaces = Spaces::new(at, header.about(), store, partition);
    Ok((Published::Shared(Arc::new(header)), spaces))
}

/// Makes sure that a partition has a header of this boot.
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

/// Leaves a copy as it is, if its space is there: the memory file system of a container, say, ends
/// with it.
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
    // What stays is found again by the next who comes to keep it, and replaced.
    drop(std::fs::remove_file(&path));
}

/// Removes spaces that no header leads to: of directories that were removed, of an earlier boot, of
/// holders that were killed. What cannot be removed stays for another time.
pub(super) fn sweep(at: &LiveDirectory) {
    // What a space has borrowed is free once that space is gone.
    for is_borrowed in [false, true] {
        for dir in at.memory_dir.iter().chain([&at.dir]) {
            drop(sweep_one(at, dir, is_borrowed));
        }
    }
}

/// Of one directory, the spaces, or the names that spaces have for what they borrowed.
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
        // One that was just made may not have its header yet.
        let is_old = modified.is_ok_and(|at| at + ORPHAN_AGE_MIN < now);
        if is_asked && is_own && is_old && !is_in_use(at, &entry.path()) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
    Ok(())
}

/// The time by which files are dated in a directory.
fn time_in(dir: &Path) -> std::io::Result<SystemTime> {
    let path = dir.join(format!("{PREFIX}now-{}", std::process::id()));
    let modified = File::create(&path).and_then(|file| file.metadata()?.modified());
    std::fs::remove_file(&path)?;
    modified
}

/// Whether a file is of use: a space, or the name that one has for what it borrowed.
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

/// Whether the header that a space belongs to is there, and is of the same token.
fn is_led_to(space: &Path) -> bool {
    let mut about = vec![0; NAME_BYTES_MAX];
    let read = File::open(space).and_then(|file| file.read_exact_at(&mut about, SPACE_ABOUT_AT));
    let end = about.iter().position(|byte| *byte == 0).unwrap_or(about.len());
    let header = std::str::from_utf8(&about[..end]);
    let (Ok(()), Ok(header)) = (read, header) else { return true };
    if header.is_empty() {
        // Just being made, or of a name that is not written down.
        return true;
    }
    let token = match HeaderFile::open(Path::new(header), false) {
        Ok(header) => header.about().token,
        Err(error) => return error.code() != ErrorCode::NotFound,
    };
    let name = space.file_name().and_then(|name| name.to_str()).unwrap_or("");
    name.starts_with(&format!("{PREFIX}{token:016x}-"))
}
