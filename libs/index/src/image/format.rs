//! The image format, `proto/spec/image.md`. The decoders accept any bytes.

use std::sync::Arc;

use forebay_core::byte_reader::ByteReader;
use forebay_core::clock::Timestamp;
use forebay_core::id::{
    Epoch, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion, StoreId,
};
use forebay_core::replica_state::{PartitionUsage, Progress};
use forebay_core::{Error, Result};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{ImageMetadata, damaged};
use crate::memory::{CHUNK_BYTES_MIN, RESERVED_BYTES, is_spilled};

/// Bytes of a block: the unit of checksums, and of memory.
pub(crate) const BLOCK: usize = CHUNK_BYTES_MIN as usize;
/// A block's bytes.
pub(crate) type BlockBytes = [u8; BLOCK];

const MAGIC: u32 = u32::from_le_bytes(*b"FBIM");
/// The oldest version that can be opened; it has neither parity nor blocks of a spill file.
const FORMAT_VERSION_MIN: u16 = 1;
/// The version with blocks of a spill file; it has no parity.
const FORMAT_VERSION_SPILLED: u16 = 2;
/// The version that is written; it has parity.
pub(super) const FORMAT_VERSION: u16 = 3;
/// Number of blocks of the largest memory. An image's metadata is read as a whole, so it is
/// bounded.
const BLOCKS_MAX: u64 = RESERVED_BYTES / CHUNK_BYTES_MIN;
/// Bytes of the header before its checksum.
const HEADER_BYTES: usize = 152;
const EXTENT_BYTES: usize = 8;
const SEGMENT_BYTES: usize = 32;
const SEGMENT_OPEN: u64 = 1;
/// Blocks per parity block: parity adds a sixty-fourth to an image, and the repair of one block
/// reads this many.
const BLOCKS_PER_PARITY: u64 = 64;
/// Maximum number of parity blocks, all of which are in memory while an image is written: 16 MiB.
/// Images of more than 1 GiB have more blocks per parity block.
const PARITIES_MAX: u64 = 2_048;

/// Blocks that are adjacent in memory and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of the first block in memory: its address divided by the block length.
    pub(crate) first: u64,
    /// Number of blocks.
    pub(crate) blocks: u64,
    /// Number of the first block in the file.
    pub(crate) first_in_file: u64,
}

impl Extent {
    /// Whether the blocks are from a spill file.
    pub(crate) fn is_spilled(&self) -> bool {
        is_spilled(self.first * CHUNK_BYTES_MIN)
    }
}

/// A segment, with the facts that a writer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentAt {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) used: u64,
    pub(crate) live: u64,
    pub(crate) is_open: bool,
}

/// The first block of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageHeader {
    pub(super) metadata: ImageMetadata,
    pub(super) format_version: u16,
    pub(super) hash_seed: u64,
    pub(super) root: u64,
    pub(super) counts: Counts,
    pub(super) meta_checksum: u64,
}

/// The sizes of an image's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) blocks: u64,
    pub(super) extents: u32,
    pub(super) groups: u32,
    pub(super) segments: u32,
    pub(super) state_bytes: u32,
    pub(super) parities: u64,
}

/// The metadata after the blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    /// The checksums by block of the file; those of parity blocks are last.
    pub(super) checksums: Arc<[u64]>,
    pub(super) extents: Vec<Extent>,
    /// By group in the order of the directory: the time before which none of its documents expires.
    pub(super) expiries: Vec<i64>,
    pub(super) segments: Vec<SegmentAt>,
    pub(super) state: Vec<u8>,
}

/// Computes the checksum of the block at this number in the file.
pub(crate) fn checksum(block: &BlockBytes, in_file: u64) -> u64 {
    xxh3_64_with_seed(block, in_file)
}

/// Computes the checksum of the metadata.
pub(super) fn meta_checksum(meta: &[u8]) -> u64 {
    xxh3_64(meta)
}

/// Returns how many parity blocks are written for this many other blocks.
pub(super) fn parities_for(blocks: u64) -> u64 {
    blocks.div_ceil(BLOCKS_PER_PARITY).min(PARITIES_MAX)
}

impl Counts {
    /// Number of blocks of both kinds.
    fn all_blocks(&self) -> u64 {
        self.blocks.saturating_add(self.parities)
    }

    /// Bytes of the metadata.
    pub(super) fn meta_bytes(&self) -> Option<u64> {
        let fixed = u64::from(self.extents) * EXTENT_BYTES as u64
            + u64::from(self.groups) * 8
            + u64::from(self.segments) * SEGMENT_BYTES as u64
            + u64::from(self.state_bytes);
        self.all_blocks().checked_mul(8)?.checked_add(fixed)
    }

    /// Offset of the metadata in the file.
    pub(super) fn meta_at(&self) -> u64 {
        (1 + self.all_blocks()) * CHUNK_BYTES_MIN
    }

    /// Bytes of the whole file; `None` for more than any memory has addresses for.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        if self.blocks > BLOCKS_MAX || self.parities > self.blocks {
            return None;
        }
        Some(self.meta_at() + self.meta_bytes()?)
    }
}

impl Meta {
    pub(super) fn counts(&self, parities: u64) -> Result<Counts> {
        let count = |items: usize| {
            u32::try_from(items).map_err(|_| {
                let limit = u64::from(u32::MAX);
                let message = "the partition is too large for an image; repartition the store to \
                    more partitions";
                Error::limit_exceeded(message, limit, items as u64)
            })
        };
        Ok(Counts {
            blocks: self.checksums.len() as u64 - parities,
            parities,
            extents: count(self.extents.len())?,
            groups: count(self.expiries.len())?,
            segments: count(self.segments.len())?,
            state_bytes: count(self.state.len())?,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.checksums.iter().for_each(|checksum| bytes.extend(checksum.to_le_bytes()));
        for extent in &self.extents {
            bytes.extend((extent.first as u32).to_le_bytes());
            bytes.extend((extent.blocks as u32).to_le_bytes());
        }
        self.expiries.iter().for_each(|expiry| bytes.extend(expiry.to_le_bytes()));
        for segment in &self.segments {
            let flags = if segment.is_open { SEGMENT_OPEN } else { 0 };
            for number in [segment.address, segment.bytes | flags, segment.used, segment.live] {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes.extend(&self.state);
        bytes
    }

    pub(super) fn decode(bytes: &[u8], counts: &Counts) -> Result<Self> {
        if Some(bytes.len() as u64) != counts.meta_bytes() {
            return Err(damaged("the description has another length than the header says"));
        }
        let (checksums, remaining) = bytes.split_at(8 * counts.all_blocks() as usize);
        let checksums = checksums.as_chunks::<8>().0.iter();
        let checksums = checksums.map(|checksum| u64::from_le_bytes(*checksum)).collect();
        let mut reader = ByteReader::new(remaining, too_early);
        let mut extents = Vec::with_capacity(counts.extents as usize);
        let (mut first_in_file, mut end) = (0, 0);
        for _ in 0..counts.extents {
            let (first, blocks) = (u64::from(reader.u32()?), u64::from(reader.u32()?));
            if first < end || blocks == 0 {
                return Err(damaged("the blocks are out of order"));
            }
            extents.push(Extent { first, blocks, first_in_file });
            (first_in_file, end) = (first_in_file + blocks, first + blocks);
        }
        if first_in_file != counts.blocks {
            return Err(damaged("there are more or fewer blocks than the header says"));
        }
        let expiries =
            (0..counts.groups).map(|_| Ok(reader.u64()? as i64)).collect::<Result<_>>()?;
        let segments = (0..counts.segments).map(|_| segment(&mut reader)).collect::<Result<_>>()?;
        Ok(Self { checksums, extents, expiries, segments, state: reader.rest().to_vec() })
    }
}

/// Encodes the first block of a file.
pub(super) fn encode_header(header: &ImageHeader) -> Vec<u8> {
    let ImageMetadata { partition, partitions, progress, usage } = header.metadata;
    let mut bytes = Vec::with_capacity(BLOCK);
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(header.format_version.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    bytes.extend(partition.store.0.to_le_bytes());
    bytes.extend(partition.partition.0.to_le_bytes());
    bytes.extend(partitions.0.to_le_bytes());
    bytes.extend(progress.position.epoch.0.to_le_bytes());
    bytes.extend(progress.position.index_in_entry.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    bytes.extend(progress.position.offset.0.to_le_bytes());
    bytes.extend(progress.offset_applied.0.to_le_bytes());
    bytes.extend(progress.partition_time.as_micros().to_le_bytes());
    bytes.extend(progress.schema_version.0.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    for number in [usage.documents, usage.key_bytes, usage.row_bytes, usage.memory_bytes] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(header.hash_seed.to_le_bytes());
    bytes.extend(header.root.to_le_bytes());
    bytes.extend(header.counts.blocks.to_le_bytes());
    let Counts { extents, groups, segments, state_bytes, .. } = header.counts;
    for number in [extents, groups, segments, state_bytes] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(header.meta_checksum.to_le_bytes());
    bytes.extend(header.counts.parities.to_le_bytes());
    debug_assert_eq!(bytes.len(), HEADER_BYTES);
    bytes.resize(BLOCK - 8, 0);
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// Decodes the first block of a file.
///
/// # Errors
/// `Unsupported` for a format that this build does not know; `Corrupt`.
pub(super) fn decode_header(bytes: &BlockBytes) -> Result<ImageHeader> {
    let (body, checksum) = bytes.split_at(BLOCK - 8);
    let mut reader = ByteReader::new(body, too_early);
    let (magic, version) = (reader.u32()?, reader.u16()?);
    if magic != MAGIC {
        return Err(damaged("the file does not begin with the magic of an image"));
    }
    if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
        let message = format!(
            "the image has format version {version}, and this build knows {FORMAT_VERSION_MIN} to \
             {FORMAT_VERSION}; the reader ignores the image: open it with the build that wrote it, \
             or let this build write another one"
        );
        return Err(Error::unsupported(message));
    }
    if ByteReader::new(checksum, too_early).u64()? != xxh3_64(body) || reader.u16()? != 0 {
        return Err(damaged("the header fails its checksum"));
    }
    let header = ImageHeader { format_version: version, ..take_header(&mut reader)? };
    let has_parity = header.counts.parities > 0;
    match reader.rest().iter().all(|byte| *byte == 0) && (version == FORMAT_VERSION || !has_parity)
    {
        true => Ok(header),
        false => Err(damaged("bytes follow the header")),
    }
}

impl ImageHeader {
    /// Whether this version allows, or requires, blocks of a spill file as the image has them.
    pub(super) fn fits(&self, has_spilled: bool) -> bool {
        self.format_version == FORMAT_VERSION
            || has_spilled == (self.format_version == FORMAT_VERSION_SPILLED)
    }
}

fn too_early() -> Error {
    damaged("the file ends too early")
}

fn segment(reader: &mut ByteReader<'_>) -> Result<SegmentAt> {
    let [address, bytes, used, live] = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
    let (bytes, is_open) = (bytes & !SEGMENT_OPEN, bytes & SEGMENT_OPEN != 0);
    if live > used || used > bytes {
        return Err(damaged("a segment holds more bytes than its length"));
    }
    Ok(SegmentAt { address, bytes, used, live, is_open })
}

fn take_header(reader: &mut ByteReader<'_>) -> Result<ImageHeader> {
    let store = StoreId(reader.u64()?);
    let partition = PartitionRef { store, partition: PartitionId(reader.u32()?) };
    let partitions = PartitionCount(reader.u32()?);
    let (epoch, index_in_entry, _) = (Epoch(reader.u32()?), reader.u16()?, reader.u16()?);
    let position = Position { epoch, offset: Offset(reader.u64()?), index_in_entry };
    let offset_applied = Offset(reader.u64()?);
    let partition_time = Timestamp::from_micros(reader.u64()? as i64);
    let (schema_version, _) = (SchemaVersion(reader.u32()?), reader.u32()?);
    let progress = Progress { position, offset_applied, partition_time, schema_version };
    let usage = PartitionUsage {
        documents: reader.u64()?,
        key_bytes: reader.u64()?,
        row_bytes: reader.u64()?,
        memory_bytes: reader.u64()?,
    };
    let (hash_seed, root, blocks) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let [extents, groups, segments, state_bytes] =
        [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
    let metadata = ImageMetadata { partition, partitions, progress, usage };
    let (meta_checksum, parities) = (reader.u64()?, reader.u64()?);
    let counts = Counts { blocks, extents, groups, segments, state_bytes, parities };
    let format_version = FORMAT_VERSION;
    Ok(ImageHeader { metadata, format_version, hash_seed, root, counts, meta_checksum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_one_64th_of_the_image_and_bounded() {
        let expected = [(0, 0), (1, 1), (64, 1), (65, 2), (131_072, 2_048), (BLOCKS_MAX, 2_048)];
        for (blocks, parities) in expected {
            assert_eq!(parities_for(blocks), parities, "{blocks}");
        }
    }
}
