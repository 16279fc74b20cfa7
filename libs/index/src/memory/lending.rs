//! Memory that one live space (the borrower) has borrowed from another (the donor): the space of
//! the previous version of the documents, with which it shares most records.
//!
//! The borrower maps the donor's file read-only after its own addresses. The borrower has its own
//! name for that file, a second hard link, so the file exists for as long as the borrower does.
//! Each process that maps the file holds a shared lock on it (flock), which ends with the process.
//!
//! The donor continues as before, with one exception: memory that goes out of use in the blocks
//! that it has lent is not reused while such a name or such a lock exists. A record in those blocks
//! therefore stays as it is, whatever the donor does with the document.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use forebay_core::{Error, Result};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::free::BLOCK_BYTES;
use super::words::SpaceWords;
use super::{Chunk, Memory, State, live, refused};

/// Suffix of the name by which a borrower links the donor's file.
pub(crate) const BORROWED: &str = ".borrowed";

/// A part of another space, mapped after a space's own addresses.
#[derive(Debug)]
pub(super) struct Borrowed {
    /// The donor's file; locked as long as it is open.
    pub(super) file: File,
    /// The address that the donor's address 0 has here.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Borrowed {
    /// Opens the borrowed part of a space with this many addresses, by the first of these names
    /// that exists.
    ///
    /// # Errors
    /// `NotFound` if none exists; `Corrupt` if the file is too short; `Unavailable`.
    pub(super) fn open(names: &[PathBuf], reserved: u64, bytes: u64) -> Result<Self> {
        let gone = || Error::not_found("the donor's file is gone");
        let at = live::mapped_bytes(reserved).next_multiple_of(BLOCK_BYTES);
        for name in names {
            let flags = OFlags::NOFOLLOW.bits() as i32;
            let Ok(file) = File::options().read(true).custom_flags(flags).open(name) else {
                continue;
            };
            flock(&file, FlockOperation::LockShared)
                .map_err(|error| refused("lock", name, &error.into()))?;
            let own = file.metadata().map_err(|error| refused("look at", name, &error))?;
            // A name removed in between means that the donor may not have seen the lock.
            let is_there = std::fs::metadata(name).is_ok_and(|named| named.ino() == own.ino());
            if !is_there {
                return Err(gone());
            }
            if own.size() < bytes || !bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(Error::corrupt("the donor's file is shorter than the recorded length"));
            }
            return Ok(Self { file, at, bytes });
        }
        Err(gone())
    }

    /// End of the borrowed addresses.
    pub(super) fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// Returns how many bytes the space of a file has borrowed.
///
/// # Errors
/// `Unavailable`.
pub(super) fn borrowed_bytes(file: &File, path: &Path) -> Result<u64> {
    let mut word = [0; 8];
    let at = std::mem::offset_of!(SpaceWords, borrowed) as u64;
    file.read_exact_at(&mut word, at).map_err(|error| refused("read", path, &error))?;
    Ok(u64::from_le_bytes(word))
}

impl Memory {
    /// Lends all current memory; returns how many bytes that is. Records found there from here on
    /// stay unchanged for as long as the file has a name or a lock of the borrower's.
    pub(crate) fn lend(&self) -> u64 {
        let opened = self.opened();
        self.words().lend(opened / BLOCK_BYTES);
        opened
    }

    /// The borrowed memory: the address of the donor's address 0, and the number of bytes.
    pub(crate) fn borrowed(&self) -> Option<(u64, u64)> {
        self.borrowed.as_ref().map(|borrowed| (borrowed.at, borrowed.bytes))
    }

    /// Keeps a chunk that went out of use if it is lent; otherwise returns it.
    pub(super) fn keep_lent(&self, state: &mut State, chunk: Chunk) -> Option<Chunk> {
        if !self.is_live() || chunk.address >= self.words().lent_blocks().0 * BLOCK_BYTES {
            return Some(chunk);
        }
        state.lent.push(chunk);
        None
    }

    /// Takes lent chunks back, once nobody reads there.
    pub(super) fn take_lent_back(&self, state: &mut State) {
        if !state.lent.is_empty() && self.ends_lending() {
            for chunk in std::mem::take(&mut state.lent) {
                self.put_back(state, chunk);
            }
        }
    }

    /// Ends the lending if nobody reads there; returns whether nothing is lent.
    fn ends_lending(&self) -> bool {
        let (blocks, lent) = self.words().lent_blocks();
        let is_in_use = || self.live().is_some_and(live::LiveFile::is_lent);
        blocks == 0 || (!is_in_use() && self.words().end_lending(lent))
    }

    /// Keeps the lent part of all unreferenced chunks out of the free list, for a writer that takes
    /// over.
    pub(super) fn adopt_lent(&self, state: &mut State) {
        if !self.is_live() || self.ends_lending() {
            return;
        }
        let end = self.words().lent_blocks().0 * BLOCK_BYTES;
        let kept = state.free.take_below(end);
        let bytes = kept.iter().map(Chunk::bytes).sum();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        state.lent.extend(kept);
    }
}
