//! Select of retained events in one partition: reads the entries of an index in order, then their
//! events, and returns the first ones in the requested order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, Offset, PartitionId};
use forebay_core::key_order::{Direction, KeyRange};
use forebay_core::limits::{SELECT_BYTES_MAX, SELECT_READ_MAX, SELECT_SCANNED_MAX};
use forebay_core::row::{Document, row_schema_version};
use forebay_core::schema::ColumnIndex;
use forebay_core::schema_set::SchemaSet;
use forebay_core::value::Value;
use forebay_core::value::compare;
use forebay_core::{Error, Result};
use forebay_shard::{EventPosition, Shard, View};

use super::keys::{Entry, Span, entries_between};
use super::stored_event::StoredEvent;

/// Number of events that are read together.
const READ_AT_ONCE: usize = 64;

/// Lookup of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EventLookup {
    /// By event time.
    Time,
    /// By the identity bytes of their key.
    Key(Vec<u8>),
    /// By the value of an indexed column.
    Equal(FieldId, ColumnIndex, Value),
    /// By a range of values of an indexed column; the second bound is exclusive.
    Between(FieldId, Option<Value>, Option<Value>),
}

/// Query for events: their lookup, order and columns.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) lookup: EventLookup,
    /// First time, and first time after the span.
    pub(crate) span: (Option<i64>, Option<i64>),
    /// Requested columns; all if empty.
    pub(crate) columns: Vec<FieldId>,
    /// Column to order by; `None` orders by event time.
    pub(crate) order_by: Option<FieldId>,
    pub(crate) is_descending: bool,
    pub(crate) limit: usize,
}

/// A selected event.
#[derive(Clone, Debug)]
pub(crate) struct SelectedEvent {
    pub(crate) partition: PartitionId,
    pub(crate) at: EventPosition,
    pub(crate) time: Timestamp,
    pub(crate) append_time: Timestamp,
    /// Identity bytes of the key.
    pub(crate) key: Vec<u8>,
    /// The requested columns and the ordering column, in the types of the newest definition.
    pub(crate) columns: Document,
}

impl SelectedEvent {
    /// Returns the bytes of the key and the columns.
    pub(crate) fn bytes(&self) -> usize {
        let columns = self.columns.cells().iter().filter_map(|cell| cell.value.as_ref());
        columns.map(Value::encoded_bytes).sum::<u64>() as usize + self.key.len()
    }
}

impl Selection {
    /// Returns the events of a partition in the requested order.
    ///
    /// # Errors
    /// `LimitExceeded` if the select reads or returns too much; else as the shard.
    pub(crate) fn run(
        &self,
        shard: &Shard,
        view: &View<'_>,
        schemas: &SchemaSet,
    ) -> Result<Vec<SelectedEvent>> {
        let partition = shard.partition().partition;
        let select = PartitionSelect {
            selection: self,
            shard,
            view,
            schemas,
            partition,
            scans: SELECT_SCANNED_MAX,
        };
        match (&self.lookup, self.order_by) {
            (_, Some(_)) => select.all_ordered(),
            (EventLookup::Between(..), None) => select.found_ordered(),
            (_, None) => select.in_order(),
        }
    }

    /// Passes the events of a partition to `take` in batches, in index order and without a limit,
    /// until `take` returns false. A scan of all events starts at offset `first`.
    ///
    /// # Errors
    /// As the shard and `take`.
    pub(crate) fn scan(
        &self,
        (shard, view, schemas): (&Shard, &View<'_>, &SchemaSet),
        first: Offset,
        mut take: impl FnMut(Vec<SelectedEvent>) -> Result<bool>,
    ) -> Result<()> {
        let partition = shard.partition().partition;
        let select =
            PartitionSelect { selection: self, shard, view, schemas, partition, scans: usize::MAX };
        match (&self.lookup, self.span) {
            (EventLookup::Time, (None, None)) => select.all(first, take),
            _ => select.entries(|entries| take(select.read(entries)?)),
        }
    }

    /// Sorts the events of several partitions and truncates them to the limit.
    ///
    /// # Errors
    /// `LimitExceeded` if the events exceed the bytes of an answer.
    pub(crate) fn merge(&self, events: Vec<SelectedEvent>) -> Result<Vec<SelectedEvent>> {
        let events = self.first(events);
        events.iter().try_fold(0, weigh)?;
        Ok(events)
    }

    /// Returns the first events, in order.
    fn first(&self, mut events: Vec<SelectedEvent>) -> Vec<SelectedEvent> {
        events.sort_by(|a, b| self.order(a, b));
        events.truncate(self.limit);
        events
    }

    /// Compares by value, with missing values last; then by time and position.
    fn order(&self, a: &SelectedEvent, b: &SelectedEvent) -> Ordering {
        let turned = |order: Ordering| if self.is_descending { order.reverse() } else { order };
        let column = self.order_by.unwrap_or_default();
        let by_value = match (a.columns.value(column), b.columns.value(column)) {
            (Some(a), Some(b)) => turned(compare_all(a, b)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        let log_order = |it: &SelectedEvent| (it.time, it.partition, it.at);
        by_value.then_with(|| turned(log_order(a).cmp(&log_order(b))))
    }

    fn span(&self) -> Span {
        Span { from: self.span.0, to: self.span.1 }
    }

    fn range(&self) -> KeyRange {
        match &self.lookup {
            EventLookup::Time => self.span().all(),
            EventLookup::Key(key) => self.span().of_key(key),
            EventLookup::Equal(column, index, value) => {
                self.span().of_value(*column, *index, value)
            }
            EventLookup::Between(column, from, to) => {
                entries_between(*column, from.as_ref(), to.as_ref())
            }
        }
    }
}

/// Compares two values of one column; NaN is greater than all others.
fn compare_all(a: &Value, b: &Value) -> Ordering {
    compare(a, b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Execution of a selection in one partition.
struct PartitionSelect<'r> {
    selection: &'r Selection,
    shard: &'r Shard,
    view: &'r View<'r>,
    schemas: &'r SchemaSet,
    partition: PartitionId,
    /// Maximum number of entries to read.
    scans: usize,
}

impl PartitionSelect<'_> {
    /// Reads all events from an offset on, in the order of their positions.
    fn all(
        &self,
        first: Offset,
        mut take: impl FnMut(Vec<SelectedEvent>) -> Result<bool>,
    ) -> Result<()> {
        let first =
            EventPosition { offset: first.max(self.shard.events_from()), index_in_entry: 0 };
        let mut found = self.view.scan_events(first, Direction::Forward)?;
        let mut events = Vec::with_capacity(READ_AT_ONCE);
        while let Some((at, row)) = found.next()? {
            events.extend(self.event(at, row)?);
            if events.len() == READ_AT_ONCE && !take(std::mem::take(&mut events))? {
                return Ok(());
            }
        }
        if events.is_empty() { Ok(()) } else { take(events).map(drop) }
    }

    /// Reads events whose index entries already have the requested order.
    fn in_order(&self) -> Result<Vec<SelectedEvent>> {
        let (mut events, mut bytes, mut read) = (Vec::new(), 0, 0);
        self.entries(|batch| {
            read += batch.len();
            for event in self.read(batch)? {
                bytes = weigh(bytes, &event)?;
                events.push(event);
            }
            check_read(read.saturating_sub(events.len()))?;
            Ok(events.len() < self.selection.limit)
        })?;
        events.truncate(self.selection.limit);
        Ok(events)
    }

    /// Sorts the index entries by event time first, and reads only the events of the first ones.
    fn found_ordered(&self) -> Result<Vec<SelectedEvent>> {
        let mut first: BinaryHeap<HeapEntry> = BinaryHeap::new();
        let is_descending = self.selection.is_descending;
        self.entries(|batch| {
            for entry in batch {
                first.push(HeapEntry { entry: *entry, is_descending });
                if first.len() > self.selection.limit {
                    first.pop();
                }
            }
            Ok(true)
        })?;
        let entries: Vec<_> = first.into_sorted_vec().into_iter().map(|it| it.entry).collect();
        let (mut events, mut bytes) = (Vec::new(), 0);
        for batch in entries.chunks(READ_AT_ONCE) {
            for event in self.read(batch)? {
                bytes = weigh(bytes, &event)?;
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Reads all events, and keeps the first ones.
    fn all_ordered(&self) -> Result<Vec<SelectedEvent>> {
        let (mut events, mut bytes, mut read) = (Vec::new(), 0, 0);
        let events_max = 2 * self.selection.limit.max(READ_AT_ONCE);
        self.entries(|batch| {
            read += batch.len();
            check_read(read)?;
            let mut batch_events = self.read(batch)?;
            bytes += batch_events.iter().map(SelectedEvent::bytes).sum::<usize>();
            events.append(&mut batch_events);
            if events.len() >= events_max || bytes > 2 * SELECT_BYTES_MAX {
                events = self.selection.merge(std::mem::take(&mut events))?;
                bytes = events.iter().map(SelectedEvent::bytes).sum();
            }
            Ok(true)
        })?;
        self.selection.merge(events)
    }

    /// Passes the entries of the selection to `take` in batches, until `take` returns false.
    fn entries(&self, mut take: impl FnMut(&[Entry]) -> Result<bool>) -> Result<()> {
        let is_backward = self.selection.is_descending && self.selection.order_by.is_none();
        let direction = if is_backward { Direction::Backward } else { Direction::Forward };
        let mut found = self.view.scan(&self.selection.range(), direction);
        let (mut batch, mut scanned) = (Vec::with_capacity(READ_AT_ONCE), 0);
        // A batch exceeds the limit only if the order requires all entries.
        let is_in_order = self.selection.order_by.is_none()
            && !matches!(self.selection.lookup, EventLookup::Between(..));
        let entries_max = if is_in_order { self.selection.limit } else { READ_AT_ONCE };
        let at_once = READ_AT_ONCE.min(entries_max);
        while let Some((key, _)) = found.next()? {
            scanned += 1;
            if scanned > self.scans {
                let message = "the select reads too many index entries; narrow its values or times";
                let limit = self.scans as u64;
                return Err(Error::limit_exceeded(message, limit, scanned as u64));
            }
            let entry = Entry::of_key(key.as_bytes())?;
            if !self.selection.span().has(entry.time) {
                continue;
            }
            batch.push(entry);
            if batch.len() == at_once {
                if !take(&batch)? {
                    return Ok(());
                }
                batch.clear();
            }
        }
        if batch.is_empty() { Ok(()) } else { take(&batch).map(drop) }
    }

    /// Reads the events of some entries; skips events whose index value merely collides.
    fn read(&self, entries: &[Entry]) -> Result<Vec<SelectedEvent>> {
        let positions: Vec<_> = entries.iter().map(|entry| entry.at).collect();
        let rows = self.view.events(&positions)?;
        let mut events = Vec::with_capacity(rows.len());
        for (entry, row) in entries.iter().zip(rows) {
            let Some(row) = row else {
                // The retention may have deleted the event after its entry was read.
                if entry.at.offset < self.shard.events_from() {
                    continue;
                }
                let error = Error::corrupt("an index entry names an event that is missing");
                return Err(error.with_partition(self.partition));
            };
            events.extend(self.event(entry.at, &row)?);
        }
        Ok(events)
    }

    fn event(&self, at: EventPosition, row: &[u8]) -> Result<Option<SelectedEvent>> {
        let stored = StoredEvent::decode(row)?;
        let version = row_schema_version(stored.row).unwrap_or_default();
        let unknown = || Error::corrupt("the definition of an event is not known");
        let schema = self.schemas.get(version).ok_or_else(unknown)?;
        let columns = self.widen(Document::decode(stored.row, &schema.layout)?);
        let is_it = match &self.selection.lookup {
            EventLookup::Time | EventLookup::Between(..) => true,
            EventLookup::Key(key) => stored.key == key,
            EventLookup::Equal(column, _, value) => columns
                .value(*column)
                .is_some_and(|found| compare(found, value).is_some_and(Ordering::is_eq)),
        };
        if !is_it {
            return Ok(None);
        }
        let Selection { columns: selected_columns, order_by, .. } = self.selection;
        let is_wanted = |field: FieldId| {
            selected_columns.is_empty()
                || selected_columns.contains(&field)
                || *order_by == Some(field)
        };
        let columns = columns.copied_where(|cell| is_wanted(cell.field));
        Ok(Some(SelectedEvent {
            partition: self.partition,
            at,
            time: stored.head.time,
            append_time: stored.head.append_time,
            key: stored.key.to_vec(),
            columns,
        }))
    }

    /// Returns the columns that exist in the newest definition, in its types.
    fn widen(&self, columns: Document) -> Document {
        let newest = &self.schemas.newest().definition;
        let mut widened = Document::new(None, None);
        for cell in columns.cells() {
            let Some(column) = newest.field_by_id(cell.field) else { continue };
            let value = cell.value.clone().map(|value| value.widened_to(column.field_type));
            widened.set(cell.field, value, None);
        }
        widened
    }
}

/// Returns the sum of the bytes with one more event.
fn weigh(bytes: usize, event: &SelectedEvent) -> Result<usize> {
    let bytes = bytes + event.bytes();
    if bytes > SELECT_BYTES_MAX {
        let message = "the select returns too many bytes; name fewer columns, or a lower limit";
        return Err(Error::limit_exceeded(message, SELECT_BYTES_MAX as u64, bytes as u64));
    }
    Ok(bytes)
}

fn check_read(read: usize) -> Result<()> {
    if read > SELECT_READ_MAX {
        let message = "the select reads too many events; narrow its values or times";
        return Err(Error::limit_exceeded(message, SELECT_READ_MAX as u64, read as u64));
    }
    Ok(())
}

/// Heap element that keeps the first entries of the requested order: the last one is popped first.
#[derive(PartialEq, Eq)]
struct HeapEntry {
    entry: Entry,
    is_descending: bool,
}

impl Ord for HeapEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.entry.cmp(&other.entry);
        if self.is_descending { order.reverse() } else { order }
    }
}

impl PartialOrd for HeapEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
