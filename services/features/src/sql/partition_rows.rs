//! Rows of one partition of a stream: read here, by a separate thread that back-pressure slows
//! down, or asked from the process that has the partition.

use std::ops::Bound;

use forebay_core::coerce::coerce_value;
use forebay_core::id::{Offset, PartitionId};
use forebay_core::limits::INDEX_VALUE_BYTES_MAX;
use forebay_core::schema::ColumnIndex;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_query::{Batches, Bounds, TableScan, rows_of_peer};
use forebay_replica::ReadOptions;
use forebay_runtime::forwarded;
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tonic::transport::Channel;

use super::stream_columns::{SCAN_TICKET, StreamColumns, TableSource};
use crate::events::{EventLookup, SelectedEvent, Selection};

/// Maximum number of events in a batch.
const BATCH_EVENTS: usize = 2_048;
/// Target size of a batch in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Returns the rows of the partition, as of the start of the stream.
pub(super) fn local_rows(
    table: &StreamColumns,
    partition: PartitionId,
    scan: TableScan,
) -> Batches {
    let table = table.clone();
    let begun = async move {
        let shard = table.stream.read(&ReadOptions::local(), partition).await?;
        let (send, received) = mpsc::channel(1);
        tokio::task::spawn_blocking(move || {
            let mut batch = Batch { table: &table, scan: &scan, events: vec![], bytes: 0 };
            let (selection, first) = (selection(&table, &scan), first_offset(&table, &scan));
            let read = table.stream.scan(&shard, &selection, first, |events| {
                batch.add(events).map(|full| match full {
                    Some(full) => send.blocking_send(Ok(full)).is_ok(),
                    None => !send.is_closed(),
                })
            });
            // A failed send means that the receiver has gone.
            let last = read.and_then(|()| batch.take());
            drop(match last {
                Ok(Some(batch)) => send.blocking_send(Ok(batch)),
                Ok(None) => Ok(()),
                Err(error) => send.blocking_send(Err(error)),
            });
        });
        let rows = stream::unfold(received, |mut received| async {
            received.recv().await.map(|batch| (batch, received))
        });
        Ok::<_, Error>(rows)
    };
    stream::once(begun).try_flatten().boxed()
}

/// Requests the rows from the other process.
///
/// # Errors
/// As the other process; `Unavailable` if it cannot be reached, or has another definition.
pub(super) async fn peer_rows(
    table: &StreamColumns,
    peer: Channel,
    partition: PartitionId,
    scan: &TableScan,
) -> Result<Batches> {
    let ticket = table.ticket(partition, scan);
    let rows = rows_of_peer(peer, SCAN_TICKET, &ticket, forwarded).await?;
    let expected = table.projected_schema(scan)?;
    let rows = rows.map(move |batch| {
        let batch = batch?;
        if batch.schema() != expected {
            let message = "the stream is altered at the moment; ask again";
            return Err(Error::unavailable(message).with_partition(partition));
        }
        Ok(batch)
    });
    Ok(rows.boxed())
}

/// A batch under construction.
struct Batch<'t> {
    table: &'t StreamColumns,
    scan: &'t TableScan,
    events: Vec<SelectedEvent>,
    bytes: usize,
}

impl Batch<'_> {
    /// Adds events; returns a batch once it is full.
    fn add(&mut self, events: Vec<SelectedEvent>) -> Result<Option<arrow::array::RecordBatch>> {
        self.bytes += events.iter().map(SelectedEvent::bytes).sum::<usize>();
        self.events.extend(events);
        if self.events.len() < BATCH_EVENTS && self.bytes < BATCH_BYTES {
            return Ok(None);
        }
        self.take()
    }

    fn take(&mut self) -> Result<Option<arrow::array::RecordBatch>> {
        self.bytes = 0;
        if self.events.is_empty() {
            return Ok(None);
        }
        let batch = self.table.batch(&self.events, self.scan)?;
        self.events.clear();
        Ok(Some(batch))
    }
}

/// Chooses the lookup of the events within the bounds: by key, by a value of an indexed column, by
/// time, by a range of an indexed column, or a scan of all events.
fn selection(table: &StreamColumns, scan: &TableScan) -> Selection {
    let definition = table.definition();
    let event_time = definition.event_time().map(|column| column.id);
    let source_of = |bounds: &Bounds| table.columns[bounds.column].0;
    let is_time = |bounds: &&Bounds| match source_of(bounds) {
        TableSource::Time => true,
        TableSource::Column(column) => event_time == Some(column),
        _ => false,
    };
    let mut span = (None::<i64>, None::<i64>);
    for bounds in scan.bounds.iter().filter(is_time) {
        let micros = |bound: &Bound<Value>, shift: i64| match bound {
            Bound::Included(Value::Timestamp(micros)) if shift < 0 => Some(*micros),
            Bound::Included(Value::Timestamp(micros)) => micros.checked_add(shift),
            Bound::Excluded(Value::Timestamp(micros)) if shift < 0 => micros.checked_add(1),
            Bound::Excluded(Value::Timestamp(micros)) => Some(*micros),
            _ => None,
        };
        span.0 = span.0.max(micros(&bounds.from, -1));
        let to = micros(&bounds.to, 1);
        span.1 = span.1.into_iter().chain(to).min();
    }
    let lookup = by_value(table, scan).or_else(|| {
        let is_free = span == (None, None);
        is_free.then(|| by_range(table, scan)).flatten()
    });
    let columns = scan.columns.iter().filter_map(|index| match table.columns[*index].0 {
        TableSource::Column(column) => Some(column),
        _ => None,
    });
    Selection {
        lookup: lookup.unwrap_or(EventLookup::Time),
        span,
        columns: columns.collect(),
        order_by: None,
        is_descending: false,
        limit: usize::MAX,
    }
}

/// Returns the first offset of a scan of all events.
fn first_offset(table: &StreamColumns, scan: &TableScan) -> Offset {
    let of_offset = |bounds: &&Bounds| table.columns[bounds.column].0 == TableSource::Offset;
    let from = scan.bounds.iter().filter(of_offset).filter_map(|bounds| match bounds.from {
        Bound::Included(Value::Int64(offset)) | Bound::Excluded(Value::Int64(offset)) => {
            u64::try_from(offset).ok()
        }
        _ => None,
    });
    Offset(from.max().unwrap_or_default())
}

fn by_value(table: &StreamColumns, scan: &TableScan) -> Option<EventLookup> {
    let lookup = |bounds: &Bounds| {
        let value = bounds.equal()?;
        match table.columns[bounds.column].0 {
            TableSource::Key => Some(EventLookup::Key(match value {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Bytes(bytes) => bytes.clone(),
                Value::Int64(number) => number.to_le_bytes().to_vec(),
                _ => return None,
            })),
            TableSource::Column(column) => {
                let column = table.definition().field_by_id(column)?;
                let value = coerce_value(value.clone(), column.field_type).ok()?;
                let index = column.rules.index.filter(|_| !value.is_nan())?;
                Some(EventLookup::Equal(column.id, index, value))
            }
            _ => None,
        }
    };
    scan.bounds.iter().find_map(lookup)
}

fn by_range(table: &StreamColumns, scan: &TableScan) -> Option<EventLookup> {
    let indexed = scan.bounds.iter().find_map(|bounds| {
        let TableSource::Column(column) = table.columns[bounds.column].0 else { return None };
        let column = table.definition().field_by_id(column)?;
        (column.rules.index == Some(ColumnIndex::Range)).then_some((bounds.column, column))
    });
    let (index, column) = indexed?;
    let (mut from, mut to) = (None, None);
    for bounds in scan.bounds.iter().filter(|bounds| bounds.column == index) {
        if let Bound::Included(value) | Bound::Excluded(value) = &bounds.from {
            from = from.or_else(|| coerce_value(value.clone(), column.field_type).ok());
        }
        to = to.or_else(|| value_after(&bounds.to));
    }
    let is_nan = |value: &Option<Value>| value.as_ref().is_some_and(Value::is_nan);
    if is_nan(&from) || is_nan(&to) {
        return None;
    }
    Some(EventLookup::Between(column.id, from, to))
}

/// Returns the first value after a bound, if an index distinguishes it from the values before.
fn value_after(bound: &Bound<Value>) -> Option<Value> {
    let value = match bound {
        Bound::Excluded(value) => value.clone(),
        Bound::Included(value) => match value {
            Value::Int32(number) => Value::Int32(number.checked_add(1)?),
            Value::Int64(number) => Value::Int64(number.checked_add(1)?),
            Value::Timestamp(micros) => Value::Timestamp(micros.checked_add(1)?),
            Value::Float32(number) => Value::Float32(number.next_up()),
            Value::Float64(number) => Value::Float64(number.next_up()),
            Value::String(text) => Value::String(format!("{text}\0")),
            _ => return None,
        },
        Bound::Unbounded => return None,
    };
    let bytes = match &value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    (bytes < INDEX_VALUE_BYTES_MAX).then_some(value)
}
