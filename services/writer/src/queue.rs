//! Write queue of a partition: puts concurrent requests into one entry and appends the entries one
//! after the other.
//!
//! While an entry is being appended, later requests queue up; the next entry takes all of them that
//! fit. A lone request thus waits for one append, and a thousand requests share one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::change::{ClientBatch, EntryBody};
use forebay_core::id::{ClientId, Epoch, LogId, PartitionRef, Position, SchemaVersion, Sequence};
use forebay_core::limits::{
    DEDUP_WINDOW, ENTRY_BYTES_MAX, ENTRY_CHANGES_MAX, WRITE_QUEUE_BYTES_MAX,
    WRITE_QUEUE_REQUESTS_MAX,
};
use forebay_core::{Error, Result};
use forebay_entries::CatalogFollower;
use tokio::sync::{mpsc, oneshot};

use crate::partition::PartitionLog;
use crate::repartition_gate::check_written;

/// Target size of an entry in bytes, so that a request does not wait for a very large entry.
const ENTRY_BYTES_TARGET: usize = 1 << 20;
/// Number of clients whose highest sequence a queue remembers, in each of two generations.
const CLIENTS_REMEMBERED: usize = 16 * 1024;

/// Position of the changes of a part in the log of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) log_id: LogId,
    /// Position of the first change; the others follow at consecutive indexes of the entry.
    pub(crate) first: Position,
}

impl LogPosition {
    /// Returns the position of the change with this index in the part.
    pub(crate) fn of_change(&self, index: usize) -> Position {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let index_in_entry = self.first.index_in_entry.saturating_add(index);
        Position { index_in_entry, ..self.first }
    }
}

struct QueuedPart {
    batch: ClientBatch,
    bytes: usize,
    schema_version: SchemaVersion,
    reply: oneshot::Sender<Result<LogPosition>>,
}

/// Sending end of a partition's queue. The appender task ends once all sending ends are dropped.
pub(crate) struct WriteQueue {
    log: Arc<PartitionLog>,
    sender: mpsc::Sender<QueuedPart>,
    bytes: Arc<AtomicUsize>,
}

impl WriteQueue {
    /// Starts the queue of this partition's log. The queue accepts changes while the catalog says
    /// that the store is written to this log.
    pub(crate) fn start(
        log: Arc<PartitionLog>,
        at: PartitionRef,
        catalog: Arc<CatalogFollower>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(WRITE_QUEUE_REQUESTS_MAX);
        let bytes = Arc::new(AtomicUsize::new(0));
        let appender = Appender {
            log: Arc::clone(&log),
            at,
            catalog,
            receiver,
            next: None,
            bytes: Arc::clone(&bytes),
            highest: HighestSequences::default(),
        };
        tokio::spawn(appender.run());
        Self { log, sender, bytes }
    }

    /// Returns the log to which the queue appends.
    pub(crate) fn log(&self) -> &Arc<PartitionLog> {
        &self.log
    }

    /// Enqueues a part of this many bytes; the receiver gets the position of the part in the log.
    ///
    /// # Errors
    /// `LimitExceeded` if the queue is full (back-pressure); nothing was appended.
    pub(crate) fn enqueue(
        &self,
        (batch, bytes): (ClientBatch, usize),
        schema_version: SchemaVersion,
    ) -> Result<oneshot::Receiver<Result<LogPosition>>> {
        let queued = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let is_full = queued > 0 && queued + bytes > WRITE_QUEUE_BYTES_MAX;
        let (reply, receiver) = oneshot::channel();
        let part = QueuedPart { batch, bytes, schema_version, reply };
        if is_full || self.sender.try_send(part).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            let advice = "the partition's write queue is full; slow down and retry";
            let limit = WRITE_QUEUE_BYTES_MAX as u64;
            return Err(Error::limit_exceeded(advice, limit, (queued + bytes) as u64));
        }
        Ok(receiver)
    }
}

struct Appender {
    log: Arc<PartitionLog>,
    at: PartitionRef,
    catalog: Arc<CatalogFollower>,
    receiver: mpsc::Receiver<QueuedPart>,
    /// A request that did not fit into the previous entry.
    next: Option<QueuedPart>,
    bytes: Arc<AtomicUsize>,
    highest: HighestSequences,
}

impl Appender {
    async fn run(mut self) {
        while let Some(group) = self.next_group().await {
            self.append(group).await;
        }
    }

    /// Returns the next requests that go into one entry: they have one schema version and respect
    /// the entry's limits.
    async fn next_group(&mut self) -> Option<Vec<QueuedPart>> {
        let first = match self.next.take() {
            Some(part) => part,
            None => self.receiver.recv().await?,
        };
        let schema_version = first.schema_version;
        let (mut bytes, mut changes) = (first.bytes, first.batch.changes.len());
        let mut group = vec![first];
        while let Ok(part) = self.receiver.try_recv() {
            bytes += part.bytes;
            changes += part.batch.changes.len();
            let fits = part.schema_version == schema_version
                && bytes <= ENTRY_BYTES_TARGET.min(ENTRY_BYTES_MAX)
                && changes <= ENTRY_CHANGES_MAX;
            if !fits {
                self.next = Some(part);
                break;
            }
            group.push(part);
        }
        for part in &group {
            self.bytes.fetch_sub(part.bytes, Ordering::AcqRel);
        }
        Some(group)
    }

    async fn append(&mut self, group: Vec<QueuedPart>) {
        if let Err(error) = check_written(&self.catalog, self.at) {
            // The requests arrived before the repartition began.
            for part in group {
                let _ = part.reply.send(Err(error.clone()));
            }
            return;
        }
        let mut batches = Vec::with_capacity(group.len());
        let mut replies = Vec::with_capacity(group.len());
        let mut schema_version = SchemaVersion(0);
        let mut index_in_entry = 0;
        for part in group {
            // The client has gone and will retry with the same sequences, so this request is not
            // appended.
            if part.reply.is_closed() {
                continue;
            }
            if let Err(error) = self.highest.check(&part.batch) {
                let _ = part.reply.send(Err(error));
                continue;
            }
            schema_version = part.schema_version;
            replies.push((part.reply, index_in_entry));
            index_in_entry += part.batch.changes.len() as u16;
            batches.push(part.batch);
        }
        if batches.is_empty() {
            return;
        }
        self.highest.record(&batches);
        let result = self.log.append(schema_version, EntryBody::Changes(batches)).await;
        for (reply, index_in_entry) in replies {
            let _ = reply.send(match &result {
                Ok((log_id, receipt)) => {
                    let first =
                        Position { epoch: Epoch(0), offset: receipt.offset, index_in_entry };
                    Ok(LogPosition { log_id: *log_id, first })
                }
                Err(error) => Err(error.clone()),
            });
        }
    }
}

/// Highest sequence of each client that this queue has seen. The memory is bounded: of two
/// generations, the older one is dropped when the newer one is full.
#[derive(Default)]
struct HighestSequences {
    newer: HashMap<ClientId, Sequence>,
    older: HashMap<ClientId, Sequence>,
}

impl HighestSequences {
    fn get(&self, client: ClientId) -> Option<Sequence> {
        self.newer.get(&client).or_else(|| self.older.get(&client)).copied()
    }

    /// Refuses a sequence below the de-duplication window: every replica would skip the change as a
    /// duplicate, so an acknowledgement would be wrong.
    fn check(&self, batch: &ClientBatch) -> Result<()> {
        let Some(highest) = self.get(batch.client) else { return Ok(()) };
        let is_below = |sequence: Sequence| highest.0.saturating_sub(sequence.0) > DEDUP_WINDOW;
        match batch.changes.iter().find(|change| is_below(change.sequence)) {
            None => Ok(()),
            Some(change) => {
                let message = format!(
                    "sequence {} is below the client's window; use one client id per writer, and \
                     new sequences for new changes",
                    change.sequence
                );
                Err(Error::invalid_argument(message))
            }
        }
    }

    fn record(&mut self, batches: &[ClientBatch]) {
        for batch in batches {
            let Some(top) = batch.changes.iter().map(|change| change.sequence).max() else {
                continue;
            };
            let top = self.get(batch.client).map_or(top, |highest| highest.max(top));
            if self.newer.len() >= CLIENTS_REMEMBERED && !self.newer.contains_key(&batch.client) {
                self.older = std::mem::take(&mut self.newer);
            }
            self.newer.insert(batch.client, top);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::change::{Change, Verb};
    use forebay_core::key::Key;

    use super::*;

    fn batch(client: u128, sequence: u64) -> ClientBatch {
        let change = Change {
            sequence: Sequence(sequence),
            key: Key::plain(b"k").unwrap(),
            verb: Verb::Delete,
            fields: Vec::new(),
            condition: None,
            ttl_us: None,
        };
        ClientBatch { client: ClientId(client), changes: vec![change] }
    }

    #[test]
    fn only_sequences_below_the_window_are_refused() {
        let mut highest = HighestSequences::default();
        highest.record(&[batch(1, 5_000)]);
        assert!(highest.check(&batch(1, 5_000 - DEDUP_WINDOW)).is_ok());
        assert!(highest.check(&batch(1, 5_000 - DEDUP_WINDOW - 1)).is_err());
        assert!(highest.check(&batch(2, 1)).is_ok());
    }

    #[test]
    fn remembered_clients_are_bounded_and_recent_clients_stay() {
        let mut highest = HighestSequences::default();
        for client in 0..3 * CLIENTS_REMEMBERED as u128 {
            highest.record(&[batch(client, 9)]);
        }
        assert!(highest.newer.len() + highest.older.len() <= 2 * CLIENTS_REMEMBERED);
        assert_eq!(highest.get(ClientId(3 * CLIENTS_REMEMBERED as u128 - 1)), Some(Sequence(9)));
        assert_eq!(highest.get(ClientId(0)), None);
    }
}
