//! Scans: every live document of an index, partition by partition, in bounded batches.
//!
//! A scan is bound to no thread and pins nothing between two batches, so a slow scan delays no
//! reclaim. The scan walks a partition by the hashes of its keys, which never change: it copies the
//! keys of the next range of hashes, and looks up each key in its turn. A document that exists
//! throughout the scan is therefore seen exactly once, in its state at that moment, however the
//! index grows or is rebuilt during the scan. A document that is added or removed may or may not be
//! seen; a document that is removed and added again may also be seen twice.

use std::sync::Arc;

use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};

use crate::inner::Inner;
use crate::key::DocumentKey;
use crate::lookup::{KeyListing, Lookup};
use crate::row_ref::RowRef;
use crate::view::{ReadAt, View};

/// A document of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScannedDocument<'v> {
    /// The document's partition.
    pub partition: PartitionId,
    /// The document's key.
    pub key: DocumentKey<'v>,
    /// The document.
    pub row: RowRef<'v>,
}

/// A cursor over all live documents of the followed partitions, in no order.
#[derive(Debug)]
pub struct Scan {
    index: Arc<Inner>,
    /// The remaining partitions, the next one last.
    remaining: Vec<PartitionId>,
    current: Option<PartitionCursor>,
}

/// The position of a scan in one partition: in the keys of a range of hashes.
#[derive(Debug)]
struct PartitionCursor {
    partition: PartitionId,
    keys: KeyListing,
    next: usize,
    /// The first hash after the keys; `None` after the last keys.
    next_hash: Option<u64>,
}

impl PartitionCursor {
    fn take_next(&mut self) -> Option<&[u8]> {
        let KeyListing { bytes, ends } = &self.keys;
        let end = *ends.get(self.next)?;
        let start = self.next.checked_sub(1).map_or(0, |previous| ends[previous]);
        self.next += 1;
        Some(&bytes[start..end])
    }
}

impl Scan {
    pub(crate) fn new(index: Arc<Inner>) -> Self {
        let mut remaining: Vec<_> = index.followed_ids().collect();
        remaining.reverse();
        Self { index, remaining, current: None }
    }

    /// Visits up to `documents_max` more documents and returns how many there were; 0 is the end.
    ///
    /// The time is proportional to the batch. The scan copies about a thousand keys at a time.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch of 0; `Unavailable`, `Stale` and `Internal` as
    /// [`View::get`](crate::View::get) for the current partition (the scan may continue later); the
    /// first error of `visit`, whose document counts as visited.
    pub fn next_batch(
        &mut self,
        read_at: ReadAt<'_>,
        documents_max: usize,
        mut visit: impl FnMut(ScannedDocument<'_>) -> Result<()>,
    ) -> Result<usize> {
        if documents_max == 0 {
            return Err(Error::invalid_argument(
                "the batch has no room; give room for one document or more",
            ));
        }
        let Self { index, remaining, current } = self;
        let view = View::open(index, read_at);
        let mut visited = 0;
        loop {
            let cursor = match current {
                Some(cursor) => cursor,
                None => {
                    let Some(partition) = remaining.pop() else { return Ok(visited) };
                    let (keys, next, next_hash) = (KeyListing::default(), 0, Some(0));
                    current.insert(PartitionCursor { partition, keys, next, next_hash })
                }
            };
            let partition = cursor.partition;
            while visited < documents_max {
                let Some(identity) = cursor.take_next() else { break };
                let key = view.inner.shape.name(identity)?;
                let mut answer = Lookup::Absent;
                view.look_up(&key, &mut answer)?;
                match answer {
                    Lookup::Found(row) => {
                        visited += 1;
                        visit(ScannedDocument { partition, key, row })?;
                    }
                    Lookup::Absent => {}
                    // The partition refused after the batch began: the scan returns to the key in
                    // the next batch.
                    Lookup::Refused(id, status) => {
                        let error = view.refusal_error(id, status);
                        cursor.next -= 1;
                        return Err(error);
                    }
                }
            }
            if visited == documents_max {
                return Ok(visited);
            }
            let Some(from) = cursor.next_hash else {
                *current = None;
                continue;
            };
            cursor.keys.clear();
            cursor.next = 0;
            cursor.next_hash = view.list(partition, from, &mut cursor.keys)?;
        }
    }
}
