//! The geometry of a space: the sizes of chunks and blocks, the reserved addresses, and the
//! addresses of spilled records.
//!
//! The memory and the image of a space share this geometry, because an image has each chunk at the
//! address that the chunk has in memory.

use forebay_core::Error;

/// Bytes of the smallest chunk.
pub(crate) const CHUNK_BYTES_MIN: u64 = 8 * 1024;
/// Order of a block, the unit of huge pages.
pub(super) const BLOCK_ORDER: u8 = 8;
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = CHUNK_BYTES_MIN << BLOCK_ORDER;
/// Order of the largest chunk, 256 MiB: room for the largest key and row.
pub(super) const ORDER_MAX: u8 = 15;
/// Bytes of the largest chunk.
pub(crate) const CHUNK_BYTES_MAX: u64 = CHUNK_BYTES_MIN << ORDER_MAX;
/// Blocks of small chunks request huge pages once a space has more than this.
pub(super) const SMALL_SPACE_BYTES: u64 = BLOCK_BYTES;
/// Number of addresses to reserve. If the system refuses, the space halves the number and retries.
/// If the process's addresses are limited, all partitions together take an eighth of the limit,
/// because other users need addresses too.
pub(crate) const RESERVED_BYTES: u64 = 1 << 36;
pub(super) const RESERVED_BYTES_MIN: u64 = 1 << 28;
/// Offset in the first block of a shared space of the text that names the header leading to the
/// space.
pub(crate) const SPACE_HEADER_NAME_AT: u64 = 1_024;
/// The bit of an address whose record is in the spill file.
pub(super) const SPILLED: u64 = 1 << 42;

const _: () = assert!(usize::BITS == 64, "an index needs the addresses of a 64-bit machine");

/// A piece of a space's memory; its owner may write there. A chunk has no destructor: it is retired
/// or released, or leaked until its index ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Chunk {
    pub(super) address: u64,
    pub(super) order: u8,
}

impl Chunk {
    /// The chunk's first address.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The chunk's length.
    pub(crate) fn bytes(&self) -> u64 {
        CHUNK_BYTES_MIN << self.order
    }

    /// Returns a chunk that an image reports as in use; `None` if no chunk can have this address
    /// and length.
    pub(crate) fn from_image(address: u64, bytes: u64) -> Option<Self> {
        let chunks = bytes / CHUNK_BYTES_MIN;
        let order = chunks.is_power_of_two().then(|| chunks.trailing_zeros() as u8)?;
        let is_valid = order <= ORDER_MAX
            && bytes == CHUNK_BYTES_MIN << order
            && address.is_multiple_of(bytes);
        is_valid.then_some(Self { address, order })
    }
}

/// Whether this address is in the spill file.
#[inline(always)]
pub(crate) fn is_spilled(address: u64) -> bool {
    address & SPILLED != 0
}

pub(super) fn too_large(bytes: u64) -> Error {
    let message = "the document is too large for an index; split the document";
    Error::limit_exceeded(message, CHUNK_BYTES_MAX, bytes)
}

pub(super) fn order_of(bytes: u64) -> u8 {
    let chunks = bytes.div_ceil(CHUNK_BYTES_MIN).max(1);
    chunks.next_power_of_two().trailing_zeros() as u8
}
