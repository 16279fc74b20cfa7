//! Input of the library: texts, values, keys and options that the caller points to, read only
//! during the call.
//!
//! Every function here trusts pointers and lengths, as the header requires, but not the contents:
//! types, lengths and UTF-8 are checked.

use std::time::Duration;

use forebay::reads::{DocumentKey, ReadOptions};
use forebay::schema::{ColumnIndex, FieldType, KeyType, KeyValue, ScalarType, Value, VectorType};
use forebay::writes::Token;
use forebay::{Error, Result};
use forebay_core::row::decode_value;

use crate::abi::{FbKey, FbReadOptions, FbText, FbValue};

/// Returns the slice of a pointer and a count.
///
/// # Safety
/// `data` points to `count` readable and aligned items that do not change for `'a`; for a count of
/// 0, `data` may be anything.
///
/// # Errors
/// `InvalidArgument` for null with a count, and for an impossible length.
pub(crate) unsafe fn slice<'a, T>(data: *const T, count: u64) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let count = fitting::<T>(data, count)?;
    // SAFETY: not null, aligned, and of a possible length (checked); the caller vouches for the
    // rest.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// Works like [`slice`], for writing.
///
/// # Safety
/// The rules of [`slice`] apply, and no other code uses the memory during `'a`.
///
/// # Errors
/// Errors of [`slice`].
pub(crate) unsafe fn slice_mut<'a, T>(data: *mut T, count: u64) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    let count = fitting::<T>(data, count)?;
    // SAFETY: as in `slice`, and the caller vouches that no other code uses the memory.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, count) })
}

fn fitting<T>(data: *const T, count: u64) -> Result<usize> {
    if data.is_null() || !data.is_aligned() {
        return Err(Error::invalid_argument(
            "a pointer is null or not aligned; give an aligned pointer to the data",
        ));
    }
    let count = usize::try_from(count).ok();
    let is_addressable =
        |count: &usize| count.checked_mul(size_of::<T>()).is_some_and(|n| n <= isize::MAX as usize);
    count.filter(is_addressable).ok_or_else(|| {
        Error::invalid_argument("a length exceeds the address space; give the length of the data")
    })
}

/// Returns a reference from a pointer that must not be null.
///
/// # Safety
/// The rules of [`slice`] apply, with a count of 1.
///
/// # Errors
/// Errors of [`slice`].
pub(crate) unsafe fn one<'a, T>(data: *const T) -> Result<&'a T> {
    // SAFETY: the caller vouches for it.
    let slice = unsafe { slice(data, 1)? };
    slice.first().ok_or_else(|| Error::internal("a slice of one element is empty"))
}

/// Writes a result to an out-parameter.
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller vouches for the pointer; the old contents are overwritten, never
        // dropped.
        unsafe { place.write(value) };
    }
}

impl FbText {
    /// # Safety
    /// The rules of [`slice`] apply.
    pub(crate) unsafe fn bytes<'a>(self) -> Result<&'a [u8]> {
        // SAFETY: the caller vouches for it.
        unsafe { slice(self.data, self.length) }
    }

    /// # Safety
    /// The rules of [`slice`] apply.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not UTF-8.
    pub(crate) unsafe fn text<'a>(self) -> Result<&'a str> {
        // SAFETY: the caller vouches for it.
        let bytes = unsafe { self.bytes()? };
        std::str::from_utf8(bytes)
            .map_err(|_| Error::invalid_argument("a text is not UTF-8; encode the text as UTF-8"))
    }
}

impl FbValue {
    /// Returns the value, or `None` for null.
    ///
    /// # Safety
    /// The rules of [`slice`] apply.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown type and for bytes that are invalid for the type.
    pub(crate) unsafe fn value(self) -> Result<Option<Value>> {
        if self.value_type == 0 {
            return Ok(None);
        }
        let field_type = field_type_of(self.value_type)?;
        // SAFETY: the caller vouches for it.
        let bytes = unsafe { self.data.bytes()? };
        let decoded = decode_value(bytes, field_type);
        decoded.map(Some).map_err(|error| match error.code() {
            forebay::ErrorCode::Corrupt => {
                let message = format!("the bytes are not a {field_type}: {}", error.message());
                Error::invalid_argument(message)
            }
            _ => error,
        })
    }
}

/// Returns the field type of a code in the header.
///
/// # Errors
/// `InvalidArgument` for another number.
pub(crate) fn field_type_of(code: u32) -> Result<FieldType> {
    let unknown = || Error::invalid_argument("no such type; see FB_TYPE in forebay.h");
    let length = (code >> 16) as u16;
    let field_type = match (code >> 8) & 0xff {
        0 => FieldType::Scalar(scalar_of(code & 0xff).ok_or_else(unknown)?),
        1 => FieldType::List(scalar_of(code & 0xff).ok_or_else(unknown)?),
        2 => {
            let component = match code & 0xff {
                1 => VectorType::F32,
                2 => VectorType::F16,
                3 => VectorType::I8,
                _ => return Err(unknown()),
            };
            return Ok(FieldType::Vector(component, length));
        }
        _ => return Err(unknown()),
    };
    if length == 0 { Ok(field_type) } else { Err(unknown()) }
}

fn scalar_of(code: u32) -> Option<ScalarType> {
    Some(match code {
        1 => ScalarType::Bool,
        2 => ScalarType::Int32,
        3 => ScalarType::Int64,
        4 => ScalarType::Float32,
        5 => ScalarType::Float64,
        6 => ScalarType::String,
        7 => ScalarType::Bytes,
        8 => ScalarType::Timestamp,
        _ => return None,
    })
}

/// Returns the key type of a code in the header.
///
/// # Errors
/// `InvalidArgument` for another number.
pub(crate) fn key_type_of(code: u32) -> Result<KeyType> {
    match code {
        1 => Ok(KeyType::String),
        2 => Ok(KeyType::Bytes),
        3 => Ok(KeyType::Int64),
        _ => Err(Error::invalid_argument("no such key type; see FB_KEY in forebay.h")),
    }
}

/// Returns the index of a code in the header; `None` for no index.
///
/// # Errors
/// `InvalidArgument` for another number.
pub(crate) fn column_index_of(code: u32) -> Result<Option<ColumnIndex>> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(ColumnIndex::Exact)),
        2 => Ok(Some(ColumnIndex::Range)),
        _ => Err(Error::invalid_argument("no such index; see FB_INDEX in forebay.h")),
    }
}

/// Returns a key of a key type of the header.
///
/// # Errors
/// `InvalidArgument` for bytes that are invalid for the type, and for an unknown type.
pub(crate) fn key_value_of(code: u32, bytes: &[u8]) -> Result<KeyValue<'_>> {
    Ok(match key_type_of(code)? {
        KeyType::Bytes => KeyValue::Bytes(bytes),
        KeyType::String => KeyValue::String(std::str::from_utf8(bytes).map_err(|_| {
            Error::invalid_argument("a string key is not UTF-8; encode it as UTF-8")
        })?),
        KeyType::Int64 => KeyValue::Int64(i64::from_le_bytes(bytes.try_into().map_err(|_| {
            Error::invalid_argument(
                "the int64 key does not have 8 bytes; give 8 bytes, little-endian",
            )
        })?)),
    })
}

impl FbKey {
    /// # Safety
    /// The rules of [`slice`] apply.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is invalid for its type.
    pub(crate) unsafe fn key<'a>(self) -> Result<DocumentKey<'a>> {
        // SAFETY: the caller vouches for it.
        let (key, partition_key) = unsafe { (self.key.bytes()?, self.partition_key.bytes()?) };
        let key = DocumentKey::new(key_value_of(self.key_type, key)?);
        if self.partition_key_type == 0 {
            return Ok(key);
        }
        Ok(key.with_partition_key(key_value_of(self.partition_key_type, partition_key)?))
    }
}

/// The arguments of a read: its wait, and its staleness bound.
pub(crate) struct ReadArguments {
    pub(crate) read: ReadOptions,
    pub(crate) waits: bool,
    pub(crate) max_staleness: Option<Duration>,
    /// Whether the read uses only memory.
    pub(crate) in_memory: bool,
}

/// Code of a read that waits for nothing, not even for a disk.
const NO_DISK: u32 = 3;

/// Returns the wait and the bound of a read; null is local.
///
/// # Safety
/// The rules of [`slice`] apply; the pointer may be null.
///
/// # Errors
/// `InvalidArgument` for an unknown wait, for an invalid token, and for a staleness bound on a read
/// that waits for nothing, not even for a disk.
pub(crate) unsafe fn read_arguments(read: *const FbReadOptions) -> Result<ReadArguments> {
    if read.is_null() {
        return Ok(ReadArguments {
            read: ReadOptions::local(),
            waits: false,
            max_staleness: None,
            in_memory: false,
        });
    }
    // SAFETY: the caller vouches for it.
    let (arguments, token) = unsafe {
        let arguments = one(read)?;
        (arguments, arguments.token.bytes()?)
    };
    let timeout = Duration::from_millis(arguments.timeout_ms);
    let read = match arguments.wait {
        0 | NO_DISK => ReadOptions::local(),
        1 => ReadOptions::after(Token::decode(token)?, timeout),
        2 => ReadOptions::latest(timeout),
        _ => return Err(Error::invalid_argument("no such wait; see FB_WAIT in forebay.h")),
    };
    let max_staleness =
        (arguments.max_staleness_ms > 0).then(|| Duration::from_millis(arguments.max_staleness_ms));
    let in_memory = arguments.wait == NO_DISK;
    if in_memory && max_staleness.is_some() {
        let message = "a read that waits for no disk has no bound of age; leave one of the two out";
        return Err(Error::invalid_argument(message));
    }
    Ok(ReadArguments { read, waits: matches!(arguments.wait, 1 | 2), max_staleness, in_memory })
}

/// Returns milliseconds as the caller gives them; 0 is the default.
pub(crate) fn millis_or(milliseconds: u64, unless: Duration) -> Duration {
    if milliseconds > 0 { Duration::from_millis(milliseconds) } else { unless }
}

/// Returns a time to live in microseconds; below 0 is none.
pub(crate) fn ttl_of(ttl_us: i64) -> Option<Duration> {
    u64::try_from(ttl_us).ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::type_code;

    #[test]
    fn type_codes_convert_both_ways_and_unknown_codes_are_refused() {
        for code in (1..=8).chain((1..=8).map(|code| 0x100 | code)) {
            assert_eq!(type_code(field_type_of(code).unwrap()), code);
        }
        for code in [0x201, 0x202 | 7 << 16, 0x203 | 0xffff << 16] {
            assert_eq!(type_code(field_type_of(code).unwrap()), code);
        }
        for code in [0, 9, 0x109, 0x200, 0x204, 0x301, 0x1_0001, u32::MAX] {
            assert!(field_type_of(code).is_err(), "{code:#x}");
        }
    }

    #[test]
    fn invalid_pointers_are_refused() {
        // SAFETY: none of these pointers is read.
        unsafe {
            assert!(slice::<u64>(std::ptr::null(), 1).is_err());
            assert!(slice::<u64>(std::ptr::without_provenance(9), 1).is_err());
            assert!(slice::<u64>(std::ptr::without_provenance(8), u64::MAX).is_err());
            assert!(slice::<u64>(std::ptr::null(), 0).unwrap().is_empty());
            assert!(one::<u8>(std::ptr::null()).is_err());
        }
    }

    #[test]
    fn bytes_that_do_not_encode_their_type_are_refused() {
        let bytes = [1u8, 2, 3];
        let data = FbText { data: bytes.as_ptr(), length: 3 };
        // SAFETY: `bytes` lives throughout.
        unsafe {
            assert!(FbValue { value_type: 3, reserved: 0, data }.value().is_err());
            let value = FbValue { value_type: 7, reserved: 0, data }.value().unwrap();
            assert_eq!(value, Some(Value::Bytes(vec![1, 2, 3])));
            assert_eq!(FbValue { value_type: 0, reserved: 0, data }.value().unwrap(), None);
            let null_text = FbText { data: std::ptr::null(), length: 0 };
            let key =
                FbKey { key_type: 3, partition_key_type: 0, key: data, partition_key: null_text };
            assert!(key.key().is_err());
        }
    }
}
