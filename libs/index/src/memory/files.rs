//! Live memory by the names of its files: made, opened and mapped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::addresses::{reserve_addresses, unmap};
use super::free::BLOCK_BYTES;
use super::lending::{self, Borrowed};
use super::live::{self, LiveFile};
use super::{Backing, Memory, SpaceWords, refused};

impl Memory {
    /// Makes live memory in a new file of this name, with at most this many addresses; the file
    /// says what it is part of.
    ///
    /// # Errors
    /// `LimitExceeded` without room or addresses; `Unsupported` on a file system that cannot hold
    /// it; `Unavailable`.
    pub(crate) fn create_live(path: &Path, most: u64, about: &[u8]) -> Result<Arc<Self>> {
        let (file, reserved) = live::create(path, most, about)?;
        let memory = Self::of_file(file, reserved, true, None)?;
        memory.words().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// As [`Memory::create_live`], with what it borrows: `lend` gives a file this name, and answers
    /// how many bytes of it are lent.
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
        let (file, reserved) = live::create(path, most, about)?;
        let bytes = lend(name)?;
        let at = std::mem::offset_of!(SpaceWords, borrowed) as u64;
        let written = file.write_all_at(&bytes.to_le_bytes(), at);
        written.map_err(|error| refused("write", path, &error))?;
        let borrowed = Borrowed::open(&[name.to_owned()], reserved, bytes)?;
        let memory = Self::of_file(file, reserved, true, Some(borrowed))?;
        memory.words().opened.store(BLOCK_BYTES, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// Maps the live memory of this name, to read it or to go on writing it, with what it has
    /// borrowed, which has one of those names. Which chunks are in use a writer hears from
    /// [`Memory::adopt`].
    ///
    /// # Errors
    /// `NotFound` for a name that is gone; `LimitExceeded` without addresses; `Corrupt` for what is
    /// no live memory; `Unavailable`.
    pub(crate) fn open_live(
        path: &Path,
        is_written: bool,
        borrowed: &[PathBuf],
    ) -> Result<Arc<Self>> {
        let (file, reserved) = live::open(path, is_written)?;
        let bytes = lending::borrowed_bytes(&file, path)?;
        let has_borrowed = (bytes > 0).then(|| Borrowed::open(borrowed, reserved, bytes));
        Self::of_file(file, reserved, is_written, has_borrowed.transpose()?).map(Arc::new)
    }

    fn of_file(
        file: File,
        reserved: u64,
        is_written: bool,
        borrowed: Option<Borrowed>,
    ) -> Result<Self> {
        let end = borrowed.as_ref().map_or(live::mapped_bytes(reserved), Borrowed::end);
        let base = reserve_addresses(end)?;
        let map = || {
            if let Some(borrowed) = &borrowed {
                // SAFETY: the addresses were just reserved, these for exactly this.
                unsafe {
                    let start = base.add(borrowed.at as usize);
                    live::map_borrowed(&borrowed.file, start, borrowed.bytes)?;
                }
            }
            // SAFETY: as above; what is borrowed lies behind.
            unsafe { LiveFile::map(file, base, reserved, is_written) }
        };
        let file = map().inspect_err(|_| {
            // SAFETY: reserved above, and used by nobody.
            let _refused = unsafe { unmap(base, end) };
        })?;
        let words = file.words();
        let mut memory = Self::over(base, reserved, words, Backing::Live(file));
        memory.borrowed = borrowed;
        Ok(memory)
    }
}
