//! The engine behind Arrow Flight SQL: the requests of a driver for metadata, statements and rows.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef};
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetTables, SqlInfo};
use async_trait::async_trait;
use forebay_arrow::{arrow_type, column};
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, ErrorCode, Result};
use forebay_query::{
    Batches, FlightSql, Rows, Scans, SqlEngine, SqlOptions, Table, TableScan, Tables, query,
    rows_of_peer,
};
use forebay_wire::v1;
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, Server};

const TICKET: &str = "type.googleapis.com/forebay.v1.ScanTicket";

/// Numbers from 0 to 9.
#[derive(Debug)]
struct Numbers;

impl Table for Numbers {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", arrow_type(int64()), false)]))
    }

    fn parts(&self) -> usize {
        1
    }

    fn rows(&self, _: usize, scan: &TableScan) -> Batches {
        assert_eq!(scan.columns, [0]);
        stream::iter([Ok(numbers())]).boxed()
    }
}

fn int64() -> FieldType {
    FieldType::INT64
}

fn numbers() -> RecordBatch {
    let n = column(int64(), (0..10).map(|n| Some(Value::Int64(n))).collect()).unwrap();
    RecordBatch::try_new(Numbers.schema(), vec![n]).unwrap()
}

#[derive(Debug)]
struct OneTable;

#[async_trait]
impl Tables for OneTable {
    fn names(&self) -> Vec<String> {
        vec!["numbers".to_owned()]
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn Table>>> {
        Ok((name == "numbers").then(|| Arc::new(Numbers) as Arc<dyn Table>))
    }
}

/// Serves the ticket of one stream.
struct OneScan;

#[async_trait]
impl Scans for OneScan {
    async fn scan(&self, type_url: &str, ticket: &[u8], came_with: &MetadataMap) -> Result<Rows> {
        let ticket: v1::ScanTicket = prost::Message::decode(ticket).unwrap();
        assert_eq!((type_url, ticket.stream.as_str()), (TICKET, "numbers"));
        assert!(came_with.contains_key("forwarded"));
        let rows = stream::iter([Ok(numbers()), Err(Error::corrupt("a damaged row"))]);
        Ok(Rows { schema: Numbers.schema(), batches: rows.boxed() })
    }
}

/// Starts a server and returns a channel to it.
async fn serve(folder: &tempfile::TempDir) -> Channel {
    let tables: Arc<dyn Tables> = Arc::new(OneTable);
    let options = SqlOptions::new(folder.path().join("sql"));
    let engine = SqlEngine::start(vec![("events", tables)], options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = FlightSql::new(engine, Arc::new(OneScan)).into_server();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

async fn rows(mut client: FlightSqlServiceClient<Channel>, sql: &str) -> Vec<i64> {
    let info = client.execute(sql.to_owned(), None).await.unwrap();
    fetch(&mut client, info).await
}

async fn fetch(
    client: &mut FlightSqlServiceClient<Channel>,
    info: arrow_flight::FlightInfo,
) -> Vec<i64> {
    let batches = batches(client, info).await;
    let column =
        |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(column).collect()
}

async fn batches(
    client: &mut FlightSqlServiceClient<Channel>,
    info: arrow_flight::FlightInfo,
) -> Vec<RecordBatch> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    client.do_get(ticket).await.unwrap().try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_runs_and_prepares_statements() {
    let folder = tempfile::tempdir().unwrap();
    let channel = serve(&folder).await;
    let mut client = FlightSqlServiceClient::new(channel);
    assert_eq!(rows(client.clone(), "SELECT sum(n) FROM numbers").await, [45]);
    let mut prepared =
        client.prepare("SELECT n FROM numbers WHERE n > 7".to_owned(), None).await.unwrap();
    assert_eq!(prepared.dataset_schema().unwrap().field(0).name(), "n");
    for _ in 0..2 {
        let info = prepared.execute().await.unwrap();
        assert_eq!(fetch(&mut client, info).await, [8, 9]);
    }
    prepared.close().await.unwrap();
    let empty = client.execute("SELECT n FROM numbers WHERE n > 70".to_owned(), None);
    let info = empty.await.unwrap();
    assert_eq!(info.clone().try_decode_schema().unwrap().field(0).name(), "n");
    assert_eq!(fetch(&mut client, info).await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_lists_catalogs_tables_and_server_info() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = FlightSqlServiceClient::new(serve(&folder).await);
    let texts = |batches: &[RecordBatch], place: usize| -> Vec<_> {
        let text = |batch: &RecordBatch| batch.column(place).as_string::<i32>().value(0).to_owned();
        batches.iter().map(text).collect()
    };
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(texts(&batches(&mut client, info).await, 0), ["forebay"]);
    let all = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: None };
    let info = client.get_db_schemas(all).await.unwrap();
    assert_eq!(texts(&batches(&mut client, info).await, 1), ["events"]);
    let all = CommandGetTables {
        catalog: None,
        db_schema_filter_pattern: None,
        table_name_filter_pattern: Some("num%".to_owned()),
        table_types: Vec::new(),
        include_schema: true,
    };
    let info = client.get_tables(all).await.unwrap();
    let found = batches(&mut client, info).await;
    assert_eq!(
        (texts(&found, 2), texts(&found, 3)),
        (vec!["numbers".into()], vec!["TABLE".into()])
    );
    let info = client.get_table_types().await.unwrap();
    assert_eq!(texts(&batches(&mut client, info).await, 0), ["TABLE"]);
    let name = vec![SqlInfo::FlightSqlServerName];
    let info = client.get_sql_info(name).await.unwrap();
    assert_eq!(batches(&mut client, info).await[0].num_rows(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_client_receives_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let channel = serve(&folder).await;
    let rows = query(channel.clone(), "SELECT n FROM numbers").await.unwrap();
    assert_eq!(rows.schema.field(0).name(), "n");
    let batches: Vec<_> = rows.batches.try_collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
    let error = query(channel.clone(), "SELECT x FROM numbers").await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    let ticket = v1::ScanTicket { stream: "numbers".to_owned(), ..Default::default() };
    let send = |ticket| {
        let mut request = tonic::Request::new(ticket);
        request.metadata_mut().insert("forwarded", "1".parse().unwrap());
        request
    };
    let mut rows = rows_of_peer(channel, TICKET, &ticket, send).await.unwrap();
    assert_eq!(rows.next().await.unwrap().unwrap().num_rows(), 10);
    let error = rows.next().await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::Corrupt, "a damaged row"));
}
