//! The spill file of a space: it takes the records that no longer fit into memory.
//!
//! A spilled address has a bit of its own ([`SPILLED`]); without the bit it is an offset in the
//! file. The file is allocated in chunks, as memory is. The index reads the file by `pread` and
//! never maps it, so a failing disk causes an error and not a signal. The file is not needed after
//! a crash of the machine: the file of a live space is next to the space's header and is removed
//! with the space; the file of private memory has no name.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_core::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::free::{BLOCK_ORDER, Free, ORDER_MAX};
use super::live::{allocate, refused};
use super::{BLOCK_BYTES, CHUNK_BYTES_MIN, Chunk, Memory, SPACE_ABOUT_AT, order_of, too_large};
use crate::image::{Extent, Image};
use crate::schedule;

/// The bit of an address whose record is in the spill file.
const SPILLED: u64 = 1 << 42;

/// Numbers the files of one process, to keep their names unique until the names are removed.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Whether this address is in the spill file.
#[inline(always)]
pub(crate) fn is_spilled(address: u64) -> bool {
    address & SPILLED != 0
}

/// The location of a space's spill file.
#[derive(Clone, Debug)]
pub(crate) enum SpillPlace {
    /// A file in this directory, without a name.
    Unnamed(PathBuf),
    /// A file of this name; the bytes name the header that leads to it.
    Named(PathBuf, Vec<u8>),
}

/// The spill file of one memory, opened at first use.
#[derive(Debug)]
pub(super) struct Spill {
    place: OnceLock<SpillPlace>,
    file: OnceLock<File>,
    free: Mutex<Free>,
    /// Bytes of the chunks in use or retired.
    used: AtomicU64,
    is_damaged: AtomicBool,
}

impl Spill {
    pub(super) fn new() -> Self {
        Self {
            place: OnceLock::new(),
            file: OnceLock::new(),
            free: Mutex::new(Free::from(BLOCK_BYTES)),
            used: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns an error if the file's content may not be trusted any more.
    pub(super) fn check_sound(&self) -> Result<()> {
        match self.is_damaged.load(Ordering::Relaxed) {
            true => Err(Error::corrupt("the spill file is damaged, or cannot be read")),
            false => Ok(()),
        }
    }

    fn file(&self, is_written: bool) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let none =
            || Error::corrupt("a document is in a spill file, but the copy has no spill file");
        let opened = open(self.place.get().ok_or_else(none)?, is_written)?;
        // Two threads that open it at the same time have opened the same file, if it has a name.
        Ok(self.file.get_or_init(|| opened))
    }
}

fn open(place: &SpillPlace, is_written: bool) -> Result<File> {
    let options = |path: &Path| {
        let mut options = File::options();
        options.read(true).write(is_written).create(is_written).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
    };
    match place {
        SpillPlace::Named(path, about) => {
            let file = options(path).map_err(|error| refused("open", path, &error))?;
            if is_written {
                let written = file.write_all_at(about, SPACE_ABOUT_AT);
                written.map_err(|error| refused("write", path, &error))?;
            }
            Ok(file)
        }
        SpillPlace::Unnamed(dir) => {
            let number = FILES.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("spill-{}-{number}", std::process::id()));
            let file = options(&path).map_err(|error| refused("make", &path, &error))?;
            std::fs::remove_file(&path).map_err(|error| refused("unlink", &path, &error))?;
            Ok(file)
        }
    }
}

impl Memory {
    /// Sets the location for spilled records, or of the records that an earlier writer spilled.
    /// Only the first call has an effect.
    pub(crate) fn spill_to(&self, place: SpillPlace) {
        let _first = self.spill.place.set(place);
    }

    /// Whether there is a location to spill to.
    pub(crate) fn can_spill(&self) -> bool {
        self.spill.place.get().is_some()
    }

    /// Whether an earlier writer has left a spill file.
    pub(crate) fn has_spill_file(&self) -> bool {
        match self.spill.place.get() {
            Some(SpillPlace::Named(path, _)) => path.exists(),
            Some(SpillPlace::Unnamed(_)) | None => false,
        }
    }

    fn spill_file(&self) -> Result<&File> {
        self.spill.file(self.live().is_none_or(|file| file.is_written()))
    }

    /// Allocates a chunk of the spill file of at least this many bytes.
    ///
    /// # Errors
    /// `LimitExceeded` beyond the bound, and on a disk that is full; `Unavailable`.
    pub(crate) fn allocate_spilled(&self, bytes: u64) -> Result<Chunk> {
        let order = order_of(bytes).max(BLOCK_ORDER);
        if order > ORDER_MAX {
            return Err(too_large(bytes));
        }
        let bytes = CHUNK_BYTES_MIN << order;
        let file = self.spill_file()?;
        let budget = self.budget.get();
        budget.map_or(Ok(()), |budget| budget.take_spill(bytes))?;
        let taken = {
            let mut free = self.spill.free.lock();
            free.take(order).unwrap_or_else(|| free.take_fresh(order))
        };
        let address = taken.address | SPILLED;
        self.spill.used.fetch_add(bytes, Ordering::Relaxed);
        if let Err(error) = allocate(file, taken.address, bytes) {
            self.put_back_spilled(Chunk { address, order });
            return Err(error);
        }
        Ok(Chunk { address, order })
    }

    /// Frees a chunk of the file and returns its space to the disk.
    pub(super) fn put_back_spilled(&self, chunk: Chunk) {
        let chunk = Chunk { address: chunk.address & !SPILLED, ..chunk };
        if let Some(file) = self.spill.file.get() {
            schedule::store();
            // Old bytes at the chunk's start would tell a successor that a segment begins there.
            let _failed = file.write_all_at(&[0; 64], chunk.address);
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If the file system cannot punch a hole, the old content is overwritten later.
            let _refused = fallocate(file, hole, chunk.address, chunk.bytes());
        }
        self.spill.used.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        if let Some(budget) = self.budget.get() {
            budget.give_back_spill(chunk.bytes());
        }
        self.spill.free.lock().put_cold(chunk);
    }

    /// Takes over the chunks of the file that are in use.
    ///
    /// # Errors
    /// `Corrupt` for chunks that overlap.
    pub(super) fn adopt_spilled(&self, used: Vec<(u64, u64)>) -> Result<()> {
        let used: Vec<_> =
            used.into_iter().map(|(start, bytes)| (start & !SPILLED, bytes)).collect();
        let bytes = used.iter().map(|(_, bytes)| bytes).sum();
        let end = used.iter().map(|(start, bytes)| start.saturating_add(*bytes)).max();
        let end = end.unwrap_or(0).max(BLOCK_BYTES).next_multiple_of(BLOCK_BYTES);
        *self.spill.free.lock() = Free::around(used, end)?;
        self.spill.used.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Copies an image's spilled blocks to the same offsets of this file; verifies each block.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`; `Unsupported` if there is no location for the file.
    pub(super) fn copy_spilled(&self, image: &Image, extent: &Extent) -> Result<()> {
        if self.spill.place.get().is_none() {
            let message = "the image holds documents that were spilled to disk; open the reader \
                with a directory";
            return Err(Error::unsupported(message));
        }
        image.copy_blocks(extent, |block, bytes| {
            self.write_spilled((extent.first + block) * CHUNK_BYTES_MIN, bytes)
        })
    }

    /// Writes to a chunk of the file that the caller owns and that is not published yet.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn write_spilled(&self, address: u64, bytes: &[u8]) -> Result<()> {
        schedule::store();
        let written = self.spill_file()?.write_all_at(bytes, address & !SPILLED);
        written.map_err(|error| failed("written", &error))
    }

    /// Reads from the file; returns fewer bytes at its end.
    ///
    /// # Errors
    /// `Unavailable`; `Corrupt` if there is no file.
    pub(crate) fn read_spilled(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        let file = self.spill_file()?;
        schedule::load();
        let mut filled = 0;
        while filled < into.len() {
            let at = (address & !SPILLED).saturating_add(filled as u64);
            match file.read_at(&mut into[filled..], at) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.note_spill_damage(failed("read", &error))),
            }
        }
        Ok(filled)
    }

    /// Returns the number of bytes in the file from an address on.
    ///
    /// # Errors
    /// As [`Memory::read_spilled`].
    pub(crate) fn spilled_bytes_from(&self, address: u64) -> Result<u64> {
        let length = self.spill_file()?.metadata().map(|file| file.len());
        let length = length.map_err(|error| self.note_spill_damage(failed("read", &error)))?;
        Ok(length.saturating_sub(address & !SPILLED))
    }

    /// Notes that the file's bytes differ from what was written. A reader of another process's file
    /// notes nothing: it may only have come too late.
    pub(crate) fn note_spill_damage(&self, error: Error) -> Error {
        if self.live().is_none_or(|file| file.is_written()) {
            self.note_damage();
        }
        error
    }

    /// Notes that the content of this memory is damaged.
    pub(crate) fn note_damage(&self) {
        self.spill.is_damaged.store(true, Ordering::Relaxed);
    }
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::unavailable(format!("the spill file could not be {what} ({error}); check the disk"))
}
