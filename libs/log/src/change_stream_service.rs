//! The serving end of the remote log: the gRPC change stream over any log.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::clock::Clock;
use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};
use forebay_core::limits::{MESSAGE_BYTES_MAX, STREAM_READ_BYTES_MAX, STREAM_SILENCE_MS};
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::change_stream_server::{ChangeStream, ChangeStreamServer};
use futures::stream::{self, Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::change_log::{ChangeLog, ReadLimit, Records};

/// The change stream service of all partitions of one [`ChangeLog`].
///
/// A subscription first sends the current contents of the log, even if empty, and then each new
/// record. After a second without a record the service sends an empty answer, so that a subscriber
/// can distinguish a silent log from a silent connection.
#[derive(Clone)]
pub struct ChangeStreamService {
    log: Arc<dyn ChangeLog>,
    clock: Arc<dyn Clock>,
    /// Cancelled when all subscriptions end.
    end_signal: CancellationToken,
}

impl ChangeStreamService {
    /// Returns the change stream of this log; `clock` is reported to subscribers.
    pub fn new(log: Arc<dyn ChangeLog>, clock: Arc<dyn Clock>) -> Self {
        Self { log, clock, end_signal: CancellationToken::new() }
    }

    /// Returns the service for a server, with Forebay's message limits.
    pub fn into_server(self) -> ChangeStreamServer<Self> {
        ChangeStreamServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Ends all subscriptions, present and future, so that a server can drain; a subscription never
    /// ends by itself.
    pub fn end_streams(&self) {
        self.end_signal.cancel();
    }
}

/// State of a subscription; the stream drops it after an error.
struct Subscription {
    log: Arc<dyn ChangeLog>,
    at: PartitionRef,
    next: Offset,
    wait_max: Duration,
}

impl Subscription {
    async fn read(&mut self) -> Result<v1::SubscribeLogResponse> {
        let limit = ReadLimit { bytes_max: STREAM_READ_BYTES_MAX, wait_max: self.wait_max };
        let Records { records, end } = self.log.read(self.at, self.next, limit).await?;
        self.wait_max = Duration::from_millis(STREAM_SILENCE_MS);
        if let Some(last) = records.last() {
            self.next = last.offset.next();
        }
        let records = records
            .into_iter()
            .map(|record| v1::LogRecord {
                offset: record.offset.0,
                append_time_us: record.append_time.as_micros(),
                entry: record.entry,
            })
            .collect();
        Ok(v1::SubscribeLogResponse { records, end_offset: end.0 })
    }
}

fn partition(store_id: u64, partition: u32) -> PartitionRef {
    PartitionRef { store: StoreId(store_id), partition: PartitionId(partition) }
}

#[tonic::async_trait]
impl ChangeStream for ChangeStreamService {
    type SubscribeLogStream =
        Pin<Box<dyn Stream<Item = Result<v1::SubscribeLogResponse, Status>> + Send>>;

    async fn subscribe_log(
        &self,
        request: Request<v1::SubscribeLogRequest>,
    ) -> Result<Response<Self::SubscribeLogStream>, Status> {
        let request = request.get_ref();
        let subscription = Subscription {
            log: Arc::clone(&self.log),
            at: partition(request.store_id, request.partition),
            next: Offset(request.from_offset),
            wait_max: Duration::ZERO,
        };
        let end = self.end_signal.clone().cancelled_owned();
        let answers = stream::unfold(Some(subscription), |subscription| async {
            let mut subscription = subscription?;
            match subscription.read().await {
                Ok(answer) => Some((Ok(answer), Some(subscription))),
                Err(error) => Some((Err(status_of_error(&error)), None)),
            }
        });
        Ok(Response::new(Box::pin(answers.take_until(Box::pin(end)))))
    }

    async fn get_log_bounds(
        &self,
        request: Request<v1::GetLogBoundsRequest>,
    ) -> Result<Response<v1::GetLogBoundsResponse>, Status> {
        let request = request.get_ref();
        let at = partition(request.store_id, request.partition);
        let bounds = self.log.bounds(at).await.map_err(|error| status_of_error(&error))?;
        Ok(Response::new(v1::GetLogBoundsResponse {
            start_offset: bounds.start.0,
            end_offset: bounds.end.0,
            server_time_us: bounds.server_time.unwrap_or_else(|| self.clock.now()).as_micros(),
        }))
    }
}
