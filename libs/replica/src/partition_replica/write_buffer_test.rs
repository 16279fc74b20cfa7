//! Proves that entries that a replica's writer buffers become visible once they are written, all of
//! them and exactly once.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState, Record, RowLookup};
use forebay_core::id::{
    LogId, Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId,
};
use forebay_core::key::KeyType;
use forebay_core::replica_state::{LogCursor, Phase};
use forebay_core::schema::StoreSpec;
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};
use parking_lot::Mutex;

use super::{ApplyError, ApplyResult, PartitionReplica};
use crate::progress::ReplicaProgress;
use crate::storage::ReplicaWriter;

const AT: PartitionRef = PartitionRef { store: StoreId(42), partition: PartitionId(0) };

/// The content of a disk, and its answer to the next write.
#[derive(Default)]
struct Disk {
    /// For each write, the offset after each of its entries, and the offset after all of them.
    writes: Vec<(Vec<Offset>, Offset)>,
    refusal: Option<Error>,
}

/// A writer that buffers entries until `write_buffered`.
struct BufferingWriter {
    buffered: Vec<Offset>,
    disk: Arc<Mutex<Disk>>,
}

impl RowLookup for BufferingWriter {
    fn row(&self, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

impl ReplicaWriter for BufferingWriter {
    fn start_rebuild(&mut self) -> Result<()> {
        self.buffered.clear();
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        Ok(())
    }

    fn set_phase(&mut self, _phase: Phase) {}

    fn apply(&mut self, effects: &mut FoldEffects, state: &PartitionState) -> Result<()> {
        if let Some(reason) = effects.skipped.take() {
            return Err(reason);
        }
        self.buffered.push(state.offset_applied);
        Ok(())
    }

    fn note_cursor(&mut self, _cursor: LogCursor) {}

    fn write_buffered(&mut self, state: &PartitionState) -> Result<()> {
        let mut disk = self.disk.lock();
        if let Some(refusal) = disk.refusal.take() {
            return Err(refusal);
        }
        disk.writes.push((std::mem::take(&mut self.buffered), state.offset_applied));
        Ok(())
    }
}

struct World {
    replica: PartitionReplica,
    disk: Arc<Mutex<Disk>>,
    schemas: SchemaSet,
}

impl World {
    fn new() -> Self {
        let spec = StoreSpec::documents("users", KeyType::String).partitions(1);
        let schema = SchemaAt::of(spec.define(AT.store).unwrap());
        let disk = Arc::<Mutex<Disk>>::default();
        let writer = BufferingWriter { buffered: Vec::new(), disk: Arc::clone(&disk) };
        let replica = PartitionReplica::first(AT, PartitionCount(1), Box::new(writer));
        Self { replica, disk, schemas: SchemaSet::new([schema]).unwrap() }
    }

    /// Applies an entry at this offset, of the log of this id.
    fn apply(&mut self, offset: u64, log_id: u64) -> std::result::Result<ApplyResult, ApplyError> {
        let body = if offset == 0 { EntryBody::LogHeader } else { EntryBody::Heartbeat };
        let entry = Ok(Entry::original(LogId(log_id), SchemaVersion(0), body));
        let append_time = Timestamp::from_micros(offset as i64);
        let record = Record { offset: Offset(offset), append_time, entry };
        self.replica.apply(record, &self.schemas, |_| ())
    }

    fn served_offset(&mut self) -> Offset {
        let mut progress = ReplicaProgress::default();
        self.replica.report(&mut progress);
        progress.served.offset_applied
    }

    fn writes(&self) -> Vec<(Vec<Offset>, Offset)> {
        self.disk.lock().writes.clone()
    }
}

#[test]
fn buffered_entries_become_visible_after_flush() {
    let mut world = World::new();
    for offset in 0..3 {
        world.apply(offset, 7).unwrap();
        assert_eq!(world.served_offset(), Offset(0));
    }
    assert!(!world.replica.is_quiesced(), "no checkpoint is made of it");
    world.replica.write_buffered().unwrap();
    assert_eq!(world.served_offset(), Offset(3));
    world.replica.write_buffered().unwrap();
    assert_eq!(world.writes(), [([1, 2, 3].map(Offset).to_vec(), Offset(3))]);
    assert!(world.replica.is_quiesced());
}

#[test]
fn refused_effects_are_written_once_the_disk_accepts_them() {
    let mut world = World::new();
    world.apply(0, 7).unwrap();
    world.disk.lock().refusal = Some(Error::unavailable("no room on the disk"));
    assert!(matches!(world.replica.write_buffered(), Err(ApplyError::Full(_))));
    assert!(world.replica.has_pending_effects() && world.served_offset() == Offset(0));
    world.replica.write_pending().unwrap();
    assert_eq!(world.served_offset(), Offset(1));
    assert_eq!(world.writes(), [(vec![Offset(1)], Offset(1))]);
}

#[test]
fn flush_writes_no_state_that_the_writer_refused() {
    let mut world = World::new();
    world.apply(0, 7).unwrap();
    // An entry of another log is skipped, which this writer refuses.
    assert!(matches!(world.apply(1, 8), Err(ApplyError::Broken(_))));
    world.replica.write_buffered().unwrap();
    assert_eq!((world.served_offset(), world.writes()), (Offset(0), Vec::new()));
}
