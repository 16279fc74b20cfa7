//! A log over gRPC: the change stream to read, the writer service to append.
//!
//! This is the default tail for more than a handful of readers, and the only one for clients that
//! cannot reach Kafka. A read leaves its subscription open, so that the next read costs no round
//! trip.
//!
//! Records that the server has sent on an idle subscription count against the flow-control window
//! of the whole connection. If that window were exhausted, every other partition would wait for a
//! reader that may itself be waiting for one of them. Three rules prevent this:
//!
//! - [`with_windows`] makes the connection's window far larger than those of its streams.
//! - A subscription that is not read is closed after a while.
//! - A log whose server goes silent closes all idle subscriptions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::limits::{
    MESSAGE_BYTES_MAX, REMOTE_CALL_TIMEOUT_MS, REMOTE_STREAM_WINDOW_BYTES, STREAM_SILENCE_MS,
};
use forebay_core::{Error, Result};
use forebay_wire::status::{error_of_status, write_error_of_status};
use forebay_wire::v1;
use forebay_wire::v1::change_stream_client::ChangeStreamClient;
use forebay_wire::v1::writer_client::WriterClient;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::change_log::{
    AppendReceipt, Bounds, ChangeLog, LogRecord, ReadLimit, Records, check_entry,
};

/// Most idle subscriptions per partition, one for each reader of it in this process.
const IDLE_MAX: usize = 4;
/// Longest wait of one read: longer than any caller waits, short enough to be added to any time.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Missed answers of the server after which a connection is given up.
const SILENCES_MAX: u64 = 5;

/// A log over gRPC. `create`, `delete` and `trim` fail with `Unsupported`; the writer service
/// provides them.
pub struct RemoteLog {
    stream: ChangeStreamClient<Channel>,
    writer: WriterClient<Channel>,
    idle: Mutex<Idle>,
}

/// Open subscriptions without a current reader.
#[derive(Default)]
struct Idle {
    subscriptions: BTreeMap<PartitionRef, VecDeque<RemoteSubscription>>,
    /// Time of the last sweep of expired subscriptions.
    swept_at: Option<Instant>,
}

/// Returns the same endpoint with the windows that a [`RemoteLog`] needs: any number of its
/// partitions may fall behind without blocking the others.
#[must_use]
pub fn with_windows(endpoint: Endpoint) -> Endpoint {
    // The largest window that HTTP/2 permits.
    let connection_bytes = i32::MAX as u32;
    endpoint
        .initial_stream_window_size(REMOTE_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(connection_bytes)
}

/// Returns the time of the runtime's clock, which the simulator drives.
#[allow(
    clippy::disallowed_methods,
    reason = "measures silence and idleness; no answer depends on it"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// An open subscription, with the records that it has received and no reader has taken.
struct RemoteSubscription {
    answers: Streaming<v1::SubscribeLogResponse>,
    received: VecDeque<LogRecord>,
    next: Offset,
    end: Offset,
    heard_at: Instant,
    /// Time of the last read.
    kept_since: Instant,
}

impl RemoteLog {
    /// Returns a log over this channel, which must lead to a node that serves both services; an
    /// endpoint from [`with_windows`] is recommended.
    pub fn new(channel: Channel) -> Self {
        let stream = ChangeStreamClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let writer = WriterClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Self { stream, writer, idle: Mutex::default() }
    }

    async fn subscribe(&self, at: PartitionRef, from: Offset) -> Result<RemoteSubscription> {
        let request = v1::SubscribeLogRequest {
            store_id: at.store.0,
            partition: at.partition.0,
            from_offset: from.0,
        };
        let mut stream = self.stream.clone();
        let open = async {
            let answers = stream.subscribe_log(request).await;
            let answers = answers.map_err(|status| located_error(&status, at))?.into_inner();
            let (received, heard_at) = (VecDeque::new(), now());
            let mut subscription = RemoteSubscription {
                answers,
                received,
                next: from,
                end: from,
                heard_at,
                kept_since: heard_at,
            };
            // The first answer reports the current end of the log, and whether the log covers the
            // offset.
            subscription.receive(at).await?;
            Ok(subscription)
        };
        timeout(call_timeout(), open).await.unwrap_or_else(|_| Err(self.silence_error(at)))
    }

    /// Returns the error for a silent server, and closes the idle subscriptions, in case that they
    /// exhaust the connection's window.
    fn silence_error(&self, at: PartitionRef) -> Error {
        self.idle.lock().subscriptions.clear();
        let message = "the server of the log went silent; try again, or check that the server runs";
        Error::unavailable(message).with_partition(at.partition)
    }

    /// Takes the subscription at this offset that was read last: one that was left there earlier
    /// may have received records of the log before it was replaced.
    fn take_idle(&self, at: PartitionRef, from: Offset) -> Option<RemoteSubscription> {
        let mut idle = self.idle.lock();
        let subscriptions = idle.subscriptions.get_mut(&at)?;
        let place = subscriptions.iter().rposition(|open| open.next == from)?;
        subscriptions.remove(place)
    }

    /// Closes the subscriptions that have received records past the end of the log; they followed
    /// another log.
    fn drop_past(&self, at: PartitionRef, end: Offset) {
        if let Some(subscriptions) = self.idle.lock().subscriptions.get_mut(&at) {
            subscriptions.retain(|open| open.past_received() <= end);
        }
    }

    fn keep_idle(&self, at: PartitionRef, mut subscription: RemoteSubscription) {
        let now = now();
        subscription.kept_since = now;
        let mut idle = self.idle.lock();
        idle.sweep(now);
        let subscriptions = idle.subscriptions.entry(at).or_default();
        if subscriptions.len() == IDLE_MAX {
            subscriptions.pop_front();
        }
        subscriptions.push_back(subscription);
    }
}

impl Idle {
    /// Closes expired subscriptions, at most once per call timeout.
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_some_and(|swept_at| now - swept_at < call_timeout()) {
            return;
        }
        self.swept_at = Some(now);
        self.subscriptions.retain(|_, subscriptions| {
            subscriptions.retain(|open| now - open.kept_since < call_timeout());
            !subscriptions.is_empty()
        });
    }
}

impl RemoteSubscription {
    async fn receive(&mut self, at: PartitionRef) -> Result<()> {
        let answer = self.answers.message().await.map_err(|status| located_error(&status, at))?;
        let answer = answer.ok_or_else(|| {
            let message = "the server of the log ended the stream; try again";
            Error::unavailable(message).with_partition(at.partition)
        })?;
        self.heard_at = now();
        self.end = Offset(answer.end_offset);
        let mut expected = self.past_received();
        for record in answer.records {
            let offset = Offset(record.offset);
            if offset < expected || offset.0 == u64::MAX {
                let message = format!(
                    "the server sent offset {offset} where {expected} comes next in log {at}; \
                     check that the address is that of a Forebay service"
                );
                return Err(Error::corrupt(message).with_partition(at.partition));
            }
            expected = offset.next();
            let append_time = Timestamp::from_micros(record.append_time_us);
            self.received.push_back(LogRecord { offset, append_time, entry: record.entry });
        }
        Ok(())
    }

    /// Returns the offset after all received records.
    fn past_received(&self) -> Offset {
        self.received.back().map_or(self.next, |last| last.offset.next())
    }

    /// Waits for a first record until `deadline`; returns `false` if the server went silent.
    async fn wait(&mut self, at: PartitionRef, deadline: Instant) -> Result<bool> {
        let lost_after = Duration::from_millis(SILENCES_MAX * STREAM_SILENCE_MS);
        while self.received.is_empty() {
            let silence_deadline = self.heard_at + lost_after;
            match timeout_at(deadline.min(silence_deadline), self.receive(at)).await {
                Ok(answer) => answer?,
                Err(_) => return Ok(deadline < silence_deadline),
            }
        }
        Ok(true)
    }

    fn take(&mut self, bytes_max: usize) -> Records {
        let mut bytes = 0;
        let mut records = Vec::new();
        while let Some(record) = self.received.front() {
            bytes += record.entry.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            self.next = record.offset.next();
            records.extend(self.received.pop_front());
        }
        Records { records, end: self.end.max(self.next) }
    }
}

fn call_timeout() -> Duration {
    Duration::from_millis(REMOTE_CALL_TIMEOUT_MS)
}

fn located_error(status: &tonic::Status, at: PartitionRef) -> Error {
    error_of_status(status).with_partition(at.partition)
}

fn ask_the_writer(verb: &str) -> Error {
    let message = format!("a remote log cannot {verb}; use the writer service's administration");
    Error::unsupported(message)
}

#[async_trait]
impl ChangeLog for RemoteLog {
    async fn create(&self, _store: StoreId, _partitions: PartitionCount) -> Result<()> {
        Err(ask_the_writer("create logs"))
    }

    async fn delete(&self, _store: StoreId) -> Result<()> {
        Err(ask_the_writer("delete logs"))
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        check_entry(at, &entry)?;
        let request =
            v1::AppendEntryRequest { store_id: at.store.0, partition: at.partition.0, entry };
        let mut writer = self.writer.clone();
        match timeout(call_timeout(), writer.append_entry(request)).await {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                let append_time = Timestamp::from_micros(answer.append_time_us);
                Ok(AppendReceipt { offset: Offset(answer.offset), append_time })
            }
            Ok(Err(status)) => Err(write_error_of_status(&status).with_partition(at.partition)),
            Err(_) => {
                let message = "the writer did not answer in time; the entry may be in the log";
                Err(Error::unknown_outcome(message).with_partition(at.partition))
            }
        }
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        let deadline = now() + limit.wait_max.min(WAIT_MAX);
        // Records that an idle subscription has not received yet are visible at once only to a new
        // one.
        let subscription = self.take_idle(at, from).filter(|subscription| {
            !subscription.received.is_empty() || limit.wait_max > Duration::ZERO
        });
        let mut subscription = match subscription {
            Some(subscription) => subscription,
            None => self.subscribe(at, from).await?,
        };
        if !subscription.wait(at, deadline).await? {
            return Err(self.silence_error(at));
        }
        let records = subscription.take(limit.bytes_max);
        self.keep_idle(at, subscription);
        Ok(records)
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        let request = v1::GetLogBoundsRequest { store_id: at.store.0, partition: at.partition.0 };
        let mut stream = self.stream.clone();
        let answer = match timeout(call_timeout(), stream.get_log_bounds(request)).await {
            Ok(answer) => answer.map_err(|status| located_error(&status, at))?.into_inner(),
            Err(_) => return Err(self.silence_error(at)),
        };
        let end = Offset(answer.end_offset);
        self.drop_past(at, end);
        Ok(Bounds {
            start: Offset(answer.start_offset),
            end,
            server_time: Some(Timestamp::from_micros(answer.server_time_us)),
        })
    }

    async fn trim(&self, _at: PartitionRef, _before: Offset) -> Result<()> {
        Err(ask_the_writer("trim"))
    }
}
