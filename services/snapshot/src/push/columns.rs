//! Mapping of a file's columns to a store: the key, the fields, and the checks of their types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use forebay_arrow::cell;
use forebay_core::change::{Change, Condition, FieldChange, FieldOp, Verb};
use forebay_core::id::{FieldId, PartitionId, Sequence};
use forebay_core::key::Key;
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, ScalarType, VectorType};
use forebay_core::{Error, Result};

/// Names of the columns with a special meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames {
    /// The column that holds the primary key.
    pub key: String,
    /// The columns that are ignored.
    pub ignored: BTreeSet<String>,
}

/// A column that is read.
struct Column {
    place: usize,
    name: String,
    field_type: FieldType,
}

impl Column {
    /// Returns the column's cells in a batch, cast to the type of its field.
    fn cells(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let from = batch.column(self.place);
        let to = arrow_type(self.field_type, from.data_type());
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(from, &to, &options).map_err(|error| {
            let message = format!("a value does not fit the type {}: {error}", self.field_type);
            Error::invalid_argument(message).with_field(&self.name)
        })
    }
}

/// A row of a file: its document, and the document's partition.
pub(crate) struct ReadRow {
    pub partition: PartitionId,
    pub change: Change,
}

/// The columns of a file, mapped to a store.
pub(crate) struct Columns<'d> {
    definition: &'d Definition,
    key: Column,
    partition_key: Option<Column>,
    /// Columns by ascending field id.
    fields: BTreeMap<FieldId, Column>,
}

impl<'d> Columns<'d> {
    /// Maps each column of a file to a field of the store.
    ///
    /// # Errors
    /// `InvalidArgument` if a column is not a field of the store, its type does not fit, or the key
    /// is missing.
    pub(crate) fn of(
        schema: &Schema,
        definition: &'d Definition,
        names: &ColumnNames,
    ) -> Result<Self> {
        let missing = |role: &str, name: &str| {
            let message = format!(
                "the file lacks the column `{name}` of the {role}; name the column that holds the \
                 {role}"
            );
            Error::invalid_argument(message)
        };
        let (mut key, mut partition_key, mut fields) = (None, None, BTreeMap::new());
        if schema.column_with_name(&names.key).is_none() {
            return Err(missing("key", &names.key));
        }
        for (place, column) in schema.fields().iter().enumerate() {
            let name = column.name();
            let column_of = |field_type| {
                check_type(column, field_type)?;
                Ok::<_, Error>(Column { place, name: name.clone(), field_type })
            };
            let is_key = *name == names.key;
            if is_key {
                key = Some(column_of(definition.key_type.field_type())?);
            }
            match definition.field(name) {
                Some(field) if Some(field.id) == definition.partition_key => {
                    partition_key = Some(column_of(field.field_type)?);
                }
                Some(_) if names.ignored.contains(name) => {}
                Some(field) => {
                    if fields.insert(field.id, column_of(field.field_type)?).is_some() {
                        let message = "two columns name one field; ignore one of the two";
                        return Err(Error::invalid_argument(message).with_field(name));
                    }
                }
                None if is_key || names.ignored.contains(name) => {}
                None => return Err(no_field(name, definition)),
            }
        }
        let key = key.ok_or_else(|| missing("key", &names.key))?;
        let declared = definition.partition_key.and_then(|id| definition.field_by_id(id));
        if let (Some(field), None) = (declared, &partition_key) {
            return Err(missing("partition key", &field.name));
        }
        Ok(Self { definition, key, partition_key, fields })
    }

    /// Returns the indexes of the columns that are read.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        let keys = std::iter::once(&self.key).chain(&self.partition_key);
        keys.chain(self.fields.values()).map(|column| column.place)
    }

    /// Reads the rows of a batch; `first` is the number of its first row among all rows of the
    /// push.
    ///
    /// # Errors
    /// `InvalidArgument` and `LimitExceeded` for a row that the store cannot have, with its number
    /// in the batch; else as `visit`.
    pub(crate) fn rows(
        &self,
        batch: &RecordBatch,
        first: u64,
        mut visit: impl FnMut(ReadRow) -> Result<()>,
    ) -> Result<(), (usize, Error)> {
        let batch_error = |error| (0, error);
        let keys = self.key.cells(batch).map_err(batch_error)?;
        let partition_keys = self.partition_key.as_ref().map(|column| column.cells(batch));
        let partition_keys = partition_keys.transpose().map_err(batch_error)?;
        let fields = self.fields.iter().map(|(id, column)| Ok((*id, column, column.cells(batch)?)));
        let fields: Vec<_> = fields.collect::<Result<_>>().map_err(batch_error)?;
        for row in 0..batch.num_rows() {
            let read = || {
                let (key, partition) = self.identity(&keys, partition_keys.as_ref(), row)?;
                let mut changes = Vec::with_capacity(fields.len());
                for (field, column, cells) in &fields {
                    let value = cell(cells, column.field_type, row)
                        .map_err(|error| error.with_field(&column.name))?;
                    let op = FieldOp::Set(value);
                    // A null in a file is a field that the document does not have.
                    if op != FieldOp::Set(None) {
                        changes.push(FieldChange { field: *field, op, ttl_us: None });
                    }
                }
                let change = Change {
                    sequence: Sequence(first + row as u64 + 1),
                    key,
                    verb: Verb::Put,
                    fields: changes,
                    condition: Some(Condition::IfAbsent),
                    ttl_us: None,
                };
                change.check(self.definition)?;
                Ok(ReadRow { partition, change })
            };
            read().and_then(&mut visit).map_err(|error| (row, error))?;
        }
        Ok(())
    }

    fn identity(
        &self,
        keys: &ArrayRef,
        partition_keys: Option<&ArrayRef>,
        row: usize,
    ) -> Result<(Key, PartitionId)> {
        let bytes = |column: &Column, cells| {
            key_bytes(cells, column.field_type, row).ok_or_else(|| {
                Error::invalid_argument("the row has no key; give each row a key")
                    .with_field(&column.name)
            })
        };
        let primary = bytes(&self.key, keys)?;
        let (key, hashed) = match self.partition_key.as_ref().zip(partition_keys) {
            None => (Key::plain(&primary)?, primary),
            Some((column, cells)) => {
                let partition_key = bytes(column, cells)?;
                (Key::partitioned(&partition_key, &primary)?, partition_key)
            }
        };
        Ok((key, partition_of(&hashed, self.definition.partitions)))
    }
}

fn no_field(name: &str, definition: &Definition) -> Error {
    let fields: Vec<_> = definition.fields.iter().map(|field| field.name.as_str()).collect();
    let message = format!(
        "the store has no field of this column's name, only: {}; rename the column, or \
         ignore it",
        fields.join(", ")
    );
    Error::invalid_argument(message).with_field(name)
}

/// Returns the Arrow type for the values of a field, for a column of type `from`.
pub(crate) fn arrow_type(field_type: FieldType, from: &DataType) -> DataType {
    match field_type {
        FieldType::Scalar(ScalarType::Timestamp) => timestamp_type(from),
        FieldType::List(ScalarType::Timestamp) => {
            let item = timestamp_type(item_type(from).unwrap_or(&DataType::Null));
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        other => forebay_arrow::arrow_type(other),
    }
}

/// Returns the type of times, in the time zone of `from`, which only affects the display: all times
/// count from the same epoch.
fn timestamp_type(from: &DataType) -> DataType {
    let zone = match from {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    DataType::Timestamp(TimeUnit::Microsecond, zone)
}

fn item_type(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

fn check_type(column: &Field, field_type: FieldType) -> Result<()> {
    if fits(column.data_type(), field_type) {
        return Ok(());
    }
    let message = format!(
        "a column of type {} cannot hold the values of a {field_type}; convert the column in the \
         file",
        column.data_type()
    );
    Err(Error::invalid_argument(message).with_field(column.name()))
}

/// Returns whether the values of an Arrow type fit a field's type, exactly or as the nearest
/// floats. An integer that is too large is detected when it is read.
fn fits(from: &DataType, to: FieldType) -> bool {
    use DataType::{Float16, Float32, Float64, Int8};
    if let DataType::Dictionary(_, values) = from {
        return fits(values, to);
    }
    match to {
        _ if *from == DataType::Null => true,
        FieldType::Scalar(scalar) => scalar_fits(from, scalar),
        FieldType::List(scalar) => item_type(from).is_some_and(|item| scalar_fits(item, scalar)),
        FieldType::Vector(component, _) => item_type(from).is_some_and(|item| match component {
            VectorType::F32 | VectorType::F16 => matches!(item, Float16 | Float32 | Float64),
            VectorType::I8 => *item == Int8 || item.is_integer(),
        }),
    }
}

fn scalar_fits(from: &DataType, to: ScalarType) -> bool {
    use DataType as T;
    match to {
        ScalarType::Bool => *from == T::Boolean,
        ScalarType::Int32 | ScalarType::Int64 => from.is_integer(),
        ScalarType::Float32 => matches!(
            from,
            T::Float16 | T::Float32 | T::Float64 | T::Int8 | T::Int16 | T::UInt8 | T::UInt16
        ),
        ScalarType::Float64 => {
            from.is_floating() || (from.is_integer() && !matches!(from, T::Int64 | T::UInt64))
        }
        ScalarType::String => matches!(from, T::Utf8 | T::LargeUtf8 | T::Utf8View),
        ScalarType::Bytes => matches!(
            from,
            T::Binary
                | T::LargeBinary
                | T::BinaryView
                | T::FixedSizeBinary(_)
                | T::Utf8
                | T::LargeUtf8
                | T::Utf8View
        ),
        ScalarType::Timestamp => matches!(from, T::Timestamp(..) | T::Date32 | T::Date64),
    }
}

#[cfg(test)]
#[path = "columns_test.rs"]
mod tests;

/// Returns the bytes of a key in a cell of an array that was cast to this type; `None` for a null.
fn key_bytes(cells: &ArrayRef, field_type: FieldType, row: usize) -> Option<Vec<u8>> {
    if cells.is_null(row) {
        return None;
    }
    Some(match field_type {
        FieldType::STRING => cells.as_string::<i32>().value(row).into(),
        FieldType::INT64 => cells.as_primitive::<Int64Type>().value(row).to_le_bytes().to_vec(),
        // `Columns::of` has checked that the type is one of the three key types.
        _ => cells.as_binary::<i32>().value(row).to_vec(),
    })
}
