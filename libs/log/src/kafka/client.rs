//! Common parts of all broker clients: settings, logging and shutdown.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::Error;
use forebay_core::clock::Timestamp;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::KafkaOptions;
use super::topic_incarnations::TopicIncarnations;

/// Largest batch that clients send and accept, in bytes; equal to the brokers' limit in
/// `infra/kafka`.
pub(super) const BATCH_BYTES_MAX: usize = 24 * 1024 * 1024;

/// Consumer type of this log.
pub(super) type Consumer = StreamConsumer<Context>;

/// The receiver of the log lines and errors that librdkafka reports outside its answers.
#[derive(Clone)]
pub(super) struct Context(Arc<ClientEvents>);

/// Events that a client has reported and no code has handled yet.
pub(super) struct ClientEvents {
    incarnations: TopicIncarnations,
    /// Topics that were deleted and recreated while the client used them.
    recreated_topics: Mutex<BTreeSet<String>>,
    /// Whether no broker is reachable.
    is_down: AtomicBool,
}

impl Context {
    pub(super) fn new(incarnations: TopicIncarnations) -> Self {
        let (recreated_topics, is_down) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(ClientEvents { incarnations, recreated_topics, is_down }))
    }

    pub(super) fn events(&self) -> &ClientEvents {
        &self.0
    }
}

impl ClientEvents {
    /// Takes the recreated topics that were not handled yet.
    pub(super) fn take_remade(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.recreated_topics.lock())
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }
}

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        if facility == "METADATA" {
            // The client logs one METADATA line per partition; only one kind of line matters.
            if let Some((topic, id)) = remade_topic(message) {
                self.0.incarnations.note(topic, id);
                self.0.recreated_topics.lock().insert(topic.to_owned());
            }
            return;
        }
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Context {}

/// Parses a line of librdkafka's log; returns the topic that was recreated and its new id.
///
/// If a topic gets another id, librdkafka continues at its offset. Only this log line shows that
/// librdkafka has noticed, and no call returns a topic's id. A test with a real broker pins the
/// wording of the line.
fn remade_topic(line: &str) -> Option<(&str, &str)> {
    /// Id of a topic that was not known before, in base64.
    const UNKNOWN: &str = "AAAAAAAAAAAAAAAAAAAAAA";
    let (before, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = before.rsplit_once("Topic ")?;
    let (before, now) = ids.split_once(" to ")?;
    (before != UNKNOWN).then_some((topic, now.trim()))
}

/// Returns the settings of every client.
pub(super) fn base_config(options: &KafkaOptions) -> ClientConfig {
    let call_timeout_ms = options.call_timeout.as_millis().to_string();
    let batch_bytes_max = BATCH_BYTES_MAX.to_string();
    let mut config = ClientConfig::new();
    config.set_log_level(RDKafkaLogLevel::Warning);
    for (name, value) in [
        ("bootstrap.servers", options.bootstrap_servers.as_str()),
        ("client.id", "forebay"),
        ("allow.auto.create.topics", "false"),
        ("message.max.bytes", &batch_bytes_max),
        ("socket.timeout.ms", &call_timeout_ms),
        ("socket.connection.setup.timeout.ms", &call_timeout_ms),
        ("socket.keepalive.enable", "true"),
        ("socket.nagle.disable", "true"),
        ("reconnect.backoff.ms", "20"),
        ("reconnect.backoff.max.ms", "500"),
        ("retry.backoff.ms", "20"),
        ("retry.backoff.max.ms", "500"),
        ("topic.metadata.refresh.interval.ms", "60000"),
        ("topic.metadata.propagation.max.ms", "1000"),
    ] {
        config.set(name, value);
    }
    config
}

/// Enables the log lines that report recreated topics; see `remade_topic`.
pub(super) fn hear_of_topics(config: &mut ClientConfig) {
    config.set_log_level(RDKafkaLogLevel::Debug);
    config.set("debug", "metadata");
}

/// Returns the settings of every consumer: partitions are assigned, never subscribed by a group.
pub(super) fn consumer_config(options: &KafkaOptions) -> ClientConfig {
    let mut config = base_config(options);
    hear_of_topics(&mut config);
    for (name, value) in [
        // Assignment requires a group name; no consumer commits or joins under it.
        ("group.id", "forebay-readers"),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("isolation.level", "read_uncommitted"),
        ("check.crcs", "true"),
        ("fetch.error.backoff.ms", "50"),
        ("fetch.queue.backoff.ms", "10"),
        ("fetch.message.max.bytes", "1048576"),
        ("queued.min.messages", "10000"),
        ("queued.max.messages.kbytes", "4096"),
    ] {
        config.set(name, value);
    }
    config
}

/// A client that is dropped on a blocking thread, because its drop waits for its threads.
pub(super) struct Ending<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Ending<T> {
    pub(super) fn new(client: T) -> Self {
        Self(Some(client))
    }
}

impl<T: Send + 'static> Deref for Ending<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the value leaves only in drop")
    }
}

impl<T: Send + 'static> Drop for Ending<T> {
    fn drop(&mut self) {
        let client = self.0.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(client)));
        }
    }
}

/// Returns the error for a client that cannot be created.
pub(super) fn creation_error(kind: &str, error: &KafkaError) -> Error {
    Error::internal(format!("a Kafka {kind} could not be made: {error}"))
}

/// Returns a record's append time. A record that the broker did not stamp does not advance the
/// partition time, which is the running maximum.
pub(super) fn time_of(timestamp: rdkafka::Timestamp) -> Timestamp {
    match timestamp {
        rdkafka::Timestamp::LogAppendTime(millis) => {
            Timestamp::from_micros(millis.saturating_mul(1_000))
        }
        rdkafka::Timestamp::CreateTime(_) | rdkafka::Timestamp::NotAvailable => Timestamp::MIN,
    }
}

/// Returns the error for a failed request that changed nothing relevant.
pub(super) fn unavailable(doing: &str, error: &KafkaError) -> Error {
    Error::unavailable(format!(
        "could not {doing}: {error}; check that the brokers run, then try again"
    ))
}

/// Returns whether librdkafka recovers on its own from a consumer error.
pub(super) fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut)
    )
}

/// Runs work that blocks on a client on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|error| Error::internal(format!("a call of the Kafka client ended: {error}")))
}

#[cfg(test)]
mod tests {
    use super::remade_topic;

    #[test]
    fn first_id_of_a_topic_is_no_recreation() {
        let line = "[thrd:main]: Topic a.store-7 changed id from kQ2x to AAAAAAAAAAAAAAAAAAAAAB";
        assert_eq!(remade_topic(line), Some(("a.store-7", "AAAAAAAAAAAAAAAAAAAAAB")));
        let first = "[thrd:main]: Topic a.b changed id from AAAAAAAAAAAAAAAAAAAAAA to kQ2x";
        assert_eq!(remade_topic(first), None);
        assert_eq!(remade_topic("Topic a.b [0] Leader 1 Epoch 0"), None);
    }
}
