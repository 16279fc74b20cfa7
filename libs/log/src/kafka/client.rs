//! What all clients of the brokers share: their settings, their log, and where they end.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::Error;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::KafkaOptions;
use super::lineages::Lineages;

/// Largest batch that clients send and accept, in bytes; the brokers' own limit as `infra/kafka`
/// sets it.
pub(super) const BATCH_BYTES_MAX: usize = 24 * 1024 * 1024;

/// A consumer of ours.
pub(super) type Consumer = StreamConsumer<Context>;

/// Receives what librdkafka says beside its answers.
#[derive(Clone)]
pub(super) struct Context(Arc<Said>);

/// What a client has said and nobody has dealt with.
pub(super) struct Said {
    lineages: Lineages,
    /// Topics that were deleted and made anew under the client.
    remade: Mutex<BTreeSet<String>>,
    /// No broker could be reached, and none has been since.
    is_down: AtomicBool,
}

impl Context {
    pub(super) fn new(lineages: Lineages) -> Self {
        let (remade, is_down) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(Said { lineages, remade, is_down }))
    }

    pub(super) fn said(&self) -> &Said {
        &self.0
    }
}

impl Said {
    /// Topics that were made anew and of which nobody has heard.
    pub(super) fn take_remade(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.remade.lock())
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
            // These are as many as there are partitions; only one kind of them matters.
            if let Some((topic, id)) = remade_topic(message) {
                self.0.lineages.note(topic, id);
                self.0.remade.lock().insert(topic.to_owned());
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

/// The topic that a line of librdkafka's log says was made anew, and its id now.
///
/// librdkafka goes on at its offset when a topic under a name gets another id; that it noticed it
/// tells only in this line, and no call shows a topic's id. A test with a real broker holds the
/// line to these words.
fn remade_topic(line: &str) -> Option<(&str, &str)> {
    /// The id of a topic that was not known yet, in base64.
    const UNKNOWN: &str = "AAAAAAAAAAAAAAAAAAAAAA";
    let (before, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = before.rsplit_once("Topic ")?;
    let (before, now) = ids.split_once(" to ")?;
    (before != UNKNOWN).then_some((topic, now.trim()))
}

/// The settings of every client.
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

/// The only way to hear that a topic was made anew; see `remade_topic`.
pub(super) fn hear_of_topics(config: &mut ClientConfig) {
    config.set_log_level(RDKafkaLogLevel::Debug);
    config.set("debug", "metadata");
}

/// The settings of every consumer: what to read is assigned, never a group's business.
pub(super) fn consumer_config(options: &KafkaOptions) -> ClientConfig {
    let mut config = base_config(options);
    hear_of_topics(&mut config);
    for (name, value) in [
        // Assigning needs a name for a group; nothing is ever committed or joined under it.
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

/// A client that ends on a thread that may block: ending waits for its threads.
pub(super) struct Ending<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Ending<T> {
    pub(super) fn new(client: T) -> Self {
        Self(Some(client))
    }
}

impl<T: Send + 'static> Deref for Ending<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is taken only when it is dropped")
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

/// What a call of a client that cannot be made answers.
pub(super) fn not_made(what: &str, error: &KafkaError) -> Error {
    Error::internal(format!("a Kafka {what} could not be made: {error}"))
}

/// The brokers did not do what was asked, and nothing was changed by it as far as it matters.
pub(super) fn unavailable(doing: &str, error: &KafkaError) -> Error {
    Error::unavailable(format!(
        "could not {doing}: {error}; see whether the brokers run, then try again"
    ))
}

/// Whether librdkafka goes on by itself after an error of a consumer.
pub(super) fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut)
    )
}

/// Runs something that blocks on a client where it may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| Error::internal(format!("a call of the Kafka client ended: {error}")))
}

#[cfg(test)]
mod tests {
    use super::remade_topic;

    #[test]
    fn only_a_topic_that_had_an_id_was_made_anew() {
        let line = "[thrd:main]: Topic a.store-7 changed id from kQ2x to AAAAAAAAAAAAAAAAAAAAAB";
        assert_eq!(remade_topic(line), Some(("a.store-7", "AAAAAAAAAAAAAAAAAAAAAB")));
        let first = "[thrd:main]: Topic a.b changed id from AAAAAAAAAAAAAAAAAAAAAA to kQ2x";
        assert_eq!(remade_topic(first), None);
        assert_eq!(remade_topic("Topic a.b [0] Leader 1 Epoch 0"), None);
    }
}
