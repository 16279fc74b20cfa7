//! Keys as a reader passes them: a single document's key, and lists of keys for batches; and the
//! hash by which a table finds a key.

use forebay_core::id::{PartitionCount, PartitionId};
use forebay_core::key::{Key, KeyType, KeyValue, check_length};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The name of one document in a read: its primary key, and its partition key if the store declares
/// one.
///
/// ```
/// use forebay_index::DocumentKey;
/// let plain = DocumentKey::from("user-1");
/// let partitioned = DocumentKey::from(17_i64).with_partition_key("tenant-a");
/// assert_ne!(plain, partitioned);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentKey<'a> {
    primary: KeyValue<'a>,
    partition_key: Option<KeyValue<'a>>,
}

impl<'a> DocumentKey<'a> {
    /// Names the document with this primary key.
    pub fn new(primary: KeyValue<'a>) -> Self {
        Self { primary, partition_key: None }
    }

    /// Decodes the identity bytes of a store's document.
    ///
    /// # Errors
    /// `Corrupt` for bytes that identify no document of the store.
    pub fn of_identity(identity: &'a [u8], definition: &Definition) -> Result<Self> {
        KeyShape::of(definition).name(identity)
    }

    /// Returns the same primary key under this partition key.
    #[must_use]
    pub fn with_partition_key(mut self, partition_key: impl Into<KeyValue<'a>>) -> Self {
        self.partition_key = Some(partition_key.into());
        self
    }

    /// The primary key.
    pub fn primary(&self) -> KeyValue<'a> {
        self.primary
    }

    /// The partition key, if one was given.
    pub fn partition_key(&self) -> Option<KeyValue<'a>> {
        self.partition_key
    }
}

impl<'a, K: Into<KeyValue<'a>>> From<K> for DocumentKey<'a> {
    fn from(primary: K) -> Self {
        Self::new(primary.into())
    }
}

/// Keys of a batch, in the caller's order; the same key may occur more than once.
pub trait KeyList {
    /// The number of keys.
    fn count(&self) -> usize;

    /// The key at an index below `count`.
    fn key(&self, place: usize) -> DocumentKey<'_>;
}

impl KeyList for [DocumentKey<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        self[place]
    }
}

impl KeyList for [KeyValue<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        DocumentKey::new(self[place])
    }
}

impl KeyList for [i64] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        DocumentKey::from(self[place])
    }
}

impl KeyList for [&str] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        DocumentKey::from(self[place])
    }
}

impl KeyList for [String] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        DocumentKey::from(&self[place])
    }
}

/// String or bytes keys, concatenated, as bindings pass them.
#[derive(Clone, Copy, Debug)]
pub struct PackedKeys<'a> {
    bytes: PackedBytes<'a>,
    ends: &'a [u64],
}

#[derive(Clone, Copy, Debug)]
enum PackedBytes<'a> {
    Bytes(&'a [u8]),
    Text(&'a str),
}

impl<'a> PackedKeys<'a> {
    /// Keys of type bytes: key `n` ends at `ends[n]`, where key `n + 1` starts.
    ///
    /// # Errors
    /// `InvalidArgument` when the ends decrease or exceed the bytes.
    pub fn bytes(bytes: &'a [u8], ends: &'a [u64]) -> Result<Self> {
        check_ends(bytes.len(), ends)?;
        Ok(Self { bytes: PackedBytes::Bytes(bytes), ends })
    }

    /// Keys of type string, laid out as for [`PackedKeys::bytes`].
    ///
    /// # Errors
    /// `InvalidArgument` when the ends decrease or exceed the bytes, or a key is not UTF-8.
    pub fn strings(bytes: &'a [u8], ends: &'a [u64]) -> Result<Self> {
        check_ends(bytes.len(), ends)?;
        let not_utf8 = || Error::invalid_argument("a string key is not UTF-8; encode it as UTF-8");
        let text = std::str::from_utf8(bytes).map_err(|_| not_utf8())?;
        let are_boundaries = ends.iter().all(|end| text.is_char_boundary(*end as usize));
        if are_boundaries {
            Ok(Self { bytes: PackedBytes::Text(text), ends })
        } else {
            Err(not_utf8())
        }
    }
}

fn check_ends(bytes: usize, ends: &[u64]) -> Result<()> {
    let last = ends.last().copied().unwrap_or(0);
    if last > bytes as u64 || !ends.is_sorted() {
        let message = "the ends of packed keys must rise and lie inside their bytes";
        return Err(Error::invalid_argument(message));
    }
    Ok(())
}

impl KeyList for PackedKeys<'_> {
    fn count(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        let start = place.checked_sub(1).map_or(0, |previous| self.ends[previous]) as usize;
        let range = start..self.ends[place] as usize;
        DocumentKey::new(match self.bytes {
            PackedBytes::Bytes(bytes) => KeyValue::Bytes(&bytes[range]),
            PackedBytes::Text(text) => KeyValue::String(&text[range]),
        })
    }
}

/// The properties that all keys of a store share, at every version of its definition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyShape {
    key_type: KeyType,
    partition_key_type: Option<KeyType>,
    partitions: PartitionCount,
}

impl KeyShape {
    pub(crate) fn of(definition: &Definition) -> Self {
        Self {
            key_type: definition.key_type,
            partition_key_type: definition.partition_key_type(),
            partitions: definition.partitions,
        }
    }

    /// Returns the partition of a key, and writes the key's identity bytes to `identity`: returned
    /// by value, they would be copied. Allocates only if the store declares a partition key.
    #[inline(always)]
    pub(crate) fn locate<'k>(
        &self,
        key: &DocumentKey<'k>,
        identity: &mut Identity<'k>,
    ) -> Result<PartitionId> {
        check_type(&key.primary, self.key_type, "primary key")?;
        *identity = Identity::of(key.primary);
        check_length(identity.as_bytes())?;
        if key.partition_key.is_some() || self.partition_key_type.is_some() {
            return self.locate_composed(key, identity);
        }
        Ok(partition_of(identity.as_bytes(), self.partitions))
    }

    fn locate_composed(
        &self,
        key: &DocumentKey<'_>,
        identity: &mut Identity<'_>,
    ) -> Result<PartitionId> {
        let (partition_key, partition_key_type) = match (key.partition_key, self.partition_key_type)
        {
            (Some(value), Some(key_type)) => (value, key_type),
            (None, Some(_)) => {
                let message = "the store declares a partition key; give its value with each key";
                return Err(Error::invalid_argument(message));
            }
            (_, None) => {
                let message = "the store declares no partition key; give the primary key alone";
                return Err(Error::invalid_argument(message));
            }
        };
        check_type(&partition_key, partition_key_type, "partition key")?;
        let partition_key = Identity::of(partition_key);
        let partition = partition_of(partition_key.as_bytes(), self.partitions);
        let composed = Key::partitioned(partition_key.as_bytes(), identity.as_bytes())?;
        *identity = Identity::Composed(composed);
        Ok(partition)
    }

    /// Decodes identity bytes into the key that they stand for.
    pub(crate) fn name<'k>(&self, identity: &'k [u8]) -> Result<DocumentKey<'k>> {
        let (partition_key, primary) = Key::split(identity, self.partition_key_type.is_some())?;
        let primary = key_value(primary, self.key_type)?;
        let values = partition_key.zip(self.partition_key_type);
        let partition_key =
            values.map(|(bytes, key_type)| key_value(bytes, key_type)).transpose()?;
        Ok(DocumentKey { primary, partition_key })
    }
}

#[inline]
fn check_type(value: &KeyValue<'_>, expected: KeyType, part: &str) -> Result<()> {
    let actual = value.key_type();
    if actual == expected { Ok(()) } else { Err(wrong_type(expected, actual, part)) }
}

#[cold]
fn wrong_type(expected: KeyType, actual: KeyType, part: &str) -> Error {
    let (expected, actual) = (expected.name(), actual.name());
    let message = format!("the store's {part} is a {expected}; give a {expected}, not a {actual}");
    Error::invalid_argument(message)
}

fn key_value(bytes: &[u8], key_type: KeyType) -> Result<KeyValue<'_>> {
    let wrong_type = || Error::corrupt("a stored key does not have the key type of the store");
    Ok(match key_type {
        KeyType::Bytes => KeyValue::Bytes(bytes),
        KeyType::String => KeyValue::String(std::str::from_utf8(bytes).map_err(|_| wrong_type())?),
        KeyType::Int64 => {
            KeyValue::Int64(i64::from_le_bytes(bytes.try_into().map_err(|_| wrong_type())?))
        }
    })
}

/// Identity bytes of a key, borrowed from the caller if possible.
#[derive(Debug)]
pub(crate) enum Identity<'k> {
    Borrowed(&'k [u8]),
    Int64(Int64Bytes),
    Composed(Key),
}

/// An int64 key; aligned, so that a processor that reads the bytes back meets one store and not
/// several.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Int64Bytes([u8; 8]);

impl Default for Identity<'_> {
    fn default() -> Self {
        Self::Borrowed(&[])
    }
}

impl<'k> Identity<'k> {
    #[inline(always)]
    fn of(value: KeyValue<'k>) -> Self {
        match value {
            KeyValue::String(text) => Self::Borrowed(text.as_bytes()),
            KeyValue::Bytes(bytes) => Self::Borrowed(bytes),
            KeyValue::Int64(number) => Self::Int64(Int64Bytes(number.to_le_bytes())),
        }
    }

    #[inline(always)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Int64(bytes) => &bytes.0,
            Self::Composed(key) => key.as_bytes(),
        }
    }
}

/// A seeded hash, used only inside the index: keys of one partition differ little in the partition
/// hash, and a secret seed prevents a sender of keys from choosing collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededHash(u64);

impl SeededHash {
    pub(crate) fn new(seed: u64) -> Self {
        // This is never the partition hash, which is the same function with seed 0.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the hash that an image was written with.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed, which identifies the hash.
    pub(crate) fn seed(self) -> u64 {
        self.0
    }

    /// Hashes a key's identity bytes.
    #[inline]
    pub(crate) fn of(self, identity: &[u8]) -> u64 {
        xxh3_64_with_seed(identity, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorCode;
    use forebay_core::id::StoreId;
    use forebay_core::schema::StoreSpec;
    use forebay_core::value::FieldType;

    fn shape(partition_key: Option<&str>) -> KeyShape {
        let tenant = FieldType::INT64;
        let mut spec =
            StoreSpec::documents("users", KeyType::String).partitions(8).field("tenant", tenant);
        spec.partition_key = partition_key.map(str::to_owned);
        KeyShape::of(&spec.define(StoreId(1)).unwrap())
    }

    #[test]
    fn keys_are_located_by_their_partition_key_and_convert_back() {
        let shape = shape(Some("tenant"));
        let key = DocumentKey::from("ann").with_partition_key(7);
        let mut identity = Identity::default();
        let partition = shape.locate(&key, &mut identity).unwrap();
        assert_eq!(partition, partition_of(&7_i64.to_le_bytes(), PartitionCount(8)));
        assert_eq!(shape.name(identity.as_bytes()).unwrap(), key);
    }

    #[test]
    fn keys_of_another_type_or_shape_are_refused() {
        let assert_refused = |shape: KeyShape, key: DocumentKey<'_>| {
            let error = shape.locate(&key, &mut Identity::default()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        };
        assert_refused(shape(None), DocumentKey::from(7));
        assert_refused(shape(None), DocumentKey::from(b"ann"));
        assert_refused(shape(None), DocumentKey::from("ann").with_partition_key(7));
        assert_refused(shape(Some("tenant")), DocumentKey::from("ann"));
        assert_refused(shape(Some("tenant")), DocumentKey::from("ann").with_partition_key("7"));
        let long = "k".repeat(forebay_core::limits::KEY_BYTES_MAX + 1);
        let key = DocumentKey::from(&long);
        let error = shape(None).locate(&key, &mut Identity::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitExceeded);
    }

    #[test]
    fn packed_keys_round_trip_in_order_and_invalid_ends_are_refused() {
        let keys = PackedKeys::strings("aβc".as_bytes(), &[1, 1, 3, 4]).unwrap();
        let read: Vec<_> = (0..keys.count()).map(|place| keys.key(place).primary()).collect();
        assert_eq!(read, ["a", "", "β", "c"].map(KeyValue::String));
        for ends in [&[2, 4][..], &[3, 1], &[5]] {
            let error = PackedKeys::strings("aβc".as_bytes(), ends).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
        }
        assert!(PackedKeys::bytes(&[0xff, 0xfe], &[1, 2]).is_ok());
        assert!(PackedKeys::strings(&[0xff, 0xfe], &[1, 2]).is_err());
    }
}
