//! Queue of the records that a store's replica has skipped and the copier has not copied yet. The
//! queue is bounded, and the tail that reports a skipped record never waits: records that do not
//! fit are found again by another fold of the log.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::dead_letter::LastLetter;
use forebay_core::id::PartitionId;
use forebay_core::limits::{
    DEAD_LETTERS_BYTES_TARGET, DEAD_LETTERS_PER_RECORD_MAX, DEAD_LETTERS_WAITING_BYTES_MAX,
    DEAD_LETTERS_WAITING_MAX,
};
use forebay_replica::SkippedLogRecord;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Counters of a store's dead letters since its replicator started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterCounts {
    /// Letters appended to the dead-letter log.
    pub letters_copied: u64,
    /// Skipped records that wait to be copied.
    pub records_waiting: u64,
    /// Failed calls of the log.
    pub log_errors: u64,
    /// Overflows of the queue; after each, the replica is reopened to find the rejected records.
    pub overflows: u64,
}

#[derive(Default)]
struct Queue {
    letters: BTreeMap<PartitionId, VecDeque<SkippedLogRecord>>,
    /// The last copied letter of each partition.
    last: BTreeMap<PartitionId, LastLetter>,
    bytes: usize,
    /// Whether a record was rejected since the replica was opened; all later records are rejected,
    /// too, since letters are copied in order.
    has_overflowed: bool,
    counts: DeadLetterCounts,
}

/// The queue between a replica and its copier.
#[derive(Default)]
pub(crate) struct Backlog {
    queue: Mutex<Queue>,
    arrival: Notify,
}

impl Backlog {
    /// Enqueues a record that the replica skipped. Never blocks for long.
    pub(crate) fn push(&self, skipped: &SkippedLogRecord) {
        let mut queue = self.queue.lock();
        if queue.has_overflowed || queue.is_copied(skipped) {
            return;
        }
        let bytes = skipped.entry.len();
        let is_full = queue.counts.records_waiting as usize >= DEAD_LETTERS_WAITING_MAX
            || (queue.bytes > 0 && queue.bytes + bytes > DEAD_LETTERS_WAITING_BYTES_MAX);
        if is_full {
            queue.has_overflowed = true;
            queue.counts.overflows += 1;
        } else {
            queue.bytes += bytes;
            queue.counts.records_waiting += 1;
            queue.letters.entry(skipped.at.partition).or_default().push_back(skipped.clone());
        }
        drop(queue);
        self.arrival.notify_one();
    }

    /// Waits until records may have arrived.
    pub(crate) async fn await_arrival(&self) {
        self.arrival.notified().await;
    }

    /// Returns the first letters of a partition, of one home log, that go into one record; the
    /// letters stay until they are [removed](Self::remove_group).
    pub(crate) fn next_group(&self) -> Option<Vec<SkippedLogRecord>> {
        let queue = self.queue.lock();
        let letters = queue.letters.values().find(|letters| !letters.is_empty())?;
        let mut group: Vec<SkippedLogRecord> = Vec::new();
        let mut bytes = 0;
        for letter in letters.iter().take(DEAD_LETTERS_PER_RECORD_MAX) {
            bytes += letter.entry.len();
            let fits = group.is_empty() || bytes <= DEAD_LETTERS_BYTES_TARGET;
            if !fits || group.last().is_some_and(|before| before.log_id != letter.log_id) {
                break;
            }
            group.push(letter.clone());
        }
        Some(group)
    }

    /// Removes the first letters of a partition, which the dead-letter log now holds.
    pub(crate) fn remove_group(&self, partition: PartitionId, count: usize, copied: u64) {
        let mut queue = self.queue.lock();
        let Some(letters) = queue.letters.get_mut(&partition) else { return };
        let removed: Vec<_> = letters.drain(..count.min(letters.len())).collect();
        queue.bytes -= removed.iter().map(|letter| letter.entry.len()).sum::<usize>();
        queue.counts.records_waiting -= removed.len() as u64;
        queue.counts.letters_copied += copied;
    }

    /// Records the last copied letter of a partition.
    pub(crate) fn note_last(&self, partition: PartitionId, last: Option<LastLetter>) {
        let mut queue = self.queue.lock();
        match last {
            Some(last) => queue.last.insert(partition, last),
            None => queue.last.remove(&partition),
        };
    }

    /// Counts a failed call of the log.
    pub(crate) fn note_error(&self) {
        self.queue.lock().counts.log_errors += 1;
    }

    /// Returns whether the queue has overflowed and is empty again, so that the replica must be
    /// reopened to find the rejected records.
    pub(crate) fn must_reopen(&self) -> bool {
        let queue = self.queue.lock();
        queue.has_overflowed && queue.counts.records_waiting == 0
    }

    /// Resets the queue for a replica that folds the log from its start.
    pub(crate) fn restart(&self) {
        self.queue.lock().has_overflowed = false;
    }

    pub(crate) fn counts(&self) -> DeadLetterCounts {
        self.queue.lock().counts
    }
}

impl Queue {
    fn is_copied(&self, skipped: &SkippedLogRecord) -> bool {
        // A log has no id before its first well-formed entry; the copier checks such a record.
        let Some(log_id) = skipped.log_id else { return false };
        let last = self.last.get(&skipped.at.partition);
        last.is_some_and(|last| last.covers(log_id, skipped.offset))
    }
}
