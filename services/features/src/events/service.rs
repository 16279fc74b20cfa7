//! gRPC interface of the retained events: validates a request against the stream, reads the local
//! partitions, and forwards the request to the processes that have the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::clock::Timestamp;
use forebay_core::coerce::coerce_value;
use forebay_core::id::{FieldId, Offset, PartitionId};
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::{
    INDEX_VALUE_BYTES_MAX, MESSAGE_BYTES_MAX, SELECT_LIMIT, SELECT_LIMIT_MAX,
};
use forebay_core::partition::partition_of;
use forebay_core::row::Document;
use forebay_core::schema::{ColumnIndex, Definition, Field};
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, ErrorCode, Result};
use forebay_replica::ReadOptions;
use forebay_runtime::{Owner, forwarded, is_forwarded};
use forebay_shard::EventPosition;
use forebay_wire::document::{fields_message, set_fields};
use forebay_wire::status::{error_of_status, status_of_error};
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::events_client::EventsClient;
use forebay_wire::v1::events_server::{Events as Served, EventsServer};
use forebay_wire::v1::select_events_request;
use futures::future::try_join_all;
use tokio::sync::Semaphore;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::{EventLookup, SelectedEvent, Selection};
use crate::feature_store::Features;
use crate::streams::Stream;

/// Number of selects that a process answers concurrently; others wait.
const SELECTS_AT_ONCE: usize = 32;

/// The retained events as a gRPC service.
#[derive(Clone)]
pub struct EventsService {
    features: Arc<Features>,
    /// Permits of concurrent selects.
    turns: Arc<Semaphore>,
}

impl EventsService {
    /// Creates the service over the streams of these features.
    pub fn new(features: Arc<Features>) -> Self {
        Self { features, turns: Arc::new(Semaphore::new(SELECTS_AT_ONCE)) }
    }

    /// Returns the service for a server.
    pub fn into_server(self) -> EventsServer<Self> {
        EventsServer::new(self)
    }

    /// Returns the stream, and the validated request. An unknown stream or column may be new, so
    /// the method then reads the control log to its end and tries again.
    async fn begin(&self, request: &v1::SelectEventsRequest) -> Result<(Stream, SelectSpec)> {
        let begin = || {
            let stream = self.features.stream(&request.stream)?;
            let spec = SelectSpec::of(request, &stream.schema.definition)?;
            Ok((stream, spec))
        };
        match begin() {
            Err(error) if is_of_definition(&error) => match self.features.catch_up().await {
                Ok(()) => begin(),
                Err(_) => Err(error),
            },
            begun => begun,
        }
    }

    async fn answer(
        &self,
        request: v1::SelectEventsRequest,
        came_with: &MetadataMap,
    ) -> Result<v1::SelectEventsResponse> {
        let (stream, spec) = self.begin(&request).await?;
        // The semaphore is never closed. A forwarded request holds a permit of the process that
        // forwards it.
        let _turn = match is_forwarded(came_with) {
            true => None,
            false => self.turns.acquire().await.ok(),
        };
        let definition = &stream.schema.definition;
        let mut own_partitions = Vec::new();
        let mut peer_selects = Vec::new();
        for partition in &spec.partitions {
            let at = definition.write_logs().at(*partition);
            match self.features.peers().owner(at, came_with).await? {
                Owner::Here => own_partitions.push(*partition),
                Owner::Peer(peer) => {
                    peer_selects.push(ask(peer, spec.of_peer(&request, *partition)));
                }
            }
        }
        let own_select = stream.select(&spec.selection, &spec.read, &own_partitions);
        let (own_answer, peer_answers) =
            futures::future::try_join(own_select, try_join_all(peer_selects)).await?;
        let (mut events, mut token) = own_answer;
        for answer in peer_answers {
            token.merge(&Token::decode(&answer.token)?)?;
            for event in answer.events {
                events.push(event.try_into()?);
            }
        }
        let events = spec.selection.merge(events)?;
        Ok(v1::SelectEventsResponse {
            events: events.into_iter().map(|event| spec.message(event)).collect(),
            columns: spec.columns.iter().map(column_message).collect(),
            token: token.encode(),
        })
    }
}

/// Returns whether a later definition might accept the same request.
fn is_of_definition(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NotFound | ErrorCode::InvalidArgument)
}

/// Forwards a request to another process.
async fn ask(peer: Channel, request: v1::SelectEventsRequest) -> Result<v1::SelectEventsResponse> {
    let mut peer = EventsClient::new(peer).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let answer = peer.select_events(forwarded(request)).await;
    answer.map(Response::into_inner).map_err(|status| error_of_status(&status))
}

/// A select's request, validated against the stream.
struct SelectSpec {
    selection: Selection,
    read: ReadOptions,
    partitions: BTreeSet<PartitionId>,
    /// The columns of the answer.
    columns: Vec<Field>,
}

impl SelectSpec {
    fn of(request: &v1::SelectEventsRequest, definition: &Definition) -> Result<Self> {
        let limit = match request.limit {
            0 => SELECT_LIMIT,
            limit if limit <= SELECT_LIMIT_MAX => limit,
            limit => {
                let message = "the limit of the select is too high; ask for fewer events, or for \
                    several spans of time";
                let (limit_max, limit) = (SELECT_LIMIT_MAX.into(), limit.into());
                return Err(Error::limit_exceeded(message, limit_max, limit));
            }
        };
        let requested_columns =
            request.columns.iter().map(|name| column(definition, name).cloned());
        let requested_columns: Vec<Field> = requested_columns.collect::<Result<_>>()?;
        let order_by = request.order_by.as_ref();
        let order_by = order_by.map(|name| ordering_column(definition, name)).transpose()?;
        let selection = Selection {
            lookup: lookup(request, definition)?,
            span: (request.start_us, request.end_us),
            columns: requested_columns.iter().map(|column| column.id).collect(),
            order_by: order_by.map(|column| column.id),
            is_descending: request.is_descending,
            limit: limit as usize,
        };
        let columns = if requested_columns.is_empty() {
            definition.fields.clone()
        } else {
            requested_columns
        };
        let partitions = partitions(request, definition, &selection.lookup)?;
        Ok(Self { selection, read: ReadOptions::asked(request.read.clone())?, partitions, columns })
    }

    /// Returns the request for a partition of another process. The other process also returns the
    /// ordering column.
    fn of_peer(
        &self,
        request: &v1::SelectEventsRequest,
        partition: PartitionId,
    ) -> v1::SelectEventsRequest {
        let mut request =
            v1::SelectEventsRequest { partitions: vec![partition.0], ..request.clone() };
        if !request.columns.is_empty() {
            request.columns.extend(request.order_by.clone());
        }
        request
    }

    fn message(&self, event: SelectedEvent) -> v1::Event {
        let is_answered = |column: FieldId| self.columns.iter().any(|it| it.id == column);
        v1::Event {
            key: event.key.into(),
            time_us: event.time.as_micros(),
            append_time_us: event.append_time.as_micros(),
            partition: event.partition.0,
            offset: event.at.offset.0,
            index_in_entry: event.at.index_in_entry.into(),
            columns: fields_message(&event.columns, is_answered),
        }
    }
}

impl TryFrom<v1::Event> for SelectedEvent {
    type Error = Error;

    fn try_from(wire: v1::Event) -> Result<Self> {
        let mut columns = Document::new(None, None);
        set_fields(&mut columns, wire.columns)?;
        let index_in_entry = u16::try_from(wire.index_in_entry);
        let index_in_entry = index_in_entry
            .map_err(|_| Error::corrupt("the index in the entry of an event is out of range"))?;
        Ok(Self {
            partition: PartitionId(wire.partition),
            at: EventPosition { offset: Offset(wire.offset), index_in_entry },
            time: Timestamp::from_micros(wire.time_us),
            append_time: Timestamp::from_micros(wire.append_time_us),
            key: wire.key.into(),
            columns,
        })
    }
}

fn column_message(column: &Field) -> v1::EventColumn {
    let (id, name) = (column.id.0, column.name.clone());
    v1::EventColumn { id, name, r#type: Some(column.field_type.into()) }
}

fn column<'d>(definition: &'d Definition, name: &str) -> Result<&'d Field> {
    let unknown =
        || Error::not_found("the stream has no such column; describe the stream for its columns");
    definition.field(name).ok_or_else(|| unknown().with_field(name))
}

fn ordering_column<'d>(definition: &'d Definition, name: &str) -> Result<&'d Field> {
    let column = column(definition, name)?;
    match column.field_type {
        FieldType::Scalar(_) => Ok(column),
        other => {
            let message =
                format!("events are ordered by a scalar, not by a {other}; name another column");
            Err(Error::invalid_argument(message).with_field(name))
        }
    }
}

/// Returns the lookup of a request.
fn lookup(request: &v1::SelectEventsRequest, definition: &Definition) -> Result<EventLookup> {
    let indexed = |name: &str| {
        let column = column(definition, name)?;
        let advice = "the column has no index; alter the stream to find events by it";
        let no_index_error = || Error::invalid_argument(advice).with_field(name);
        Ok::<_, Error>((column, column.rules.index.ok_or_else(no_index_error)?))
    };
    match &request.by {
        None => Ok(EventLookup::Time),
        Some(select_events_request::By::Key(key)) => {
            let refused = |error: Error| Error::invalid_argument(error.message());
            KeyOrder::of(definition).stored(key).map_err(refused)?;
            Ok(EventLookup::Key(key.to_vec()))
        }
        Some(select_events_request::By::Equal(equal)) => {
            let (column, index) = indexed(&equal.column)?;
            let no_value_error = || {
                Error::invalid_argument("the select names no value; name one")
                    .with_field(&column.name)
            };
            let value = coerce_to_column(column, equal.value.as_ref().ok_or_else(no_value_error)?)?;
            Ok(EventLookup::Equal(column.id, index, value))
        }
        Some(select_events_request::By::Between(between)) => {
            let (column, index) = indexed(&between.column)?;
            if index != ColumnIndex::Range {
                let advice = "the column has an exact index, which finds single values only; alter \
                    the column to a range index";
                return Err(Error::invalid_argument(advice).with_field(&column.name));
            }
            let bound = |value: &Option<v1::Value>| {
                value.as_ref().map(|value| bound(column, value)).transpose()
            };
            Ok(EventLookup::Between(column.id, bound(&between.start)?, bound(&between.end)?))
        }
    }
}

fn coerce_to_column(column: &Field, value: &v1::Value) -> Result<Value> {
    let value =
        Value::try_from(value.clone()).and_then(|value| coerce_value(value, column.field_type));
    let value = value.map_err(|error| error.with_field(&column.name))?;
    if value.is_nan() {
        let error =
            Error::invalid_argument("NaN equals no value and is inside no range; name a number");
        return Err(error.with_field(&column.name));
    }
    Ok(value)
}

fn bound(column: &Field, value: &v1::Value) -> Result<Value> {
    let value = coerce_to_column(column, value)?;
    let bytes = match &value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    if bytes >= INDEX_VALUE_BYTES_MAX {
        let (limit, actual) = (INDEX_VALUE_BYTES_MAX as u64, bytes as u64);
        let error =
            Error::limit_exceeded("the bound is too long; name a shorter bound", limit, actual);
        return Err(error.with_field(&column.name));
    }
    Ok(value)
}

/// Returns the requested partitions that may have matching events.
fn partitions(
    request: &v1::SelectEventsRequest,
    definition: &Definition,
    lookup: &EventLookup,
) -> Result<BTreeSet<PartitionId>> {
    let count = definition.write_logs().partitions;
    let mut partitions: BTreeSet<_> = request.partitions.iter().copied().map(PartitionId).collect();
    if let Some(unknown) = partitions.iter().find(|partition| partition.0 >= count.0) {
        let error = Error::invalid_argument(format!(
            "the stream has {count} partitions; name one below that"
        ));
        return Err(error.with_partition(*unknown));
    }
    if partitions.is_empty() {
        partitions = count.partitions().collect();
    }
    if let EventLookup::Key(key) = lookup {
        let of_key = partition_of(key, count);
        partitions.retain(|partition| *partition == of_key);
    }
    Ok(partitions)
}

#[tonic::async_trait]
impl Served for EventsService {
    async fn select_events(
        &self,
        request: Request<v1::SelectEventsRequest>,
    ) -> Result<Response<v1::SelectEventsResponse>, Status> {
        let (came_with, _, request) = request.into_parts();
        let stream = request.stream.clone();
        let answer = self.answer(request, &came_with).await;
        let answer = answer.map_err(|error| status_of_error(&error.with_store(&stream)))?;
        Ok(Response::new(answer))
    }
}
