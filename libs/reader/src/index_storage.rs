//! The embedded index as the storage of a replica.

use std::borrow::Cow;

use forebay_core::Result;
use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase};
use forebay_core::schema_set::SchemaSet;
use forebay_index::{Image, ImageSink, Index, PartitionWriter};
use forebay_replica::{MaintenanceWork, OpenedReplica, ReplicaWriter, Storage, VisitRow};

/// An index whose partitions are the replicas of a store.
pub(crate) struct IndexStorage(pub Index);

/// The writer of a partition of an index.
pub(crate) struct IndexWriter(pub PartitionWriter);

impl Storage for IndexStorage {
    fn schemas(&self) -> &SchemaSet {
        self.0.schemas()
    }

    fn open(&self, at: PartitionRef) -> Result<OpenedReplica> {
        Ok(OpenedReplica::empty(Box::new(IndexWriter(self.0.writer(at.partition)?))))
    }

    fn usage(&self, partition: PartitionId) -> PartitionUsage {
        self.0.status(partition).map(|status| status.usage).unwrap_or_default()
    }

    fn switch_to_shared_copy(&self, partition: PartitionId) -> Result<bool> {
        self.0.switch_to_shared_copy(partition)
    }
}

impl RowLookup for IndexWriter {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.0.row(key)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        self.0.prefetch(keys);
    }
}

impl ReplicaWriter for IndexWriter {
    fn start_rebuild(&mut self) -> Result<()> {
        self.0.start_rebuild()
    }

    fn start_rebuild_from_image(
        &mut self,
        image: &Image,
        state: &PartitionState,
        beside: Option<StoreId>,
    ) -> Result<()> {
        match beside {
            Some(beside) => self.0.start_rebuild_sharing_records(image, state, beside),
            None => self.0.start_rebuild_from_image(image, state),
        }
    }

    fn shares_records(&self) -> bool {
        self.0.shares_records()
    }

    fn detach_shared_records(&mut self, state: &PartitionState) -> Result<()> {
        self.0.detach_shared_records(state)
    }

    fn abandon_rebuild(&mut self) -> Result<()> {
        self.0.abandon_rebuild();
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        self.0.publish_rebuild();
        Ok(())
    }

    fn set_phase(&mut self, phase: Phase) {
        self.0.set_phase(phase);
    }

    fn apply(&mut self, effects: &mut FoldEffects, state: &PartitionState) -> Result<()> {
        self.0.apply(effects, state)
    }

    fn note_cursor(&mut self, cursor: LogCursor) {
        self.0.note_cursor(cursor);
    }

    fn publish_cursor(&mut self) {
        self.0.publish_cursor();
    }

    fn rebuild_may_free_space(&mut self) -> bool {
        self.0.rebuild_may_free_space()
    }

    fn check_integrity(&self) -> Result<()> {
        self.0.check_integrity()
    }

    fn blocks_repaired(&self) -> u64 {
        self.0.blocks_repaired()
    }

    fn maintenance(&self) -> Option<MaintenanceWork> {
        let task = self.0.maintenance_task()?;
        Some(Box::new(move || task.run()))
    }

    fn visit_rows(&self, visit: &mut VisitRow<'_>) -> Result<()> {
        self.0.visit_rows(visit)
    }

    fn write_image(&self, state: Vec<u8>, sink: &mut dyn ImageSink) -> Result<u64> {
        self.0.write_image(state, sink)
    }
}

#[cfg(test)]
mod round_trip_test;
