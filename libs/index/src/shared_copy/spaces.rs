//! The files of the spaces of a partition with a shared copy: creating, finding, mapping and
//! removing them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::{Error, ErrorCode, Result};
use parking_lot::Mutex;

use super::directory::SharedCopyDirectory;
use super::header_file::{HeaderDescription, HeaderFile, NAME_BYTES_MAX, PublishedWords};
use crate::key::SeededHash;
use crate::memory::{Memory, SpillPlace};
use crate::sharing::{DONOR_LINK_SUFFIX, DonorSpace};
use crate::space::Space;
use crate::table::FIRST_SERIAL;

/// Free space that a memory file system must have before a space is created there.
const ROOM_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// Attempts to map a space while the owner switches to another one.
const TRIES_MAX: usize = 100;
/// The first part of the name of each file of a space.
pub(super) const PREFIX: &str = "forebay-";

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
    pub(super) fn new(
        directory: &SharedCopyDirectory,
        description: &HeaderDescription,
        store: StoreId,
        partition: PartitionId,
    ) -> Self {
        let (token, store_id, partition_id) = (description.token, store.0, partition.0);
        Self {
            header: directory.header(store, partition),
            dir: directory.dir.clone(),
            memory_dir: description.memory_dir.clone(),
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
    fn donor_links(&self, generation: u64) -> Vec<PathBuf> {
        let name = format!("{}-{}{DONOR_LINK_SUFFIX}", self.name, generation >> 1);
        self.memory_dir.iter().chain([&self.dir]).map(|dir| dir.join(&name)).collect()
    }

    /// The text in a space that names the header leading to the space.
    fn header_name(&self) -> &[u8] {
        let name = self.header.to_str().unwrap_or("").as_bytes();
        &name[..name.len().min(NAME_BYTES_MAX)]
    }

    /// The spill file of a space, always on disk.
    fn spill(&self, generation: u64) -> SpillPlace {
        let path = self.dir.join(format!("{}-{}.spill", self.name, generation >> 1));
        SpillPlace::Named(path, self.header_name().to_vec())
    }

    /// Creates an empty space with the number after `previous`, with at most this many addresses,
    /// with all memory of a donor if there is one.
    ///
    /// # Errors
    /// The errors of [`Memory::create_shared`]; `NotFound` if the donor is gone.
    pub(crate) fn create(
        &self,
        previous: u64,
        hash: SeededHash,
        addresses: u64,
        donor: Option<&DonorSpace>,
    ) -> Result<Arc<Space>> {
        let number = (previous >> 1) + 1;
        let has_room = |dir: &PathBuf| {
            let free =
                rustix::fs::statvfs(dir).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
            free.is_ok_and(|free| free >= ROOM_BYTES_MIN)
        };
        let in_memory = !self.is_memory_full && self.memory_dir.as_ref().is_some_and(has_room);
        if in_memory {
            match self.create_as(number << 1, hash, addresses, donor) {
                Err(error) if error.code() == ErrorCode::LimitExceeded => {}
                result => return result,
            }
        }
        self.create_as(number << 1 | 1, hash, addresses, donor)
    }

    fn create_as(
        &self,
        generation: u64,
        hash: SeededHash,
        addresses: u64,
        donor: Option<&DonorSpace>,
    ) -> Result<Arc<Space>> {
        let path = self.path(generation);
        // This file was left by an owner that was killed before any reader could reach it.
        self.remove(generation);
        let result = match donor {
            None => Memory::create_shared(&path, addresses, self.header_name()),
            Some(donor) => {
                let dir = donor.path.parent();
                let mut names = self.donor_links(generation).into_iter();
                let name = names.find(|name| name.parent() == dir).ok_or_else(|| {
                    Error::unsupported("records cannot be shared with another reader's directory")
                })?;
                let donate = |name: &Path| donor.donate(name);
                Memory::create_sharing(&path, addresses, self.header_name(), &name, donate)
            }
        };
        let memory = result.inspect_err(|_| self.remove(generation))?;
        memory.spill_to(self.spill(generation));
        let header = memory.header();
        header.hash_seed.store(hash.seed(), Ordering::Relaxed);
        header.serial.store(FIRST_SERIAL, Ordering::Release);
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
    /// The errors of [`Memory::open_shared`].
    pub(crate) fn open(&self, generation: u64, is_written: bool) -> Result<Arc<Space>> {
        let donor_links = self.donor_links(generation);
        let memory = Memory::open_shared(&self.path(generation), is_written, &donor_links)?;
        memory.spill_to(self.spill(generation));
        let hash = SeededHash::of_seed(memory.header().hash_seed.load(Ordering::Acquire));
        Ok(Arc::new(Space { memory, hash, generation }))
    }

    /// Removes the names of a space and of its spill file; processes that have them open continue.
    pub(crate) fn remove(&self, generation: u64) {
        // Remaining files are removed when the next owner sweeps.
        drop(std::fs::remove_file(self.path(generation)));
        for link in self.donor_links(generation) {
            drop(std::fs::remove_file(link));
        }
        if let SpillPlace::Named(spill, _) = self.spill(generation) {
            drop(std::fs::remove_file(spill));
        }
    }
}

impl DonorSpace {
    /// Opens the current space of a partition.
    ///
    /// # Errors
    /// `NotFound` without a shared copy; those of [`Attach::space`].
    pub(crate) fn open(
        directory: &SharedCopyDirectory,
        store: StoreId,
        partition: PartitionId,
    ) -> Result<Self> {
        let (_, space, attach) = Attach::open(directory, store, partition)?;
        let path = attach.spaces.path(space.generation);
        let donor_links = attach.spaces.donor_links(space.generation);
        Ok(Self { space, path, donor_links })
    }
}

/// The access of a process to the spaces of a partition with a shared copy that it reads.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) lock: Mutex<()>,
    spaces: Spaces,
}

impl Attach {
    /// Opens a header for reads, and the space that is current.
    ///
    /// # Errors
    /// `NotFound` without a shared copy; those of [`Attach::space`].
    pub(crate) fn open(
        directory: &SharedCopyDirectory,
        store: StoreId,
        partition: PartitionId,
    ) -> Result<(PublishedWords, Arc<Space>, Self)> {
        let header = HeaderFile::open(&directory.header(store, partition), false)?;
        let spaces = Spaces::new(directory, header.description(), store, partition);
        let (published, lock) = (PublishedWords::Shared(Arc::new(header)), Mutex::new(()));
        let attach = Self { lock, spaces };
        let space = attach.space(&published)?;
        Ok((published, space, attach))
    }

    /// Opens the space that is current.
    ///
    /// # Errors
    /// `Unavailable` when the space cannot be mapped.
    pub(crate) fn space(&self, published: &PublishedWords) -> Result<Arc<Space>> {
        for _ in 0..TRIES_MAX {
            match self.spaces.open(published.load_generation(), false) {
                // The file was removed after the number was loaded: the next space exists already.
                Err(error) if error.code() == ErrorCode::NotFound => std::thread::yield_now(),
                outcome => return outcome,
            }
        }
        let message = "the file of the shared copy is gone; open the reader again";
        Err(Error::unavailable(message))
    }
}

/// Opens a header for its owner; returns its words and the names of its spaces.
pub(super) fn header_to_write(
    directory: &SharedCopyDirectory,
    store: StoreId,
    partition: PartitionId,
) -> Result<(PublishedWords, Spaces)> {
    let header = HeaderFile::open(&directory.header(store, partition), true)?;
    let spaces = Spaces::new(directory, header.description(), store, partition);
    Ok((PublishedWords::Shared(Arc::new(header)), spaces))
}
