//! The storage of the followed partitions: the embedded index, or the storage of a service.

use std::borrow::Cow;
use std::collections::BTreeMap;

use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};
use forebay_core::key::Key;
use forebay_core::outcome::OutcomeTable;
use forebay_core::state_rows::SkippedRecord;
use forebay_core::{Error, Result};
use forebay_index::{
    Following, Held, Image, Index, PartitionPhase, PartitionWriter, Resumed, SchemaSet, Upkeep,
};

/// The replicas of a store's partitions, as followers of its logs use them.
pub trait Storage: Send + Sync + 'static {
    /// Returns the store's known definitions.
    fn schemas(&self) -> &SchemaSet;

    /// Returns the only writer of a partition's replica, and the state that it resumes from.
    ///
    /// # Errors
    /// Returns the reason if there is no writer, such as a disk that refuses.
    fn open(&self, at: PartitionRef) -> Result<OpenedCopy>;

    /// Returns the size of a partition's replica; zero for a partition that is not here.
    fn held(&self, partition: PartitionId) -> Held;

    /// Lets readers switch to the replica that is written, if they still use another source;
    /// returns whether they use it now.
    ///
    /// # Errors
    /// Returns `Unavailable` or `LimitExceeded` if readers cannot switch.
    fn go_live(&self, partition: PartitionId) -> Result<bool> {
        let _ = partition;
        Ok(true)
    }
}

/// A replica that is open for writes.
pub struct OpenedCopy {
    /// Writer of the replica.
    pub writer: Box<dyn CopyWriter>,
    /// State that the replica resumes from; `None` for an empty one.
    pub resumed: Option<Resumed>,
    /// Outcomes that the replica has stored.
    pub outcomes: OutcomeTable,
    /// Skipped records that are not settled yet; the callback receives them again.
    pub skipped: BTreeMap<Offset, SkippedRecord>,
}

impl OpenedCopy {
    /// Returns an empty replica.
    pub fn empty(writer: Box<dyn CopyWriter>) -> Self {
        let (outcomes, skipped) = (OutcomeTable::default(), BTreeMap::new());
        Self { writer, resumed: None, outcomes, skipped }
    }
}

/// The writer of one partition's replica.
pub trait CopyWriter: Documents + Send + Sync + 'static {
    /// Starts an empty replica next to the one that readers see; all later calls write to it.
    ///
    /// # Errors
    /// Returns an error if there is no space for a second replica; nothing has changed.
    fn start_rebuild(&mut self) -> Result<()>;

    /// Starts a replica as [`CopyWriter::start_rebuild`] does, from an image. The replica may share
    /// equal records with the store version `beside`.
    ///
    /// # Errors
    /// Returns `Unsupported` if the storage has no images, else the reason of the failure.
    fn start_rebuild_of(
        &mut self,
        image: &Image,
        state: &PartitionState,
        beside: Option<StoreId>,
    ) -> Result<()> {
        let _ = (image, state, beside);
        Err(Error::unsupported("this replica cannot start from a snapshot image"))
    }

    /// Returns whether the replica shares another version's records.
    fn is_borrowing(&self) -> bool {
        false
    }

    /// Detaches the replica that readers see, which is at this state, from the other version's
    /// records.
    ///
    /// # Errors
    /// Returns an error if there is no space; the replica is unchanged.
    fn stand_alone(&mut self, state: &PartitionState) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Applies documents of this state to a replica that started from an image. The documents
    /// become visible with the next entry, or with the state that all deltas lead to.
    ///
    /// # Errors
    /// Returns the errors of [`CopyWriter::apply`]; the caller then discards the replica.
    fn lay_over(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        state: &PartitionState,
    ) -> Result<()> {
        self.apply(&mut Applied { writes, ..Applied::default() }, state)
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
    fn set_phase(&mut self, phase: PartitionPhase);

    /// Accepts an entry's effects and the state after it, as a whole or not at all. The writer
    /// writes them now or together with later entries, at the latest in [`CopyWriter::settle`]; it
    /// may move the effects that it buffers out of `applied`.
    ///
    /// # Errors
    /// `LimitExceeded` without space and `Unavailable` for a disk that refuses are retried; after
    /// any other error the replica cannot continue.
    fn apply(&mut self, applied: &mut Applied, state: &PartitionState) -> Result<()>;

    /// Flushes the buffered effects and the state after the last accepted entry, atomically.
    ///
    /// # Errors
    /// Returns the errors of [`CopyWriter::apply`]; the effects stay buffered.
    fn settle(&mut self, state: &PartitionState) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Notes facts about the log, which are stored with the next entry.
    fn note_following(&mut self, following: Following);

    /// Stores the noted facts about the log now.
    fn publish_following(&mut self) {}

    /// Returns whether a rebuild may find space if this replica has none.
    fn may_find_room(&mut self) -> bool {
        false
    }

    /// Checks that the replica is as it was written.
    ///
    /// # Errors
    /// Returns `Corrupt` for a damaged replica.
    fn check_sound(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of damaged blocks of the replica's image that were repaired.
    fn blocks_mended(&self) -> u64 {
        0
    }

    /// Returns the next maintenance task of the replica, if any.
    fn upkeep(&self) -> Option<Upkeep> {
        None
    }

    /// Returns the writer as the writer of an index, if it is one.
    fn as_index(&self) -> Option<&PartitionWriter> {
        None
    }
}

impl Documents for Box<dyn CopyWriter> {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        (**self).row(key)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        (**self).prefetch(keys);
    }
}

impl Storage for Index {
    fn schemas(&self) -> &SchemaSet {
        self.schemas()
    }

    fn open(&self, at: PartitionRef) -> Result<OpenedCopy> {
        Ok(OpenedCopy::empty(Box::new(self.writer(at.partition)?)))
    }

    fn held(&self, partition: PartitionId) -> Held {
        self.status(partition).map(|status| status.held).unwrap_or_default()
    }

    fn go_live(&self, partition: PartitionId) -> Result<bool> {
        self.go_live(partition)
    }
}

impl CopyWriter for PartitionWriter {
    fn start_rebuild(&mut self) -> Result<()> {
        self.start_rebuild()
    }

    fn start_rebuild_of(
        &mut self,
        image: &Image,
        state: &PartitionState,
        beside: Option<StoreId>,
    ) -> Result<()> {
        match beside {
            Some(beside) => self.start_rebuild_beside(image, state, beside),
            None => self.start_rebuild_of(image, state),
        }
    }

    fn is_borrowing(&self) -> bool {
        self.is_borrowing()
    }

    fn stand_alone(&mut self, state: &PartitionState) -> Result<()> {
        self.stand_alone(state)
    }

    fn abandon_rebuild(&mut self) -> Result<()> {
        self.abandon_rebuild();
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        self.publish_rebuild();
        Ok(())
    }

    fn set_phase(&mut self, phase: PartitionPhase) {
        self.set_phase(phase);
    }

    fn apply(&mut self, applied: &mut Applied, state: &PartitionState) -> Result<()> {
        PartitionWriter::apply(self, applied, state)
    }

    fn note_following(&mut self, following: Following) {
        self.note_following(following);
    }

    fn publish_following(&mut self) {
        self.publish_following();
    }

    fn may_find_room(&mut self) -> bool {
        self.may_find_room()
    }

    fn check_sound(&self) -> Result<()> {
        self.check_sound()
    }

    fn blocks_mended(&self) -> u64 {
        self.blocks_mended()
    }

    fn upkeep(&self) -> Option<Upkeep> {
        self.upkeep()
    }

    fn as_index(&self) -> Option<&PartitionWriter> {
        Some(self)
    }
}
