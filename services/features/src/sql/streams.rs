//! A stream as a table: its columns by the newest definition, followed by the columns that every
//! event has.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_columns::{arrow_type, column};
use forebay_core::id::{FieldId, PartitionId};
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, ErrorCode, Result};
use forebay_query::{Batches, Bounds, Rows, Table, Tables, Wanted, identified};
use forebay_serve::Owner;
use forebay_wire::v1;
use forebay_wire::v1::scan_ticket;
use futures::TryStreamExt;
use tonic::async_trait;
use tonic::metadata::MetadataMap;

use super::{local, peer};
use crate::events::Selected;
use crate::streams::Stream;
use crate::values::Features;

/// Columns that every event has. A stream's column of the same name hides the built-in one.
const OF_EVERY_EVENT: [(&str, Of); 6] = [
    ("_key", Of::Key),
    ("_time", Of::Time),
    ("_append_time", Of::AppendTime),
    ("_partition", Of::Partition),
    ("_offset", Of::Offset),
    ("_place", Of::Place),
];

/// Source of a table's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Column(FieldId),
    Key,
    Time,
    AppendTime,
    Partition,
    Offset,
    Place,
}

/// The streams that are open here.
pub(super) struct StreamTables(Arc<Features>);

impl StreamTables {
    pub(super) fn new(features: Arc<Features>) -> Self {
        Self(features)
    }
}

impl fmt::Debug for StreamTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[async_trait]
impl Tables for StreamTables {
    fn names(&self) -> Vec<String> {
        self.0.stream_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn Table>>> {
        match self.0.stream(name) {
            Ok(stream) => Ok(Some(Arc::new(StreamTable::new(Arc::clone(&self.0), stream)))),
            Err(error) => match error.code() {
                // The name is not a stream.
                ErrorCode::NotFound | ErrorCode::InvalidArgument => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// The table of one stream.
#[derive(Clone)]
pub(crate) struct StreamTable {
    features: Arc<Features>,
    pub(super) stream: Stream,
    pub(super) columns: Arc<[(Of, FieldType)]>,
    schema: SchemaRef,
}

impl fmt::Debug for StreamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamTable").field(&self.definition().name).finish()
    }
}

impl StreamTable {
    pub(crate) fn new(features: Arc<Features>, stream: Stream) -> Self {
        let definition = &stream.schema.definition;
        let of_stream = definition.fields.iter();
        let of_stream = of_stream.map(|it| (it.name.as_str(), Of::Column(it.id), it.field_type));
        let is_hidden = |name: &str| definition.fields.iter().any(|it| it.name == name);
        let of_every = OF_EVERY_EVENT.into_iter().filter(|(name, _)| !is_hidden(name));
        let of_every = of_every.map(|(name, of)| (name, of, of.field_type(definition)));
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (name, of, field_type) in of_stream.chain(of_every) {
            let is_nullable = matches!(of, Of::Column(_));
            let field = Field::new(name, arrow_type(field_type), is_nullable);
            fields.push(identified(field, of.id()));
            columns.push((of, field_type));
        }
        let (columns, schema) = (columns.into(), Arc::new(Schema::new(fields)));
        Self { features, stream, columns, schema }
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.stream.schema.definition
    }

    /// Returns the rows of a ticket.
    ///
    /// # Errors
    /// `InvalidArgument` for a partition or column that the stream does not have.
    pub(super) fn scan(&self, ticket: &v1::ScanTicket, came_with: &MetadataMap) -> Result<Rows> {
        let partition = PartitionId(ticket.partition);
        if partition.0 >= self.definition().written().partitions.0 {
            let error = Error::invalid_argument("the stream has no such partition");
            return Err(error.with_partition(partition));
        }
        let columns = ticket.columns.iter().map(|name| self.place(name));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let bounds = ticket.bounds.iter().map(|bounds| self.bounds(bounds));
        let wanted = Wanted { columns, bounds: bounds.collect::<Result<_>>()? };
        let schema = self.projected(&wanted)?;
        // A ticket that was not forwarded is answered from the process that has the partition.
        let batches = match forebay_serve::is_forwarded(came_with) {
            true => local::rows(self, partition, wanted),
            false => self.rows(partition.0 as usize, &wanted),
        };
        Ok(Rows { schema, batches })
    }

    /// Returns the index of the column with the event time.
    ///
    /// # Errors
    /// `InvalidArgument` if another column hides it.
    pub(crate) fn time_place(&self) -> Result<usize> {
        self.place_of(Of::Time)
    }

    /// Returns the index of the column with the offset.
    ///
    /// # Errors
    /// As [`StreamTable::time_place`].
    pub(crate) fn offset_place(&self) -> Result<usize> {
        self.place_of(Of::Offset)
    }

    fn place_of(&self, of: Of) -> Result<usize> {
        let hidden = || {
            let names = OF_EVERY_EVENT.map(|(name, _)| name).join(", ");
            Error::invalid_argument(format!(
                "the stream has columns with reserved names; rename the columns {names}"
            ))
        };
        self.columns.iter().position(|(it, _)| *it == of).ok_or_else(hidden)
    }

    fn place(&self, name: &str) -> Result<usize> {
        let unknown = |_| {
            Error::invalid_argument(
                "the stream has no such column; describe the stream for its columns",
            )
        };
        self.schema.index_of(name).map_err(unknown).map_err(|error| error.with_field(name))
    }

    fn bounds(&self, wire: &scan_ticket::Bounds) -> Result<Bounds> {
        let column = self.place(&wire.column)?;
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

    /// Returns the ticket for a partition.
    pub(super) fn ticket(&self, partition: PartitionId, wanted: &Wanted) -> v1::ScanTicket {
        let name = |place: usize| self.schema.field(place).name().clone();
        let value = |bound: &Bound<Value>| match bound {
            Bound::Unbounded => (None, false),
            Bound::Included(value) => (Some(value.into()), false),
            Bound::Excluded(value) => (Some(value.into()), true),
        };
        let bounds = wanted.bounds.iter().map(|bounds| {
            let ((from, is_behind_from), (to, is_before_to)) =
                (value(&bounds.from), value(&bounds.to));
            let column = name(bounds.column);
            scan_ticket::Bounds { column, from, to, is_behind_from, is_before_to }
        });
        v1::ScanTicket {
            stream: self.definition().name.clone(),
            partition: partition.0,
            columns: wanted.columns.iter().map(|place| name(*place)).collect(),
            bounds: bounds.collect(),
        }
    }

    /// Returns the schema of the wanted columns.
    ///
    /// # Errors
    /// `Internal` for an unknown index.
    pub(super) fn projected(&self, wanted: &Wanted) -> Result<SchemaRef> {
        let projected = self.schema.project(&wanted.columns);
        Ok(Arc::new(projected.map_err(|error| Error::internal(error.to_string()))?))
    }

    /// Converts events to a batch.
    ///
    /// # Errors
    /// As [`column`].
    pub(super) fn batch(&self, events: &[Selected], wanted: &Wanted) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(wanted.columns.len());
        for place in &wanted.columns {
            let (of, field_type) = self.columns[*place];
            let values = events.iter().map(|event| self.value(event, of));
            columns.push(column(field_type, values.collect::<Result<_>>()?)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(events.len()));
        let batch = RecordBatch::try_new_with_options(self.projected(wanted)?, columns, &options);
        batch.map_err(|error| Error::internal(error.to_string()))
    }

    fn value(&self, event: &Selected, of: Of) -> Result<Option<Value>> {
        let number = |number: u64| Value::Int64(number as i64);
        Ok(Some(match of {
            Of::Column(column) => return Ok(event.columns.value(column).cloned()),
            Of::Key => self.definition().key_type.value(&event.key)?,
            Of::Time => Value::Timestamp(event.time.as_micros()),
            Of::AppendTime => Value::Timestamp(event.append_time.as_micros()),
            Of::Partition => number(event.partition.0.into()),
            Of::Offset => number(event.at.offset.0),
            Of::Place => number(event.at.place.into()),
        }))
    }
}

impl Of {
    /// Returns the field id of the column in files; ids of the stream's own columns are lower.
    fn id(self) -> i32 {
        match self {
            Self::Column(column) => column.0 as i32,
            Self::Key => 100_000,
            Self::Time => 100_001,
            Self::AppendTime => 100_002,
            Self::Partition => 100_003,
            Self::Offset => 100_004,
            Self::Place => 100_005,
        }
    }

    fn field_type(self, definition: &Definition) -> FieldType {
        match self {
            Self::Key => definition.key_type.field_type(),
            Self::Time | Self::AppendTime => FieldType::Scalar(ScalarType::Timestamp),
            _ => FieldType::Scalar(ScalarType::Int64),
        }
    }
}

impl Table for StreamTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn parts(&self) -> usize {
        self.definition().written().partitions.0 as usize
    }

    fn rows(&self, part: usize, wanted: &Wanted) -> Batches {
        let (table, wanted) = (self.clone(), wanted.clone());
        let partition = PartitionId(part as u32);
        let begun = async move {
            let at = table.definition().written().at(partition);
            let owner = table.features.peers().owner(at, &MetadataMap::new()).await?;
            match owner {
                Owner::Here => Ok(local::rows(&table, partition, wanted)),
                Owner::Peer(peer) => peer::rows(&table, peer, partition, &wanted).await,
            }
        };
        Box::pin(futures::stream::once(begun).try_flatten())
    }
}
