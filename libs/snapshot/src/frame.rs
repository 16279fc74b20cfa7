//! The frame of a message that is stored as an object. Format: `proto/spec/snapshot.md`.

use bytes::{Bytes, BytesMut};
use forebay_core::byte_reader::ByteReader;
use forebay_core::limits::SNAPSHOT_MANIFEST_BYTES_MAX;
use forebay_core::{Error, Result};
use prost::Message;

const FORMAT_VERSION: u16 = 1;
const FRAME: usize = 12;
const HASH: usize = 32;

/// Kind of an object.
pub(crate) struct Frame {
    /// First bytes of the object.
    pub magic: u32,
    /// Description for errors, such as `the manifest of a snapshot`.
    pub description: &'static str,
}

impl Frame {
    /// Encodes the object.
    ///
    /// # Errors
    /// `LimitExceeded` if the object is too large to be read.
    pub fn encode(&self, message: &impl Message) -> Result<Bytes> {
        let message = message.encode_to_vec();
        if message.len() > SNAPSHOT_MANIFEST_BYTES_MAX {
            let advice = format!(
                "{} is too large; repartition the store to more partitions",
                self.description
            );
            let (limit, actual) = (SNAPSHOT_MANIFEST_BYTES_MAX as u64, message.len() as u64);
            return Err(Error::limit_exceeded(&advice, limit, actual));
        }
        let mut object = BytesMut::with_capacity(FRAME + message.len() + HASH);
        object.extend(self.magic.to_le_bytes());
        object.extend(FORMAT_VERSION.to_le_bytes());
        object.extend([0; 2]);
        object.extend((message.len() as u32).to_le_bytes());
        object.extend(message);
        let hash = blake3::hash(&object);
        object.extend(hash.as_bytes());
        Ok(object.freeze())
    }

    /// Decodes the message of an object.
    ///
    /// # Errors
    /// `Unsupported` for a format that this build does not know; `Corrupt` for damage.
    pub fn decode<M: Message + Default>(&self, object: &[u8]) -> Result<M> {
        let mut reader =
            ByteReader::new(object, || Error::corrupt("the object is shorter than its frame"));
        let (magic, version, zero) = (reader.u32()?, reader.u16()?, reader.u16()?);
        if magic != self.magic || zero != 0 {
            return Err(self.damaged("the magic is wrong"));
        }
        if version != FORMAT_VERSION {
            let message = format!("{} has format {version}; upgrade this build", self.description);
            return Err(Error::unsupported(message));
        }
        let bytes = reader.u32()? as usize;
        let message = object.len().checked_sub(FRAME + HASH);
        if message != Some(bytes) || bytes > SNAPSHOT_MANIFEST_BYTES_MAX {
            return Err(self.damaged("the length is not the stated one"));
        }
        let (hashed, hash) = object.split_at(FRAME + bytes);
        if blake3::hash(hashed).as_bytes() != hash {
            return Err(self.damaged("the contents have another hash"));
        }
        M::decode(&hashed[FRAME..]).map_err(|error| self.damaged(&error.to_string()))
    }

    /// Returns the error for a damaged object.
    pub fn damaged(&self, problem: &str) -> Error {
        Error::corrupt(format!("{} is damaged: {problem}; the object is ignored", self.description))
    }
}
