//! Keys: the byte form that identifies a document and that every language hashes and compares.
//! Bytes: `proto/spec/partitioning.md`.

use std::fmt;

use crate::error::{Error, Result};
use crate::limits::KEY_BYTES_MAX;
use crate::partition::xxh3_64;
use crate::value::{FieldType, ScalarType, Value};

/// The type of a store's primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// UTF-8 text.
    String,
    /// Any bytes.
    Bytes,
    /// A 64-bit integer; its byte form is 8 bytes, little-endian.
    Int64,
}

impl KeyType {
    /// Every key type.
    pub const ALL: [Self; 3] = [Self::String, Self::Bytes, Self::Int64];

    /// Returns the type with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key_type| key_type.name() == name)
    }

    /// Returns the type's name in definitions and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Int64 => "int64",
        }
    }

    /// Returns the field type that holds such a key.
    pub fn field_type(self) -> FieldType {
        FieldType::Scalar(match self {
            Self::String => ScalarType::String,
            Self::Bytes => ScalarType::Bytes,
            Self::Int64 => ScalarType::Int64,
        })
    }

    /// Decodes a primary key from its byte form.
    ///
    /// # Errors
    /// Returns `Corrupt` for bytes that are not a key of this type.
    ///
    /// ```
    /// use forebay_core::key::KeyType;
    /// use forebay_core::value::Value;
    ///
    /// assert_eq!(KeyType::String.value(b"ada").unwrap(), Value::String("ada".to_owned()));
    /// assert!(KeyType::Int64.value(b"ada").is_err());
    /// ```
    pub fn value(self, bytes: &[u8]) -> Result<Value> {
        let value = match self {
            Self::String => std::str::from_utf8(bytes).ok().map(|text| Value::String(text.into())),
            Self::Bytes => Some(Value::Bytes(bytes.to_vec())),
            Self::Int64 => {
                bytes.try_into().ok().map(|bytes| Value::Int64(i64::from_le_bytes(bytes)))
            }
        };
        value.ok_or_else(|| {
            Error::corrupt(format!("the bytes are not a key of type {}", self.name()))
        })
    }
}

/// A key value that a caller passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValue<'a> {
    /// Text.
    String(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An integer.
    Int64(i64),
}

impl KeyValue<'_> {
    /// Returns the key type of this value.
    pub fn key_type(&self) -> KeyType {
        match self {
            Self::String(_) => KeyType::String,
            Self::Bytes(_) => KeyType::Bytes,
            Self::Int64(_) => KeyType::Int64,
        }
    }

    /// Calls `with` with the byte form, without allocating.
    pub fn with_bytes<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::String(text) => read(text.as_bytes()),
            Self::Bytes(bytes) => read(bytes),
            Self::Int64(number) => read(&number.to_le_bytes()),
        }
    }
}

impl<'a> From<&'a str> for KeyValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(text)
    }
}

impl<'a> From<&'a String> for KeyValue<'a> {
    fn from(text: &'a String) -> Self {
        Self::String(text)
    }
}

impl<'a> From<&'a [u8]> for KeyValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for KeyValue<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for KeyValue<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<i64> for KeyValue<'_> {
    fn from(number: i64) -> Self {
        Self::Int64(number)
    }
}

/// The bytes that identify a document: its primary key, preceded by its partition key if the store
/// declares one.
///
/// If the store declares no partition key, the identity is the primary key's bytes. Otherwise it is
/// `partition key length u32 | partition key | primary key`. The partition key of a document can
/// therefore never change: another partition key identifies another document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Creates the identity of a document from its primary key alone.
    pub fn plain(primary: &[u8]) -> Result<Self> {
        check_length(primary)?;
        Ok(Self(primary.into()))
    }

    /// Creates the identity of a document whose store declares a partition key.
    pub fn partitioned(partition_key: &[u8], primary: &[u8]) -> Result<Self> {
        check_length(partition_key)?;
        check_length(primary)?;
        let mut bytes = Vec::with_capacity(4 + partition_key.len() + primary.len());
        bytes.extend_from_slice(&(partition_key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(partition_key);
        bytes.extend_from_slice(primary);
        Ok(Self(bytes.into()))
    }

    /// Returns the identity bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Creates a key from identity bytes that a decoder has checked.
    pub fn from_identity_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Splits identity bytes into partition key (if the store declares one) and primary key.
    pub fn split(bytes: &[u8], has_partition_key: bool) -> Result<(Option<&[u8]>, &[u8])> {
        if !has_partition_key {
            return Ok((None, bytes));
        }
        let length_error = || Error::corrupt("the key is shorter than its partition key says");
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(length_error)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (partition_key, primary) = rest.split_at_checked(length).ok_or_else(length_error)?;
        Ok((Some(partition_key), primary))
    }

    /// Returns a digest for messages, so that no key is ever printed.
    pub fn digest(&self) -> u64 {
        xxh3_64(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:016x})", self.digest())
    }
}

/// Refuses a key part over the limit.
#[inline]
pub fn check_length(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let advice = "the key is too long; shorten the key, or use its hash as the key";
    Err(Error::limit_exceeded(advice, KEY_BYTES_MAX as u64, key.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn partitioned_keys_split_into_their_parts() {
        let key = Key::partitioned(b"tenant", b"user").unwrap();
        assert_eq!(Key::split(key.as_bytes(), true).unwrap(), (Some(&b"tenant"[..]), &b"user"[..]));
        let key = Key::plain(b"").unwrap();
        assert_eq!(Key::split(key.as_bytes(), false).unwrap(), (None, &b""[..]));
    }

    #[test]
    fn partition_keys_cannot_run_into_primary_keys() {
        let first = Key::partitioned(b"ab", b"c").unwrap();
        let other = Key::partitioned(b"a", b"bc").unwrap();
        assert_ne!(first, other);
    }

    #[test]
    fn longest_key_is_accepted_and_a_longer_key_is_refused() {
        assert!(Key::plain(&vec![7; KEY_BYTES_MAX]).is_ok());
        let error = Key::plain(&vec![7; KEY_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitExceeded);
        assert_eq!(error.context().actual, Some(KEY_BYTES_MAX as u64 + 1));
    }

    #[test]
    fn short_identities_are_corrupt_without_a_panic() {
        for bytes in [&b""[..], b"abc", b"\xff\xff\xff\xffabc"] {
            assert_eq!(Key::split(bytes, true).unwrap_err().code(), ErrorCode::Corrupt);
        }
    }
}
