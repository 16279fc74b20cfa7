//! Proves, over a real socket, that a remote log reads what the served log holds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_log::{ChangeLog, MemoryLog, ReadLimit, RemoteLog};
use forebay_replicator_service::ChangeStreamService;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};

const AT: PartitionRef = PartitionRef { store: StoreId(9), partition: PartitionId(0) };
const SERVER_TIME: Timestamp = Timestamp::from_micros(42);

async fn serve(service: ChangeStreamService) -> RemoteLog {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(service.into_server());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    RemoteLog::new(endpoint.connect_lazy())
}

#[tokio::test]
async fn remote_log_reads_the_log_behind_the_stream() {
    let clock = Arc::new(ManualClock::at(SERVER_TIME));
    let log = Arc::new(MemoryLog::new(clock.clone()));
    log.create(AT.store, PartitionCount(1)).await.unwrap();
    let remote = serve(ChangeStreamService::new(log.clone(), clock)).await;
    let entries = [Bytes::from_static(b"first"), Bytes::from_static(b"second")];
    for entry in &entries {
        log.append(AT, entry.clone()).await.unwrap();
    }
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::from_secs(10) };
    let read = remote.read(AT, Offset(0), limit).await.unwrap();
    assert!(read.records.iter().map(|record| &record.entry).eq(&entries));
    let bounds = remote.bounds(AT).await.unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(2)));
    assert_eq!(bounds.server_time, Some(SERVER_TIME));
}

#[tokio::test]
async fn position_beyond_the_log_is_lost_and_an_unknown_log_is_not_found() {
    let clock = Arc::new(ManualClock::at(SERVER_TIME));
    let log = Arc::new(MemoryLog::new(clock.clone()));
    log.create(AT.store, PartitionCount(1)).await.unwrap();
    let remote = serve(ChangeStreamService::new(log, clock)).await;
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
    let error = remote.read(AT, Offset(7), limit).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost);
    let unknown_log = PartitionRef { store: StoreId(10), ..AT };
    let unknown = remote.read(unknown_log, Offset(0), limit).await.unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn ended_streams_notify_their_subscribers_at_once() {
    let clock = Arc::new(ManualClock::at(SERVER_TIME));
    let log = Arc::new(MemoryLog::new(clock.clone()));
    log.create(AT.store, PartitionCount(1)).await.unwrap();
    let service = ChangeStreamService::new(log, clock);
    let remote = serve(service.clone()).await;
    let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::from_secs(60) };
    let waits = tokio::spawn(async move { remote.read(AT, Offset(0), limit).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    service.end_streams();
    assert_eq!(waits.await.unwrap().unwrap_err().code(), ErrorCode::Unavailable);
}
