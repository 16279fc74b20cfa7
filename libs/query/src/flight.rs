//! Arrow Flight SQL over the engine, for ADBC and JDBC drivers. The service retains no state
//! between the calls of a client: a ticket, and a prepared statement, is the statement itself, so
//! that any process may serve it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandGetCatalogs, CommandGetDbSchemas,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandPreparedStatementQuery,
    CommandStatementQuery, DoPutPreparedStatementResult, ProstMessageExt, SqlInfo,
    TicketStatementQuery,
};
use arrow_flight::{
    Action, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket,
};
use async_trait::async_trait;
use forebay_core::{Error, Result};
use forebay_wire::status::status_of_error;
use futures::stream::{self, StreamExt, TryStreamExt};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::engine::{Rows, SqlEngine};
use crate::metadata;
use crate::table::Batches;

/// Target size of a message in bytes; a row is never split.
const MESSAGE_BYTES: usize = 1 << 20;

type Answer = Response<<FlightSql as FlightService>::DoGetStream>;

/// Rows that a ticket of the service requests, instead of a statement.
#[async_trait]
pub trait Scans: Send + Sync + 'static {
    /// Returns the rows of a ticket: a message of this type, in bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no ticket; the errors of the row storage.
    async fn scan(&self, type_url: &str, ticket: &[u8], came_with: &MetadataMap) -> Result<Rows>;
}

/// The Flight SQL service.
#[derive(Clone)]
pub struct FlightSql {
    engine: SqlEngine,
    scans: Arc<dyn Scans>,
}

impl FlightSql {
    /// Creates a service over this engine, and over these scans for tickets.
    pub fn new(engine: SqlEngine, scans: Arc<dyn Scans>) -> Self {
        Self { engine, scans }
    }

    /// Returns the gRPC service.
    pub fn into_server(self) -> FlightServiceServer<Self> {
        FlightServiceServer::new(self)
    }

    async fn run(&self, sql: &[u8]) -> Result<Answer, Status> {
        let rows = async { self.engine.run(statement(sql)?).await };
        let rows = rows.await.map_err(|error| status_of_error(&error))?;
        Ok(answer(rows.schema, rows.batches))
    }

    async fn info_of(
        &self,
        sql: &[u8],
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let columns = async { self.engine.columns(statement(sql)?).await };
        let columns = columns.await.map_err(|error| status_of_error(&error))?;
        let ticket = TicketStatementQuery { statement_handle: sql.to_vec().into() };
        info(&ticket, &columns, request)
    }
}

fn statement(sql: &[u8]) -> Result<&str> {
    std::str::from_utf8(sql).map_err(|_| {
        Error::invalid_argument("the statement is not UTF-8; encode the statement as UTF-8")
    })
}

/// Returns the flight info of a command, whose ticket is the command itself.
fn info(
    command: &impl ProstMessageExt,
    schema: &Schema,
    request: Request<FlightDescriptor>,
) -> Result<Response<FlightInfo>, Status> {
    let ticket = Ticket::new(command.as_any().encode_to_vec());
    let info = FlightInfo::new().try_with_schema(schema).map_err(arrow_error)?;
    let info = info.with_endpoint(FlightEndpoint::new().with_ticket(ticket));
    Ok(Response::new(info.with_descriptor(request.into_inner())))
}

fn arrow_error(error: ArrowError) -> Status {
    Status::from(FlightError::from(error))
}

fn answer(schema: SchemaRef, batches: Batches) -> Answer {
    let flight_error = |error: Error| FlightError::Tonic(Box::new(status_of_error(&error)));
    let data = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(MESSAGE_BYTES)
        .build(batches.map_err(flight_error));
    Response::new(Box::pin(data.map_err(Status::from)))
}

fn answer_one(batch: std::result::Result<RecordBatch, FlightError>) -> Result<Answer, Status> {
    let batch = batch.map_err(Status::from)?;
    Ok(answer(batch.schema(), stream::once(async { Ok(batch) }).boxed()))
}

#[async_trait]
impl FlightSqlService for FlightSql {
    type FlightService = Self;

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info_of(query.query.as_bytes(), request).await
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        self.run(&ticket.statement_handle).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let columns = self.engine.columns(&query.query).await;
        let columns = columns.map_err(|error| status_of_error(&error))?;
        let schema = SchemaAsIpc::new(&columns, &IpcWriteOptions::default()).try_into();
        let IpcMessage(dataset_schema) = schema.map_err(arrow_error)?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: query.query.into_bytes().into(),
            dataset_schema,
            parameter_schema: Default::default(),
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _: ActionClosePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info_of(&query.prepared_statement_handle, request).await
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        self.run(&query.prepared_statement_handle).await
    }

    async fn do_put_prepared_statement_query(
        &self,
        _: CommandPreparedStatementQuery,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let message = "statements take no parameters; write the values into the statement";
        Err(status_of_error(&Error::unsupported(message)))
    }

    async fn do_get_fallback(
        &self,
        request: Request<Ticket>,
        ticket: Any,
    ) -> Result<Answer, Status> {
        let rows = self.scans.scan(&ticket.type_url, &ticket.value, request.metadata()).await;
        let rows = rows.map_err(|error| status_of_error(&error))?;
        Ok(answer(rows.schema, rows.batches))
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query, &query.into_builder().schema(), request)
    }

    async fn do_get_catalogs(
        &self,
        query: CommandGetCatalogs,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        answer_one(metadata::catalogs(query))
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query, &query.clone().into_builder().schema(), request)
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        answer_one(metadata::schemas(&self.engine, query))
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query, &query.clone().into_builder().schema(), request)
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        let tables = metadata::tables(&self.engine, query).await;
        answer_one(Ok(tables.map_err(|error| status_of_error(&error))?))
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query, &query.into_builder().schema(), request)
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        answer_one(metadata::table_types(query))
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query, &metadata::sql_info_schema(), request)
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        _: Request<Ticket>,
    ) -> Result<Answer, Status> {
        answer_one(metadata::sql_info(query))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}
