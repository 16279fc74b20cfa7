//! The bytes of `proto/spec/embedded-log.md`: headers and frames, encoded and checked.

use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;

/// Bytes of a segment's header.
pub(super) const HEADER_BYTES: u64 = 40;
/// Bytes of a frame before its entry.
pub(super) const FRAME_HEADER_BYTES: u64 = 32;
/// Bytes of a store's file.
pub(super) const STORE_FILE_BYTES: usize = 24;

const FORMAT_VERSION: u16 = 1;
const SEGMENT_MAGIC: [u8; 4] = *b"FBLS";
const STORE_MAGIC: [u8; 4] = *b"FBLM";

/// Reason why bytes are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormatError {
    /// The bytes are damaged; the text says how the damage shows.
    Damaged(&'static str),
    /// The bytes are valid but have a format version that this build does not know.
    Version(u16),
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) at: PartitionRef,
    pub(super) base: Offset,
    /// Lower bound of the append times in the segment.
    pub(super) append_time_floor: Timestamp,
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) entry_bytes: u32,
    pub(super) checksum: u32,
    pub(super) offset: Offset,
    pub(super) append_time: Timestamp,
    /// Bytes of the segment that were durable when the frame was written.
    pub(super) synced_bytes: u64,
}

/// A reader that decodes fixed-width numbers; returns `None` at the end of the bytes.
pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl ByteReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }
}

/// Checks the checksum at the end, the magic and the version at the front; returns the rest.
pub(super) fn checked(bytes: &[u8], magic: [u8; 4]) -> Result<ByteReader<'_>, FormatError> {
    let short = FormatError::Damaged("the header is cut short");
    let (body, checksum) = bytes.split_last_chunk().ok_or(short)?;
    let mut reader = ByteReader(body);
    if reader.take() != Some(magic) {
        return Err(FormatError::Damaged("the magic is wrong"));
    }
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(FormatError::Damaged("the header fails its checksum"));
    }
    match (reader.u16(), reader.u16()) {
        (Some(FORMAT_VERSION), Some(0)) => Ok(reader),
        (Some(FORMAT_VERSION), _) => Err(FormatError::Damaged("the header has unknown flags")),
        (version, _) => Err(FormatError::Version(version.unwrap_or_default())),
    }
}

/// Returns the first fields of a header, which [`checked`] verifies.
pub(super) fn start(magic: [u8; 4]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(FORMAT_VERSION.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    bytes
}

/// Appends the checksum to a header.
pub(super) fn finish(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = start(SEGMENT_MAGIC);
        bytes.extend(self.at.store.0.to_le_bytes());
        bytes.extend(self.at.partition.0.to_le_bytes());
        bytes.extend(self.base.0.to_le_bytes());
        bytes.extend(self.append_time_floor.as_micros().to_le_bytes());
        finish(bytes)
    }

    /// Decodes the first [`HEADER_BYTES`] of a segment, which must match the expected header.
    pub(super) fn decode(
        bytes: &[u8],
        at: PartitionRef,
        base: Offset,
    ) -> Result<Self, FormatError> {
        let mut reader = checked(bytes, SEGMENT_MAGIC)?;
        let header = (|| {
            let store = StoreId(reader.u64()?);
            let partition = PartitionId(reader.u32()?);
            let base = Offset(reader.u64()?);
            let append_time_floor = Timestamp::from_micros(reader.i64()?);
            Some(Self { at: PartitionRef { store, partition }, base, append_time_floor })
        })();
        match header {
            Some(header) if header.at == at && header.base == base => Ok(header),
            Some(_) => Err(FormatError::Damaged("the header is that of another segment")),
            None => Err(FormatError::Damaged("the header is cut short")),
        }
    }
}

/// Encodes a store's file.
pub(super) fn encode_store_file(store: StoreId, partitions: PartitionCount) -> Vec<u8> {
    let mut bytes = start(STORE_MAGIC);
    bytes.extend(store.0.to_le_bytes());
    bytes.extend(partitions.0.to_le_bytes());
    finish(bytes)
}

/// Decodes a store's file, which must match the expected store.
pub(super) fn decode_store_file(
    bytes: &[u8],
    store: StoreId,
) -> Result<PartitionCount, FormatError> {
    let mut reader = checked(bytes, STORE_MAGIC)?;
    if reader.u64() != Some(store.0) {
        return Err(FormatError::Damaged("the header is that of another store"));
    }
    let count = reader.u32().and_then(|count| PartitionCount::new(count).ok());
    count.ok_or(FormatError::Damaged("the partition count is out of range"))
}

/// Appends one frame to a buffer.
pub(super) fn encode_frame(
    buffer: &mut Vec<u8>,
    offset: Offset,
    append_time: Timestamp,
    synced_bytes: u64,
    entry: &[u8],
) {
    let frame = buffer.len();
    buffer.extend((entry.len() as u32).to_le_bytes());
    buffer.extend([0; 4]);
    buffer.extend(offset.0.to_le_bytes());
    buffer.extend(append_time.as_micros().to_le_bytes());
    buffer.extend(synced_bytes.to_le_bytes());
    buffer.extend(entry);
    let checksum = frame_checksum(&buffer[frame..]);
    buffer[frame + 4..frame + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the checksum of a whole frame or record: over all bytes except the second four bytes,
/// which store the checksum itself.
pub(super) fn frame_checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..4]), &frame[8..])
}

impl FrameHeader {
    /// Decodes a frame's header; only [`check`](Self::check) verifies its contents.
    pub(super) fn decode(bytes: &[u8; FRAME_HEADER_BYTES as usize]) -> Result<Self, FormatError> {
        let mut reader = ByteReader(bytes);
        let header = (|| {
            Some(Self {
                entry_bytes: reader.u32()?,
                checksum: reader.u32()?,
                offset: Offset(reader.u64()?),
                append_time: Timestamp::from_micros(reader.i64()?),
                synced_bytes: reader.u64()?,
            })
        })();
        match header {
            Some(header) if header.entry_bytes as usize <= ENTRY_FRAME_BYTES_MAX => Ok(header),
            _ => Err(FormatError::Damaged("the entry length is above the limit")),
        }
    }

    /// Returns the length of the whole frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES + u64::from(self.entry_bytes)
    }

    /// Checks the whole frame, of exactly [`frame_bytes`](Self::frame_bytes), at its offset in the
    /// segment.
    pub(super) fn check(&self, frame: &[u8], at: u64, offset: Offset) -> Result<(), FormatError> {
        if frame_checksum(frame) != self.checksum {
            return Err(FormatError::Damaged("a frame fails its checksum"));
        }
        if self.offset != offset {
            return Err(FormatError::Damaged(
                "a frame has another offset than its place in the segment",
            ));
        }
        if !(HEADER_BYTES..=at).contains(&self.synced_bytes) {
            return Err(FormatError::Damaged("a frame says that bytes after it were durable"));
        }
        Ok(())
    }
}
