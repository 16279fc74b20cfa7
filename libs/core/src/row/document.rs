//! A document as a value, and its conversion to and from a row.

use super::value_codec::{decode_value, encode_value};
use super::{
    FLAG_EXPIRES, FLAG_FIELD_EXPIRES, FLAG_VERSION, Presence, Row, STATE_NULL, STATE_VALUE,
};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{DocumentVersion, FieldId};
use crate::layout::{Layout, Place, ROW_HEADER_BYTES, Slot};
use crate::limits::{ROW_BYTES_MAX, VALUE_BYTES_MAX};
use crate::value::Value;

/// Bytes of a row's footers without field expiries: document expiry and version.
const FOOTER_BYTES: usize = 16;

/// A field of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCell {
    /// The field.
    pub field: FieldId,
    /// Value of the field; `None` is null.
    pub value: Option<Value>,
    /// Time at which the field expires.
    pub expires_at: Option<Timestamp>,
}

/// A document as a value: the fields that it has, by ascending id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    cells: Vec<FieldCell>,
    /// Time at which the whole document expires.
    pub expires_at: Option<Timestamp>,
    /// Version, in a store with versions.
    pub version: Option<DocumentVersion>,
}

impl Document {
    /// Creates a document without fields.
    pub fn new(expires_at: Option<Timestamp>, version: Option<DocumentVersion>) -> Self {
        Self { cells: Vec::new(), expires_at, version }
    }

    /// Decodes a row that was written at one layout as it is seen at another one and at this time:
    /// live fields only, their values widened to the current types of their fields.
    ///
    /// # Errors
    /// Returns `Corrupt` for invalid bytes.
    pub fn seen(
        row: &Row<'_>,
        written_layout: &Layout,
        current: &Layout,
        now: Timestamp,
    ) -> Result<Self> {
        let mut document = Self::new(row.expires_at(), row.version());
        for slot in written_layout.slots() {
            let Some(current_slot) = current.slot(slot.field) else { continue };
            let value = match row.presence_at(slot, now)? {
                Presence::Absent => continue,
                Presence::Null => None,
                Presence::Value => {
                    let value = decode_value(row.bytes(slot)?, slot.field_type)?;
                    Some(value.widened_to(current_slot.field_type))
                }
            };
            document.set(slot.field, value, row.field_expires_at(slot.field));
        }
        Ok(document)
    }

    /// Returns the fields by ascending id, without absent ones.
    pub fn cells(&self) -> &[FieldCell] {
        &self.cells
    }

    /// Returns one field, or `None` if it is absent.
    pub fn cell(&self, field: FieldId) -> Option<&FieldCell> {
        let place = self.cells.binary_search_by_key(&field, |cell| cell.field).ok()?;
        self.cells.get(place)
    }

    /// Returns a field's value, or `None` if it is absent or null.
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

    /// Keeps the fields for which `keep` returns true; `keep` may change them.
    pub fn retain(&mut self, keep: impl FnMut(&mut FieldCell) -> bool) {
        self.cells.retain_mut(keep);
    }

    /// Copies the fields for which `copy` returns true; the copy has capacity for all fields.
    #[must_use]
    pub fn copied_where(&self, copy: impl Fn(&FieldCell) -> bool) -> Self {
        let mut cells = Vec::with_capacity(self.cells.len());
        cells.extend(self.cells.iter().filter(|cell| copy(cell)).cloned());
        Self { cells, expires_at: self.expires_at, version: self.version }
    }

    /// Encodes the document at a layout. Fields that the layout does not have are left out; values
    /// of a narrower type are widened.
    ///
    /// # Errors
    /// Returns `LimitExceeded` for a value or a row over its limit, `InvalidArgument` for a value
    /// of another type.
    pub fn encode(&self, layout: &Layout) -> Result<Vec<u8>> {
        let mut row = Vec::with_capacity(layout.tail_at() + self.bytes_behind(layout));
        row.resize(layout.tail_at(), 0);
        row[..2].copy_from_slice(&(layout.version().0 as u16).to_le_bytes());
        // Cells and slots are both ordered by field id.
        let mut cells = self.cells.iter().peekable();
        for slot in layout.slots() {
            while cells.next_if(|cell| cell.field < slot.field).is_some() {}
            if let Some(cell) = cells.next_if(|cell| cell.field == slot.field) {
                let state = if cell.value.is_some() { STATE_VALUE } else { STATE_NULL };
                row[ROW_HEADER_BYTES + slot.number / 4] |= state << (2 * (slot.number % 4));
                if let Some(value) = &cell.value {
                    put_value(&mut row, slot, value)?;
                    check_row_length(&row)?;
                }
            }
            end_tail_value(&mut row, layout, slot);
        }
        self.encode_footers(layout, &mut row);
        check_row_length(&row)?;
        Ok(row)
    }

    /// Returns the approximate number of bytes after a row's fixed part.
    fn bytes_behind(&self, layout: &Layout) -> usize {
        let is_tail = |cell: &FieldCell| {
            layout.slot(cell.field).is_some_and(|slot| matches!(slot.place, Place::Tail(_)))
        };
        let tail = self.cells.iter().filter(|cell| is_tail(cell)).filter_map(|c| c.value.as_ref());
        let tail: u64 = tail.map(Value::encoded_bytes).sum();
        tail as usize + FOOTER_BYTES
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
    /// Returns `Corrupt` if the bytes contradict the format or the layout, `UpgradeNeeded` for
    /// flags that only a newer build knows.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Self> {
        let row = Row::new(bytes, layout)?;
        let cells = Vec::with_capacity(layout.slots().len());
        let mut document = Self { cells, expires_at: row.expires_at(), version: row.version() };
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

fn check_row_length(row: &[u8]) -> Result<()> {
    if row.len() <= ROW_BYTES_MAX {
        return Ok(());
    }
    let advice = "the document is too large; split the document";
    Err(Error::limit_exceeded(advice, ROW_BYTES_MAX as u64, row.len() as u64))
}

/// Writes the end of this slot's tail value (which may be empty). The end of the last value is the
/// end of the tail and is not written.
fn end_tail_value(row: &mut [u8], layout: &Layout, slot: &Slot) {
    let Place::Tail(number) = slot.place else { return };
    if number + 1 < layout.tail_values() {
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
        let message = format!(
            "the value does not fit the field's type {}; send a value of that type",
            slot.field_type
        );
        return Err(Error::invalid_argument(message));
    }
    match slot.place {
        Place::Tail(_) => {
            let (limit, actual) = (VALUE_BYTES_MAX as u64, value.encoded_bytes());
            if actual > limit {
                let advice = "the value is too large; split the value over several documents";
                return Err(Error::limit_exceeded(advice, limit, actual));
            }
            encode_value(value, row);
        }
        Place::Fixed { at, width } => {
            let end = row.len();
            encode_value(value, row);
            row.copy_within(end..end + width, at);
            row.truncate(end);
        }
    }
    Ok(())
}
