//! Many keys as the caller packs them: concatenated, with the partition keys in a second array if
//! the store declares a partition key.

use forebay::reads::{DocumentKey, KeyList, PackedKeys};
use forebay::schema::KeyType;
use forebay::{Error, Result};

use crate::abi::FbKeys;
use crate::input::{key_type_of, one, slice};

/// The primary keys or the partition keys of a call.
enum Part<'a> {
    Packed(PackedKeys<'a>),
    Numbers(&'a [[u8; 8]]),
}

impl<'a> Part<'a> {
    fn new(code: u32, bytes: &'a [u8], ends: &'a [u64], count: usize) -> Result<Self> {
        let key_type = key_type_of(code)?;
        if key_type == KeyType::Int64 {
            let (numbers, rest) = bytes.as_chunks::<8>();
            if numbers.len() != count || !rest.is_empty() {
                let message =
                    "the int64 keys do not have 8 bytes each; give 8 bytes, little-endian";
                return Err(Error::invalid_argument(message));
            }
            return Ok(Self::Numbers(numbers));
        }
        if ends.len() != count {
            return Err(Error::invalid_argument("a key has no end; give the end of each key"));
        }
        Ok(Self::Packed(match key_type {
            KeyType::String => PackedKeys::strings(bytes, ends)?,
            _ => PackedKeys::bytes(bytes, ends)?,
        }))
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        match self {
            Self::Packed(keys) => keys.key(place),
            Self::Numbers(numbers) => DocumentKey::from(i64::from_le_bytes(numbers[place])),
        }
    }
}

/// The keys of one call.
pub(crate) struct GivenKeys<'a> {
    count: usize,
    primary: Part<'a>,
    partition: Option<Part<'a>>,
}

impl KeyList for GivenKeys<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        let key = self.primary.key(place);
        match &self.partition {
            Some(partition) => key.with_partition_key(partition.key(place).primary()),
            None => key,
        }
    }
}

/// Returns the keys that the caller points to.
///
/// # Safety
/// The rules of [`slice`] apply to every pointer of the struct.
///
/// # Errors
/// `InvalidArgument` for ends that decrease or are beyond the bytes, and for keys that are invalid
/// for their type.
pub(crate) unsafe fn keys<'a>(keys: *const FbKeys) -> Result<GivenKeys<'a>> {
    // SAFETY: the caller vouches for every pointer; ends are read only for keys that have ends.
    unsafe {
        let given_keys = one(keys)?;
        let count = usize::try_from(given_keys.count).map_err(|_| {
            Error::invalid_argument("a count exceeds the address space; give the count of the data")
        })?;
        let part = |code, bytes: &'a [u8], ends: *const u64| {
            let ends = if ends.is_null() { &[] } else { slice(ends, given_keys.count)? };
            Part::new(code, bytes, ends, count)
        };
        let primary = part(given_keys.key_type, given_keys.keys.bytes()?, given_keys.ends)?;
        let partition = match given_keys.partition_key_type {
            0 => None,
            code => {
                Some(part(code, given_keys.partition_keys.bytes()?, given_keys.partition_ends)?)
            }
        };
        Ok(GivenKeys { count, primary, partition })
    }
}
