//! Documents and the row codec: a document as a value, and as the bytes that an index holds.
//!
//! A row is `version u16 | flags u8 | state bits | fixed fields | ends of tail values | tail |
//! footers`; `proto/spec/row.md` specifies every byte. A decoder accepts any bytes and never
//! panics: bytes that contradict the format are `Corrupt`, a flag of a newer format is
//! `UpgradeNeeded`.

mod document;
mod value_codec;

pub use document::{Document, FieldCell};
pub use value_codec::{decode_value, encode_value};

use std::ops::Range;

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{DocumentVersion, FieldId, SchemaVersion};
use crate::layout::{Layout, Place, ROW_HEADER_BYTES, Slot};

const FLAG_EXPIRES: u8 = 1;
const FLAG_VERSION: u8 = 1 << 1;
const FLAG_FIELD_EXPIRES: u8 = 1 << 2;
const FLAGS_KNOWN: u8 = FLAG_EXPIRES | FLAG_VERSION | FLAG_FIELD_EXPIRES;
/// Bytes of one field's expiry in the footer: field id u16, expiry i64.
const FIELD_EXPIRY_BYTES: usize = 10;

const STATE_ABSENT: u8 = 0;
const STATE_VALUE: u8 = 1;
const STATE_NULL: u8 = 2;

/// State of a field. Absent, null and a value (also an empty one) are three different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The document has no such field.
    Absent,
    /// The field was set to null.
    Null,
    /// The field has a value.
    Value,
}

/// Returns the schema version at which a row was encoded; `None` if the bytes are too short for a
/// row.
#[inline(always)]
pub fn row_schema_version(bytes: &[u8]) -> Option<SchemaVersion> {
    let (version, _) = bytes.split_first_chunk::<2>()?;
    Some(SchemaVersion(u16::from_le_bytes(*version).into()))
}

/// Returns the time at which the document of a row expires. Reads the footer alone and checks
/// nothing else.
#[inline]
pub fn row_expires_at(bytes: &[u8]) -> Option<Timestamp> {
    let expires = bytes.get(2)? & FLAG_EXPIRES != 0;
    let (_, at) = bytes.split_last_chunk::<8>().filter(|_| expires)?;
    Some(Timestamp::from_micros(i64::from_le_bytes(*at)))
}

/// Replaces the version of a row's document, if it has one, by the row's footer alone. Bytes that
/// are too short stay unchanged.
pub fn set_row_version(bytes: &mut [u8], version: DocumentVersion) {
    let flags = bytes.get(2).copied().unwrap_or(0);
    if flags & FLAG_VERSION == 0 {
        return;
    }
    let expiry_bytes = if flags & FLAG_EXPIRES != 0 { 8 } else { 0 };
    let end = bytes.len().saturating_sub(expiry_bytes);
    if let Some(stored) = bytes[..end].last_chunk_mut::<8>() {
        *stored = version.0.to_le_bytes();
    }
}

/// The bytes of a row, read without copying.
///
/// `new` checks the frame once: header, footers and the ends of the tail. Later reads touch only
/// the bytes of the field that they read.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
    tail_end: usize,
}

impl<'a> Row<'a> {
    /// Wraps the bytes of a row that was encoded at this layout.
    ///
    /// # Errors
    /// Returns `Corrupt` if the bytes contradict the format or carry another schema version;
    /// `UpgradeNeeded` for flags that only a newer build knows.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], layout: &'a Layout) -> Result<Self> {
        if bytes.len() < layout.tail_at() {
            return Err(corrupt("a row is shorter than its layout"));
        }
        if row_schema_version(bytes) != Some(layout.version()) {
            return Err(corrupt("a row has another schema version than its layout"));
        }
        let flags = bytes[2];
        if flags & !FLAGS_KNOWN != 0 {
            return Err(of_newer_format(flags));
        }
        let tail_end = match flags {
            0 => bytes.len(),
            _ => Self::footers_at(bytes, flags)
                .filter(|end| *end >= layout.tail_at())
                .ok_or_else(|| corrupt("a row is shorter than its footers"))?,
        };
        let row = Self { bytes, layout, tail_end };
        row.check_ends()?;
        Ok(row)
    }

    fn footers_at(bytes: &[u8], flags: u8) -> Option<usize> {
        let mut end = bytes.len();
        if flags & FLAG_EXPIRES != 0 {
            end = end.checked_sub(8)?;
        }
        if flags & FLAG_VERSION != 0 {
            end = end.checked_sub(8)?;
        }
        if flags & FLAG_FIELD_EXPIRES != 0 {
            end = end.checked_sub(2)?;
            let count = u16::from_le_bytes(*bytes.get(end..)?.first_chunk()?);
            end = end.checked_sub(FIELD_EXPIRY_BYTES * usize::from(count))?;
        }
        Some(end)
    }

    #[inline(always)]
    fn check_ends(&self) -> Result<()> {
        let mut last = 0;
        for end in self.bytes[self.layout.ends()].as_chunks::<4>().0 {
            let end = u32::from_le_bytes(*end) as usize;
            if end < last || end > self.tail_end - self.layout.tail_at() {
                return Err(corrupt("the tail of a row does not end where the row says"));
            }
            last = end;
        }
        if self.layout.tail_values() == 0 && self.tail_end != self.layout.tail_at() {
            return Err(corrupt("a row without tail values has a tail"));
        }
        Ok(())
    }

    #[inline(always)]
    fn flag(&self, flag: u8) -> bool {
        self.bytes[2] & flag != 0
    }

    fn i64_at(&self, at: usize) -> i64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes[at..at + 8]);
        i64::from_le_bytes(bytes)
    }

    /// Returns the time at which the whole document expires.
    #[inline]
    pub fn expires_at(&self) -> Option<Timestamp> {
        let at = self.bytes.len().checked_sub(8).filter(|_| self.flag(FLAG_EXPIRES))?;
        Some(Timestamp::from_micros(self.i64_at(at)))
    }

    /// Returns the document's version, in a store with versions.
    pub fn version(&self) -> Option<DocumentVersion> {
        let before = if self.flag(FLAG_EXPIRES) { 16 } else { 8 };
        let at = self.bytes.len().checked_sub(before).filter(|_| self.flag(FLAG_VERSION))?;
        Some(DocumentVersion(self.i64_at(at) as u64))
    }

    /// Returns the time at which a field expires; costs nothing in rows without field expiries.
    #[inline(always)]
    pub fn field_expires_at(&self, field: FieldId) -> Option<Timestamp> {
        if !self.flag(FLAG_FIELD_EXPIRES) {
            return None;
        }
        self.field_expiry(field)
    }

    fn field_expiry(&self, field: FieldId) -> Option<Timestamp> {
        let entries = self.bytes[self.tail_end..].as_chunks::<FIELD_EXPIRY_BYTES>().0;
        let count = self.field_expiries();
        let entry = entries[..count]
            .iter()
            .find(|entry| u32::from(u16::from_le_bytes([entry[0], entry[1]])) == field.0)?;
        let mut at = [0; 8];
        at.copy_from_slice(&entry[2..]);
        Some(Timestamp::from_micros(i64::from_le_bytes(at)))
    }

    fn field_expiries(&self) -> usize {
        let mut after = self.bytes.len();
        for flag in [FLAG_EXPIRES, FLAG_VERSION] {
            after -= if self.flag(flag) { 8 } else { 0 };
        }
        (after - 2 - self.tail_end) / FIELD_EXPIRY_BYTES
    }

    /// Returns whether the document or any of its fields has an expiry.
    #[inline]
    pub fn may_expire(&self) -> bool {
        self.flag(FLAG_EXPIRES | FLAG_FIELD_EXPIRES)
    }

    /// Returns whether the whole document is expired at this time.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// Returns whether any field of the document has an expiry of its own.
    #[inline]
    pub fn has_field_expiries(&self) -> bool {
        self.flag(FLAG_FIELD_EXPIRES)
    }

    /// Returns whether each of the slots with these numbers holds a value; ignores expiries.
    #[inline]
    pub fn are_values(&self, slots: Range<usize>) -> bool {
        let mut at = slots.start;
        while at < slots.end {
            let (first, count) = (at % 4, (4 - at % 4).min(slots.end - at));
            let mask = (0xff_u8 >> (8 - 2 * count)) << (2 * first);
            let states = self.bytes.get(ROW_HEADER_BYTES + at / 4);
            // The mask has the state of a value at all four positions of the byte.
            if states.is_none_or(|states| states & mask != (STATE_VALUE * 0x55) & mask) {
                return false;
            }
            at += count;
        }
        true
    }

    /// Returns bytes of the row's fixed part; `None` beyond it.
    #[inline]
    pub fn fixed(&self, bytes: Range<usize>) -> Option<&'a [u8]> {
        self.bytes[..self.layout.tail_at()].get(bytes)
    }

    /// Returns the state of a slot; ignores expiries.
    ///
    /// # Errors
    /// Returns `Corrupt` for undefined state bits, `Internal` for a slot of another layout.
    #[inline(always)]
    pub fn presence(&self, slot: &Slot) -> Result<Presence> {
        let byte = self.bytes.get(ROW_HEADER_BYTES + slot.number / 4).ok_or_else(foreign_slot)?;
        match (byte >> (2 * (slot.number % 4))) & 3 {
            STATE_ABSENT => Ok(Presence::Absent),
            STATE_VALUE => Ok(Presence::Value),
            STATE_NULL => Ok(Presence::Null),
            _ => Err(corrupt("a field of a row has an unknown state")),
        }
    }

    /// Returns the state of a slot at this time: an expired field, or any field of an expired
    /// document, is absent.
    pub fn presence_at(&self, slot: &Slot, now: Timestamp) -> Result<Presence> {
        let is_expired = self.is_expired(now)
            || self.field_expires_at(slot.field).is_some_and(|expires_at| expires_at <= now);
        if is_expired { Ok(Presence::Absent) } else { self.presence(slot) }
    }

    /// Returns the bytes of a slot's value; for a field without a value, the bytes are unspecified.
    ///
    /// # Errors
    /// Returns `Internal` for a slot of another layout.
    #[inline(always)]
    pub fn bytes(&self, slot: &Slot) -> Result<&'a [u8]> {
        match slot.place {
            Place::Fixed { at, width } => self.bytes.get(at..at + width).ok_or_else(foreign_slot),
            Place::Tail(number) => {
                let tail = &self.bytes[self.layout.tail_at()..self.tail_end];
                let ends = self.bytes[self.layout.ends()].as_chunks::<4>().0;
                let end = |number: usize| ends.get(number).map(|end| u32::from_le_bytes(*end));
                let start =
                    if number == 0 { 0 } else { end(number - 1).ok_or_else(foreign_slot)? };
                let end = end(number).map_or(tail.len(), |end| end as usize);
                tail.get(start as usize..end).ok_or_else(foreign_slot)
            }
        }
    }
}

// Errors are built in cold functions, apart from the reads that succeed.
#[cold]
fn corrupt(message: &str) -> Error {
    Error::corrupt(message)
}

#[cold]
fn of_newer_format(flags: u8) -> Error {
    let message = format!("a row has flags {flags:#04x} of a newer format; upgrade this build");
    Error::upgrade_needed(message)
}

#[cold]
fn foreign_slot() -> Error {
    Error::internal("a row was read with a slot of another layout")
}
