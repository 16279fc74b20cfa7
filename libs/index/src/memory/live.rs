//! Live memory: its files, which are created, opened and mapped by name, and the notes in them
//! about segments and groups, from which a successor continues.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::addresses::{reserve_addresses, unmap};
use super::geometry::{BLOCK_BYTES, Chunk, is_spilled};
use super::live_file::{self, LiveFile, SegmentNote};
use super::{Backing, Memory, SpaceHeader, refused};
use crate::sharing::{Borrowed, borrowed_bytes};

impl Memory {
    /// Creates live memory in a new file of this name, with at most this many addresses; `about`
    /// says what the file is part of.
    ///
    /// # Errors
    /// `LimitExceeded` without room or addresses; `Unsupported` on a file system that cannot hold
    /// it; `Unavailable`.
    pub(crate) fn create_live(path: &Path, most: u64, about: &[u8]) -> Result<Arc<Self>> {
        let (file, reserved) = live_file::create(path, most, about)?;
        let memory = Self::of_file(file, reserved, true, None)?;
        memory.header().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// As [`Memory::create_live`], with borrowed memory: `lend` links the donor's file to this
    /// name, and returns how many bytes of it are lent.
    ///
    /// # Errors
    /// As [`Memory::create_live`]; those of `lend`.
    pub(crate) fn create_borrowing(
        path: &Path,
        most: u64,
        about: &[u8],
        name: &Path,
        lend: impl FnOnce(&Path) -> Result<u64>,
    ) -> Result<Arc<Self>> {
        let (file, reserved) = live_file::create(path, most, about)?;
        let bytes = lend(name)?;
        let at = std::mem::offset_of!(SpaceHeader, borrowed) as u64;
        let written = file.write_all_at(&bytes.to_le_bytes(), at);
        written.map_err(|error| refused("write", path, &error))?;
        let borrowed = Borrowed::open(&[name.to_owned()], reserved, bytes)?;
        let memory = Self::of_file(file, reserved, true, Some(borrowed))?;
        memory.header().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// Maps the live memory of this name, to read it or to continue writing it, with its borrowed
    /// memory, which has one of the names in `borrowed`. A writer learns the chunks in use by
    /// [`Memory::adopt`].
    ///
    /// # Errors
    /// `NotFound` for a name that is gone; `LimitExceeded` without addresses; `Corrupt` for a file
    /// that is no live memory; `Unavailable`.
    pub(crate) fn open_live(
        path: &Path,
        is_written: bool,
        borrowed: &[PathBuf],
    ) -> Result<Arc<Self>> {
        let (file, reserved) = live_file::open(path, is_written)?;
        let bytes = borrowed_bytes(&file, path)?;
        let has_borrowed = (bytes > 0).then(|| Borrowed::open(borrowed, reserved, bytes));
        Self::of_file(file, reserved, is_written, has_borrowed.transpose()?).map(Arc::new)
    }

    fn of_file(
        file: File,
        reserved: u64,
        is_written: bool,
        borrowed: Option<Borrowed>,
    ) -> Result<Self> {
        let end = borrowed.as_ref().map_or(live_file::mapped_bytes(reserved), Borrowed::end);
        let base = reserve_addresses(end)?;
        let map = || {
            if let Some(borrowed) = &borrowed {
                // SAFETY: the addresses were just reserved, and this part only for the borrowed
                // file.
                unsafe {
                    let start = base.add(borrowed.at as usize);
                    live_file::map_borrowed(&borrowed.file, start, borrowed.bytes)?;
                }
            }
            // SAFETY: as above; the borrowed part is after these addresses.
            unsafe { LiveFile::map(file, base, reserved, is_written) }
        };
        let file = map().inspect_err(|_| {
            // SAFETY: reserved above, and used by nobody.
            let _refused = unsafe { unmap(base, end) };
        })?;
        let header = file.header();
        let mut memory = Self::over(base, reserved, header, Backing::Live(file));
        memory.borrowed = borrowed;
        Ok(memory)
    }

    /// Returns the live file that has the note of an address; `None` for a spilled address.
    fn live_at(&self, address: u64) -> Option<&LiveFile> {
        self.live().filter(|_| !is_spilled(address))
    }

    /// Notes, in live memory, how far a segment is filled, for a successor that takes over.
    pub(crate) fn note_segment(&self, chunk: &Chunk, used: u64, live: u64, serial: u64) {
        if let Some(file) = self.live_at(chunk.address) {
            file.note_segment(chunk, used, live, serial);
        }
    }

    /// As [`Memory::note_segment`], for a segment that has a note.
    #[inline]
    pub(crate) fn note_fill(&self, address: u64, used: u64, live: u64) {
        if let Some(file) = self.live_at(address) {
            file.note_fill(address, used, live);
        }
    }

    /// Notes, in live memory, a time before which no document of a group expires.
    pub(crate) fn note_group(&self, address: u64, expires: i64) {
        if let Some(file) = self.live() {
            file.note_group(address, expires);
        }
    }

    /// Returns the noted expiry time of a group.
    pub(crate) fn group_expires(&self, address: u64) -> Option<i64> {
        self.live().and_then(|file| file.group_expires(address))
    }

    /// Removes the note of a chunk.
    pub(crate) fn forget_note(&self, address: u64) {
        if let Some(file) = self.live_at(address) {
            file.forget(address);
        }
    }

    /// Returns the noted segments.
    pub(crate) fn noted_segments(&self) -> Vec<SegmentNote> {
        self.live().map_or(Vec::new(), |file| file.segments(self.opened()))
    }
}
