//! The bytes of a journal (`proto/spec/embedded-log.md`, "Journal"): headers of halves and records,
//! encoded and checked.

use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};

use crate::embedded_log::format::{
    ByteReader, FormatError, checked, finish, frame_checksum, start,
};

/// Bytes of a half before its first record. The header has its own block, so that overwriting the
/// header tears no record.
pub(super) const HEADER_BLOCK_BYTES: usize = 4096;
/// Bytes of a half's header.
pub(super) const HEADER_BYTES: usize = 28;
/// Bytes of a record before its pieces.
pub(super) const RECORD_HEADER_BYTES: usize = 16;

/// Bytes of a piece header.
const PIECE_HEADER_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"FBLJ";

/// Header of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HalfHeader {
    /// Length of the half in bytes.
    pub(super) half_bytes: u64,
    /// Sequence number of the first record; 0 for a half that was never used.
    pub(super) first: u64,
}

/// Name of a segment: its partition and its base offset.
pub(in crate::embedded_log) type SegmentName = (PartitionRef, Offset);

/// Bytes at an offset of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::embedded_log) struct Piece<'a> {
    pub(in crate::embedded_log) at: PartitionRef,
    pub(in crate::embedded_log) base: Offset,
    /// Byte offset in the segment.
    pub(in crate::embedded_log) place: u64,
    pub(in crate::embedded_log) bytes: &'a [u8],
}

/// A valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) sequence: u64,
    body: &'a [u8],
}

impl HalfHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = start(MAGIC);
        bytes.extend(self.half_bytes.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        finish(bytes)
    }

    /// Decodes the first [`HEADER_BYTES`] of a half.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = checked(bytes, MAGIC)?;
        let header = (|| Some(Self { half_bytes: reader.u64()?, first: reader.u64()? }))();
        header.ok_or(FormatError::Damaged("the header is cut short"))
    }
}

/// Returns the length of the record that contains these pieces.
pub(super) fn record_bytes(pieces: &[Piece<'_>]) -> usize {
    let bytes = pieces.iter().map(|piece| PIECE_HEADER_BYTES + piece.bytes.len());
    RECORD_HEADER_BYTES + bytes.sum::<usize>()
}

/// Encodes one record.
pub(super) fn encode_record(sequence: u64, pieces: &[Piece<'_>]) -> Vec<u8> {
    let bytes = record_bytes(pieces);
    let mut record = Vec::with_capacity(bytes);
    record.extend(((bytes - RECORD_HEADER_BYTES) as u32).to_le_bytes());
    record.extend([0; 4]);
    record.extend(sequence.to_le_bytes());
    for piece in pieces {
        record.extend(piece.at.store.0.to_le_bytes());
        record.extend(piece.at.partition.0.to_le_bytes());
        record.extend(piece.base.0.to_le_bytes());
        record.extend(piece.place.to_le_bytes());
        record.extend((piece.bytes.len() as u32).to_le_bytes());
        record.extend(piece.bytes);
    }
    let checksum = frame_checksum(&record);
    record[4..8].copy_from_slice(&checksum.to_le_bytes());
    record
}

impl<'a> Record<'a> {
    /// Decodes the record at the start of the bytes if its sequence number is expected and the
    /// record is valid. The checksum is computed only for an expected number, so that searching for
    /// a record at every byte costs about one pass.
    pub(super) fn decode(bytes: &'a [u8], expected: impl Fn(u64) -> bool) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let (length, checksum, sequence) = (reader.u32()?, reader.u32()?, reader.u64()?);
        if !expected(sequence) {
            return None;
        }
        let (record, _) = bytes.split_at_checked(RECORD_HEADER_BYTES + length as usize)?;
        let (_, body) = record.split_at_checked(RECORD_HEADER_BYTES)?;
        (frame_checksum(record) == checksum).then_some(Self { sequence, body })
    }

    /// Returns the length of the whole record.
    pub(super) fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.body.len()
    }

    /// Returns the pieces of the record; `None` if its body is not a sequence of pieces.
    pub(super) fn pieces(&self) -> Option<Vec<Piece<'a>>> {
        let mut reader = ByteReader(self.body);
        let mut pieces = Vec::new();
        while !reader.0.is_empty() {
            let store = StoreId(reader.u64()?);
            let partition = PartitionId(reader.u32()?);
            let (base, place) = (Offset(reader.u64()?), reader.u64()?);
            let length = reader.u32()?;
            let (bytes, rest) = reader.0.split_at_checked(length as usize)?;
            reader = ByteReader(rest);
            pieces.push(Piece { at: PartitionRef { store, partition }, base, place, bytes });
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> [Piece<'static>; 2] {
        let at = PartitionRef { store: StoreId(7), partition: PartitionId(2) };
        let other = PartitionRef { store: StoreId(9), ..at };
        [
            Piece { at, base: Offset(5), place: 40, bytes: b"abc" },
            Piece { at: other, base: Offset(0), place: 1_000, bytes: b"" },
        ]
    }

    /// Proves that the encoding matches the spec; the expected bytes are written by hand.
    #[test]
    fn header_and_record_have_the_bytes_of_their_spec() {
        let header = HalfHeader { half_bytes: 0x1_0000, first: 3 };
        let mut expected = b"FBLJ\x01\0\0\0\0\0\x01\0\0\0\0\0\x03\0\0\0\0\0\0\0".to_vec();
        expected.extend(crc32c::crc32c(&expected).to_le_bytes());
        assert_eq!((expected.len(), header.encode()), (HEADER_BYTES, expected));

        let length = 67_u32.to_le_bytes();
        let mut rest = 4_u64.to_le_bytes().to_vec();
        rest.extend(
            b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x05\0\0\0\0\0\0\0\x28\0\0\0\0\0\0\0\x03\0\0\0abc",
        );
        rest.extend(b"\x09\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\0\0\0\0");
        let checksum = crc32c::crc32c(&[&length[..], &rest].concat());
        let expected = [&length[..], &checksum.to_le_bytes(), &rest].concat();
        assert_eq!(encode_record(4, &pieces()), expected);
    }

    #[test]
    fn journal_record_decodes_to_its_encoded_pieces() {
        let header = HalfHeader { half_bytes: 9, first: u64::MAX };
        assert_eq!(HalfHeader::decode(&header.encode()), Ok(header));
        let bytes = encode_record(4, &pieces());
        let longer_bytes = [&bytes[..], &[1; 9]].concat();
        let record = Record::decode(&longer_bytes, |sequence| sequence == 4).unwrap();
        assert_eq!((record.sequence, record.bytes()), (4, record_bytes(&pieces())));
        assert_eq!(record.pieces().unwrap(), pieces());
        assert_eq!(Record::decode(&bytes, |sequence| sequence == 5), None);
    }

    #[test]
    fn cut_or_changed_bytes_are_neither_record_nor_header() {
        let record = encode_record(4, &pieces());
        let header = HalfHeader { half_bytes: 9, first: 1 }.encode();
        for length in 0..record.len() {
            assert_eq!(Record::decode(&record[..length], |_| true), None, "{length} bytes");
        }
        for length in 0..header.len() {
            assert!(HalfHeader::decode(&header[..length]).is_err(), "{length} bytes");
        }
        for place in 0..record.len() {
            let mut changed_record = record.clone();
            changed_record[place] ^= 1;
            assert_eq!(Record::decode(&changed_record, |_| true), None, "byte {place}");
        }
        for place in 0..header.len() {
            let mut changed_header = header.clone();
            changed_header[place] ^= 1;
            assert!(HalfHeader::decode(&changed_header).is_err(), "byte {place}");
        }
    }

    #[test]
    fn whole_record_with_truncated_pieces_has_no_pieces() {
        let mut record = encode_record(4, &pieces());
        record.truncate(record.len() - 1);
        let length = (record.len() - RECORD_HEADER_BYTES) as u32;
        record[..4].copy_from_slice(&length.to_le_bytes());
        let checksum = frame_checksum(&record);
        record[4..8].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Record::decode(&record, |_| true).unwrap().pieces(), None);
    }

    #[test]
    fn newer_header_asks_for_an_upgrade() {
        let mut header = HalfHeader { half_bytes: 9, first: 1 }.encode();
        header[4] = 2;
        header.truncate(HEADER_BYTES - 4);
        assert_eq!(HalfHeader::decode(&finish(header)), Err(FormatError::Version(2)));
    }
}
