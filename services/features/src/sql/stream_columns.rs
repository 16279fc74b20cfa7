//! The columns of a stream's table: those of its newest definition, followed by the columns that
//! every event has. Converts scans to tickets and back, and events to batches.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_arrow::{arrow_type, column};
use forebay_core::id::{FieldId, PartitionId};
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, Result};
use forebay_query::{Bounds, TableScan, identified};
use forebay_wire::v1;
use forebay_wire::v1::scan_ticket;

use crate::events::SelectedEvent;
use crate::streams::Stream;

/// Type URL of a scan's ticket.
pub(super) const SCAN_TICKET: &str = "type.googleapis.com/forebay.v1.ScanTicket";

/// Columns that every event has. A stream's column of the same name hides the built-in one.
const OF_EVERY_EVENT: [(&str, TableSource); 6] = [
    ("_key", TableSource::Key),
    ("_time", TableSource::Time),
    ("_append_time", TableSource::AppendTime),
    ("_partition", TableSource::Partition),
    ("_offset", TableSource::Offset),
    ("_index_in_entry", TableSource::IndexInEntry),
];

/// Source of a table's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableSource {
    Column(FieldId),
    Key,
    Time,
    AppendTime,
    Partition,
    Offset,
    IndexInEntry,
}

/// A stream with the columns of its table. Cheap to clone.
#[derive(Clone)]
pub(super) struct StreamColumns {
    pub(super) stream: Stream,
    /// Source and type of each column.
    pub(super) columns: Arc<[(TableSource, FieldType)]>,
    pub(super) schema: SchemaRef,
}

impl StreamColumns {
    pub(super) fn new(stream: Stream) -> Self {
        let definition = &stream.schema.definition;
        let of_stream = definition.fields.iter();
        let of_stream =
            of_stream.map(|it| (it.name.as_str(), TableSource::Column(it.id), it.field_type));
        let is_hidden = |name: &str| definition.fields.iter().any(|it| it.name == name);
        let of_every = OF_EVERY_EVENT.into_iter().filter(|(name, _)| !is_hidden(name));
        let of_every = of_every.map(|(name, source)| (name, source, source.field_type(definition)));
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (name, source, field_type) in of_stream.chain(of_every) {
            let is_nullable = matches!(source, TableSource::Column(_));
            let field = Field::new(name, arrow_type(field_type), is_nullable);
            fields.push(identified(field, source.id()));
            columns.push((source, field_type));
        }
        let (columns, schema) = (columns.into(), Arc::new(Schema::new(fields)));
        Self { stream, columns, schema }
    }

    pub(super) fn definition(&self) -> &Definition {
        &self.stream.schema.definition
    }

    /// Returns the index of the column with the event time.
    ///
    /// # Errors
    /// `InvalidArgument` if another column hides it.
    pub(super) fn time_index(&self) -> Result<usize> {
        self.index_of_source(TableSource::Time)
    }

    /// Returns the index of the column with the offset.
    ///
    /// # Errors
    /// As [`StreamColumns::time_index`].
    pub(super) fn offset_index(&self) -> Result<usize> {
        self.index_of_source(TableSource::Offset)
    }

    fn index_of_source(&self, source: TableSource) -> Result<usize> {
        let hidden = || {
            let names = OF_EVERY_EVENT.map(|(name, _)| name).join(", ");
            Error::invalid_argument(format!(
                "the stream has columns with reserved names; rename the columns {names}"
            ))
        };
        self.columns.iter().position(|(it, _)| *it == source).ok_or_else(hidden)
    }

    fn index_of_name(&self, name: &str) -> Result<usize> {
        let unknown = |_| {
            Error::invalid_argument(
                "the stream has no such column; describe the stream for its columns",
            )
        };
        self.schema.index_of(name).map_err(unknown).map_err(|error| error.with_field(name))
    }

    fn bounds(&self, wire: &scan_ticket::Bounds) -> Result<Bounds> {
        let column = self.index_of_name(&wire.column)?;
        let value = |value: &Option<v1::Value>, excludes: bool| {
            Ok::<_, Error>(match value.clone().map(Value::try_from).transpose()? {
                None => Bound::Unbounded,
                Some(value) if excludes => Bound::Excluded(value),
                Some(value) => Bound::Included(value),
            })
        };
        let from = value(&wire.from, wire.is_behind_from)?;
        Ok(Bounds { column, from, to: value(&wire.to, wire.is_before_to)? })
    }

    /// Returns the columns and bounds of a ticket.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that the stream does not have.
    pub(super) fn scan_of_ticket(&self, ticket: &v1::ScanTicket) -> Result<TableScan> {
        let columns = ticket.columns.iter().map(|name| self.index_of_name(name));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let bounds = ticket.bounds.iter().map(|bounds| self.bounds(bounds));
        Ok(TableScan { columns, bounds: bounds.collect::<Result<_>>()? })
    }

    /// Returns the ticket for a partition.
    pub(super) fn ticket(&self, partition: PartitionId, scan: &TableScan) -> v1::ScanTicket {
        let name = |index: usize| self.schema.field(index).name().clone();
        let value = |bound: &Bound<Value>| match bound {
            Bound::Unbounded => (None, false),
            Bound::Included(value) => (Some(value.into()), false),
            Bound::Excluded(value) => (Some(value.into()), true),
        };
        let bounds = scan.bounds.iter().map(|bounds| {
            let ((from, is_behind_from), (to, is_before_to)) =
                (value(&bounds.from), value(&bounds.to));
            let column = name(bounds.column);
            scan_ticket::Bounds { column, from, to, is_behind_from, is_before_to }
        });
        v1::ScanTicket {
            stream: self.definition().name.clone(),
            partition: partition.0,
            columns: scan.columns.iter().map(|index| name(*index)).collect(),
            bounds: bounds.collect(),
        }
    }

    /// Returns the schema of the wanted columns.
    ///
    /// # Errors
    /// `Internal` for an unknown index.
    pub(super) fn projected_schema(&self, scan: &TableScan) -> Result<SchemaRef> {
        let projected = self.schema.project(&scan.columns);
        Ok(Arc::new(projected.map_err(|error| Error::internal(error.to_string()))?))
    }

    /// Converts events to a batch.
    ///
    /// # Errors
    /// As [`column`].
    pub(super) fn batch(&self, events: &[SelectedEvent], scan: &TableScan) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(scan.columns.len());
        for index in &scan.columns {
            let (source, field_type) = self.columns[*index];
            let values = events.iter().map(|event| self.value(event, source));
            columns.push(column(field_type, values.collect::<Result<_>>()?)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(events.len()));
        let batch =
            RecordBatch::try_new_with_options(self.projected_schema(scan)?, columns, &options);
        batch.map_err(|error| Error::internal(error.to_string()))
    }

    fn value(&self, event: &SelectedEvent, source: TableSource) -> Result<Option<Value>> {
        let number = |number: u64| Value::Int64(number as i64);
        Ok(Some(match source {
            TableSource::Column(column) => return Ok(event.columns.value(column).cloned()),
            TableSource::Key => self.definition().key_type.value(&event.key)?,
            TableSource::Time => Value::Timestamp(event.time.as_micros()),
            TableSource::AppendTime => Value::Timestamp(event.append_time.as_micros()),
            TableSource::Partition => number(event.partition.0.into()),
            TableSource::Offset => number(event.at.offset.0),
            TableSource::IndexInEntry => number(event.at.index_in_entry.into()),
        }))
    }
}

impl TableSource {
    /// Returns the field id of the column in files; ids of the stream's own columns are lower.
    fn id(self) -> i32 {
        match self {
            Self::Column(column) => column.0 as i32,
            Self::Key => 100_000,
            Self::Time => 100_001,
            Self::AppendTime => 100_002,
            Self::Partition => 100_003,
            Self::Offset => 100_004,
            Self::IndexInEntry => 100_005,
        }
    }

    fn field_type(self, definition: &Definition) -> FieldType {
        match self {
            Self::Key => definition.key_type.field_type(),
            Self::Time | Self::AppendTime => FieldType::TIMESTAMP,
            _ => FieldType::INT64,
        }
    }
}
