//! Shared memory: its files, which are created, opened and mapped by name, and the notes in them
//! about segments and groups, from which a successor continues.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::addresses::{reserve_addresses, unmap};
use super::geometry::{BLOCK_BYTES, Chunk, is_spilled};
use super::space_file::{self, SegmentNote, SpaceFile};
use super::{Memory, MemoryBacking, SpaceHeader, file_error};
use crate::sharing::{DonorMapping, donor_bytes};

impl Memory {
    /// Creates shared memory in a new file of this name, with at most this many addresses;
    /// `header_name` says what the file is part of.
    ///
    /// # Errors
    /// `LimitExceeded` without room or addresses; `Unsupported` on a file system that cannot hold
    /// it; `Unavailable`.
    pub(crate) fn create_shared(
        path: &Path,
        reserved_max: u64,
        header_name: &[u8],
    ) -> Result<Arc<Self>> {
        let (file, reserved) = space_file::create(path, reserved_max, header_name)?;
        let memory = Self::of_file(file, reserved, true, None)?;
        memory.header().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// As [`Memory::create_shared`], with the memory of a donor after its own: `donate` links the
    /// donor's file to this name, and returns how many bytes of it are donated.
    ///
    /// # Errors
    /// As [`Memory::create_shared`]; those of `donate`.
    pub(crate) fn create_sharing(
        path: &Path,
        reserved_max: u64,
        header_name: &[u8],
        name: &Path,
        donate: impl FnOnce(&Path) -> Result<u64>,
    ) -> Result<Arc<Self>> {
        let (file, reserved) = space_file::create(path, reserved_max, header_name)?;
        let bytes = donate(name)?;
        let donor_bytes_at = std::mem::offset_of!(SpaceHeader, donor_bytes) as u64;
        let result = file.write_all_at(&bytes.to_le_bytes(), donor_bytes_at);
        result.map_err(|error| file_error("write", path, &error))?;
        let donor = DonorMapping::open(&[name.to_owned()], reserved, bytes)?;
        let memory = Self::of_file(file, reserved, true, Some(donor))?;
        memory.header().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// Maps the shared memory of this name, to read it or to continue writing it, with its
    /// donor, whose link has one of the names in `donor_links`. A writer learns the chunks in use
    /// by [`Memory::adopt`].
    ///
    /// # Errors
    /// `NotFound` for a name that is gone; `LimitExceeded` without addresses; `Corrupt` for a file
    /// that is no shared memory; `Unavailable`.
    pub(crate) fn open_shared(
        path: &Path,
        is_written: bool,
        donor_links: &[PathBuf],
    ) -> Result<Arc<Self>> {
        let (file, reserved) = space_file::open(path, is_written)?;
        let bytes = donor_bytes(&file, path)?;
        let donor = (bytes > 0).then(|| DonorMapping::open(donor_links, reserved, bytes));
        Self::of_file(file, reserved, is_written, donor.transpose()?).map(Arc::new)
    }

    fn of_file(
        file: File,
        reserved: u64,
        is_written: bool,
        donor: Option<DonorMapping>,
    ) -> Result<Self> {
        let end = donor.as_ref().map_or(space_file::mapped_bytes(reserved), DonorMapping::end);
        let base = reserve_addresses(end)?;
        let map = || {
            if let Some(donor) = &donor {
                // SAFETY: the addresses were just reserved, and this part only for the donor's
                // file.
                unsafe {
                    let start = base.add(donor.at as usize);
                    space_file::map_donor(&donor.file, start, donor.bytes)?;
                }
            }
            // SAFETY: as above; the donor's part is after these addresses.
            unsafe { SpaceFile::map(file, base, reserved, is_written) }
        };
        let file = map().inspect_err(|_| {
            // SAFETY: reserved above, and used by no thread.
            let _result = unsafe { unmap(base, end) };
        })?;
        let header = file.header();
        let mut memory = Self::from_parts(base, reserved, header, MemoryBacking::File(file));
        memory.donor = donor;
        Ok(memory)
    }

    /// Returns the space file that has the note of an address; `None` for a spilled address.
    fn file_at(&self, address: u64) -> Option<&SpaceFile> {
        self.file().filter(|_| !is_spilled(address))
    }

    /// Notes, in shared memory, how far a segment is filled, for a successor that takes over.
    pub(crate) fn note_segment(&self, chunk: &Chunk, used: u64, live: u64, serial: u64) {
        if let Some(file) = self.file_at(chunk.address) {
            file.note_segment(chunk, used, live, serial);
        }
    }

    /// As [`Memory::note_segment`], for a segment that has a note.
    #[inline]
    pub(crate) fn note_fill(&self, address: u64, used: u64, live: u64) {
        if let Some(file) = self.file_at(address) {
            file.note_fill(address, used, live);
        }
    }

    /// Notes, in shared memory, a time before which no document of a group expires.
    pub(crate) fn note_group(&self, address: u64, expires: i64) {
        if let Some(file) = self.file() {
            file.note_group(address, expires);
        }
    }

    /// Returns the noted expiry time of a group.
    pub(crate) fn group_expires(&self, address: u64) -> Option<i64> {
        self.file().and_then(|file| file.group_expires(address))
    }

    /// Removes the note of a chunk.
    pub(crate) fn forget_note(&self, address: u64) {
        if let Some(file) = self.file_at(address) {
            file.forget(address);
        }
    }

    /// Returns the noted segments.
    pub(crate) fn noted_segments(&self) -> Vec<SegmentNote> {
        self.file().map_or(Vec::new(), |file| file.segments(self.opened()))
    }
}
