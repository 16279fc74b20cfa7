//! Memory that one live space has borrowed of another: of the version of the documents before its
//! own, most records of which it has as well.
//!
//! The borrower maps the lender's file behind its own addresses, to read it. It has a name of its
//! own for that file, a second link, so that it is there for as long as the borrower is, and who
//! has it mapped has a shared lock on it (flock), which goes with the process.
//!
//! The lender goes on as before, but for one thing: what goes out of use of the blocks that it has
//! lent is not used again before there is neither such a name nor such a lock. So a record in them
//! stays as it is, whatever the lender does with the document.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use forebay_core::{Error, Result};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::free::BLOCK_BYTES;
use super::words::SpaceWords;
use super::{Chunk, Memory, State, live, refused};

/// What the name of a borrower's file ends with that is its own for the lender's.
pub(crate) const BORROWED: &str = ".borrowed";

/// A part of another space, mapped behind a space's own addresses.
#[derive(Debug)]
pub(super) struct Borrowed {
    /// Locked as long as it is open.
    pub(super) file: File,
    /// The address that the lender's address 0 has here.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Borrowed {
    /// What a space of so many addresses borrows, by the first of these names that is there.
    ///
    /// # Errors
    /// `NotFound` where none is; `Corrupt` where the file is too short; `Unavailable`.
    pub(super) fn open(names: &[PathBuf], reserved: u64, bytes: u64) -> Result<Self> {
        let gone = || Error::not_found("what a live copy has borrowed is gone");
        let at = live::mapped_bytes(reserved).next_multiple_of(BLOCK_BYTES);
        for name in names {
            let flags = OFlags::NOFOLLOW.bits() as i32;
            let Ok(file) = File::options().read(true).custom_flags(flags).open(name) else {
                continue;
            };
            flock(&file, FlockOperation::LockShared)
                .map_err(|error| refused("lock", name, &error.into()))?;
            let own = file.metadata().map_err(|error| refused("look at", name, &error))?;
            // Removed meanwhile: the lender may not have seen the lock.
            let is_there = std::fs::metadata(name).is_ok_and(|named| named.ino() == own.ino());
            if !is_there {
                return Err(gone());
            }
            if own.size() < bytes || !bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(Error::corrupt(
                    "what a live copy has borrowed is shorter than it says",
                ));
            }
            return Ok(Self { file, at, bytes });
        }
        Err(gone())
    }

    /// Where the addresses end.
    pub(super) fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// How many bytes the space of a file has borrowed.
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
    /// Lends all that is there by now; answers how many bytes that are. What is found in them from
    /// here on stays for as long as the file has a name or a lock of the borrower's.
    pub(crate) fn lend(&self) -> u64 {
        let opened = self.opened();
        self.words().lend(opened / BLOCK_BYTES);
        opened
    }

    /// Of the memory that it has borrowed: the address of the lender's address 0, and its bytes.
    pub(crate) fn borrowed(&self) -> Option<(u64, u64)> {
        self.borrowed.as_ref().map(|borrowed| (borrowed.at, borrowed.bytes))
    }

    /// Keeps a chunk that went out of use, if it is lent; else hands it back.
    pub(super) fn keep_lent(&self, state: &mut State, chunk: Chunk) -> Option<Chunk> {
        if !self.is_live() || chunk.address >= self.words().lent_blocks().0 * BLOCK_BYTES {
            return Some(chunk);
        }
        state.lent.push(chunk);
        None
    }

    /// Takes what was lent back, once nobody reads there.
    pub(super) fn take_lent_back(&self, state: &mut State) {
        if !state.lent.is_empty() && self.ends_lending() {
            for chunk in std::mem::take(&mut state.lent) {
                self.put_back(state, chunk);
            }
        }
    }

    /// Ends the lending if nobody reads there; answers whether nothing is lent.
    fn ends_lending(&self) -> bool {
        let (blocks, lent) = self.words().lent_blocks();
        let is_in_use = || self.live().is_some_and(live::LiveFile::is_lent);
        blocks == 0 || (!is_in_use() && self.words().end_lending(lent))
    }

    /// Of what nothing leads to, keeps what is lent: for a writer that takes over.
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
