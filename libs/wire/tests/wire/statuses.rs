//! Errors as statuses: the table over all codes, and every code over a real connection.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::PartitionId;
use forebay_core::limits::NAME_BYTES_MAX;
use forebay_core::{Error, ErrorCode};
use forebay_wire::error::{ERROR_MESSAGE_BYTES_MAX, as_stored_error};
use forebay_wire::status::{error_of_status, grpc_code, status_of_error, write_error_of_status};
use forebay_wire::v1;
use forebay_wire::v1::change_stream_client::ChangeStreamClient;
use forebay_wire::v1::change_stream_server::{ChangeStream, ChangeStreamServer};
use proptest::prelude::*;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};

use crate::strategies;

/// Every gRPC code, with its error without details for a read and for a write.
const WITHOUT_DETAILS: [(Code, ErrorCode, ErrorCode); 17] = {
    use ErrorCode::*;
    [
        (Code::Ok, Internal, UnknownOutcome),
        (Code::Cancelled, Unavailable, UnknownOutcome),
        (Code::Unknown, Unavailable, UnknownOutcome),
        (Code::InvalidArgument, InvalidArgument, InvalidArgument),
        (Code::DeadlineExceeded, DeadlineExceeded, UnknownOutcome),
        (Code::NotFound, NotFound, UnknownOutcome),
        (Code::AlreadyExists, Conflict, UnknownOutcome),
        (Code::PermissionDenied, PermissionDenied, PermissionDenied),
        (Code::ResourceExhausted, LimitExceeded, UnknownOutcome),
        (Code::FailedPrecondition, Internal, UnknownOutcome),
        (Code::Aborted, Conflict, UnknownOutcome),
        (Code::OutOfRange, LimitExceeded, UnknownOutcome),
        (Code::Unimplemented, Unsupported, Unsupported),
        (Code::Internal, Internal, UnknownOutcome),
        (Code::Unavailable, Unavailable, UnknownOutcome),
        (Code::DataLoss, Corrupt, UnknownOutcome),
        (Code::Unauthenticated, Unauthenticated, Unauthenticated),
    ]
};

#[test]
fn status_without_details_maps_its_code() {
    for (place, (code, read, write_code)) in WITHOUT_DETAILS.into_iter().enumerate() {
        assert_eq!(code as usize, place, "every code once, in order");
        let status = Status::new(code, "said by a proxy");
        assert_eq!(error_of_status(&status).code(), read, "{code:?}");
        assert_eq!(write_error_of_status(&status).code(), write_code, "{code:?}");
        assert!(error_of_status(&status).message().contains("said by a proxy"));
    }
}

#[test]
fn every_error_code_has_the_grpc_code_of_the_table() {
    let table = include_str!("../../../../proto/forebay/v1/error.proto");
    for code in ErrorCode::ALL {
        let number = code.number();
        let wire = v1::ErrorCode::try_from(number).unwrap();
        let at = table.find(&format!("{} = {number};", wire.as_str_name())).unwrap();
        let comment = table[..at].trim_end().lines().last().unwrap();
        let documented_name = comment.split(". ").last().unwrap().split(',').next().unwrap();
        let code_name: String = format!("{:?}", grpc_code(code))
            .chars()
            .flat_map(|c| [c.is_uppercase().then_some('_'), Some(c.to_ascii_uppercase())])
            .flatten()
            .collect();
        assert_eq!(code_name.trim_start_matches('_'), documented_name, "{}", code.name());
        let retries = comment.contains(", retry.");
        assert_eq!(retries, code.is_retryable(), "{}", code.name());
    }
}

proptest! {
    #[test]
    fn errors_round_trip_through_a_status(error in strategies::error()) {
        let status = status_of_error(&error);
        prop_assert_eq!(&error_of_status(&status), &error);
        prop_assert_eq!(&write_error_of_status(&status), &error);
    }

    #[test]
    fn details_never_panic(details in prop::collection::vec(any::<u8>(), 0..80), code in 0..17) {
        let status = Status::with_details(Code::from(code), "", details.into());
        error_of_status(&status);
        write_error_of_status(&status);
    }
}

#[test]
fn details_of_a_newer_build_fall_back_to_the_code() {
    let newer = v1::Error { code: 17, message: "a new kind".into(), ..v1::Error::default() };
    let details = newer.encode_to_vec();
    let status = Status::with_details(Code::Aborted, "a new kind", details.into());
    assert_eq!(error_of_status(&status).code(), ErrorCode::Conflict);
    let error = Error::from(v1::Error { partition: Some(3), ..newer });
    assert_eq!(error.code(), ErrorCode::Internal);
    assert!(error.message().contains("17") && error.message().contains("a new kind"));
    assert_eq!(error.context().partition, Some(PartitionId(3)));
}

#[test]
fn messages_and_names_are_cut_at_whole_characters() {
    let error = Error::not_found("ä".repeat(5_000)).with_store("漢".repeat(500)).with_field("ok");
    let wire = v1::Error::from(&error);
    assert_eq!(wire.message, "ä".repeat(ERROR_MESSAGE_BYTES_MAX / 2));
    assert_eq!(wire.store, Some("漢".repeat(NAME_BYTES_MAX / 3)));
    assert_eq!(wire.field.as_deref(), Some("ok"));
}

#[test]
fn stored_error_is_corrupt_unless_it_needs_an_upgrade() {
    for code in ErrorCode::ALL {
        let stored_error = as_stored_error(Error::new(code, "why").with_store("users"));
        let newer = code == ErrorCode::UpgradeNeeded;
        let expected = if newer { ErrorCode::UpgradeNeeded } else { ErrorCode::Corrupt };
        assert_eq!((stored_error.code(), stored_error.message()), (expected, "why"));
        assert_eq!(stored_error.context().store.as_deref(), Some("users"));
    }
}

/// A service that answers every call with the error whose number is the request's partition. A call
/// with partition 0 waits forever and is counted when it arrives.
struct RefusingStream {
    arrivals: Arc<Semaphore>,
}

fn refusal(number: u32) -> Error {
    let code = ErrorCode::from_number(number as i32).unwrap();
    let message = "größer als erlaubt; ".repeat(200);
    Error::new(code, message).with_store("users").with_partition(PartitionId(number))
}

#[tonic::async_trait]
impl ChangeStream for RefusingStream {
    type SubscribeLogStream =
        Pin<Box<dyn Stream<Item = Result<v1::SubscribeLogResponse, Status>> + Send>>;

    async fn subscribe_log(
        &self,
        request: Request<v1::SubscribeLogRequest>,
    ) -> Result<Response<Self::SubscribeLogStream>, Status> {
        let status = status_of_error(&refusal(request.get_ref().partition));
        let items = [Ok(v1::SubscribeLogResponse::default()), Err(status)];
        Ok(Response::new(Box::pin(tokio_stream::iter(items))))
    }

    async fn get_log_bounds(
        &self,
        request: Request<v1::GetLogBoundsRequest>,
    ) -> Result<Response<v1::GetLogBoundsResponse>, Status> {
        match request.get_ref().partition {
            0 => {
                self.arrivals.add_permits(1);
                std::future::pending().await
            }
            number => Err(status_of_error(&refusal(number))),
        }
    }
}

/// A server in a runtime of its own; dropping it also cuts its connections.
struct StatusServer {
    address: SocketAddr,
    arrivals: Arc<Semaphore>,
    runtime: Option<Runtime>,
}

impl StatusServer {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let arrivals = Arc::new(Semaphore::new(0));
        let refusing = RefusingStream { arrivals: arrivals.clone() };
        let server = Server::builder().add_service(ChangeStreamServer::new(refusing));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { address, arrivals, runtime: Some(runtime) }
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn calling(calls: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(calls);
}

fn client(address: SocketAddr) -> ChangeStreamClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    ChangeStreamClient::new(endpoint.connect_lazy())
}

fn as_sent(number: u32) -> Error {
    let sent = v1::Error::from(&refusal(number));
    Error::from(sent)
}

#[test]
fn every_error_survives_a_real_connection() {
    let serving = StatusServer::start();
    calling(async {
        let mut client = client(serving.address);
        for code in ErrorCode::ALL {
            let partition = code.number() as u32;
            let request = v1::GetLogBoundsRequest { store_id: 1, partition };
            let status = client.get_log_bounds(request).await.unwrap_err();
            assert_eq!(status.code(), grpc_code(code));
            assert_eq!(error_of_status(&status), as_sent(partition));
            let request = v1::SubscribeLogRequest { store_id: 1, partition, from_offset: 0 };
            let mut stream = client.subscribe_log(request).await.unwrap().into_inner();
            assert!(stream.next().await.unwrap().is_ok());
            let status = stream.next().await.unwrap().unwrap_err();
            assert_eq!(write_error_of_status(&status), as_sent(partition));
        }
    });
}

/// A request that is never answered.
const WAITS: v1::GetLogBoundsRequest = v1::GetLogBoundsRequest { store_id: 1, partition: 0 };

#[test]
fn timed_out_call_may_have_appended() {
    let serving = StatusServer::start();
    calling(async {
        let mut request = Request::new(WAITS);
        request.set_timeout(Duration::from_millis(1));
        let status = client(serving.address).get_log_bounds(request).await.unwrap_err();
        assert_eq!(error_of_status(&status).code(), ErrorCode::DeadlineExceeded, "{status:?}");
        assert_eq!(write_error_of_status(&status).code(), ErrorCode::UnknownOutcome);
    });
}

#[test]
fn interrupted_call_may_have_appended() {
    let serving = StatusServer::start();
    calling(async {
        let mut client = client(serving.address);
        let call = tokio::spawn(async move { client.get_log_bounds(WAITS).await });
        serving.arrivals.acquire().await.unwrap().forget();
        drop(serving);
        let status = call.await.unwrap().unwrap_err();
        assert_eq!(error_of_status(&status).code(), ErrorCode::Unavailable, "{status:?}");
        assert_eq!(write_error_of_status(&status).code(), ErrorCode::UnknownOutcome, "{status:?}");
    });
}

#[test]
fn refused_connection_has_appended_nothing() {
    calling(async {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let status = client(free).get_log_bounds(WAITS).await.unwrap_err();
        assert_eq!(error_of_status(&status).code(), ErrorCode::Unavailable, "{status:?}");
        assert_eq!(write_error_of_status(&status).code(), ErrorCode::Unavailable, "{status:?}");
    });
}
