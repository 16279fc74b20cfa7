//! Reads between arrays on Java's heap, for `io.forebay.ForeignHeapCalls`.
//!
//! These functions are critical foreign functions: the thread stays in Java, so the arrays do not
//! move, and a garbage collection waits until the call returns. The functions therefore wait for
//! nothing, not even for the disk of a spilled document, and make no upcalls. The result is one
//! number: a length, or a negative code. If a call fails, Java repeats it through the ordinary
//! function, which reports the error.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::reads::{CopyOut, DocumentKey, FieldHandle, KeyList, PackedKeys, PackedValues};
use forebay::schema::{FieldType, KeyType};
use forebay::{Error, Result};

use crate::handles::OpenReader;
use crate::input::{key_type_of, key_value_of, slice, slice_mut};
use crate::output::presence_code;
use crate::registry;

/// Result: there is no document, or the document does not have the field.
const ABSENT: i64 = -1;
/// Result: the field is null.
const NULL: i64 = -2;
/// Result: the call failed; use the ordinary function.
const FAILED: i64 = -3;

fn answered(read: impl FnOnce() -> Result<i64>) -> i64 {
    catch_unwind(AssertUnwindSafe(read)).ok().and_then(Result::ok).unwrap_or(FAILED)
}

/// Copies a string or bytes into an array, if the array is large enough.
fn get(reader: u64, field: u64, key: DocumentKey<'_>, out: &mut [u8]) -> Result<i64> {
    let open = registry::open(reader)?;
    let found = open.reader()?;
    let handle = found.fields.get(reader, field)?;
    let copied = found.reader.read_in_memory(|view| match handle.asked() {
        FieldType::STRING => view.get_str(handle, key, out),
        _ => view.get_bytes(handle, key, out),
    })?;
    Ok(match copied {
        CopyOut::Absent => ABSENT,
        CopyOut::Null => NULL,
        CopyOut::Length(bytes) | CopyOut::SizeNeeded(bytes) => bytes as i64,
    })
}

/// Reads a string or bytes field by a key of any type. Returns the value's length, which is beyond
/// `capacity` if nothing is copied; or -1 (absent), -2 (null), -3 (failed).
///
/// # Safety
/// `key` and `out` point to `key_length` and `capacity` bytes, which no other code changes or
/// reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Java_io_forebay_HeapCalls_get(
    reader: u64,
    field: u64,
    key_type: u32,
    key: *const u8,
    key_length: u64,
    out: *mut u8,
    capacity: u64,
) -> i64 {
    answered(|| {
        // SAFETY: the caller follows the rules above.
        let (key, out) = unsafe { (slice(key, key_length)?, slice_mut(out, capacity)?) };
        get(reader, field, DocumentKey::new(key_value_of(key_type, key)?), out)
    })
}

/// Works like `Java_io_forebay_HeapCalls_get`, by an int64 key.
///
/// # Safety
/// `out` points to `capacity` bytes, which no other code changes or reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Java_io_forebay_HeapCalls_getByNumber(
    reader: u64,
    field: u64,
    key: i64,
    out: *mut u8,
    capacity: u64,
) -> i64 {
    answered(|| {
        // SAFETY: the caller follows the rules above.
        let out = unsafe { slice_mut(out, capacity)? };
        get(reader, field, DocumentKey::from(key), out)
    })
}

/// Most bytes of packed values that a thread caches for reuse.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static KEPT: Cell<PackedValues> = const { Cell::new(EMPTY) };
}

const EMPTY: PackedValues = PackedValues {
    bytes: Vec::new(),
    ends: Vec::new(),
    statuses: Vec::new(),
    presences: Vec::new(),
};

/// The output arrays of many keys.
struct Values<'a> {
    bytes: &'a mut [u8],
    ends: &'a mut [u64],
    statuses: &'a mut [u8],
    presences: &'a mut [u8],
}

impl Values<'_> {
    /// Reads all keys; returns the values' length, and writes the values if they fit.
    fn read<K: KeyList + ?Sized>(
        &mut self,
        found: &OpenReader,
        handle: &FieldHandle,
        keys: &K,
    ) -> Result<i64> {
        if keys.count() != self.ends.len() {
            return Err(Error::invalid_argument(
                "the int64 keys do not have 8 bytes each; give 8 bytes, little-endian",
            ));
        }
        let mut packed = KEPT.try_with(Cell::take).unwrap_or_default();
        let capacity = self.bytes.len();
        // The copy stops at the capacity, because a garbage collection may be waiting.
        let length = found
            .reader
            .read_in_memory(|view| view.get_packed_within(keys, handle, capacity, &mut packed))?;
        if let Some(room) = self.bytes.get_mut(..length) {
            room.copy_from_slice(&packed.bytes);
            self.ends.copy_from_slice(&packed.ends);
            let statuses = packed.statuses.iter().map(|status| *status as u8);
            self.statuses.iter_mut().zip(statuses).for_each(|(place, code)| *place = code);
            let presences = packed.presences.iter().copied().map(presence_code);
            self.presences.iter_mut().zip(presences).for_each(|(place, code)| *place = code);
        }
        if packed.bytes.capacity() <= KEPT_BYTES_MAX {
            // During the destruction of thread-local data nothing is cached.
            let _ = KEPT.try_with(|cache| cache.set(packed));
        }
        Ok(length as i64)
    }
}

/// Reads a string or bytes field of many documents. Returns the values' length, which is beyond
/// `capacity` if they do not fit and nothing is written; -3 if the call failed.
///
/// # Safety
/// `keys` points to `key_bytes` bytes, and unless the keys are int64 `ends` to `count` numbers;
/// `values` points to `capacity` bytes; `value_ends`, `statuses` and `presences` point to `count`
/// numbers, bytes and bytes. No other code changes them, or reads the output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Java_io_forebay_HeapCalls_getMany(
    reader: u64,
    field: u64,
    key_type: u32,
    count: u64,
    keys: *const u8,
    key_bytes: u64,
    ends: *const u64,
    values: *mut u8,
    capacity: u64,
    value_ends: *mut u64,
    statuses: *mut u8,
    presences: *mut u8,
) -> i64 {
    answered(|| {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller follows the rules above.
        let (keys, mut values) = unsafe {
            let values = Values {
                bytes: slice_mut(values, capacity)?,
                ends: slice_mut(value_ends, count)?,
                statuses: slice_mut(statuses, count)?,
                presences: slice_mut(presences, count)?,
            };
            (slice(keys, key_bytes)?, values)
        };
        let key_type = key_type_of(key_type)?;
        if key_type == KeyType::Int64 {
            let numbers = Numbers(keys.as_chunks().0);
            return values.read(found, handle, &numbers);
        }
        // SAFETY: as above.
        let ends = unsafe { slice(ends, count)? };
        let packed = match key_type {
            KeyType::String => PackedKeys::strings(keys, ends)?,
            _ => PackedKeys::bytes(keys, ends)?,
        };
        values.read(found, handle, &packed)
    })
}

/// Int64 keys, concatenated.
struct Numbers<'a>(&'a [[u8; 8]]);

impl KeyList for Numbers<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn key(&self, place: usize) -> DocumentKey<'_> {
        DocumentKey::from(i64::from_le_bytes(self.0[place]))
    }
}
