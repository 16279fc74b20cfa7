//! Selects: retained events of a stream, found by key, by an indexed column or by event time, on
//! the node that a client is connected to.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, Offset, PartitionId};
use forebay_core::key::{Key, KeyValue};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::row::{Document, FieldCell, Presence};
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, Result};
use forebay_index::DocumentKey;
use forebay_reader::ReadOptions;
use forebay_wire::document::set_fields;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use forebay_wire::v1::select_events_request;
use futures::future::BoxFuture;

use crate::change_spec::OwnedKey;
use crate::connection::Connection;
use crate::store::Store;
use crate::store_backend::StoreBackend;

/// A select before it is sent: which events of a stream, and which columns.
///
/// A select finds the events of one key, of one value of an indexed column, or between two values
/// of an indexed column; if none of these is set, the events in a span of time, or all events. The
/// result is ordered by event time, unless a column is set for the order.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::Client;
/// use forebay::reads::ReadOptions;
/// use forebay::schema::Timestamp;
/// # async fn example(client: Client, noon: Timestamp) -> forebay::Result<()> {
/// let orders = client.store("orders").await?;
/// let written = orders.insert("user-1").set("city", "Rome").set("price", 12).send().await?;
///
/// let after = ReadOptions::after(written.token, Duration::from_secs(5));
/// let select = orders.select().equal("city", "Rome").start(noon).columns(["price"]);
/// let dear = select.order_by("price").descending().limit(100).read(after).send().await?;
/// for event in &dear.events {
///     println!("{:?} {:?} {:?}", event.time, event.key()?, event.value("price"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a select does nothing before it is sent"]
pub struct EventQuery {
    store: Store,
    criteria: Vec<Criterion>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    columns: Vec<String>,
    order_by: Option<String>,
    is_descending: bool,
    limit: u32,
    read: ReadOptions,
}

/// The criterion by which events are found.
#[derive(Clone)]
enum Criterion {
    /// Key and partition key; no stream has a partition key.
    Key(OwnedKey, Option<OwnedKey>),
    Equal(String, Value),
    Between(String, Bound<Value>, Bound<Value>),
}

impl Store {
    /// Creates a select of the retained events of this stream, to be narrowed before it is sent.
    pub fn select(&self) -> EventQuery {
        EventQuery {
            store: self.clone(),
            criteria: Vec::new(),
            start: None,
            end: None,
            columns: Vec::new(),
            order_by: None,
            is_descending: false,
            limit: 0,
            read: ReadOptions::local(),
        }
    }
}

impl EventQuery {
    /// Selects the events of this key.
    pub fn key<'k>(mut self, key: impl Into<DocumentKey<'k>>) -> Self {
        let key = key.into();
        self.criteria
            .push(Criterion::Key(key.primary().into(), key.partition_key().map(Into::into)));
        self
    }

    /// Selects the events with this value in an indexed column. The value has the column's type, or
    /// is converted to it exactly.
    pub fn equal(mut self, column: impl Into<String>, value: impl Into<Value>) -> Self {
        self.criteria.push(Criterion::Equal(column.into(), value.into()));
        self
    }

    /// Selects the events whose value in a column with a range index is in this range: `10..20`,
    /// `10..`, `..20`.
    pub fn between<V>(mut self, column: impl Into<String>, range: impl RangeBounds<V>) -> Self
    where
        V: Into<Value> + Clone,
    {
        let owned_bound = |bound: Bound<&V>| bound.map(|value| value.clone().into());
        let (start, end) = (owned_bound(range.start_bound()), owned_bound(range.end_bound()));
        self.criteria.push(Criterion::Between(column.into(), start, end));
        self
    }

    /// Selects the events at this event time or later.
    pub fn start(mut self, time: Timestamp) -> Self {
        self.start = Some(time);
        self
    }

    /// Selects the events before this event time.
    pub fn end(mut self, time: Timestamp) -> Self {
        self.end = Some(time);
        self
    }

    /// Returns only these columns of each event.
    pub fn columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Orders the events by the values of this scalar column; events without a value come last.
    pub fn order_by(mut self, column: impl Into<String>) -> Self {
        self.order_by = Some(column.into());
        self
    }

    /// Reverses the order: the last events first.
    pub fn descending(mut self) -> Self {
        self.is_descending = true;
        self
    }

    /// Limits the result to the first `events` events, up to 10,000; 1,000 unless set.
    pub fn limit(mut self, events: u32) -> Self {
        self.limit = events;
        self
    }

    /// Sets the wait before the select starts, and the staleness bound of its data.
    pub fn read(mut self, read: ReadOptions) -> Self {
        self.read = read;
        self
    }

    /// Sends the select; retries until the client's deadline while no node answers.
    ///
    /// # Errors
    /// - `InvalidArgument`: the store is a store of documents; a key or a value has another type; a
    ///   column does not have the index that the select needs; or the select has two criteria.
    /// - `NotFound`: the stream does not have a column, or was deleted.
    /// - `LimitExceeded`: the result would have too many events or bytes; the node would have to
    ///   look at too many events; or a key is larger than 64 KiB.
    /// - `TokenLost`, `Stale`.
    /// - `DeadlineExceeded` or `Unavailable`: no answer in time.
    /// - `Unsupported`: the store is the store of an in-memory reader.
    pub async fn send(self) -> Result<EventQueryResult> {
        let definition = self.store.definition();
        let at_store = |error: Error| error.with_store(&definition.name);
        let StoreBackend::Node(state) = self.store.backend() else {
            let message = "a store in memory retains no events; select from a stream at a node";
            return Err(at_store(Error::unsupported(message)));
        };
        let message = self.request(&definition).map_err(at_store)?;
        let answer = select_events(state.connection(), self.read.timeout(), message).await;
        answer.and_then(|answer| EventQueryResult::of(answer, &definition)).map_err(at_store)
    }

    fn request(&self, definition: &Definition) -> Result<v1::SelectEventsRequest> {
        if definition.stream.is_none() {
            let message = "only a stream has events to select; read documents by their keys";
            return Err(Error::invalid_argument(message));
        }
        let criterion = match self.criteria.as_slice() {
            [] => None,
            [only_criterion] => Some(only_criterion.message(definition)?),
            _ => {
                let message = "the select has several criteria; select by one key, by one value, \
                    or by one range";
                return Err(Error::invalid_argument(message));
            }
        };
        Ok(v1::SelectEventsRequest {
            stream: definition.name.clone(),
            by: criterion,
            start_us: self.start.map(Timestamp::as_micros),
            end_us: self.end.map(Timestamp::as_micros),
            columns: self.columns.clone(),
            order_by: self.order_by.clone(),
            is_descending: self.is_descending,
            limit: self.limit,
            read: Some((&self.read).into()),
            partitions: Vec::new(),
        })
    }
}

fn select_events(
    connection: &Connection,
    wait_max: Duration,
    message: v1::SelectEventsRequest,
) -> BoxFuture<'_, Result<v1::SelectEventsResponse>> {
    let events = EventsClient::new(connection.channel())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Box::pin(async move {
        let call = async move |_, message| events.clone().select_events(message).await;
        connection.read_within(wait_max, message, call).await
    })
}

impl Criterion {
    fn message(&self, definition: &Definition) -> Result<select_events_request::By> {
        Ok(match self {
            Self::Key(key, partition_key) => {
                let (key, _) = key.route(partition_key.as_ref(), definition)?;
                select_events_request::By::Key(Bytes::copy_from_slice(key.as_bytes()))
            }
            Self::Equal(column, value) => {
                select_events_request::By::Equal(select_events_request::Equal {
                    column: column.clone(),
                    value: Some(value.into()),
                })
            }
            Self::Between(column, start, end) => {
                let is_half_open = !matches!(start, Bound::Excluded(_));
                if !is_half_open || matches!(end, Bound::Included(_)) {
                    let message = "the range of a select must include its start and exclude its \
                        end; give such bounds";
                    return Err(Error::invalid_argument(message).with_field(column));
                }
                let value = |bound: &Bound<Value>| match bound {
                    Bound::Unbounded => None,
                    Bound::Included(value) | Bound::Excluded(value) => Some(value.into()),
                };
                let (column, start, end) = (column.clone(), value(start), value(end));
                select_events_request::By::Between(select_events_request::Between {
                    column,
                    start,
                    end,
                })
            }
        })
    }
}

/// The result of a select.
#[derive(Clone, Debug, PartialEq)]
pub struct EventQueryResult {
    /// The selected columns, as the newest definition has them.
    pub columns: Arc<[EventColumn]>,
    /// The events, in the requested order.
    pub events: Vec<Event>,
    /// Positions that the select read.
    pub token: Token,
}

/// A column of a select.
#[derive(Clone, Debug, PartialEq)]
pub struct EventColumn {
    /// Column id.
    pub id: FieldId,
    /// Column name.
    pub name: String,
    /// Column type.
    pub field_type: FieldType,
}

/// An event of a select.
#[derive(Clone, PartialEq)]
pub struct Event {
    /// Event time.
    pub time: Timestamp,
    /// Time at which the log appended the event.
    pub append_time: Timestamp,
    /// Partition of the event.
    pub partition: PartitionId,
    /// Offset of the event's entry in the partition's log.
    pub offset: Offset,
    /// Index of the event in its entry.
    pub index_in_entry: u32,
    identity: Key,
    definition: Arc<Definition>,
    columns: Arc<[EventColumn]>,
    values: Document,
}

impl EventQueryResult {
    fn of(wire: v1::SelectEventsResponse, definition: &Arc<Definition>) -> Result<Self> {
        let columns = wire.columns.into_iter().map(EventColumn::of);
        let columns: Arc<[_]> = columns.collect::<Result<_>>()?;
        let events = wire.events.into_iter().map(|event| {
            let mut values = Document::new(None, None);
            set_fields(&mut values, event.columns)?;
            Ok(Event {
                time: Timestamp::from_micros(event.time_us),
                append_time: Timestamp::from_micros(event.append_time_us),
                partition: PartitionId(event.partition),
                offset: Offset(event.offset),
                index_in_entry: event.index_in_entry,
                identity: Key::from_identity_bytes(&event.key),
                definition: Arc::clone(definition),
                columns: Arc::clone(&columns),
                values,
            })
        });
        let events = events.collect::<Result<_>>()?;
        Ok(Self { columns, events, token: Token::decode(&wire.token)? })
    }
}

impl EventColumn {
    fn of(wire: v1::EventColumn) -> Result<Self> {
        let field_type = wire.r#type.unwrap_or_default().try_into()?;
        Ok(Self { id: FieldId(wire.id), name: wire.name, field_type })
    }
}

impl Event {
    /// Returns the event's key.
    ///
    /// # Errors
    /// `Corrupt` if the node has returned a key that is invalid in the stream.
    pub fn key(&self) -> Result<KeyValue<'_>> {
        let key = DocumentKey::of_identity(self.identity.as_bytes(), &self.definition)?;
        Ok(key.primary())
    }

    /// Returns the value of a selected column, by its current name; `None` if the event has no
    /// value.
    pub fn value(&self, column: &str) -> Option<&Value> {
        self.cell(column)?.value.as_ref()
    }

    /// Returns whether the event has a value, null or nothing in a selected column, by its current
    /// name.
    pub fn presence(&self, column: &str) -> Presence {
        match self.cell(column) {
            None => Presence::Absent,
            Some(FieldCell { value: None, .. }) => Presence::Null,
            Some(_) => Presence::Value,
        }
    }

    /// Iterates over the selected columns that the event has, each with its value, or `None` for
    /// null.
    pub fn values(&self) -> impl Iterator<Item = (&EventColumn, Option<&Value>)> {
        let cell = |column: &EventColumn| self.values.cell(column.id);
        self.columns.iter().filter_map(move |event_column| {
            Some((event_column, cell(event_column)?.value.as_ref()))
        })
    }

    fn cell(&self, column: &str) -> Option<&FieldCell> {
        let column = self.columns.iter().find(|candidate| candidate.name == column)?;
        self.values.cell(column.id)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("time", &self.time)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .field("index_in_entry", &self.index_in_entry)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}
