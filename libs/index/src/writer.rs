//! The writer of a partition: applies the results of the fold, and publishes them.
//!
//! Readers continue during a write. A document changes from its old row to its new row in one step,
//! even if an entry drops all documents, so no reader sees it between two entries. The crate's
//! essay gives the order of the steps.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase, Progress};
use forebay_core::row::{Row, row_schema_version};
use forebay_core::{Error, ErrorCode, Result};

use crate::generation::{Generation, SpaceAttempts};
use crate::image::{self, Image, ImageMetadata, ImageSink};
use crate::inner::{Inner, Partition};
use crate::memory::MaintenanceTask;
use crate::sharing::{DonorSpace, shares_most_documents};
use crate::writer_state::{Source, WriterState};

/// Whether the error only prevents record sharing, so that the image can still be copied.
fn is_of_donor(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NotFound | ErrorCode::Unsupported | ErrorCode::Unavailable)
}

/// The only handle that changes a partition; after it is dropped, the next one can be taken.
#[derive(Debug)]
pub struct PartitionWriter {
    index: Arc<Inner>,
    id: PartitionId,
    state: Option<WriterState>,
}

impl PartitionWriter {
    pub(crate) fn take(index: Arc<Inner>, id: PartitionId) -> Result<Self> {
        let partition = index.followed_partition(id)?;
        let writer_state = partition.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let state = writer_state.ok_or_else(|| {
            let message =
                "the partition has a writer already; drop that writer before taking another";
            Error::invalid_argument(message).with_partition(id)
        })?;
        Ok(Self { index, id, state: Some(state) })
    }

    /// The partition that this handle writes.
    pub fn partition(&self) -> PartitionId {
        self.id
    }

    /// The applied progress; that of the generation under construction while there is one.
    pub fn progress(&self) -> Progress {
        self.state().target().progress
    }

    /// The size of the documents; that of the generation under construction while there is one.
    pub fn usage(&self) -> PartitionUsage {
        self.state().target().usage
    }

    /// The most bucket groups that one change has moved since the documents were last dropped, or
    /// loaded from an image, or taken over from another owner.
    #[doc(hidden)]
    pub fn groups_moved_max(&self) -> u32 {
        self.state().target().table.moved_max()
    }

    fn state(&self) -> &WriterState {
        self.state.as_ref().expect("the state leaves only in drop")
    }

    fn split(&mut self) -> (&Inner, &Partition, &mut WriterState) {
        let index = &*self.index;
        let partition =
            index.followed_partition(self.id).expect("checked when the writer was taken");
        (index, partition, self.state.as_mut().expect("the state leaves only in drop"))
    }

    fn partition_ref(&self) -> &Partition {
        self.index.followed_partition(self.id).expect("checked when the writer was taken")
    }

    /// Returns memory maintenance for another thread to run concurrently with the writes, or
    /// `None`. The task (1) pre-faults the blocks that are written next, so that no `apply` waits
    /// some milliseconds for the system to clear one; (2) moves blocks of a shared copy from small
    /// pages into huge pages, which reduces the time of a read to as little as two thirds. The
    /// index is correct without the task, but slower.
    pub fn maintenance_task(&self) -> Option<MaintenanceTask> {
        MaintenanceTask::of(&self.state().target().space.memory)
    }

    /// Applies one record: drops all documents if the record says so, then makes its writes, then
    /// publishes `state` (the fold's state after the record). Records without effect are accepted,
    /// too.
    ///
    /// Memory and time are proportional to the writes; a new document may also split a bucket group
    /// of 1,024 slots. The call reclaims a bounded amount of memory of expired documents and
    /// replaced records. If memory is short and spilling is allowed
    /// ([`Index::spill_to`](crate::Index::spill_to)), the call spills the least recently written
    /// records.
    ///
    /// # Errors
    /// - `Internal` when the record contradicts the index: another partition, a decreasing
    ///   position, a row that is broken or of an unknown schema version; nothing was changed then.
    /// - `LimitExceeded` if there is neither memory nor spill space; nothing was changed then
    ///   either.
    pub fn apply(&mut self, effects: &FoldEffects, state: &PartitionState) -> Result<()> {
        self.check(effects, state).map_err(|error| error.with_partition(self.id))?;
        let (index, partition, writer) = self.split();
        let WriterState { current, rebuilt, published, .. } = writer;
        let (generation, published) = match rebuilt {
            Some(rebuilt) => (rebuilt, None),
            None => (current, Some(&**published)),
        };
        let memory = generation.space.memory.clone();
        let at_partition = |error: Error| error.with_partition(partition.at.partition);
        let mut attempts = SpaceAttempts::NOTHING;
        while let Err(error) = generation.apply(&index.resources, effects, state, published) {
            let is_for_room = error.code() == ErrorCode::LimitExceeded;
            if !is_for_room
                || !generation.make_room(&index.resources, &mut attempts).map_err(at_partition)?
            {
                return Err(at_partition(error));
            }
        }
        generation
            .collect_garbage(&index.resources, effects.writes.len(), published)
            .map_err(at_partition)?;
        index.resources.reclaim.advance(&memory);
        Ok(())
    }

    fn check(&self, effects: &FoldEffects, state: &PartitionState) -> Result<()> {
        let at = self.partition_ref().at;
        // The fold may have read around damage: see `RowLookup::row`.
        self.check_integrity()?;
        if state.partition != at {
            let message = format!("an effect on {} reached the writer of {at}", state.partition);
            return Err(Error::internal(message));
        }
        let (current, next) = (self.progress(), Progress::from(state));
        let is_decreasing = next.offset_applied < current.offset_applied
            || next.partition_time < current.partition_time
            || next.schema_version < current.schema_version;
        if is_decreasing {
            let message = format!("the state would go back from {current:?} to {next:?}");
            return Err(Error::internal(message));
        }
        let schemas = &self.index.schemas;
        let is_known = next.schema_version.0 == 0 || schemas.get(next.schema_version).is_some();
        if !is_known {
            let version = next.schema_version;
            return Err(Error::internal(format!(
                "schema version {version} is missing; add the version before its entry"
            )));
        }
        for (key, row) in &effects.writes {
            let Some(row) = row else { continue };
            let version = row_schema_version(row).unwrap_or_default();
            let schema = schemas.get(version).ok_or_else(|| {
                let message = format!("the schema version {version} of a row is unknown");
                Error::internal(message).with_key_digest(key.digest())
            })?;
            Row::new(row, &schema.layout)
                .map_err(|error| Error::internal(error.message()).with_key_digest(key.digest()))?;
        }
        Ok(())
    }

    /// Sets whether the partition may answer; see [`Phase`].
    pub fn set_phase(&mut self, phase: Phase) {
        self.state().published.store_phase_release(phase);
    }

    /// Starts an empty generation next to the one that readers see; `apply` and `row` use it from
    /// now on. A generation that is already under construction is discarded.
    ///
    /// # Errors
    /// `LimitExceeded` when the system has no addresses for it; nothing has changed then.
    pub fn start_rebuild(&mut self) -> Result<()> {
        let (index, _, writer) = self.split();
        writer.abandon();
        let (hash, number) = (writer.current.space.hash, writer.current.space.generation);
        let reserved = writer.current.space.memory.reserved();
        let generation = match &writer.source {
            Source::Private(addresses) => Generation::private(*addresses, hash)?,
            Source::Shared(spaces) => {
                Generation::new_in(spaces.create(number, hash, reserved, None)?)
            }
        };
        generation.space.memory.charge_to(&index.resources.account);
        writer.rebuilt = Some(generation);
        Ok(())
    }

    /// As [`PartitionWriter::start_rebuild`], with a generation that continues from an image, with
    /// the fold's state as of the image.
    ///
    /// In the process's own memory the image's blocks are mapped, and verified at first use, so the
    /// cost is proportional to the image's groups, not its documents. A damaged block is then
    /// repaired from the image's parity; the first block that cannot be repaired makes every later
    /// `apply` fail. For a shared copy all blocks are copied, and verified and repaired during the
    /// copy.
    ///
    /// # Errors
    /// `Unsupported` for an image of another partition; `Corrupt` for an image that cannot be a
    /// table, or is damaged; `LimitExceeded`, `Unavailable`. No generation is under construction
    /// then.
    pub fn start_rebuild_from_image(
        &mut self,
        image: &Image,
        state: &PartitionState,
    ) -> Result<()> {
        self.start_generation(image, state, None)
    }

    /// As [`PartitionWriter::start_rebuild_from_image`], for a partition of which another version
    /// (the donor) has a shared copy in the same directory. If most documents are equal in the
    /// donor, byte by byte, this generation uses the donor's records instead of copies. They stay
    /// unchanged in the donor's memory until this generation ends, or is
    /// [detached](PartitionWriter::detach_shared_records).
    ///
    /// # Errors
    /// As [`PartitionWriter::start_rebuild_from_image`].
    pub fn start_rebuild_sharing_records(
        &mut self,
        image: &Image,
        state: &PartitionState,
        donor_store: StoreId,
    ) -> Result<()> {
        let donor = self.donor(image, donor_store);
        if let Some(donor) = &donor {
            match self.start_generation(image, state, Some(donor)) {
                // The donor may be gone, or its directory may not support hard links.
                Err(error) if is_of_donor(&error) => {}
                outcome => return outcome,
            }
        }
        self.start_generation(image, state, None)
    }

    /// Opens the shared copy of another version of this partition, if it has most documents of an
    /// image.
    fn donor(&self, image: &Image, donor_store: StoreId) -> Option<DonorSpace> {
        let directory = self.index.shared_copies.as_ref()?;
        let donor = DonorSpace::open(directory, donor_store, self.id).ok()?;
        shares_most_documents(&donor.space, image).ok()?.then_some(donor)
    }

    fn start_generation(
        &mut self,
        image: &Image,
        state: &PartitionState,
        donor: Option<&DonorSpace>,
    ) -> Result<()> {
        let at = self.partition_ref().at;
        let partitions = self.index.schemas.newest().definition.partitions;
        image.metadata().check_is_of(at, partitions)?;
        let (index, _, writer) = self.split();
        writer.abandon();
        let (hash, number) = (writer.current.space.hash, writer.current.space.generation);
        let reserved = writer.current.space.memory.reserved();
        let generation = match &writer.source {
            Source::Private(addresses) => {
                Generation::from_image(image, *addresses, index.resources.spill_place())
            }
            Source::Shared(spaces) => {
                let space = spaces.create(number, hash, reserved, donor)?;
                let number = space.generation;
                let result = match donor {
                    Some(donor) => Generation::from_image_sharing(
                        image,
                        &donor.space,
                        space,
                        state,
                        &index.resources,
                    ),
                    None => Generation::copied_from_image(image, space, state, &index.resources),
                };
                result.inspect_err(|_| spaces.remove(number))
            }
        };
        let generation = generation.map_err(|error| error.with_partition(at.partition))?;
        generation.space.memory.charge_to(&index.resources.account);
        writer.rebuilt = Some(generation);
        Ok(())
    }

    /// Whether the generation that is written uses records in another version's memory.
    pub fn shares_records(&self) -> bool {
        self.state().target().space.memory.donor_range().is_some()
    }

    /// Replaces the generation that readers see, which is at this state, by one that uses no other
    /// version's memory; does nothing if it uses none. A generation under construction is
    /// discarded. Time and memory are proportional to the documents.
    ///
    /// # Errors
    /// `LimitExceeded`, `Unavailable`, `Corrupt`; readers then keep the previous generation.
    pub fn detach_shared_records(&mut self, state: &PartitionState) -> Result<()> {
        let (index, _, writer) = self.split();
        if writer.current.space.memory.donor_range().is_none() {
            return Ok(());
        }
        writer.abandon();
        let Source::Shared(spaces) = &writer.source else { return Ok(()) };
        let current = &writer.current;
        let (hash, number) = (current.space.hash, current.space.generation);
        let space = spaces.create(number, hash, current.space.memory.reserved(), None)?;
        let number = space.generation;
        let copy = current
            .copy_to(space, state, &index.resources)
            .inspect_err(|_| spaces.remove(number))?;
        writer.rebuilt = Some(copy);
        self.publish_rebuild();
        Ok(())
    }

    /// Discards the generation under construction; the one that readers see is written again.
    pub fn abandon_rebuild(&mut self) {
        let (_, _, writer) = self.split();
        writer.abandon();
    }

    /// Makes the generation under construction the one that readers see, in one step, and retires
    /// the old one. The caller decides whether its position may be served instead of the old one's.
    /// Does nothing if no generation is under construction.
    pub fn publish_rebuild(&mut self) {
        let (index, partition, writer) = self.split();
        let Some(rebuilt) = writer.rebuilt.take() else { return };
        let old = std::mem::replace(&mut writer.current, rebuilt);
        let (current, published) = (&writer.current, &writer.published);
        let turn = published.prepare(&current.status());
        match &writer.source {
            Source::Private(_) => {
                let old = partition.header.swap_space(current.space.clone());
                published.take_turn(turn);
                index.resources.reclaim.retire_space(old);
            }
            Source::Shared(spaces) => {
                // A successor that takes over between these two steps finishes them: see
                // `shared_copy::takeover`.
                published.store_generation(current.space.generation);
                published.take_turn(turn);
                spaces.remove(old.space.generation);
            }
        }
    }

    /// Whether a rebuilt generation may have room although this generation has run out of room: a
    /// shared copy in a memory file system then continues in its directory on disk.
    pub fn rebuild_may_free_space(&mut self) -> bool {
        let (_, _, writer) = self.split();
        let generation = writer.target().space.generation;
        match &mut writer.source {
            Source::Private(_) => false,
            Source::Shared(spaces) => spaces.note_full(generation),
        }
    }

    /// Notes the log's state, for readers in other processes and for a successor that takes over.
    /// The note is published with the next entry, or by [`PartitionWriter::publish_cursor`].
    pub fn note_cursor(&mut self, cursor: LogCursor) {
        let (_, _, writer) = self.split();
        let target_cursor = &mut writer.target_mut().cursor;
        let (log_id, drop_all_count) = (target_cursor.log_id, target_cursor.drop_all_count);
        *target_cursor = LogCursor { log_id, drop_all_count, ..cursor };
    }

    /// Publishes the noted state of the log, unless a generation is under construction.
    pub fn publish_cursor(&mut self) {
        let (_, _, writer) = self.split();
        if writer.rebuilt.is_none() {
            writer.published.publish(&writer.current.status());
        }
    }

    /// Checks that the generation that is written may continue: no part of an image was found
    /// damaged beyond repair, and no spilled document. Any thread of this process may find such
    /// damage, also a reader.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn check_integrity(&self) -> Result<()> {
        let target = &self.state().target().space;
        let result = target.memory.check_integrity().and_then(|()| {
            // For a shared copy the readers of this process have a mapping of their own.
            if !target.memory.is_shared() {
                return Ok(());
            }
            let _pin = self.index.resources.reclaim.enter();
            // SAFETY: the guard is held for as long as the space is in use.
            let loaded =
                unsafe { self.partition_ref().header.load_space(&self.index.resources.reclaim) };
            let mapped_space = loaded.ok().filter(|space| space.generation == target.generation);
            mapped_space.map_or(Ok(()), |space| space.memory.check_integrity())
        });
        result.map_err(|error| error.with_partition(self.id))
    }

    /// Number of blocks of the underlying image that were damaged and repaired so far, by any user:
    /// the data that was read is correct, but the disk is failing.
    pub fn blocks_repaired(&self) -> u64 {
        self.state().target().blocks_repaired()
    }

    /// Writes an image of the documents with the caller's `state`; returns its number of bytes. The
    /// image is of exactly one position, since only this handle can change the documents. The time
    /// is proportional to the documents; no entry can be applied during the call, but readers
    /// continue.
    ///
    /// # Errors
    /// - `Unsupported` for a generation that uses another version's memory: an image must contain
    ///   all records that it refers to.
    /// - Any error of the sink.
    /// - `LimitExceeded` for a table that is too large for an image.
    /// - `Corrupt` when this generation itself comes from an image that was found damaged.
    pub fn write_image(&self, state: Vec<u8>, sink: &mut dyn ImageSink) -> Result<u64> {
        if self.shares_records() {
            let message = "a copy that shares another version's memory has no image; copy the \
                shared records first";
            return Err(Error::unsupported(message));
        }
        let Generation { space, table, progress, usage, .. } = self.state().target();
        let partitions = self.index.schemas.newest().definition.partitions;
        let partition = self.partition_ref().at;
        let metadata = ImageMetadata { partition, partitions, progress: *progress, usage: *usage };
        image::write(&space.memory, metadata, table.content(), state, sink)
    }

    /// Visits the identity bytes and the row of every document, including expired documents that
    /// still take memory: the state of exactly one position, since only this handle can change it.
    ///
    /// # Errors
    /// The first error that `visit` returns, which ends the visit. `Corrupt` from a damaged image
    /// or spill file; `Unavailable` when the file cannot be read.
    pub fn visit_rows(&self, visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.state().target().table.visit_rows(visit)
    }
}

impl RowLookup for PartitionWriter {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.state().target().table.row(key)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        self.state().target().table.prefetch(keys.iter().copied());
    }
}

impl Drop for PartitionWriter {
    fn drop(&mut self) {
        let state = self.state.take();
        *self.partition_ref().writer.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

#[cfg(test)]
mod tests;
