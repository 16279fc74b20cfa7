//! Client for the rows of a statement at an Arrow Flight SQL server, and for the rows of a ticket
//! at another Forebay process.

use std::sync::Arc;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{Any, CommandStatementQuery, ProstMessageExt};
use arrow_flight::{FlightDescriptor, Ticket};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::{Error, Result};
use forebay_wire::status::error_of_status;
use futures::stream::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::engine::Rows;
use crate::table::Batches;

/// Runs a statement at the server.
///
/// # Errors
/// The errors of [`SqlEngine::run`](crate::SqlEngine::run); `Unavailable` if the server does not
/// answer.
pub async fn query(server: Channel, sql: &str) -> Result<Rows> {
    let mut server = client(server);
    let statement = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(statement.as_any().encode_to_vec());
    let info = server.get_flight_info(descriptor).await.map_err(from_status)?.into_inner();
    let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.clone());
    let endpoint_error = || Error::corrupt("the server returned no endpoint for the statement");
    let answer = server.do_get(ticket.ok_or_else(endpoint_error)?).await.map_err(from_status)?;
    let schema = info.try_decode_schema();
    let schema = schema.map_err(|error| Error::corrupt(format!("columns: {error}")))?;
    Ok(Rows { schema: Arc::new(schema), batches: batches(answer) })
}

/// Requests the rows of a ticket from another process, whose [`Scans`](crate::Scans) serve the
/// ticket; `send` builds the request for a message.
///
/// # Errors
/// The errors of the other process; `Unavailable` if it cannot be reached.
pub async fn rows_of_peer(
    peer: Channel,
    type_url: &str,
    ticket: &impl Message,
    send: impl FnOnce(Ticket) -> Request<Ticket>,
) -> Result<Batches> {
    let ticket = Any { type_url: type_url.to_owned(), value: ticket.encode_to_vec().into() };
    let ticket = Ticket::new(ticket.encode_to_vec());
    Ok(batches(client(peer).do_get(send(ticket)).await.map_err(from_status)?))
}

fn client(server: Channel) -> FlightServiceClient<Channel> {
    FlightServiceClient::new(server).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

fn from_status(status: Status) -> Error {
    error_of_status(&status)
}

fn batches(answer: Response<tonic::Streaming<arrow_flight::FlightData>>) -> Batches {
    let data = answer.into_inner().map_err(|status| FlightError::Tonic(Box::new(status)));
    let rows = FlightRecordBatchStream::new_from_flight_data(data);
    let from_flight = |error| match error {
        FlightError::Tonic(status) => from_status(*status),
        error => Error::corrupt(format!("another process sent invalid rows: {error}")),
    };
    rows.map_err(from_flight).boxed()
}
