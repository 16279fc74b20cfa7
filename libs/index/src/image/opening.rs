//! Opening an image: the metadata is read and checked, the blocks are not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_core::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::blocks::Blocks;
use super::format::{
    BLOCK, BlockBytes, Extent, ImageHeader, Meta, SegmentAt, decode_header, meta_checksum,
};
use super::{ImageFile, ImageMetadata, damaged, io_error, read_exactly};
use crate::memory::CHUNK_BYTES_MIN;

/// Number of blocks that are read at once when an image is copied.
const COPIED_AT_ONCE: usize = 64;

/// An image with verified metadata; its blocks are verified at first use.
pub struct Image {
    file: Arc<dyn ImageFile>,
    header: ImageHeader,
    meta: Meta,
    blocks: Arc<Blocks>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("file", &self.file).field("header", &self.header).finish()
    }
}

impl Image {
    /// Opens an image. Reads its first block and the metadata after the other blocks: about a
    /// thousandth of the image.
    ///
    /// # Errors
    /// `Unsupported` for a format that this build does not know, `Corrupt` for damage and for a
    /// file that is no image, `Unavailable` for bytes that cannot be read.
    pub fn open(file: Arc<dyn ImageFile>) -> Result<Self> {
        let size = file.size().map_err(|error| io_error("open", &error))?;
        let mut first: BlockBytes = [0; BLOCK];
        let read_bytes = file.read_at(&mut first, 0).map_err(|error| io_error("read", &error))?;
        if read_bytes < BLOCK {
            return Err(damaged("the file is shorter than the first block"));
        }
        let header = decode_header(&first)?;
        if header.counts.file_bytes() != Some(size) {
            return Err(damaged("the file is shorter or longer than the header says"));
        }
        // This is bounded by the file's size, which was just compared.
        let bytes = header.counts.meta_bytes().unwrap_or(0);
        let mut meta = vec![0; bytes as usize];
        read_exactly(&*file, &mut meta, size - bytes)?;
        if meta_checksum(&meta) != header.meta_checksum {
            return Err(damaged("the description fails its checksum"));
        }
        let meta = Meta::decode(&meta, &header.counts)?;
        if !header.fits(meta.extents.iter().any(Extent::is_spilled)) {
            return Err(damaged("there are blocks of a spill file that the version does not name"));
        }
        let checksums = meta.checksums.clone();
        let blocks = Arc::new(Blocks::new(file.clone(), checksums, header.counts.parities));
        Ok(Self { file, header, meta, blocks })
    }

    /// The image's metadata for callers.
    pub fn metadata(&self) -> &ImageMetadata {
        &self.header.metadata
    }

    /// The state that the image was written with.
    pub fn state(&self) -> &[u8] {
        &self.meta.state
    }

    /// Reads every block, including the parity blocks, and compares it with its checksum; repairs
    /// nothing. Together with [`Image::open`] this verifies every byte of the file.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`.
    pub fn verify(&self) -> Result<()> {
        let mut block: BlockBytes = [0; BLOCK];
        (0..self.meta.checksums.len() as u64).try_for_each(|number| {
            self.blocks.read(number, &mut block)?;
            self.blocks.check(number, &block)
        })
    }

    /// Whether a part of the image is from a spill file.
    pub(crate) fn is_spilled(&self) -> bool {
        self.meta.extents.iter().any(Extent::is_spilled)
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.meta.extents
    }

    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// Number of blocks that were repaired so far, by any user of the image.
    pub(crate) fn repaired(&self) -> &Arc<AtomicU64> {
        self.blocks.repaired()
    }

    pub(crate) fn segments(&self) -> &[SegmentAt] {
        &self.meta.segments
    }

    pub(crate) fn expiries(&self) -> &[i64] {
        &self.meta.expiries
    }

    pub(crate) fn hash_seed(&self) -> u64 {
        self.header.hash_seed
    }

    pub(crate) fn root(&self) -> u64 {
        self.header.root
    }

    /// Reads the blocks of an extent. Passes each block that matches its checksum or could be
    /// repaired to `take`, with its number in the extent.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`, and those of `take`.
    pub(crate) fn copy_blocks(
        &self,
        extent: &Extent,
        mut take: impl FnMut(u64, &BlockBytes) -> Result<()>,
    ) -> Result<()> {
        let mut blocks = vec![0; COPIED_AT_ONCE * BLOCK];
        for first in (0..extent.blocks).step_by(COPIED_AT_ONCE) {
            let count = (extent.blocks - first).min(COPIED_AT_ONCE as u64);
            let read = &mut blocks[..count as usize * BLOCK];
            let in_file = extent.first_in_file + first;
            read_exactly(&*self.file, read, (in_file + 1) * CHUNK_BYTES_MIN)?;
            for (number, block) in (0..).zip(read.as_chunks::<BLOCK>().0) {
                match self.blocks.check(in_file + number, block) {
                    Ok(()) => take(first + number, block)?,
                    Err(_) => take(first + number, &*self.blocks.repair(in_file + number)?)?,
                }
            }
        }
        Ok(())
    }

    /// Maps the blocks of an extent to an address, or reads them into it.
    ///
    /// # Safety
    /// The address is a multiple of a block, at least as many bytes from there are mapped writable,
    /// and no thread uses them.
    pub(crate) unsafe fn load_extent(&self, extent: &Extent, destination: *mut u8) -> Result<()> {
        let bytes = (extent.blocks * CHUNK_BYTES_MIN) as usize;
        let offset = (extent.first_in_file + 1) * CHUNK_BYTES_MIN;
        let Some(fd) = self.file.as_fd() else {
            // SAFETY: the caller's promise; fresh pages are zero.
            let buffer = unsafe { std::slice::from_raw_parts_mut(destination, bytes) };
            return read_exactly(&*self.file, buffer, offset);
        };
        let protect = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: the range is the caller's and unused. The mapping is private: writes there never
        // reach the file.
        let mapped = unsafe { mmap(destination.cast(), bytes, protect, flags, fd, offset) };
        mapped.map(drop).map_err(|error| io_error("map", &error.into()))
    }
}
