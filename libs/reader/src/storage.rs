//! Where what is followed is kept: in the embedded index, or where a service keeps it.

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

/// The copies of a store's partitions, as those who follow its logs see them.
pub trait Storage: Send + Sync + 'static {
    /// The definitions of the store that are known here.
    fn schemas(&self) -> &SchemaSet;

    /// The one writer of a partition's copy, and what that goes on with.
    ///
    /// # Errors
    /// Why there is none, such as a disk that refuses.
    fn open(&self, at: PartitionRef) -> Result<OpenedCopy>;

    /// What a partition's copy holds; nothing of one that is not here.
    fn held(&self, partition: PartitionId) -> Held;

    /// Lets readers come to the copy that is written, where they are not there yet; answers whether
    /// they are.
    ///
    /// # Errors
    /// `Unavailable`, `LimitExceeded` where they cannot.
    fn go_live(&self, partition: PartitionId) -> Result<bool> {
        let _ = partition;
        Ok(true)
    }
}

/// A copy that is opened to be written.
pub struct OpenedCopy {
    /// Its writer.
    pub writer: Box<dyn CopyWriter>,
    /// What it goes on with; `None` in an empty one.
    pub resumed: Option<Resumed>,
    /// The outcomes that it has kept.
    pub outcomes: OutcomeTable,
    /// Records that it skipped, and nobody has settled: they are told of again.
    pub skipped: BTreeMap<Offset, SkippedRecord>,
}

impl OpenedCopy {
    /// One that goes on with nothing.
    pub fn empty(writer: Box<dyn CopyWriter>) -> Self {
        let (outcomes, skipped) = (OutcomeTable::default(), BTreeMap::new());
        Self { writer, resumed: None, outcomes, skipped }
    }
}

/// The writer of one partition's copy.
pub trait CopyWriter: Documents + Send + Sync + 'static {
    /// Starts an empty copy beside the one that readers see; all that follows goes to it.
    ///
    /// # Errors
    /// Where there is no room for it; nothing has changed then.
    fn start_rebuild(&mut self) -> Result<()>;

    /// As [`CopyWriter::start_rebuild`], with a copy that goes on from an image. Of what a version
    /// of the documents beside it has alike it may use the memory.
    ///
    /// # Errors
    /// `Unsupported` where there are no images, else why it cannot be.
    fn start_rebuild_of(
        &mut self,
        image: &Image,
        state: &PartitionState,
        beside: Option<StoreId>,
    ) -> Result<()> {
        let _ = (image, state, beside);
        Err(Error::unsupported("this copy goes on from no image"))
    }

    /// Whether it uses another version's memory.
    fn is_borrowing(&self) -> bool {
        false
    }

    /// Makes the copy that readers see, which is of this state, one that uses no other version's
    /// memory.
    ///
    /// # Errors
    /// Where there is no room for it; it is as it was then.
    fn stand_alone(&mut self, state: &PartitionState) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Lays documents over a copy that has begun with an image, of this state: none of it counts
    /// before an entry does, or the state that all of it makes.
    ///
    /// # Errors
    /// As [`CopyWriter::apply`]; the copy is then given up.
    fn lay_over(
        &mut self,
        writes: Vec<(Key, Option<Vec<u8>>)>,
        state: &PartitionState,
    ) -> Result<()> {
        self.apply(&mut Applied { writes, ..Applied::default() }, state)
    }

    /// Throws the copy that is built away; what follows goes to the one that readers see.
    ///
    /// # Errors
    /// Where it cannot be; the next one that is started throws it away.
    fn abandon_rebuild(&mut self) -> Result<()> {
        Err(Error::unsupported("a copy that is built here is not given up"))
    }

    /// Makes the copy that is built the one that readers see. Without one nothing happens.
    ///
    /// # Errors
    /// Why it cannot be yet; readers see the old one then.
    fn publish_rebuild(&mut self) -> Result<()>;

    /// Says whether the copy may answer.
    fn set_phase(&mut self, phase: PartitionPhase);

    /// Takes what an entry changed and the state behind it, whole or not at all. It is written now,
    /// or with entries that follow, by [`CopyWriter::settle`] at the latest; what is held back may
    /// be taken out of `applied`.
    ///
    /// # Errors
    /// `LimitExceeded` without room, `Unavailable` for a disk that refuses: it is tried again; else
    /// the copy cannot go on.
    fn apply(&mut self, applied: &mut Applied, state: &PartitionState) -> Result<()>;

    /// Writes what is held back, in one step with the state behind it, which is that of the last
    /// entry that was taken.
    ///
    /// # Errors
    /// As [`CopyWriter::apply`]; it is held back still.
    fn settle(&mut self, state: &PartitionState) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Notes what is known of the log, to be kept with the next entry.
    fn note_following(&mut self, following: Following);

    /// Keeps what was noted of the log now.
    fn publish_following(&mut self) {}

    /// Whether a copy that is built anew may have room where this one has none.
    fn may_find_room(&mut self) -> bool {
        false
    }

    /// Whether the copy is as it was written.
    ///
    /// # Errors
    /// `Corrupt`.
    fn check_sound(&self) -> Result<()> {
        Ok(())
    }

    /// Blocks of its image that were damaged and mended.
    fn blocks_mended(&self) -> u64 {
        0
    }

    /// What is to be done for it beside the writes, if anything.
    fn upkeep(&self) -> Option<Upkeep> {
        None
    }

    /// The writer of an index, where it is one.
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
