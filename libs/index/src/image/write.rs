//! Writing an image: the blocks of a table in the order of their addresses, then the metadata.

use std::sync::Arc;

use forebay_core::Result;

use super::blocks::Parity;
use super::format::{
    BLOCK, BlockBytes, Extent, FORMAT_VERSION, ImageHeader, Meta, SegmentAt, checksum,
    encode_header, meta_checksum, parities_for,
};
use super::{ImageMetadata, ImageSink};
use crate::memory::{CHUNK_BYTES_MIN, Memory, is_spilled};
use crate::table::filler;

/// Gaps of at most this many free blocks are written, too: each larger gap is a mapping of its own
/// when the image is opened, and the system limits a process's number of mappings.
const GAP_BLOCKS_MAX: u64 = 32;
/// Number of blocks per write to the sink.
const WRITTEN_AT_ONCE: usize = 128;

/// The parts of a table that an image contains.
pub(crate) struct Content {
    pub(crate) hash_seed: u64,
    pub(crate) root: u64,
    /// Chunks that are written in full: groups and the directory.
    pub(crate) chunks: Vec<(u64, u64)>,
    pub(crate) expiries: Vec<i64>,
    pub(crate) segments: Vec<SegmentAt>,
}

/// Writes an image and returns its number of bytes.
///
/// # Errors
/// Any error of the sink; `LimitExceeded` for a table that is too large for an image; `Corrupt`
/// when the table itself comes from an image, and is damaged; `Unavailable` when the spill file
/// cannot be read.
pub(crate) fn write(
    memory: &Memory,
    metadata: ImageMetadata,
    mut content: Content,
    state: Vec<u8>,
    sink: &mut dyn ImageSink,
) -> Result<u64> {
    let mut pieces = pieces(&mut content);
    let extents = extents(&mut pieces);
    let parities = parities_for(extents.iter().map(|extent| extent.blocks).sum());
    let mut output = Output::new(sink, parities);
    for piece in &pieces {
        if !is_spilled(piece.address) {
            memory.verify(piece.address, piece.bytes)?;
        }
        (0..piece.gap).try_for_each(|_| output.put(&[0; BLOCK]))?;
        (0..piece.blocks()).try_for_each(|block| output.put(&piece.block(memory, block)?))?;
    }
    let checksums = output.end()?;
    let Content { expiries, segments, hash_seed, root, .. } = content;
    let meta = Meta { checksums, extents, expiries, segments, state };
    let counts = meta.counts(parities)?;
    let (meta_at, bytes) = (counts.meta_at(), meta.encode());
    sink.write_at(&bytes, meta_at)?;
    let (format_version, meta_checksum) = (FORMAT_VERSION, meta_checksum(&bytes));
    let header = ImageHeader { metadata, format_version, hash_seed, root, counts, meta_checksum };
    sink.write_at(&encode_header(&header), 0)?;
    Ok(meta_at + bytes.len() as u64)
}

/// Adjacent bytes in memory, and the filler that ends them.
struct Piece {
    address: u64,
    bytes: u64,
    filler: Vec<u8>,
    /// Free blocks before the piece that are written too.
    gap: u64,
}

impl Piece {
    fn blocks(&self) -> u64 {
        (self.bytes + self.filler.len() as u64).div_ceil(CHUNK_BYTES_MIN)
    }

    fn block(&self, memory: &Memory, number: u64) -> Result<BlockBytes> {
        let mut block: BlockBytes = [0; BLOCK];
        let start = number * CHUNK_BYTES_MIN;
        let length = self.bytes.saturating_sub(start).min(CHUNK_BYTES_MIN) as usize;
        if is_spilled(self.address) {
            memory.read_spilled(self.address + start, &mut block[..length])?;
            return Ok(block);
        }
        // SAFETY: bytes of a chunk in use that were written; only the writer, which runs this code,
        // changes them.
        block[..length].copy_from_slice(unsafe { memory.bytes(self.address + start, length) });
        let padding = BLOCK - length;
        let filler = &self.filler[..self.filler.len().min(padding)];
        block[length..length + filler.len()].copy_from_slice(filler);
        Ok(block)
    }
}

/// Returns all pieces to write, in address order. The open segment then ends with a block, so that
/// no thread ever writes into a block of an image that was not verified.
fn pieces(content: &mut Content) -> Vec<Piece> {
    let piece = |(address, bytes): &(u64, u64)| {
        let (address, bytes) = (*address, *bytes);
        Piece { address, bytes, filler: Vec::new(), gap: 0 }
    };
    let mut pieces: Vec<_> = content.chunks.iter().map(piece).collect();
    for segment in &mut content.segments {
        let (address, bytes) = (segment.address, segment.used);
        let mut end = Vec::new();
        if segment.is_open {
            segment.used = bytes.next_multiple_of(CHUNK_BYTES_MIN);
            match filler(segment.used - bytes) {
                Some(filler) => end = filler,
                None => (segment.used, segment.is_open) = (bytes, false),
            }
        }
        if bytes > 0 {
            pieces.push(Piece { address, bytes, filler: end, gap: 0 });
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.address);
    pieces
}

/// Computes the extents of the pieces, and the gaps between pieces that are written.
fn extents(pieces: &mut [Piece]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut first_in_file = 0;
    for piece in pieces {
        let (first, blocks) = (piece.address / CHUNK_BYTES_MIN, piece.blocks());
        match extents.last_mut() {
            Some(last) if first - (last.first + last.blocks) <= GAP_BLOCKS_MAX => {
                piece.gap = first - (last.first + last.blocks);
                last.blocks += piece.gap + blocks;
            }
            _ => extents.push(Extent { first, blocks, first_in_file }),
        }
        first_in_file += piece.gap + blocks;
    }
    extents
}

struct Output<'s> {
    sink: &'s mut dyn ImageSink,
    parity: Parity,
    checksums: Vec<u64>,
    /// The last of these blocks, which were not passed to the sink yet.
    pending: Vec<u8>,
}

impl<'s> Output<'s> {
    fn new(sink: &'s mut dyn ImageSink, parities: u64) -> Self {
        Self { sink, parity: Parity::new(parities), checksums: Vec::new(), pending: Vec::new() }
    }

    fn put(&mut self, block: &BlockBytes) -> Result<()> {
        self.parity.take(self.checksums.len() as u64, block);
        self.append(block)
    }

    /// Writes the parity blocks after the others, and returns the checksums of all.
    fn end(mut self) -> Result<Arc<[u64]>> {
        let parity = std::mem::take(&mut self.parity).into_blocks(self.checksums.len() as u64);
        parity.iter().try_for_each(|block| self.append(block))?;
        self.flush()?;
        Ok(self.checksums.into())
    }

    fn append(&mut self, block: &BlockBytes) -> Result<()> {
        self.checksums.push(checksum(block, self.checksums.len() as u64));
        self.pending.extend_from_slice(block);
        if self.pending.len() >= WRITTEN_AT_ONCE * BLOCK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // The file's first block is the header.
        let end = (self.checksums.len() as u64 + 1) * CHUNK_BYTES_MIN;
        self.sink.write_at(&self.pending, end - self.pending.len() as u64)?;
        self.pending.clear();
        Ok(())
    }
}
