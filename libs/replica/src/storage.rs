//! The storage of the followed partitions: the traits that an embedded index, the shards of a
//! service and the memory of a simulation implement.

use std::borrow::Cow;
use std::collections::BTreeMap;

use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};
use forebay_core::key::Key;
use forebay_core::outcome::OutcomeTable;
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase, ReplicaState};
use forebay_core::schema_set::SchemaSet;
use forebay_core::state_rows::SkippedRecord;
use forebay_core::{Error, Result};
use forebay_index::{Image, ImageSink};

/// The replicas of a store's partitions, as the tails of its logs use them.
pub trait Storage: Send + Sync + 'static {
    /// Returns the store's known definitions.
    fn schemas(&self) -> &SchemaSet;

    /// Returns the only writer of a partition's replica, and the state that it resumes from.
    ///
    /// # Errors
    /// Returns the reason if there is no writer, such as a disk that refuses.
    fn open(&self, at: PartitionRef) -> Result<OpenedReplica>;

    /// Returns the size of a partition's replica; zero for a partition that is not here.
    fn usage(&self, partition: PartitionId) -> PartitionUsage;

    /// Lets readers switch to the replica that is written, if they still use another source;
    /// returns whether they use it now.
    ///
    /// # Errors
    /// Returns `Unavailable` or `LimitExceeded` if readers cannot switch.
    fn switch_to_shared_copy(&self, partition: PartitionId) -> Result<bool> {
        let _ = partition;
        Ok(true)
    }
}

/// A replica that is open for writes.
pub struct OpenedReplica {
    /// Writer of the replica.
    pub writer: Box<dyn ReplicaWriter>,
    /// State that the replica resumes from; `None` for an empty one.
    pub resumed: Option<ReplicaState>,
    /// Outcomes that the replica has stored.
    pub outcomes: OutcomeTable,
    /// Skipped records that may have no durable dead letter; the callback receives them again.
    pub skipped: BTreeMap<Offset, SkippedRecord>,
}

impl OpenedReplica {
    /// Returns an empty replica.
    pub fn empty(writer: Box<dyn ReplicaWriter>) -> Self {
        let (outcomes, skipped) = (OutcomeTable::default(), BTreeMap::new());
        Self { writer, resumed: None, outcomes, skipped }
    }
}

/// A part of a replica's maintenance, for a thread of its own; returns whether work remains. A call
/// takes about a tenth of a second at most, and the writer continues meanwhile.
pub type MaintenanceWork = Box<dyn FnMut() -> bool + Send>;

/// A function that receives the key and the row of a document.
pub type VisitRow<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

/// The writer of one partition's replica.
pub trait ReplicaWriter: RowLookup + Send + Sync + 'static {
    /// Starts an empty replica next to the one that readers see; all later calls write to it.
    ///
    /// # Errors
    /// Returns an error if there is no space for a second replica; nothing has changed.
    fn start_rebuild(&mut self) -> Result<()>;

    /// Starts a replica as [`ReplicaWriter::start_rebuild`] does, from an image. The replica may
    /// share equal records with the store version `beside`.
    ///
    /// # Errors
    /// Returns `Unsupported` if the storage has no images, else the reason of the failure.
    fn start_rebuild_from_image(
        &mut self,
        image: &Image,
        state: &PartitionState,
        beside: Option<StoreId>,
    ) -> Result<()> {
        let _ = (image, state, beside);
        Err(Error::unsupported("this replica cannot start from a snapshot image"))
    }

    /// Returns whether the replica shares another version's records.
    fn shares_records(&self) -> bool {
        false
    }

    /// Detaches the replica that readers see, which is at this state, from the other version's
    /// records.
    ///
    /// # Errors
    /// Returns an error if there is no space; the replica is unchanged.
    fn detach_shared_records(&mut self, state: &PartitionState) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Applies documents of this state to a replica that started from an image. The documents
    /// become visible with the next entry, or with the state that all deltas lead to.
    ///
    /// # Errors
    /// Returns the errors of [`ReplicaWriter::apply`]; the caller then discards the replica.
    fn apply_delta(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        state: &PartitionState,
    ) -> Result<()> {
        self.apply(&mut FoldEffects { writes, ..FoldEffects::default() }, state)
    }

    /// Discards the replica under construction; later calls write to the one that readers see.
    ///
    /// # Errors
    /// Returns an error if that is impossible; the next rebuild then discards the replica.
    fn abandon_rebuild(&mut self) -> Result<()> {
        Err(Error::unsupported("this replica cannot discard a rebuild"))
    }

    /// Makes the replica under construction the one that readers see. Does nothing if there is
    /// none.
    ///
    /// # Errors
    /// Returns the reason if that is impossible now; readers still see the old replica.
    fn publish_rebuild(&mut self) -> Result<()>;

    /// Sets whether the replica may answer.
    fn set_phase(&mut self, phase: Phase);

    /// Accepts an entry's effects and the state after it, as a whole or not at all. The writer
    /// writes them now or together with later entries, at the latest in
    /// [`ReplicaWriter::write_buffered`]; it may move the effects that it buffers out of `effects`.
    ///
    /// # Errors
    /// `LimitExceeded` without space and `Unavailable` for a disk that refuses are retried; after
    /// any other error the replica cannot continue.
    fn apply(&mut self, effects: &mut FoldEffects, state: &PartitionState) -> Result<()>;

    /// Writes the buffered effects and the state after the last accepted entry, atomically.
    ///
    /// # Errors
    /// Returns the errors of [`ReplicaWriter::apply`]; the effects stay buffered.
    fn write_buffered(&mut self, state: &PartitionState) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Notes facts about the log, which are stored with the next entry.
    fn note_cursor(&mut self, cursor: LogCursor);

    /// Stores the noted facts about the log now.
    fn publish_cursor(&mut self) {}

    /// Returns whether a rebuild may find space if this replica has none.
    fn rebuild_may_free_space(&mut self) -> bool {
        false
    }

    /// Checks that the replica is as it was written.
    ///
    /// # Errors
    /// Returns `Corrupt` for a damaged replica.
    fn check_integrity(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of damaged blocks of the replica's image that were repaired.
    fn blocks_repaired(&self) -> u64 {
        0
    }

    /// Returns the next maintenance task of the replica, if any.
    fn maintenance(&self) -> Option<MaintenanceWork> {
        None
    }

    /// Visits all rows of the replica, each once, in any order.
    ///
    /// # Errors
    /// Returns `Unsupported` if the storage offers no such scan, and the first error of `visit`.
    fn visit_rows(&self, visit: &mut VisitRow<'_>) -> Result<()> {
        let _ = visit;
        Err(Error::unsupported("the rows of this replica cannot be visited here"))
    }

    /// Writes an image of the documents, with this state in it; returns the number of its bytes.
    ///
    /// # Errors
    /// Returns `Unsupported` if the storage writes no images, and the errors of the sink.
    fn write_image(&self, state: Vec<u8>, sink: &mut dyn ImageSink) -> Result<u64> {
        let _ = (state, sink);
        Err(Error::unsupported("this replica cannot be written as an image"))
    }
}

impl RowLookup for Box<dyn ReplicaWriter> {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        (**self).row(key)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        (**self).prefetch(keys);
    }
}
