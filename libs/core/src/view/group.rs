//! Groups of a view: the group of an event, the group's partition, and the document that receives
//! its values.

use super::{FeatureView, Origin};
use crate::id::FieldId;
use crate::key::KeyType;
use crate::row::encode_value;
use crate::schema::Definition;
use crate::value::{FieldType, Value};

/// Size in bytes that most group names fit in.
const NAME_BYTES: usize = 64;
/// Separator between the values in a document's key.
const BETWEEN: char = ':';
/// Escape before a separator or an escape character in a value.
const ESCAPE: char = '\\';

impl FeatureView {
    /// Returns the bytes that name a group: the values of its columns in their order. No group's
    /// bytes are a prefix of another group's. Returns `None` if a column has no value: the event
    /// then belongs to no group.
    ///
    /// `value` returns a column's value.
    pub fn group_key<'v>(&self, value: &impl Fn(FieldId) -> Option<&'v Value>) -> Option<Vec<u8>> {
        key_of(self.entity.iter().copied(), value)
    }

    /// Returns the bytes that select a group's partition: the values of the group's columns that do
    /// not come from a join. An event that is derived again therefore goes to the same partition.
    ///
    /// The bytes are empty for a view without such columns, which has one partition.
    pub fn partition_key<'v>(
        &self,
        value: &impl Fn(FieldId) -> Option<&'v Value>,
    ) -> Option<Vec<u8>> {
        key_of(self.partition_by(), value)
    }

    /// Returns the primary key of the document that receives a group's values, in the byte form of
    /// [`FeatureView::document_key_type`]. Different groups have different keys. Returns `None` if
    /// a column has no value: the event then belongs to no group.
    ///
    /// `value` returns a column's value.
    pub fn document_key<'v>(
        &self,
        value: &impl Fn(FieldId) -> Option<&'v Value>,
    ) -> Option<Vec<u8>> {
        if let [column] = self.entity[..] {
            match value(column)? {
                Value::String(text) => return Some(text.as_bytes().to_vec()),
                Value::Bytes(bytes) => return Some(bytes.clone()),
                Value::Int64(number) => return Some(number.to_le_bytes().to_vec()),
                _ => {}
            }
        }
        let mut key = String::new();
        for (place, column) in self.entity.iter().enumerate() {
            if place > 0 {
                key.push(BETWEEN);
            }
            write_text(value(*column)?, &mut key);
        }
        Some(key.into_bytes())
    }

    /// Returns the key type of a store that receives the view's values. `definition` is the view's
    /// own.
    pub fn document_key_type(&self, definition: &Definition) -> KeyType {
        let [column] = self.entity[..] else { return KeyType::String };
        match definition.field_by_id(column).map(|column| column.field_type) {
            Some(FieldType::BYTES) => KeyType::Bytes,
            Some(FieldType::INT64) => KeyType::Int64,
            _ => KeyType::String,
        }
    }

    /// Returns the columns that select a group's partition.
    pub(super) fn partition_by(&self) -> impl Iterator<Item = FieldId> {
        let is_joined = |id: &FieldId| matches!(self.columns.get(id), Some(Origin::Join { .. }));
        self.entity.iter().copied().filter(move |id| !is_joined(id))
    }
}

fn key_of<'v>(
    columns: impl Iterator<Item = FieldId>,
    value: &impl Fn(FieldId) -> Option<&'v Value>,
) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(NAME_BYTES);
    for column in columns {
        let value = value(column)?;
        if let Value::String(_) | Value::Bytes(_) = value {
            key.extend_from_slice(&(value.encoded_bytes() as u32).to_le_bytes());
        }
        encode_value(value, &mut key);
    }
    Some(key)
}

/// Appends a value as text of a document's key.
fn write_text(value: &Value, text: &mut String) {
    match value {
        Value::Bool(is_true) => text.push_str(if *is_true { "true" } else { "false" }),
        Value::Int32(number) => text.push_str(&number.to_string()),
        Value::Int64(number) | Value::Timestamp(number) => text.push_str(&number.to_string()),
        Value::String(value) => {
            for letter in value.chars() {
                if letter == BETWEEN || letter == ESCAPE {
                    text.push(ESCAPE);
                }
                text.push(letter);
            }
        }
        Value::Bytes(bytes) => text.push_str(&hex::encode(bytes)),
        // No view groups by these types.
        Value::Float32(_)
        | Value::Float64(_)
        | Value::List(..)
        | Value::VectorF32(_)
        | Value::VectorF16(_)
        | Value::VectorI8(_) => {}
    }
}
