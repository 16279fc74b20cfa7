//! Merges several partitions into one order.

use forebay_core::Result;
use futures::future::try_join_all;

use super::partition::{PartitionScan, Shards, WaitingDocument};
use crate::connection::Connection;

/// The scans of some partitions, merged in the order of the keys.
pub(super) struct Merge {
    scans: Vec<PartitionScan>,
    is_backward: bool,
}

impl Merge {
    pub fn new(scans: Vec<PartitionScan>, is_backward: bool) -> Self {
        Self { scans, is_backward }
    }

    pub fn scans(&self) -> impl Iterator<Item = &PartitionScan> {
        self.scans.iter()
    }

    /// Returns the next document of all partitions.
    ///
    /// # Errors
    /// Errors of [`PartitionScan::fill`]; no document is lost then.
    pub async fn next(
        &mut self,
        connection: &Connection,
        shards: &Shards,
    ) -> Result<Option<WaitingDocument>> {
        let empty = self.scans.iter_mut().filter(|scan| scan.next_stored().is_none());
        try_join_all(empty.map(|scan| scan.fill(connection, shards))).await?;
        let heads = self.scans.iter_mut().filter(|scan| scan.next_stored().is_some());
        let next = match self.is_backward {
            false => heads.min_by(|a, b| a.next_stored().cmp(&b.next_stored())),
            true => heads.max_by(|a, b| a.next_stored().cmp(&b.next_stored())),
        };
        Ok(next.and_then(PartitionScan::take))
    }
}
