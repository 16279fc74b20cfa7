//! What a store's replica has skipped and the copier has not taken yet. Bounded: the tail that
//! tells of a skipped record never waits, so what does not fit is found again by another fold.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::dead_letter::LastLetter;
use forebay_core::id::PartitionId;
use forebay_core::limits::{
    DEAD_LETTERS_BYTES_AIM, DEAD_LETTERS_PER_RECORD_MAX, DEAD_LETTERS_WAITING_BYTES_MAX,
    DEAD_LETTERS_WAITING_MAX,
};
use forebay_reader::Skipped;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What has happened to the dead letters of a store since its replicator started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterCounts {
    /// Letters appended to the dead-letter log.
    pub copied: u64,
    /// Skipped records that wait to be copied.
    pub waiting: u64,
    /// Failed calls of the log.
    pub log_errors: u64,
    /// Times that more waited than is kept, so that the replica is opened anew to find the rest.
    pub overflows: u64,
}

#[derive(Default)]
struct Queue {
    letters: BTreeMap<PartitionId, VecDeque<Skipped>>,
    /// How far each partition was copied.
    last: BTreeMap<PartitionId, LastLetter>,
    bytes: usize,
    /// Something was left out since the replica was opened; all that comes later is, too, since
    /// letters are copied in order.
    has_overflowed: bool,
    counts: DeadLetterCounts,
}

/// The queue between a replica and its copier.
#[derive(Default)]
pub(crate) struct Waiting {
    queue: Mutex<Queue>,
    arrived: Notify,
}

impl Waiting {
    /// Takes in a record that the replica skipped. Never blocks for long.
    pub(crate) fn push(&self, skipped: &Skipped) {
        let mut queue = self.queue.lock();
        if queue.has_overflowed || queue.is_copied(skipped) {
            return;
        }
        let bytes = skipped.entry.len();
        let is_full = queue.counts.waiting as usize >= DEAD_LETTERS_WAITING_MAX
            || (queue.bytes > 0 && queue.bytes + bytes > DEAD_LETTERS_WAITING_BYTES_MAX);
        if is_full {
            queue.has_overflowed = true;
            queue.counts.overflows += 1;
        } else {
            queue.bytes += bytes;
            queue.counts.waiting += 1;
            queue.letters.entry(skipped.at.partition).or_default().push_back(skipped.clone());
        }
        drop(queue);
        self.arrived.notify_one();
    }

    /// Returns when something may have arrived.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// The first letters of a partition, of one home log, that go into one record; they stay until
    /// they are [settled](Self::settle).
    pub(crate) fn next_group(&self) -> Option<Vec<Skipped>> {
        let queue = self.queue.lock();
        let letters = queue.letters.values().find(|letters| !letters.is_empty())?;
        let mut group: Vec<Skipped> = Vec::new();
        let mut bytes = 0;
        for letter in letters.iter().take(DEAD_LETTERS_PER_RECORD_MAX) {
            bytes += letter.entry.len();
            let fits = group.is_empty() || bytes <= DEAD_LETTERS_BYTES_AIM;
            if !fits || group.last().is_some_and(|before| before.log_id != letter.log_id) {
                break;
            }
            group.push(letter.clone());
        }
        Some(group)
    }

    /// Lets go of the first letters of a partition: they are in the dead-letter log now.
    pub(crate) fn settle(&self, partition: PartitionId, taken: usize, copied: u64) {
        let mut queue = self.queue.lock();
        let Some(letters) = queue.letters.get_mut(&partition) else { return };
        let settled: Vec<_> = letters.drain(..taken.min(letters.len())).collect();
        queue.bytes -= settled.iter().map(|letter| letter.entry.len()).sum::<usize>();
        queue.counts.waiting -= settled.len() as u64;
        queue.counts.copied += copied;
    }

    /// Notes how far a partition was copied.
    pub(crate) fn note_last(&self, partition: PartitionId, last: Option<LastLetter>) {
        let mut queue = self.queue.lock();
        match last {
            Some(last) => queue.last.insert(partition, last),
            None => queue.last.remove(&partition),
        };
    }

    /// Notes a failed call of the log.
    pub(crate) fn note_error(&self) {
        self.queue.lock().counts.log_errors += 1;
    }

    /// Whether something was left out and all that was kept is copied: the replica must be opened
    /// anew to find the rest.
    pub(crate) fn must_reopen(&self) -> bool {
        let queue = self.queue.lock();
        queue.has_overflowed && queue.counts.waiting == 0
    }

    /// Begins anew for a replica that folds the log from its start.
    pub(crate) fn restart(&self) {
        self.queue.lock().has_overflowed = false;
    }

    pub(crate) fn counts(&self) -> DeadLetterCounts {
        self.queue.lock().counts
    }
}

impl Queue {
    fn is_copied(&self, skipped: &Skipped) -> bool {
        // Before its first well-formed entry a log has no id; the copier finds out.
        let Some(log_id) = skipped.log_id else { return false };
        let last = self.last.get(&skipped.at.partition);
        last.is_some_and(|last| last.covers(log_id, skipped.offset))
    }
}
