//! Chunks: bytes that are stored under their own hash. Format of the object:
//! `proto/spec/snapshot.md`.

use std::fmt;

use bytes::{Bytes, BytesMut};
use forebay_core::byte_reader::ByteReader;
use forebay_core::limits::SNAPSHOT_CHUNK_BYTES_MAX;
use forebay_core::{Error, Result};
use forebay_wire::v1;

const MAGIC: u32 = u32::from_le_bytes(*b"FBCH");
const FORMAT_VERSION: u16 = 1;
const PLAIN: u16 = 0;
const ZSTD: u16 = 1;
const FRAME: usize = 16;
/// Compression level: fast, with most of the savings of a higher level on images.
const LEVEL: i32 = 1;
/// Smallest useful saving: if compression saves less than a sixteenth, the chunk is stored
/// uncompressed, because that is cheaper to read.
const WORTH_SHARE: usize = 16;

/// BLAKE3 hash of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkHash([u8; 32]);

impl ChunkHash {
    /// Returns the hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Parses a hash of 64 hex digits.
    pub fn parse(digits: &str) -> Option<Self> {
        blake3::Hash::from_hex(digits).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Display for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Id of a chunk: its bytes, and which of the objects with these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkId {
    /// Hash of the bytes.
    pub hash: ChunkHash,
    /// Number of bytes.
    pub bytes: u32,
    /// Id of the snapshot whose builder wrote the chunk.
    pub written_by: u64,
}

impl ChunkId {
    /// Returns the id of these bytes, at most [`SNAPSHOT_CHUNK_BYTES_MAX`], written for this
    /// snapshot.
    pub fn of(bytes: &[u8], written_by: u64) -> Self {
        Self { hash: ChunkHash::of(bytes), bytes: bytes.len() as u32, written_by }
    }

    /// Returns the name of the chunk's object.
    pub(crate) fn name(&self) -> ChunkName {
        ChunkName { hash: self.hash, written_by: self.written_by }
    }
}

/// Name of a chunk's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkName {
    pub hash: ChunkHash,
    pub written_by: u64,
}

impl ChunkName {
    pub fn parse(name: &str) -> Option<Self> {
        let (hash, id) = name.split_once('-')?;
        let written_by = u64::from_str_radix(id, 16).ok()?;
        let parsed = Self { hash: ChunkHash::parse(hash)?, written_by };
        Some(parsed).filter(|parsed| parsed.to_string() == name)
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.hash, self.written_by)
    }
}

impl From<ChunkId> for v1::SnapshotChunk {
    fn from(id: ChunkId) -> Self {
        Self { hash: id.hash.0.to_vec().into(), bytes: id.bytes, written_by: id.written_by }
    }
}

impl TryFrom<&v1::SnapshotChunk> for ChunkId {
    type Error = Error;

    fn try_from(wire: &v1::SnapshotChunk) -> Result<Self> {
        let hash = wire.hash[..]
            .try_into()
            .map_err(|_| Error::corrupt("the hash does not have 32 bytes"))?;
        if wire.bytes == 0 || wire.bytes as usize > SNAPSHOT_CHUNK_BYTES_MAX {
            let message = format!(
                "the chunk has an invalid length; a chunk has 1 to {SNAPSHOT_CHUNK_BYTES_MAX} bytes"
            );
            return Err(Error::corrupt(message));
        }
        Ok(Self { hash: ChunkHash(hash), bytes: wire.bytes, written_by: wire.written_by })
    }
}

/// Encodes the object of a chunk.
///
/// # Errors
/// `Internal` if compression fails.
pub fn encode_chunk(bytes: &[u8]) -> Result<Bytes> {
    let failed = |error| Error::internal(format!("a chunk could not be compressed: {error}"));
    let packed = zstd::bulk::compress(bytes, LEVEL).map_err(failed)?;
    let is_worth_it = packed.len() < bytes.len() - bytes.len() / WORTH_SHARE;
    let (codec, body) = if is_worth_it { (ZSTD, &packed[..]) } else { (PLAIN, bytes) };
    let mut object = BytesMut::with_capacity(FRAME + body.len());
    object.extend(MAGIC.to_le_bytes());
    object.extend(FORMAT_VERSION.to_le_bytes());
    object.extend(codec.to_le_bytes());
    object.extend((bytes.len() as u32).to_le_bytes());
    object.extend([0; 4]);
    object.extend(body);
    Ok(object.freeze())
}

/// Decodes an object, and checks that its bytes are those of this chunk.
///
/// # Errors
/// `Corrupt` for other bytes; `Unsupported` for a format that this build does not know.
pub fn decode_chunk(id: &ChunkId, object: &Bytes) -> Result<Bytes> {
    let damaged =
        |problem: &str| Error::corrupt(format!("chunk {} is damaged: {problem}", id.hash));
    let short = || Error::corrupt("the chunk is shorter than its frame");
    let mut reader = ByteReader::new(object, short);
    let (magic, version, codec) = (reader.u32()?, reader.u16()?, reader.u16()?);
    if magic != MAGIC {
        return Err(damaged("the magic is wrong"));
    }
    if version != FORMAT_VERSION || codec > ZSTD {
        let message = format!("the chunk has format {version}, codec {codec}; upgrade this build");
        return Err(Error::unsupported(message));
    }
    let (bytes, zero) = (reader.u32()?, reader.u32()?);
    if bytes != id.bytes || zero != 0 {
        return Err(damaged("the frame is of another chunk"));
    }
    let body = object.slice(FRAME..);
    let unpacked = match codec {
        PLAIN => body,
        _ => zstd::bulk::decompress(&body, id.bytes as usize)
            .map_err(|_| damaged("the contents cannot be decompressed"))?
            .into(),
    };
    if unpacked.len() != id.bytes as usize || ChunkHash::of(&unpacked) != id.hash {
        return Err(damaged("the contents have another hash"));
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::entropy::{Entropy, SeededEntropy};

    use super::*;

    fn samples() -> Vec<Vec<u8>> {
        let entropy = SeededEntropy::new(5);
        let random = (0..5_000).map(|_| entropy.next_u64().unwrap() as u8).collect();
        vec![vec![7], vec![0; 100_000], random]
    }

    #[test]
    fn chunks_round_trip() {
        for bytes in samples() {
            let (id, object) = (ChunkId::of(&bytes, 9), encode_chunk(&bytes).unwrap());
            assert!(object.len() <= bytes.len() + FRAME);
            assert_eq!(decode_chunk(&id, &object).unwrap(), bytes);
            let wire = v1::SnapshotChunk::from(id);
            assert_eq!(ChunkId::try_from(&wire).unwrap(), id);
            assert_eq!(ChunkName::parse(&id.name().to_string()), Some(id.name()));
        }
    }

    #[test]
    fn chunk_id_refuses_other_bytes() {
        for bytes in samples() {
            let (id, object) = (ChunkId::of(&bytes, 9), encode_chunk(&bytes).unwrap());
            for place in 0..object.len().min(200) {
                let mut flipped = object.to_vec();
                flipped[place] ^= 1;
                assert!(decode_chunk(&id, &flipped.into()).is_err(), "{place}");
                assert!(decode_chunk(&id, &object.slice(..place)).is_err(), "{place}");
            }
            let mut longer = object.to_vec();
            longer.push(0);
            assert!(decode_chunk(&id, &longer.into()).is_err());
            let other = ChunkId { bytes: id.bytes + 1, ..id };
            assert_eq!(decode_chunk(&other, &object).unwrap_err().code(), ErrorCode::Corrupt);
        }
    }

    #[test]
    fn chunk_has_exactly_one_name() {
        let name = ChunkId::of(b"bytes", 0xab).name().to_string();
        assert!(ChunkName::parse(&name).is_some());
        assert!(ChunkName::parse(&name.to_uppercase()).is_none());
        for end in 0..name.len() {
            assert!(ChunkName::parse(&name[..end]).is_none());
        }
    }
}
