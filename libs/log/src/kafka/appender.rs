//! Appends through one idempotent producer for all partitions.
//!
//! librdkafka retries on its own, in order and without duplicates, until `append_timeout`. The
//! producer then reports the last error of several attempts, any of which may have reached the log.
//! Therefore nearly every failure after the hand-over is an unknown outcome, regardless of its
//! code. Certain failures are only those before the hand-over and those that every attempt must
//! have hit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionRef};
use forebay_core::limits::{COMMIT_QUEUE_BYTES_MAX, COMMIT_QUEUE_ENTRIES_MAX};
use forebay_core::{Error, Result};
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;
use parking_lot::Mutex;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::future_producer::Delivery;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::KafkaOptions;
use super::client::{Context, Ending, base_config, creation_error, hear_of_topics, time_of};
use super::topic_incarnations::TopicIncarnations;
use crate::change_log::AppendReceipt;

/// Fewest bytes that an entry takes of the budget, which thereby also limits the number of waiting
/// entries.
const ENTRY_ROOM_MIN: usize = COMMIT_QUEUE_BYTES_MAX / COMMIT_QUEUE_ENTRIES_MAX;

type Client = Ending<FutureProducer<Context>>;

/// The producer and the budget of its queue.
pub(super) struct Appender {
    options: KafkaOptions,
    incarnations: TopicIncarnations,
    /// Created by the first append, and recreated after a fatal error.
    producer: Mutex<Option<Arc<Client>>>,
    /// Budget of bytes that may be handed over.
    room: Arc<Semaphore>,
}

/// An entry that was handed over to the producer.
pub(super) struct SentEntry {
    delivery: DeliveryFuture,
    _room: OwnedSemaphorePermit,
    _producer: Arc<Client>,
}

/// Reason why an entry was not acknowledged.
pub(super) enum Failure {
    /// The error to return.
    Final(Error),
    /// The brokers do not know the partition; this answer may be stale.
    UnknownPartition(KafkaError),
}

impl Appender {
    pub(super) fn new(options: KafkaOptions, incarnations: TopicIncarnations) -> Self {
        let room = Arc::new(Semaphore::new(COMMIT_QUEUE_BYTES_MAX));
        Self { options, incarnations, producer: Mutex::default(), room }
    }

    /// Waits, in call order, until an entry of this size may be handed over.
    pub(super) async fn room(&self, entry: &Bytes) -> Result<OwnedSemaphorePermit> {
        let bytes = entry.len().max(ENTRY_ROOM_MIN) as u32;
        let room = self.room.clone().acquire_many_owned(bytes).await;
        room.map_err(|_| Error::closed("the log was closed; open it again"))
    }

    /// Hands an entry over; entries of one partition reach the log in call order.
    pub(super) fn send(
        &self,
        topic: &str,
        partition: i32,
        entry: &Bytes,
        room: OwnedSemaphorePermit,
    ) -> Result<SentEntry, Failure> {
        let producer = self.producer().map_err(Failure::Final)?;
        let record = FutureRecord::<(), [u8]>::to(topic).partition(partition).payload(entry);
        match producer.send_result(record) {
            Ok(delivery) => Ok(SentEntry { delivery, _room: room, _producer: producer }),
            Err((error, _)) => Err(refusal(error, entry)),
        }
    }

    /// Waits until a handed-over entry is acknowledged or has failed.
    pub(super) async fn await_delivery(
        &self,
        entry_in_flight: SentEntry,
        entry: &Bytes,
    ) -> Result<AppendReceipt, Failure> {
        match entry_in_flight.delivery.await {
            Ok(Ok(delivery)) => receipt_of(&delivery).map_err(Failure::Final),
            Ok(Err((error, _))) => Err(delivery_failure(error, entry)),
            Err(_) => Err(Failure::Final(unacknowledged_error("the producer ended"))),
        }
    }

    fn producer(&self) -> Result<Arc<Client>> {
        let mut slot = self.producer.lock();
        if let Some(producer) = &*slot {
            match producer.client().fatal_error() {
                None => return Ok(producer.clone()),
                // The unacknowledged entries of the failed producer have ended with unknown
                // outcomes.
                Some((code, reason)) => {
                    tracing::warn!(%code, reason, "Kafka producer failed; creating another one");
                }
            }
        }
        let client = self.make().map_err(|error| creation_error("producer", &error))?;
        Ok(slot.insert(Arc::new(Ending::new(client))).clone())
    }

    fn make(&self) -> Result<FutureProducer<Context>, KafkaError> {
        let append_timeout_ms = self.options.append_timeout.as_millis();
        // The brokers stop waiting for replicas well before this client does, and the client
        // retries.
        let request_timeout = (self.options.append_timeout / 2).max(Duration::from_millis(1));
        let kilobytes_max = (COMMIT_QUEUE_BYTES_MAX + ENTRY_FRAME_BYTES_MAX) / 1024;
        let mut config = base_config(&self.options);
        hear_of_topics(&mut config);
        for (name, value) in [
            ("acks", "all".to_owned()),
            ("enable.idempotence", "true".to_owned()),
            ("delivery.timeout.ms", append_timeout_ms.to_string()),
            ("request.timeout.ms", request_timeout.as_millis().to_string()),
            // The writer already batches waiting writes; lingering here would only add latency.
            ("linger.ms", "0".to_owned()),
            ("compression.codec", "none".to_owned()),
            ("queue.buffering.max.kbytes", kilobytes_max.to_string()),
            ("queue.buffering.max.messages", (2 * COMMIT_QUEUE_ENTRIES_MAX).to_string()),
        ] {
            config.set(name, value);
        }
        config.create_with_context(Context::new(self.incarnations.clone()))
    }
}

fn receipt_of(delivery: &Delivery) -> Result<AppendReceipt> {
    let Ok(offset) = u64::try_from(delivery.offset) else {
        return Err(unacknowledged_error("the brokers acknowledged the entry without an offset"));
    };
    let append_time = time_of(delivery.timestamp);
    if append_time == Timestamp::MIN {
        let message = "the topic no longer has message.timestamp.type=LogAppendTime; set it again";
        return Err(unacknowledged_error(message));
    }
    Ok(AppendReceipt { offset: Offset(offset), append_time })
}

/// Maps an error before the hand-over: nothing was appended.
fn refusal(error: KafkaError, entry: &Bytes) -> Failure {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => Failure::Final(too_large(entry)),
        Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownPartition) => {
            Failure::UnknownPartition(error)
        }
        Some(RDKafkaErrorCode::QueueFull) => {
            let message = "the queue to the brokers is full; slow down and try again";
            Failure::Final(Error::unavailable(message))
        }
        _ => Failure::Final(Error::unavailable(format!(
            "the entry could not be handed to Kafka: {error}; try again"
        ))),
    }
}

/// Maps an error after the hand-over.
fn delivery_failure(error: KafkaError, entry: &Bytes) -> Failure {
    match error.rdkafka_error_code() {
        // Each attempt had the same size.
        Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge) => {
            Failure::Final(too_large(entry))
        }
        Some(
            RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition
            | RDKafkaErrorCode::UnknownTopicOrPartition,
        ) => Failure::UnknownPartition(error),
        _ => Failure::Final(unacknowledged_error(&error.to_string())),
    }
}

fn too_large(entry: &Bytes) -> Error {
    let advice =
        "the entry is larger than the brokers' limit; set max.message.bytes as infra/kafka does";
    Error::limit_exceeded(advice, ENTRY_FRAME_BYTES_MAX as u64, entry.len() as u64)
}

/// Returns the error for an entry that may be in the log, now or a little later.
pub(super) fn unacknowledged_error(cause: &str) -> Error {
    Error::unknown_outcome(format!(
        "the brokers did not acknowledge the entry ({cause}); send the same write again"
    ))
}

/// Adds the partition to an error.
pub(super) fn with_location(error: Error, at: PartitionRef) -> Error {
    error.with_partition(at.partition)
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    fn code_of(failure: Failure) -> Option<ErrorCode> {
        match failure {
            Failure::Final(error) => Some(error.code()),
            Failure::UnknownPartition(_) => None,
        }
    }

    /// Proves that the last error of several attempts says nothing about earlier attempts.
    #[test]
    fn producer_refuses_only_sizes_after_the_hand_over() {
        use RDKafkaErrorCode as Code;
        let entry = Bytes::from_static(b"entry");
        for (code, expected) in [
            (Code::MessageTimedOut, Some(ErrorCode::UnknownOutcome)),
            (Code::NotEnoughReplicas, Some(ErrorCode::UnknownOutcome)),
            (Code::NotEnoughReplicasAfterAppend, Some(ErrorCode::UnknownOutcome)),
            (Code::BrokerTransportFailure, Some(ErrorCode::UnknownOutcome)),
            (Code::TopicAuthorizationFailed, Some(ErrorCode::UnknownOutcome)),
            (Code::PurgeQueue, Some(ErrorCode::UnknownOutcome)),
            (Code::Fatal, Some(ErrorCode::UnknownOutcome)),
            (Code::MessageSizeTooLarge, Some(ErrorCode::LimitExceeded)),
            (Code::UnknownTopicOrPartition, None),
        ] {
            let error = KafkaError::MessageProduction(code);
            assert_eq!(code_of(delivery_failure(error, &entry)), expected, "{code:?}");
        }
    }

    #[test]
    fn failure_before_the_hand_over_appends_nothing() {
        use RDKafkaErrorCode as Code;
        let entry = Bytes::from_static(b"entry");
        for (code, expected) in [
            (Code::QueueFull, Some(ErrorCode::Unavailable)),
            (Code::Fatal, Some(ErrorCode::Unavailable)),
            (Code::MessageSizeTooLarge, Some(ErrorCode::LimitExceeded)),
            (Code::UnknownPartition, None),
        ] {
            let error = KafkaError::MessageProduction(code);
            assert_eq!(code_of(refusal(error, &entry)), expected, "{code:?}");
        }
    }
}
