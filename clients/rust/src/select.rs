//! Selects: events of a stream that are retained, by their key, by an indexed column or by when
//! they happened, from the node that a client is connected to.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

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
use forebay_reader::Read;
use forebay_wire::document::set_fields;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use forebay_wire::v1::select_request;

use crate::draft::GivenKey;
use crate::store::{Place, Store};

/// Which events of a stream are selected, and what of them, before it is sent.
///
/// They are those of one key, of one value of an indexed column, or between two; without any of
/// these those that happened in a span of time, or all. They come ordered by when they happened,
/// unless by a column.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::{Client, Read, Timestamp};
/// # async fn example(client: Client, noon: Timestamp) -> forebay::Result<()> {
/// let orders = client.store("orders").await?;
/// let written = orders.insert("user-1").set("city", "Rome").set("price", 12).send().await?;
///
/// let after = Read::after_token(written.token, Duration::from_secs(5));
/// let select = orders.select().equal("city", "Rome").from(noon).columns(["price"]);
/// let dear = select.order_by("price").descending().limit(100).read(after).send().await?;
/// for event in &dear.events {
///     println!("{:?} {:?} {:?}", event.time, event.key()?, event.value("price"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a select does nothing before it is sent"]
pub struct Select {
    store: Store,
    by: Vec<By>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    columns: Vec<String>,
    order_by: Option<String>,
    is_descending: bool,
    limit: u32,
    read: Read,
}

/// How events are found.
#[derive(Clone)]
enum By {
    /// And a partition key, which no stream has.
    Key(GivenKey, Option<GivenKey>),
    Equal(String, Value),
    Between(String, Bound<Value>, Bound<Value>),
}

impl Store {
    /// A select of the retained events of this stream, to be narrowed before it is sent.
    pub fn select(&self) -> Select {
        Select {
            store: self.clone(),
            by: Vec::new(),
            from: None,
            to: None,
            columns: Vec::new(),
            order_by: None,
            is_descending: false,
            limit: 0,
            read: Read::local(),
        }
    }
}

impl Select {
    /// Events of this key.
    pub fn key<'k>(mut self, key: impl Into<DocumentKey<'k>>) -> Self {
        let key = key.into();
        self.by.push(By::Key(key.primary().into(), key.partition_key().map(Into::into)));
        self
    }

    /// Events with this value in a column that has an index. The value is of the column's type, or
    /// one that this holds exactly.
    pub fn equal(mut self, column: impl Into<String>, value: impl Into<Value>) -> Self {
        self.by.push(By::Equal(column.into(), value.into()));
        self
    }

    /// Events whose value in a column with an index of ranges lies here: `10..20`, `10..`, `..20`.
    pub fn between<V>(mut self, column: impl Into<String>, range: impl RangeBounds<V>) -> Self
    where
        V: Into<Value> + Clone,
    {
        let given = |bound: Bound<&V>| bound.map(|value| value.clone().into());
        let (from, to) = (given(range.start_bound()), given(range.end_bound()));
        self.by.push(By::Between(column.into(), from, to));
        self
    }

    /// Events that happened at this time or later.
    pub fn from(mut self, time: Timestamp) -> Self {
        self.from = Some(time);
        self
    }

    /// Events that happened before this time.
    pub fn to(mut self, time: Timestamp) -> Self {
        self.to = Some(time);
        self
    }

    /// Only these columns of each event.
    pub fn columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// In the order of this scalar column's values, those of events without one last.
    pub fn order_by(mut self, column: impl Into<String>) -> Self {
        self.order_by = Some(column.into());
        self
    }

    /// The last ones first.
    pub fn descending(mut self) -> Self {
        self.is_descending = true;
        self
    }

    /// The first of them, at most so many, up to 10,000; 1,000 unless set.
    pub fn limit(mut self, events: u32) -> Self {
        self.limit = events;
        self
    }

    /// What is waited for before it begins, and how old it may be.
    pub fn read(mut self, read: Read) -> Self {
        self.read = read;
        self
    }

    /// Sends the select; again, until the client's deadline, where nobody answers.
    ///
    /// # Errors
    /// `InvalidArgument` for a store of documents, a key or a value of another type, a column
    /// without the index that it takes, and events that are to be found in two ways; `NotFound` for
    /// a column that the stream does not have, and for a stream that was deleted; `LimitExceeded`
    /// for more events or bytes than are answered, or more than are looked at to find them, and for
    /// a key beyond 64 KiB; `TokenLost`, `Stale`; `DeadlineExceeded` or `Unavailable` when it
    /// cannot be said in time; `Unsupported` where the store is one of a reader in memory.
    pub async fn send(self) -> Result<Selected> {
        let definition = self.store.definition();
        let at_store = |error: Error| error.with_store(&definition.name);
        let Place::Node(state) = self.store.place() else {
            let message = "a store in memory retains no events; select of a stream at a node";
            return Err(at_store(Error::unsupported(message)));
        };
        let message = self.request(&definition).map_err(at_store)?;
        let events = EventsClient::new(state.client().channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let call = async move |_, message| events.clone().select(message).await;
        let answer = state.client().read_within(self.read.timeout(), message, call).await;
        answer.and_then(|answer| Selected::of(answer, &definition)).map_err(at_store)
    }

    fn request(&self, definition: &Definition) -> Result<v1::SelectRequest> {
        if definition.stream.is_none() {
            let message = "only events of a stream are selected; read documents by their keys";
            return Err(Error::invalid_argument(message));
        }
        let by = match self.by.as_slice() {
            [] => None,
            [by] => Some(by.message(definition)?),
            _ => {
                let message = "a select finds events by one key, by one value, or between two";
                return Err(Error::invalid_argument(message));
            }
        };
        Ok(v1::SelectRequest {
            stream: definition.name.clone(),
            by,
            from_us: self.from.map(Timestamp::as_micros),
            to_us: self.to.map(Timestamp::as_micros),
            columns: self.columns.clone(),
            order_by: self.order_by.clone(),
            is_descending: self.is_descending,
            limit: self.limit,
            read: Some((&self.read).into()),
            partitions: Vec::new(),
        })
    }
}

impl By {
    fn message(&self, definition: &Definition) -> Result<select_request::By> {
        Ok(match self {
            Self::Key(key, partition_key) => {
                let (key, _) = key.route(partition_key.as_ref(), definition)?;
                select_request::By::Key(Bytes::copy_from_slice(key.as_bytes()))
            }
            Self::Equal(column, value) => select_request::By::Equal(select_request::Equal {
                column: column.clone(),
                value: Some(value.into()),
            }),
            Self::Between(column, from, to) => {
                let is_half_open = !matches!(from, Bound::Excluded(_));
                if !is_half_open || matches!(to, Bound::Included(_)) {
                    let message = "the values of a select lie from one on, up to another one that \
                                   is left out";
                    return Err(Error::invalid_argument(message).with_field(column));
                }
                let value = |bound: &Bound<Value>| match bound {
                    Bound::Unbounded => None,
                    Bound::Included(value) | Bound::Excluded(value) => Some(value.into()),
                };
                let (column, from, to) = (column.clone(), value(from), value(to));
                select_request::By::Between(select_request::Between { column, from, to })
            }
        })
    }
}

/// What a select answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// The columns that were asked for, as the newest definition has them.
    pub columns: Arc<[SelectedColumn]>,
    /// The events, in the order that was asked for.
    pub events: Vec<SelectedEvent>,
    /// The positions that were read.
    pub token: Token,
}

/// A column of a select.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedColumn {
    /// Its id.
    pub id: FieldId,
    /// Its name.
    pub name: String,
    /// Its type.
    pub field_type: FieldType,
}

/// An event of a select.
#[derive(Clone, PartialEq)]
pub struct SelectedEvent {
    /// When it happened.
    pub time: Timestamp,
    /// When the log took it.
    pub append_time: Timestamp,
    /// Its partition.
    pub partition: PartitionId,
    /// Offset of its entry there.
    pub offset: Offset,
    /// Its place in the entry.
    pub place: u32,
    identity: Key,
    definition: Arc<Definition>,
    columns: Arc<[SelectedColumn]>,
    values: Document,
}

impl Selected {
    fn of(wire: v1::SelectResponse, definition: &Arc<Definition>) -> Result<Self> {
        let columns = wire.columns.into_iter().map(SelectedColumn::of);
        let columns: Arc<[_]> = columns.collect::<Result<_>>()?;
        let events = wire.events.into_iter().map(|event| {
            let mut values = Document::new(None, None);
            set_fields(&mut values, event.columns)?;
            Ok(SelectedEvent {
                time: Timestamp::from_micros(event.time_us),
                append_time: Timestamp::from_micros(event.append_time_us),
                partition: PartitionId(event.partition),
                offset: Offset(event.offset),
                place: event.place,
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

impl SelectedColumn {
    fn of(wire: v1::SelectedColumn) -> Result<Self> {
        let field_type = wire.r#type.unwrap_or_default().try_into()?;
        Ok(Self { id: FieldId(wire.id), name: wire.name, field_type })
    }
}

impl SelectedEvent {
    /// Its key.
    ///
    /// # Errors
    /// `Corrupt` when the node has answered a key that the stream cannot have.
    pub fn key(&self) -> Result<KeyValue<'_>> {
        let key = DocumentKey::of_identity(self.identity.as_bytes(), &self.definition)?;
        Ok(key.primary())
    }

    /// The value of a selected column, by its current name; `None` where the event has none.
    pub fn value(&self, column: &str) -> Option<&Value> {
        self.cell(column)?.value.as_ref()
    }

    /// Whether a selected column, by its current name, is there.
    pub fn presence(&self, column: &str) -> Presence {
        match self.cell(column) {
            None => Presence::Absent,
            Some(FieldCell { value: None, .. }) => Presence::Null,
            Some(_) => Presence::Value,
        }
    }

    /// The selected columns that are there, each with its value, or without one where it is null.
    pub fn values(&self) -> impl Iterator<Item = (&SelectedColumn, Option<&Value>)> {
        let cell = |column: &SelectedColumn| self.values.cell(column.id);
        self.columns.iter().filter_map(move |it| Some((it, cell(it)?.value.as_ref())))
    }

    fn cell(&self, column: &str) -> Option<&FieldCell> {
        let column = self.columns.iter().find(|it| it.name == column)?;
        self.values.cell(column.id)
    }
}

impl fmt::Debug for SelectedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedEvent")
            .field("time", &self.time)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .field("place", &self.place)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}
