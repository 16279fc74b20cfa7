//! The donor mapping: the donor's file, which the recipient maps after its own addresses.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_core::{Error, Result};
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::memory::{BLOCK_BYTES, SpaceHeader, file_error, mapped_bytes};

/// Suffix of the name by which a recipient links the donor's file.
pub(crate) const DONOR_LINK_SUFFIX: &str = ".borrowed";

/// A part of another space, mapped after a space's own addresses.
#[derive(Debug)]
pub(crate) struct DonorMapping {
    /// The donor's file; locked as long as it is open.
    pub(crate) file: File,
    /// The address that the donor's address 0 has here.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl DonorMapping {
    /// Opens the donor's part of a space with this many addresses, by the first of these names
    /// that exists.
    ///
    /// # Errors
    /// `NotFound` if none exists; `Corrupt` if the file is too short; `Unavailable`.
    pub(crate) fn open(names: &[PathBuf], reserved: u64, bytes: u64) -> Result<Self> {
        let missing_file = || Error::not_found("the donor's file is gone");
        let donor_at = mapped_bytes(reserved).next_multiple_of(BLOCK_BYTES);
        for name in names {
            let flags = OFlags::NOFOLLOW.bits() as i32;
            let Ok(file) = File::options().read(true).custom_flags(flags).open(name) else {
                continue;
            };
            flock(&file, FlockOperation::LockShared)
                .map_err(|error| file_error("lock", name, &error.into()))?;
            let metadata = file.metadata().map_err(|error| file_error("look at", name, &error))?;
            // A name removed in between means that the donor may not have seen the lock.
            let has_name = std::fs::metadata(name).is_ok_and(|other| other.ino() == metadata.ino());
            if !has_name {
                return Err(missing_file());
            }
            if metadata.size() < bytes || !bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(Error::corrupt("the donor's file is shorter than the recorded length"));
            }
            return Ok(Self { file, at: donor_at, bytes });
        }
        Err(missing_file())
    }

    /// End of the donor's addresses.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// Returns how many bytes of a donor's memory the space of a file refers to.
///
/// # Errors
/// `Unavailable`.
pub(crate) fn donor_bytes(file: &File, path: &Path) -> Result<u64> {
    let mut word = [0; 8];
    let offset = std::mem::offset_of!(SpaceHeader, donor_bytes) as u64;
    file.read_exact_at(&mut word, offset).map_err(|error| file_error("read", path, &error))?;
    Ok(u64::from_le_bytes(word))
}
