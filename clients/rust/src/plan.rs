//! Plans how changes travel: which changes form one atomic chunk, and which chunks one request.
//!
//! The changes of one partition stay in order. A chunk holds at most one window of changes and
//! about [`CLIENT_REQUEST_BYTES_TARGET`] bytes. A round holds one chunk of each partition, so a
//! batch needs as many rounds as its fullest partition has chunks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use forebay_core::id::PartitionId;
use forebay_core::key::Key;
use forebay_core::limits::{CLIENT_REQUEST_BYTES_TARGET, ENTRY_BYTES_MAX, REQUEST_CHANGES_MAX};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_wire::v1;
use prost::Message;

use crate::change_spec::RoutedChange;
use crate::sequence::WINDOW_SEQUENCES_MAX;

/// A change as it is sent, and its index among the caller's changes.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) partition: PartitionId,
    pub(crate) change: v1::Change,
    pub(crate) bytes: usize,
    pub(crate) place: usize,
}

impl Item {
    /// # Errors
    /// `LimitExceeded` for a change that fits no entry.
    pub(crate) fn new(routed: &RoutedChange, place: usize) -> Result<Self> {
        let change = v1::Change::from(&routed.change);
        let bytes = change.encoded_len();
        if bytes > ENTRY_BYTES_MAX {
            let (limit, actual) = (ENTRY_BYTES_MAX as u64, bytes as u64);
            let error = Error::limit_exceeded(
                "the document is too large; split the document",
                limit,
                actual,
            );
            return Err(error.with_key_digest(routed.change.key.digest()));
        }
        Ok(Self { partition: routed.partition, change, bytes, place })
    }

    /// Returns the same change, with the partition that this definition assigns to its key.
    pub(crate) fn routed_by(self, definition: &Definition) -> Self {
        let is_partitioned = definition.partition_key.is_some();
        let hashed = match Key::split(&self.change.key, is_partitioned) {
            Ok((partition_key, primary)) => partition_key.unwrap_or(primary),
            // The change was created by a definition of the same store.
            Err(_) => &self.change.key,
        };
        let partition = partition_of(hashed, definition.write_logs().partitions);
        Self { partition, ..self }
    }
}

/// Changes of one partition that reach the log as one atomic entry.
pub(crate) type Chunk = Vec<Item>;

/// At most one chunk of each partition, by ascending partition.
pub(crate) type Round = VecDeque<Chunk>;

/// Returns the rounds in which these changes travel.
pub(crate) fn rounds(items: Vec<Item>) -> VecDeque<Round> {
    let mut partitions = BTreeMap::<PartitionId, Vec<Chunk>>::new();
    for item in items {
        let chunks = partitions.entry(item.partition).or_default();
        match chunks.last_mut() {
            Some(chunk) if has_room(chunk, &item) => chunk.push(item),
            _ => chunks.push(vec![item]),
        }
    }
    let mut rounds = VecDeque::<Round>::new();
    for chunks in partitions.into_values() {
        for (number, chunk) in chunks.into_iter().enumerate() {
            if rounds.len() == number {
                rounds.push_back(Round::new());
            }
            rounds[number].push_back(chunk);
        }
    }
    rounds
}

fn has_room(chunk: &Chunk, item: &Item) -> bool {
    let bytes: usize = chunk.iter().map(|chunk_item| chunk_item.bytes).sum();
    chunk.len() < WINDOW_SEQUENCES_MAX && bytes + item.bytes <= CLIENT_REQUEST_BYTES_TARGET
}

/// Cuts a round's changes, given as (partition, bytes), into requests. A partition's changes stay
/// in one request, so that they stay atomic.
pub(crate) fn requests(changes: impl Iterator<Item = (PartitionId, usize)>) -> Vec<Range<usize>> {
    let mut runs = Vec::<(PartitionId, Range<usize>, usize)>::new();
    for (place, (partition, bytes)) in changes.enumerate() {
        match runs.last_mut() {
            Some((run_partition, run, sum)) if *run_partition == partition => {
                run.end += 1;
                *sum += bytes;
            }
            _ => runs.push((partition, place..place + 1, bytes)),
        }
    }
    let mut requests = Vec::<Range<usize>>::new();
    let mut request_bytes = 0;
    for (_, run, bytes) in runs {
        match requests.last_mut() {
            Some(request)
                if request_bytes + bytes <= CLIENT_REQUEST_BYTES_TARGET
                    && request.len() + run.len() <= REQUEST_CHANGES_MAX =>
            {
                request.end = run.end;
                request_bytes += bytes;
            }
            _ => {
                requests.push(run);
                request_bytes = bytes;
            }
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(partitions: &[u32], bytes: usize) -> Vec<Item> {
        let item = |(place, partition): (usize, &u32)| Item {
            partition: PartitionId(*partition),
            change: v1::Change::default(),
            bytes,
            place,
        };
        partitions.iter().enumerate().map(item).collect()
    }

    #[test]
    fn round_contains_a_chunk_of_each_partition_in_order() {
        let mut partitions = vec![3; WINDOW_SEQUENCES_MAX + 1];
        partitions.insert(1, 0);
        let rounds = rounds(items(&partitions, 10));
        let shape: Vec<Vec<_>> = rounds
            .iter()
            .map(|round| round.iter().map(|chunk| (chunk[0].partition.0, chunk.len())).collect())
            .collect();
        assert_eq!(shape, [vec![(0, 1), (3, WINDOW_SEQUENCES_MAX)], vec![(3, 1)]]);
        let places: Vec<_> = rounds[0][1].iter().map(|item| item.place).collect();
        assert!(places.is_sorted() && places[0] == 0 && places[1] == 2);
    }

    #[test]
    fn chunks_close_at_their_byte_limit_and_a_large_change_gets_its_own() {
        let of_two = rounds(items(&[1, 1], CLIENT_REQUEST_BYTES_TARGET / 2 + 1));
        assert_eq!(of_two.len(), 2);
        assert_eq!(rounds(items(&[1], 4 * CLIENT_REQUEST_BYTES_TARGET)).len(), 1);
    }

    #[test]
    fn request_groups_whole_partitions_up_to_its_byte_limit() {
        let target = CLIENT_REQUEST_BYTES_TARGET;
        let changes = [(1, 10), (1, 10), (2, target - 30), (3, 20), (4, 3 * target), (5, 1)];
        let changes = changes.map(|(partition, bytes)| (PartitionId(partition), bytes));
        assert_eq!(requests(changes.into_iter()), [0..3, 3..4, 4..5, 5..6]);
        assert!(requests(std::iter::empty()).is_empty());
    }
}
