//! Documents and the row codec: a document as a value, and as the bytes that an index holds.
//!
//! A row is `version u16 | flags u8 | state bits | fixed fields | ends of tail values | tail |
//! footers`; see `proto/spec/row.md` for every byte. A decoder takes any bytes: what contradicts the
//! format is `Corrupt`, never a panic.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{DocumentVersion, FieldId};
use crate::layout::{Layout, Place, ROW_HEADER_BYTES, Slot};
use crate::limits::ROW_BYTES_MAX;
use crate::value::{FieldType, ScalarType, Value, VectorType};

const FLAG_EXPIRES: u8 = 1;
const FLAG_VERSION: u8 = 1 << 1;
const FLAG_FIELD_EXPIRES: u8 = 1 << 2;
const FLAGS_KNOWN: u8 = FLAG_EXPIRES | FLAG_VERSION | FLAG_FIELD_EXPIRES;
/// Bytes of one field's expiry in the footer: field id u16, expiry i64.
const FIELD_EXPIRY_BYTES: usize = 10;

const STATE_ABSENT: u8 = 0;
const STATE_VALUE: u8 = 1;
const STATE_NULL: u8 = 2;

/// What a field holds. Absent, null and a value (an empty one too) are three answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The document has no such field.
    Absent,
    /// The field was set to null.
    Null,
    /// The field has a value.
    Value,
}

/// One field of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCell {
    /// The field.
    pub field: FieldId,
    /// Its value; `None` is null.
    pub value: Option<Value>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// A document as a value: the fields that it has, by ascending id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    cells: Vec<FieldCell>,
    /// When the whole document expires.
    pub expires_at: Option<Timestamp>,
    /// Its version, in a store that keeps versions.
    pub version: Option<DocumentVersion>,
}

impl Document {
    /// A document without fields.
    pub fn new(expires_at: Option<Timestamp>, version: Option<DocumentVersion>) -> Self {
        Self { cells: Vec::new(), expires_at, version }
    }

    /// Its fields, by ascending id; absent ones are not among them.
    pub fn cells(&self) -> &[FieldCell] {
        &self.cells
    }

    /// One field, or `None` when absent.
    pub fn cell(&self, field: FieldId) -> Option<&FieldCell> {
        let place = self.cells.binary_search_by_key(&field, |cell| cell.field).ok()?;
        self.cells.get(place)
    }

    /// A field's value, or `None` when it is absent or null.
    pub fn value(&self, field: FieldId) -> Option<&Value> {
        self.cell(field)?.value.as_ref()
    }

    /// Sets a field to a value, or to null with `None`.
    pub fn set(&mut self, field: FieldId, value: Option<Value>, expires_at: Option<Timestamp>) {
        let cell = FieldCell { field, value, expires_at };
        match self.cells.binary_search_by_key(&field, |cell| cell.field) {
            Ok(place) => self.cells[place] = cell,
            Err(place) => self.cells.insert(place, cell),
        }
    }

    /// Makes a field absent.
    pub fn remove(&mut self, field: FieldId) {
        self.cells.retain(|cell| cell.field != field);
    }

    /// Its fields, by ascending id, taken out of it.
    pub fn into_cells(self) -> Vec<FieldCell> {
        self.cells
    }

    /// Encodes the document at a layout. Fields that the layout does not have are left out; values
    /// of a narrower type are widened.
    ///
    /// # Errors
    /// `LimitExceeded` for a row over the limit, `InvalidArgument` for a value of another type.
    pub fn encode(&self, layout: &Layout) -> Result<Vec<u8>> {
        let mut row = vec![0; layout.tail_at()];
        row[..2].copy_from_slice(&(layout.version().0 as u16).to_le_bytes());
        let mut tail_values = 0;
        for slot in layout.slots() {
            let Some(cell) = self.cell(slot.field) else {
                end_tail_value(&mut row, layout, slot, &mut tail_values);
                continue;
            };
            let state = if cell.value.is_some() { STATE_VALUE } else { STATE_NULL };
            row[ROW_HEADER_BYTES + slot.number / 4] |= state << (2 * (slot.number % 4));
            if let Some(value) = &cell.value {
                put_value(&mut row, slot, value)?;
            }
            end_tail_value(&mut row, layout, slot, &mut tail_values);
        }
        self.encode_footers(layout, &mut row);
        if row.len() > ROW_BYTES_MAX {
            let advice = "split the document";
            return Err(Error::limit_exceeded(advice, ROW_BYTES_MAX as u64, row.len() as u64));
        }
        Ok(row)
    }

    fn encode_footers(&self, layout: &Layout, row: &mut Vec<u8>) {
        let mut flags = 0;
        let expiring = self
            .cells
            .iter()
            .filter(|cell| layout.slot(cell.field).is_some())
            .filter_map(|cell| cell.expires_at.map(|at| (cell.field, at)));
        let mut expiries = 0u16;
        for (field, at) in expiring {
            row.extend_from_slice(&(field.0 as u16).to_le_bytes());
            row.extend_from_slice(&at.as_micros().to_le_bytes());
            expiries += 1;
        }
        if expiries > 0 {
            row.extend_from_slice(&expiries.to_le_bytes());
            flags |= FLAG_FIELD_EXPIRES;
        }
        if let Some(version) = self.version {
            row.extend_from_slice(&version.0.to_le_bytes());
            flags |= FLAG_VERSION;
        }
        if let Some(at) = self.expires_at {
            row.extend_from_slice(&at.as_micros().to_le_bytes());
            flags |= FLAG_EXPIRES;
        }
        row[2] = flags;
    }

    /// Decodes a row that was encoded at this layout.
    ///
    /// # Errors
    /// `Corrupt` when the bytes contradict the format or the layout.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Self> {
        let row = Row::new(bytes, layout)?;
        let mut document =
            Self { cells: Vec::new(), expires_at: row.expires_at(), version: row.version() };
        for slot in layout.slots() {
            let value = match row.presence(slot)? {
                Presence::Absent => continue,
                Presence::Null => None,
                Presence::Value => Some(decode_value(row.bytes(slot)?, slot.field_type)?),
            };
            let expires_at = row.field_expires_at(slot.field);
            document.cells.push(FieldCell { field: slot.field, value, expires_at });
        }
        Ok(document)
    }
}

/// After the tail value of this slot (which may be empty): writes where it ended.
fn end_tail_value(row: &mut [u8], layout: &Layout, slot: &Slot, tail_values: &mut usize) {
    let Place::Tail(number) = slot.place else { return };
    *tail_values += 1;
    if *tail_values < layout.tail_values() {
        let end = (row.len() - layout.tail_at()) as u32;
        let at = layout.ends().start + 4 * number;
        row[at..at + 4].copy_from_slice(&end.to_le_bytes());
    }
}

fn put_value(row: &mut Vec<u8>, slot: &Slot, value: &Value) -> Result<()> {
    let widened;
    let value = if value.field_type() == Some(slot.field_type) {
        value
    } else {
        widened = value.clone().widened_to(slot.field_type);
        &widened
    };
    if value.field_type() != Some(slot.field_type) {
        let message = format!("a value does not fit its field's type {}", slot.field_type);
        return Err(Error::invalid_argument(message));
    }
    match slot.place {
        Place::Tail(_) => encode_value(value, row),
        Place::Fixed { at, width } => {
            let mut bytes = Vec::with_capacity(width);
            encode_value(value, &mut bytes);
            row[at..at + width].copy_from_slice(&bytes);
        }
    }
    Ok(())
}

/// Appends a value's bytes as a row holds them.
pub fn encode_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Int32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Int64(v) | Value::Timestamp(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Float32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Float64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::String(v) => out.extend_from_slice(v.as_bytes()),
        Value::Bytes(v) => out.extend_from_slice(v),
        Value::List(scalar, items) => {
            for item in items {
                if scalar.width().is_none() {
                    out.extend_from_slice(&(item.encoded_bytes() as u32).to_le_bytes());
                }
                encode_value(item, out);
            }
        }
        Value::VectorF32(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Value::VectorF16(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Value::VectorI8(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
    }
}

/// Reads a value's bytes as a row holds them.
///
/// # Errors
/// `Corrupt` when the length or the content cannot be of this type.
pub fn decode_value(bytes: &[u8], field_type: FieldType) -> Result<Value> {
    match field_type {
        FieldType::Scalar(scalar) => decode_scalar(bytes, scalar),
        FieldType::List(scalar) => decode_list(bytes, scalar),
        FieldType::Vector(component, length) => decode_vector(bytes, component, length),
    }
}

fn decode_scalar(bytes: &[u8], scalar: ScalarType) -> Result<Value> {
    Ok(match scalar {
        ScalarType::Bool => match bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(Error::corrupt("a bool is neither 0 nor 1")),
        },
        ScalarType::Int32 => Value::Int32(i32::from_le_bytes(exactly(bytes)?)),
        ScalarType::Int64 => Value::Int64(i64::from_le_bytes(exactly(bytes)?)),
        ScalarType::Float32 => Value::Float32(f32::from_le_bytes(exactly(bytes)?)),
        ScalarType::Float64 => Value::Float64(f64::from_le_bytes(exactly(bytes)?)),
        ScalarType::Timestamp => Value::Timestamp(i64::from_le_bytes(exactly(bytes)?)),
        ScalarType::Bytes => Value::Bytes(bytes.to_vec()),
        ScalarType::String => match std::str::from_utf8(bytes) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => return Err(Error::corrupt("a string is not UTF-8")),
        },
    })
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| Error::corrupt("a value has another length than its type"))
}

fn decode_list(mut bytes: &[u8], scalar: ScalarType) -> Result<Value> {
    let broken = || Error::corrupt("a list ends inside a component");
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let length = match scalar.width() {
            Some(width) => width,
            None => {
                let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
                bytes = rest;
                u32::from_le_bytes(*length) as usize
            }
        };
        let (item, rest) = bytes.split_at_checked(length).ok_or_else(broken)?;
        items.push(decode_scalar(item, scalar)?);
        bytes = rest;
    }
    Ok(Value::List(scalar, items))
}

fn decode_vector(bytes: &[u8], component: VectorType, length: u16) -> Result<Value> {
    if bytes.len() != component.width() * usize::from(length) {
        return Err(Error::corrupt("a vector has another length than its type"));
    }
    Ok(match component {
        VectorType::F32 => {
            let (chunks, _) = bytes.as_chunks::<4>();
            Value::VectorF32(chunks.iter().map(|c| f32::from_le_bytes(*c)).collect())
        }
        VectorType::F16 => {
            let (chunks, _) = bytes.as_chunks::<2>();
            Value::VectorF16(chunks.iter().map(|c| half::f16::from_le_bytes(*c)).collect())
        }
        VectorType::I8 => Value::VectorI8(bytes.iter().map(|b| *b as i8).collect()),
    })
}

/// The schema version that a row was encoded at; `None` when the bytes are too short to be a row.
pub fn row_schema_version(bytes: &[u8]) -> Option<crate::id::SchemaVersion> {
    let (version, _) = bytes.split_first_chunk::<2>()?;
    Some(crate::id::SchemaVersion(u16::from_le_bytes(*version).into()))
}

/// A row's bytes, read in place.
///
/// `new` checks the frame once: header, footers and the ends of the tail; later reads touch only
/// the bytes of what they read.
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
    /// `Corrupt` when the bytes contradict the format or carry another schema version.
    pub fn new(bytes: &'a [u8], layout: &'a Layout) -> Result<Self> {
        if bytes.len() < layout.tail_at() || bytes.len() < ROW_HEADER_BYTES {
            return Err(Error::corrupt("a row is shorter than its layout"));
        }
        if row_schema_version(bytes) != Some(layout.version()) {
            return Err(Error::corrupt("a row has another schema version than its layout"));
        }
        let flags = bytes[2];
        if flags & !FLAGS_KNOWN != 0 {
            return Err(Error::corrupt("a row has flags that no version of the format knows"));
        }
        let tail_end = Self::footers_at(bytes, flags)
            .filter(|end| *end >= layout.tail_at())
            .ok_or_else(|| Error::corrupt("a row is shorter than its footers"))?;
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

    fn check_ends(&self) -> Result<()> {
        let mut last = 0;
        for end in self.bytes[self.layout.ends()].as_chunks::<4>().0 {
            let end = u32::from_le_bytes(*end) as usize;
            if end < last || end > self.tail_end - self.layout.tail_at() {
                return Err(Error::corrupt("the tail of a row does not end where it says"));
            }
            last = end;
        }
        if self.layout.tail_values() == 0 && self.tail_end != self.layout.tail_at() {
            return Err(Error::corrupt("a row without tail values has a tail"));
        }
        Ok(())
    }

    fn flag(&self, flag: u8) -> bool {
        self.bytes[2] & flag != 0
    }

    fn i64_at(&self, at: usize) -> i64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes[at..at + 8]);
        i64::from_le_bytes(bytes)
    }

    /// When the whole document expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let at = self.bytes.len().checked_sub(8).filter(|_| self.flag(FLAG_EXPIRES))?;
        Some(Timestamp::from_micros(self.i64_at(at)))
    }

    /// The document's version, in a store that keeps versions.
    pub fn version(&self) -> Option<DocumentVersion> {
        let before = if self.flag(FLAG_EXPIRES) { 16 } else { 8 };
        let at = self.bytes.len().checked_sub(before).filter(|_| self.flag(FLAG_VERSION))?;
        Some(DocumentVersion(self.i64_at(at) as u64))
    }

    /// When a field expires; costs nothing in rows without field expiries.
    pub fn field_expires_at(&self, field: FieldId) -> Option<Timestamp> {
        if !self.flag(FLAG_FIELD_EXPIRES) {
            return None;
        }
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

    /// Whether the whole document is expired at this time.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// What a slot holds, expiry left aside.
    pub fn presence(&self, slot: &Slot) -> Result<Presence> {
        let byte = self.bytes[ROW_HEADER_BYTES + slot.number / 4];
        match (byte >> (2 * (slot.number % 4))) & 3 {
            STATE_ABSENT => Ok(Presence::Absent),
            STATE_VALUE => Ok(Presence::Value),
            STATE_NULL => Ok(Presence::Null),
            _ => Err(Error::corrupt("a field of a row is in no known state")),
        }
    }

    /// What a slot holds at this time: an expired field, or any field of an expired document, is
    /// absent.
    pub fn presence_at(&self, slot: &Slot, now: Timestamp) -> Result<Presence> {
        let expired = self.is_expired(now)
            || self.field_expires_at(slot.field).is_some_and(|expires_at| expires_at <= now);
        if expired { Ok(Presence::Absent) } else { self.presence(slot) }
    }

    /// The bytes of a slot's value; of a field without one, whatever lies there.
    pub fn bytes(&self, slot: &Slot) -> Result<&'a [u8]> {
        match slot.place {
            Place::Fixed { at, width } => Ok(&self.bytes[at..at + width]),
            Place::Tail(number) => {
                let tail = &self.bytes[self.layout.tail_at()..self.tail_end];
                let start = if number == 0 { 0 } else { self.tail_value_end(number - 1) };
                let is_last = number + 1 == self.layout.tail_values();
                let end = if is_last { tail.len() } else { self.tail_value_end(number) };
                tail.get(start..end).ok_or_else(|| Error::corrupt("a tail value ends early"))
            }
        }
    }

    fn tail_value_end(&self, number: usize) -> usize {
        let at = self.layout.ends().start + 4 * number;
        let mut end = [0; 4];
        end.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(end) as usize
    }
}
