//! Memory that begins with the content of an image: mapped into private memory, copied into shared
//! memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::{Error, Result};

use super::geometry::{BLOCK_BYTES, CHUNK_BYTES_MIN, is_spilled};
use super::{Free, Memory, MemoryBacking, SpillPlace, VerifiedBlocks, addresses};
use crate::image::{Image, damaged};

impl Memory {
    /// Creates memory with an image's content, at the addresses of the image, with room for these
    /// chunks. [`Memory::adopt`] sets the chunks in use, before anyone else has the memory. The
    /// image's spilled blocks are copied to a spill file of this memory.
    ///
    /// # Errors
    /// As [`Memory::reserve`]; `Corrupt` for impossible chunks; `Unavailable` when the file can be
    /// neither mapped nor read; `Unsupported` if there is no location for the spill file.
    pub(crate) fn from_image(
        image: &Image,
        chunks: &[(u64, u64)],
        reserved_max: u64,
        spill: Option<SpillPlace>,
    ) -> Result<Arc<Self>> {
        let end = image_end(image, chunks);
        let mut memory = Self::reserve_at_most(reserved_max)?;
        spill.into_iter().for_each(|place| memory.spill_to(place));
        if end > memory.reserved {
            let message = "the image needs more addresses than the process has; follow fewer \
                partitions per process, or raise the limit of virtual memory (ulimit -v)";
            return Err(Error::limit_exceeded(message, memory.reserved, end));
        }
        let opened = end.next_multiple_of(BLOCK_BYTES);
        if opened > BLOCK_BYTES {
            memory.open(BLOCK_BYTES, opened - BLOCK_BYTES)?;
        }
        memory.header().opened.store(opened, Ordering::Release);
        for extent in image.extents() {
            let (start, bytes) = (extent.first * CHUNK_BYTES_MIN, extent.blocks * CHUNK_BYTES_MIN);
            if start < BLOCK_BYTES {
                return Err(damaged("a block has an invalid address"));
            }
            if extent.is_spilled() {
                memory.copy_spilled(image, extent)?;
                continue;
            }
            addresses::allow(memory.pointer(start), bytes);
            // SAFETY: the extent is inside addresses that were just opened and that no thread uses.
            unsafe { image.load_extent(extent, memory.pointer(start))? };
        }
        memory.backing = MemoryBacking::Image(VerifiedBlocks::new(image, opened));
        memory.state.get_mut().free = Free::with_fresh(opened);
        Ok(Arc::new(memory))
    }

    /// Copies an image to empty shared memory, to the addresses of the image, with room for these
    /// chunks. Verifies each block.
    ///
    /// # Errors
    /// `Corrupt` for a block that does not match its checksum, and for impossible chunks;
    /// `LimitExceeded`; `Unavailable`.
    pub(crate) fn copy_image(&self, image: &Image, chunks: &[(u64, u64)]) -> Result<()> {
        let end = image_end(image, chunks);
        if end > self.reserved {
            let message = "the image needs more addresses than a shared copy has; raise the limit \
                of virtual memory (ulimit -v)";
            return Err(Error::limit_exceeded(message, self.reserved, end));
        }
        let opened = end.next_multiple_of(BLOCK_BYTES);
        if opened > BLOCK_BYTES {
            self.open(BLOCK_BYTES, opened - BLOCK_BYTES)?;
        }
        for extent in image.extents() {
            let start = extent.first * CHUNK_BYTES_MIN;
            if start < BLOCK_BYTES {
                return Err(damaged("a block has an invalid address"));
            }
            if extent.is_spilled() {
                self.copy_spilled(image, extent)?;
                continue;
            }
            image.copy_blocks(extent, |block, bytes| {
                let address = start + block * CHUNK_BYTES_MIN;
                // SAFETY: addresses that were just opened, which no other thread has yet.
                unsafe { self.write(address, bytes) };
                Ok(())
            })?;
        }
        self.header().opened.store(opened, Ordering::Release);
        Ok(())
    }
}

/// Returns the end of the addresses that an image and these chunks need in memory.
pub(crate) fn image_end(image: &Image, chunks: &[(u64, u64)]) -> u64 {
    let extents = image.extents().iter();
    let extents =
        extents.map(|extent| (extent.first * CHUNK_BYTES_MIN, extent.blocks * CHUNK_BYTES_MIN));
    let ends = extents.chain(chunks.iter().copied()).filter(|(start, _)| !is_spilled(*start));
    let end = ends.map(|(start, bytes)| start.saturating_add(bytes)).max();
    end.unwrap_or(0).max(BLOCK_BYTES)
}
