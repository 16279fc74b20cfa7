//! Spilled memory: chunks of the spill file (`spill_file`), which are allocated, read and written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use forebay_core::{Error, Result};
use rustix::fs::{FallocateFlags, fallocate};

use super::Memory;
use super::free::Free;
use super::geometry::{
    BLOCK_BYTES, BLOCK_ORDER, CHUNK_BYTES_MIN, Chunk, ORDER_MAX, SPILLED, order_of, too_large,
};
use super::space_file::allocate;
use super::spill_file::SpillPlace;
use crate::image::{Extent, Image};
use crate::schedule;

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
        self.spill.file(self.file().is_none_or(|file| file.is_written()))
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
        let account = self.account.get();
        account.map_or(Ok(()), |account| account.take_spill(bytes))?;
        let chunk = {
            let mut free = self.spill.free.lock();
            free.take(order).unwrap_or_else(|| free.take_fresh(order))
        };
        let address = chunk.address | SPILLED;
        self.spill.used.fetch_add(bytes, Ordering::Relaxed);
        if let Err(error) = allocate(file, chunk.address, bytes) {
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
            let _write_result = file.write_all_at(&[0; 64], chunk.address);
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If the file system cannot punch a hole, the old content is overwritten later.
            let _punch_result = fallocate(file, hole, chunk.address, chunk.bytes());
        }
        self.spill.used.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        if let Some(account) = self.account.get() {
            account.give_back_spill(chunk.bytes());
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
        *self.spill.free.lock() = Free::from_used(used, end)?;
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
        let result = self.spill_file()?.write_all_at(bytes, address & !SPILLED);
        result.map_err(|error| spill_error("written", &error))
    }

    /// Reads from the file; returns fewer bytes at its end.
    ///
    /// # Errors
    /// `Unavailable`; `Corrupt` if there is no file.
    pub(crate) fn read_spilled(&self, address: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.spill_file()?;
        schedule::load();
        let mut filled_bytes = 0;
        while filled_bytes < buffer.len() {
            let offset = (address & !SPILLED).saturating_add(filled_bytes as u64);
            match file.read_at(&mut buffer[filled_bytes..], offset) {
                Ok(0) => break,
                Ok(read) => filled_bytes += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.note_spill_damage(spill_error("read", &error))),
            }
        }
        Ok(filled_bytes)
    }

    /// Returns the number of bytes in the file from an address on.
    ///
    /// # Errors
    /// As [`Memory::read_spilled`].
    pub(crate) fn spilled_bytes_from(&self, address: u64) -> Result<u64> {
        let length = self.spill_file()?.metadata().map(|file| file.len());
        let length = length.map_err(|error| self.note_spill_damage(spill_error("read", &error)))?;
        Ok(length.saturating_sub(address & !SPILLED))
    }

    /// Notes that the file's bytes differ from what was written. A reader of another process's file
    /// notes nothing: it may only have come too late.
    pub(crate) fn note_spill_damage(&self, error: Error) -> Error {
        if self.file().is_none_or(|file| file.is_written()) {
            self.note_damage();
        }
        error
    }

    /// Notes that the content of this memory is damaged.
    pub(crate) fn note_damage(&self) {
        self.spill.is_damaged.store(true, Ordering::Relaxed);
    }
}

fn spill_error(operation: &str, error: &io::Error) -> Error {
    Error::unavailable(format!("the spill file could not be {operation} ({error}); check the disk"))
}
