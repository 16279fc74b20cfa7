//! Layout of a row: the position of each field of a definition. Bytes: `proto/spec/row.md`.

use std::ops::Range;

use crate::id::{FieldId, SchemaVersion};
use crate::schema::Definition;
use crate::value::FieldType;

/// Bytes before a row's state bits: schema version (2) and flags (1).
pub const ROW_HEADER_BYTES: usize = 3;

/// Position of a field's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a fixed byte of the row.
    Fixed {
        /// First byte, from the start of the row.
        at: usize,
        /// Number of bytes.
        width: usize,
    },
    /// In the tail, with this index among the tail values.
    Tail(usize),
}

/// A field of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The field.
    pub field: FieldId,
    /// Type of the field at this version.
    pub field_type: FieldType,
    /// Index among the layout's fields; selects the field's state bits.
    pub number: usize,
    /// Position of the field's bytes.
    pub place: Place,
}

/// The positions of all fields at one schema version.
#[derive(Clone, Debug)]
pub struct Layout {
    version: SchemaVersion,
    slots: Vec<Slot>,
    /// Slot number + 1 by field id; 0 if the layout has no such field.
    slot_by_id: Vec<u16>,
    ends_at: usize,
    tail_values: usize,
}

impl Layout {
    /// Creates the layout of a definition's live fields, in the order of their ids.
    pub fn of(definition: &Definition) -> Self {
        let fields = &definition.fields;
        let ids = fields.iter().map(|field| field.id.0 as usize + 1).max().unwrap_or(0);
        let mut slot_by_id = vec![0; ids];
        let mut slots = Vec::with_capacity(fields.len());
        let mut at = ROW_HEADER_BYTES + (2 * fields.len()).div_ceil(8);
        let mut tail_values = 0;
        for (number, field) in fields.iter().enumerate() {
            let place = match field.field_type.width() {
                Some(width) => {
                    at += width;
                    Place::Fixed { at: at - width, width }
                }
                None => {
                    tail_values += 1;
                    Place::Tail(tail_values - 1)
                }
            };
            slot_by_id[field.id.0 as usize] = number as u16 + 1;
            slots.push(Slot { field: field.id, field_type: field.field_type, number, place });
        }
        Self { version: definition.version, slots, slot_by_id, ends_at: at, tail_values }
    }

    /// Returns the schema version in rows of this layout.
    #[inline(always)]
    pub fn version(&self) -> SchemaVersion {
        self.version
    }

    /// Returns all slots, in the order of field ids.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns the slot of a field, or `None` if this version does not have it.
    #[inline(always)]
    pub fn slot(&self, field: FieldId) -> Option<&Slot> {
        let number = self.slot_by_id.get(field.0 as usize)?.checked_sub(1)?;
        self.slots.get(usize::from(number))
    }

    /// Returns the number of bytes of the state bits, two bits per field.
    pub fn state_bytes(&self) -> usize {
        (2 * self.slots.len()).div_ceil(8)
    }

    /// Returns the number of values in the tail.
    #[inline(always)]
    pub fn tail_values(&self) -> usize {
        self.tail_values
    }

    /// Returns the byte range of the ends of the tail values: a u32 for each value but the last.
    #[inline(always)]
    pub fn ends(&self) -> Range<usize> {
        self.ends_at..self.tail_at()
    }

    /// Returns the first byte of the tail.
    #[inline(always)]
    pub fn tail_at(&self) -> usize {
        self.ends_at + 4 * self.tail_values.saturating_sub(1)
    }
}
