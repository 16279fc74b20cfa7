//! Scans: every live document of an index, partition by partition, in bounded batches.
//!
//! A scan belongs to nobody's thread and pins nothing between two batches, so a slow one delays no
//! reclaim. It goes through a partition by the hashes of its keys, which never change: it copies
//! the keys of the next range of hashes, and looks each one up when its turn comes. So a document
//! that lives throughout is seen exactly once, as it is at that moment, however the index grows and
//! whatever is rebuilt meanwhile; one that comes or goes may be seen or not, and one that goes and
//! comes again also twice.

use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};

use crate::index::Index;
use crate::key::DocumentKey;
use crate::lookup::Lookup;
use crate::row_ref::RowRef;
use crate::storage::KeyListing;
use crate::view::ReadAt;

/// One document of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScannedDocument<'v> {
    /// Its partition.
    pub partition: PartitionId,
    /// Its key.
    pub key: DocumentKey<'v>,
    /// The document.
    pub row: RowRef<'v>,
}

/// A cursor over all live documents of the followed partitions, in no order.
#[derive(Debug)]
pub struct Scan {
    index: Index,
    /// Partitions still to come, the next one last.
    to_come: Vec<PartitionId>,
    current: Option<Listed>,
}

/// Where a scan is in one partition: in the keys of a range of hashes.
#[derive(Debug)]
struct Listed {
    partition: PartitionId,
    keys: KeyListing,
    next: usize,
    /// The first hash behind the keys; `None` behind the last ones.
    go_on_from: Option<u64>,
}

impl Listed {
    fn take_next(&mut self) -> Option<&[u8]> {
        let KeyListing { bytes, ends } = &self.keys;
        let end = *ends.get(self.next)?;
        let start = self.next.checked_sub(1).map_or(0, |before| ends[before]);
        self.next += 1;
        Some(&bytes[start..end])
    }
}

impl Scan {
    pub(crate) fn new(index: Index) -> Self {
        let mut to_come: Vec<_> = index.followed().collect();
        to_come.reverse();
        Self { index, to_come, current: None }
    }

    /// Visits up to `documents_max` more documents and answers how many there were; 0 is the end.
    ///
    /// Costs time in proportion to the batch and copies about a thousand keys at a time.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch of 0; `Unavailable`, `Stale` and `Internal` as
    /// [`View::get`](crate::View::get) for the partition whose turn it is (the scan may go on
    /// later); the first error of `visit`, whose document counts as visited.
    pub fn next_batch(
        &mut self,
        at: ReadAt<'_>,
        documents_max: usize,
        mut visit: impl FnMut(ScannedDocument<'_>) -> Result<()>,
    ) -> Result<usize> {
        if documents_max == 0 {
            return Err(Error::invalid_argument("a batch has room for a document or more"));
        }
        let Self { index, to_come, current } = self;
        let view = index.view(at);
        let mut visited = 0;
        loop {
            let listed = match current {
                Some(listed) => listed,
                None => {
                    let Some(partition) = to_come.pop() else { return Ok(visited) };
                    let (keys, next, go_on_from) = (KeyListing::default(), 0, Some(0));
                    current.insert(Listed { partition, keys, next, go_on_from })
                }
            };
            let partition = listed.partition;
            while visited < documents_max {
                let Some(identity) = listed.take_next() else { break };
                let key = view.inner.shape.name(identity)?;
                let mut found = Lookup::Absent;
                view.look_up(&key, &mut found)?;
                match found {
                    Lookup::Found(row) => {
                        visited += 1;
                        visit(ScannedDocument { partition, key, row })?;
                    }
                    Lookup::Absent => {}
                    // Refused since the batch began: the key's turn comes again.
                    Lookup::Refused(id, status) => {
                        let refused = view.refused(id, status);
                        listed.next -= 1;
                        return Err(refused);
                    }
                }
            }
            if visited == documents_max {
                return Ok(visited);
            }
            let Some(from) = listed.go_on_from else {
                *current = None;
                continue;
            };
            listed.keys.clear();
            listed.next = 0;
            listed.go_on_from = view.list(partition, from, &mut listed.keys)?;
        }
    }
}
