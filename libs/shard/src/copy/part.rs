//! The parts of a copy: blocks that a source delivers, and the end that seals a part.

use forebay_core::Result;
use forebay_core::rows_digest::RowsDigest;

/// End of a part of a range, or of a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartEnd {
    /// Digest of the rows of the part. For a piece of a file, the row count is 0 and the sum is the
    /// digest of the bytes.
    pub digest: RowsDigest,
    /// Whether this is also the end of the range or file.
    pub is_range_end: bool,
}

/// A block of a part.
#[derive(Clone, Debug)]
pub struct PartBlock<B> {
    /// Rows, or bytes of a file.
    pub bytes: B,
    /// End of the part, if the part ends with this block.
    pub end: Option<PartEnd>,
    /// Whether the block was compressed in transit. If the first block of a part was not
    /// compressed, the part is stored uncompressed.
    pub was_compressed: bool,
}

/// A source of the blocks of a part.
pub trait PartSource {
    /// Type of a block's bytes.
    type Block: AsRef<[u8]>;

    /// Returns the next block.
    ///
    /// # Errors
    /// The reason why there is no block; nothing of the part counts then.
    fn next_block(&mut self) -> Result<PartBlock<Self::Block>>;
}
