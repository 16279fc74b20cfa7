//! The remote log against a real gRPC server on loopback: the conformance suite, and a server that
//! stops, lies or goes silent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::clock::{Clock, ManualClock, Timestamp};
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_log::change_stream_service::ChangeStreamService;
use forebay_log::conformance::Fixture;
use forebay_log::remote::with_windows;
use forebay_log::{
    ChangeLog, MemoryLog, ReadLimit, RecordRange, RemoteLog, change_log_conformance,
};
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::change_stream_server::{ChangeStream, ChangeStreamServer};
use forebay_wire::v1::writer_server::{Writer, WriterServer};
use futures::stream::{self, Stream, StreamExt};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

type StreamOf<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The only method of the writer service that a remote log calls.
struct Appender(Arc<dyn ChangeLog>);

#[tonic::async_trait]
impl Writer for Appender {
    type StreamWritesStream = StreamOf<v1::WriteChangesResponse>;

    async fn append_entry(
        &self,
        request: Request<v1::AppendEntryRequest>,
    ) -> Result<Response<v1::AppendEntryResponse>, Status> {
        let request = request.into_inner();
        let (store, partition) = (StoreId(request.store_id), PartitionId(request.partition));
        let at = PartitionRef { store, partition };
        let appended = self.0.append(at, request.entry).await;
        let appended = appended.map_err(|error| status_of_error(&error))?;
        Ok(Response::new(v1::AppendEntryResponse {
            offset: appended.offset.0,
            append_time_us: appended.append_time.as_micros(),
        }))
    }

    async fn write_changes(
        &self,
        _: Request<v1::WriteChangesRequest>,
    ) -> Result<Response<v1::WriteChangesResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn stream_writes(
        &self,
        _: Request<tonic::Streaming<v1::WriteChangesRequest>>,
    ) -> Result<Response<Self::StreamWritesStream>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn create_store(
        &self,
        _: Request<v1::CreateStoreRequest>,
    ) -> Result<Response<v1::CreateStoreResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn alter_store(
        &self,
        _: Request<v1::AlterStoreRequest>,
    ) -> Result<Response<v1::AlterStoreResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn delete_store(
        &self,
        _: Request<v1::DeleteStoreRequest>,
    ) -> Result<Response<v1::DeleteStoreResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn describe_store(
        &self,
        _: Request<v1::DescribeStoreRequest>,
    ) -> Result<Response<v1::DescribeStoreResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn list_stores(
        &self,
        _: Request<v1::ListStoresRequest>,
    ) -> Result<Response<v1::ListStoresResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }

    async fn apply_view(
        &self,
        _: Request<v1::ApplyViewRequest>,
    ) -> Result<Response<v1::ApplyViewResponse>, Status> {
        Err(Status::unimplemented("only append"))
    }
}

/// A server with its own runtime, so that a test can stop it as a crash would.
struct Node {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl Node {
    async fn start<S: ChangeStream>(stream: S, log: Arc<dyn ChangeLog>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let serve = async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let writer =
                WriterServer::new(Appender(log)).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let server = Server::builder()
                .add_service(ChangeStreamServer::new(stream))
                .add_service(writer)
                .serve_with_incoming(TcpListenerStream::new(listener));
            tokio::spawn(server);
            address
        };
        let address = runtime.spawn(serve).await.unwrap();
        Self { runtime: Some(runtime), address }
    }

    async fn serving(log: &Arc<MemoryLog>, clock: &Arc<ManualClock>) -> Self {
        let stream = ChangeStreamService::new(log.clone(), clock.clone());
        Self::start(stream, log.clone()).await
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        with_windows(endpoint).connect().await.unwrap()
    }

    async fn log(&self) -> Arc<RemoteLog> {
        Arc::new(RemoteLog::new(self.channel().await))
    }

    fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A remote log in front of a log in memory, which outlives the server.
struct RemoteFixture {
    clock: Arc<ManualClock>,
    memory: Arc<MemoryLog>,
    node: Node,
    log: Arc<RemoteLog>,
}

async fn remote() -> RemoteFixture {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let memory = Arc::new(MemoryLog::new(clock.clone()));
    let node = Node::serving(&memory, &clock).await;
    let log = node.log().await;
    RemoteFixture { clock, memory, node, log }
}

#[async_trait]
impl Fixture for RemoteFixture {
    fn log(&self) -> Arc<dyn ChangeLog> {
        self.log.clone()
    }

    fn admin(&self) -> Arc<dyn ChangeLog> {
        self.memory.clone()
    }

    fn administers(&self) -> bool {
        false
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        Some(self.clock.clone())
    }

    async fn reopen(&mut self) -> bool {
        self.node.stop();
        self.node = Node::serving(&self.memory, &self.clock).await;
        self.log = self.node.log().await;
        true
    }
}

change_log_conformance!(remote_suite, remote);

fn limit(wait_max: Duration) -> ReadLimit {
    ReadLimit { bytes_max: 1_000, wait_max }
}

#[tokio::test]
async fn bounds_include_the_servers_clock() {
    let fixture = remote().await;
    let bounds = fixture.log.bounds(PartitionRef::CONTROL).await.unwrap();
    assert_eq!(bounds.server_time, Some(fixture.clock.now()));
}

/// Proves that two readers of one partition each keep a subscription, and that neither makes the
/// other skip or repeat records.
#[tokio::test]
async fn readers_of_one_partition_do_not_disturb_each_other() {
    let fixture = remote().await;
    let at = PartitionRef::CONTROL;
    for number in 0..100_u8 {
        fixture.log.append(at, Bytes::from(vec![number; 300])).await.unwrap();
    }
    let mut next = [0_u64, 50];
    for turn in 0..60 {
        let reader = &mut next[turn % 2];
        let read = fixture.log.read(at, Offset(*reader), limit(Duration::ZERO)).await.unwrap();
        for record in read.records {
            assert_eq!((record.offset, record.entry[0]), (Offset(*reader), *reader as u8));
            *reader += 1;
        }
    }
    assert!(next[0] > 80 && next[1] == 100, "read up to {next:?}");
}

/// Proves that idle subscriptions do not exhaust the connection's window.
#[tokio::test]
async fn abandoned_consumer_positions_do_not_stall_the_connection() {
    let fixture = remote().await;
    let store = StoreId(1);
    fixture.memory.create(store, PartitionCount(12)).await.unwrap();
    for partition in 0..12 {
        let at = PartitionRef { store, partition: PartitionId(partition) };
        for _ in 0..5 {
            fixture.memory.append(at, Bytes::from(vec![7; 1 << 20])).await.unwrap();
        }
    }
    for turn in 0..24_u64 {
        let partition = PartitionId((turn % 12) as u32);
        let at = PartitionRef { store, partition };
        let from = Offset(turn / 12 * 2);
        let read = fixture.log.read(at, from, limit(Duration::from_secs(5))).await.unwrap();
        assert_eq!(read.records[0].offset, from);
    }
}

/// A reader of the first entry has received the other entries, which belong to the deleted log. The
/// test proves that reads do not return them, even if the new log is no shorter than the old one.
#[tokio::test]
async fn reader_discards_received_records_of_a_replaced_log() {
    const ONE: ReadLimit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };
    for entries_new in [3_usize, 30] {
        let fixture = remote().await;
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let refill = async |entry: &'static [u8], count: usize| {
            fixture.memory.create(at.store, PartitionCount(1)).await.unwrap();
            for _ in 0..count {
                fixture.memory.append(at, Bytes::from_static(entry)).await.unwrap();
            }
        };
        refill(b"old", 10).await;
        assert_eq!(fixture.log.read(at, Offset(0), ONE).await.unwrap().records[0].entry, "old");
        fixture.memory.delete(at.store).await.unwrap();
        refill(b"new", entries_new).await;
        assert_eq!(fixture.log.bounds(at).await.unwrap().end, Offset(entries_new as u64));
        for from in 0..entries_new as u64 {
            let read = fixture.log.read(at, Offset(from), ONE).await.unwrap();
            assert_eq!(read.records[0].entry, "new", "offset {from}");
        }
    }
}

/// Proves that an outdated end, received before later appends, does not end a range early.
#[tokio::test]
async fn range_is_read_whole_despite_an_outdated_end() {
    let fixture = remote().await;
    let at = PartitionRef::CONTROL;
    let append = async |number: u8| {
        fixture.memory.append(at, Bytes::from(vec![number; 8])).await.unwrap();
    };
    for number in 0..3 {
        append(number).await;
    }
    let limit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };
    assert_eq!(fixture.log.read(at, Offset(0), limit).await.unwrap().records.len(), 1);
    append(3).await;
    let offsets = Offset(1)..Offset(4);
    let mut range = RecordRange { log: &fixture.log, at, offsets };
    let mut found = Vec::new();
    loop {
        let read = range.next().await.unwrap();
        if read.is_empty() {
            break;
        }
        found.extend(read.iter().map(|record| record.offset.0));
    }
    assert_eq!(found, [1, 2, 3]);
}

#[tokio::test]
async fn stopped_server_is_unavailable_and_its_append_in_doubt() {
    let mut fixture = remote().await;
    let at = PartitionRef::CONTROL;
    fixture.log.append(at, Bytes::from_static(b"one")).await.unwrap();
    let reader = tokio::spawn({
        let log = fixture.log.clone();
        async move { log.read(at, Offset(1), limit(Duration::from_secs(3_600))).await }
    });
    while fixture.log.read(at, Offset(0), limit(Duration::ZERO)).await.unwrap().records.is_empty() {
    }
    fixture.node.stop();
    let error = reader.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    let error = fixture.log.read(at, Offset(1), limit(Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    let error = fixture.log.append(at, Bytes::from_static(b"two")).await.unwrap_err();
    let expected = [ErrorCode::Unavailable, ErrorCode::UnknownOutcome];
    assert!(expected.contains(&error.code()), "{error}");
}

/// A change stream that answers every subscription with the same messages, and then nothing.
struct ScriptedStream(Vec<v1::SubscribeLogResponse>);

#[tonic::async_trait]
impl ChangeStream for ScriptedStream {
    type SubscribeLogStream = StreamOf<v1::SubscribeLogResponse>;

    async fn subscribe_log(
        &self,
        _: Request<v1::SubscribeLogRequest>,
    ) -> Result<Response<Self::SubscribeLogStream>, Status> {
        let answers: Vec<_> = self.0.iter().cloned().map(Ok).collect();
        Ok(Response::new(Box::pin(stream::iter(answers).chain(stream::pending()))))
    }

    async fn get_log_bounds(
        &self,
        _: Request<v1::GetLogBoundsRequest>,
    ) -> Result<Response<v1::GetLogBoundsResponse>, Status> {
        Ok(Response::new(v1::GetLogBoundsResponse::default()))
    }
}

async fn read_scripted(answers: Vec<v1::SubscribeLogResponse>, from: u64) -> ErrorCode {
    let clock = Arc::new(ManualClock::default());
    let node = Node::start(ScriptedStream(answers), Arc::new(MemoryLog::new(clock))).await;
    let read = node.log().await;
    let read = read.read(PartitionRef::CONTROL, Offset(from), limit(Duration::from_secs(60))).await;
    read.expect_err("an error was expected").code()
}

/// Proves that a server may send anything: an answer that is not a log's records ends in a typed
/// error, never a panic.
#[tokio::test]
async fn records_that_no_log_can_contain_are_corrupt() {
    let record = |offset| v1::LogRecord { offset, append_time_us: 1, entry: Bytes::new() };
    for offsets in [vec![4, 5], vec![5, 5], vec![6, 5], vec![5, u64::MAX], vec![u64::MAX]] {
        let records = offsets.iter().copied().map(record).collect();
        let answer = v1::SubscribeLogResponse { records, end_offset: 9 };
        assert_eq!(read_scripted(vec![answer], 5).await, ErrorCode::Corrupt, "{offsets:?}");
    }
}

#[tokio::test]
async fn silent_server_is_unavailable() {
    let response = v1::SubscribeLogResponse { records: Vec::new(), end_offset: 5 };
    assert_eq!(read_scripted(vec![response], 5).await, ErrorCode::Unavailable);
}
