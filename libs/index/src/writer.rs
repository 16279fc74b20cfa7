//! The one writer of a partition: carries out what the fold answered, and publishes it.
//!
//! Readers go on meanwhile. A document is swung from its old row to its new one in one step, also
//! when everything around it is dropped, so nobody sees it between two entries. The order of the
//! steps is in the essay of the crate.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::row::{Row, row_schema_version};
use forebay_core::{Error, ErrorCode, Result};

use crate::budget::Budget;
use crate::generation::{Generation, Tried, has_most};
use crate::header::{Following, Held, PartitionPhase, Progress, Published, Words};
use crate::image::{self, Image, ImageAbout, ImageSink};
use crate::index::Inner;
use crate::live::{Lender, Spaces};
use crate::memory::Memory;
use crate::storage::{Partition, SeededHash, Space};

/// What a partition's writer keeps from one entry to the next.
#[derive(Debug)]
pub(crate) struct WriterState {
    live: Generation,
    /// The generation that is built beside the live one, which readers do not see yet.
    rebuilt: Option<Generation>,
    /// Where readers see what is applied.
    published: Published,
    /// Where new spaces come from.
    source: Source,
}

/// Where a writer's spaces come from.
#[derive(Debug)]
enum Source {
    /// The process's own memory, at most this many addresses each.
    Private(u64),
    /// Files that other processes read.
    Live(Spaces),
}

impl WriterState {
    /// The writer of an empty partition in the process's own memory, whose spaces have at most this
    /// many addresses.
    pub(crate) fn private(addresses: u64, hash: SeededHash, budget: &Arc<Budget>) -> Result<Self> {
        let live = Generation::private(addresses, hash)?;
        live.space.memory.charge_to(budget);
        let published = Published::Own(Arc::new(Words::new()));
        Ok(Self { live, rebuilt: None, published, source: Source::Private(addresses) })
    }

    /// The writer of a live copy that this process holds.
    pub(crate) fn of_live(live: Generation, published: Published, spaces: Spaces) -> Self {
        Self { live, rebuilt: None, published, source: Source::Live(spaces) }
    }

    /// The space that readers begin in.
    pub(crate) fn space(&self) -> Arc<Space> {
        self.live.space.clone()
    }

    /// Where readers see what is applied.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    fn target(&self) -> &Generation {
        self.rebuilt.as_ref().unwrap_or(&self.live)
    }

    fn target_mut(&mut self) -> &mut Generation {
        self.rebuilt.as_mut().unwrap_or(&mut self.live)
    }

    /// Throws the generation under construction away: nobody has seen it.
    fn abandon(&mut self) {
        if let (Some(rebuilt), Source::Live(spaces)) = (self.rebuilt.take(), &self.source) {
            spaces.remove(rebuilt.space.generation);
        }
    }
}

/// Work on the memory that is done beside the writes; see [`PartitionWriter::upkeep`].
#[derive(Debug)]
pub struct Upkeep(Arc<Memory>);

impl Upkeep {
    fn of(memory: &Arc<Memory>) -> Option<Self> {
        let upkeep = Self(Arc::clone(memory));
        upkeep.is_wanted().then_some(upkeep)
    }

    fn is_wanted(&self) -> bool {
        // Memory that nobody else holds is about to go.
        let is_held = Arc::strong_count(&self.0) > 1;
        is_held && (self.0.wants_blocks() || self.0.is_scattered())
    }

    /// Does some of it, in a tenth of a second at most; answers whether more is to be done. Any
    /// thread may do it while the writer goes on.
    pub fn run(&self) -> bool {
        self.0.prepare_blocks();
        self.0.collapse(BLOCKS_COLLAPSED);
        self.is_wanted()
    }
}

/// Whether nothing can be borrowed, and an image can be copied all the same.
fn is_of_lender(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NotFound | ErrorCode::Unsupported | ErrorCode::Unavailable)
}

/// Blocks of 2 MiB that one call brings into huge pages, each in some ten milliseconds.
const BLOCKS_COLLAPSED: usize = 8;

/// The one handle that changes a partition; dropping it lets the next one be taken.
#[derive(Debug)]
pub struct PartitionWriter {
    index: Arc<Inner>,
    id: PartitionId,
    state: Option<WriterState>,
}

impl PartitionWriter {
    pub(crate) fn take(index: Arc<Inner>, id: PartitionId) -> Result<Self> {
        let partition = index.followed(id)?;
        let taken = partition.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let state = taken.ok_or_else(|| {
            let message = "the partition has a writer already; drop it before taking another";
            Error::invalid_argument(message).with_partition(id)
        })?;
        Ok(Self { index, id, state: Some(state) })
    }

    /// Which partition it writes.
    pub fn partition(&self) -> PartitionId {
        self.id
    }

    /// What was applied so far; of the generation under construction while there is one.
    pub fn progress(&self) -> Progress {
        self.state().target().progress
    }

    /// What the documents take; of the generation under construction while there is one.
    pub fn held(&self) -> Held {
        self.state().target().held
    }

    /// The most bucket groups that one change has moved since the documents were last dropped, or
    /// taken from an image or from another holder.
    #[doc(hidden)]
    pub fn groups_moved_max(&self) -> u32 {
        self.state().target().table.moved_max()
    }

    fn state(&self) -> &WriterState {
        self.state.as_ref().expect("the state leaves only in drop")
    }

    fn split(&mut self) -> (&Inner, &Partition, &mut WriterState) {
        let index = &*self.index;
        let partition = index.followed(self.id).expect("checked when the writer was taken");
        (index, partition, self.state.as_mut().expect("the state leaves only in drop"))
    }

    fn partition_ref(&self) -> &Partition {
        self.index.followed(self.id).expect("checked when the writer was taken")
    }

    /// What is to be done to the memory beside the writes, by some other thread, or `None`: the
    /// blocks that are written next get their pages, so that no `apply` waits some milliseconds for
    /// the system to clear one; and those of a shared copy that lie in small pages are brought into
    /// huge ones, from which a read takes down to two thirds of the time. Without it all is right,
    /// and slower.
    pub fn upkeep(&self) -> Option<Upkeep> {
        Upkeep::of(&self.state().target().space.memory)
    }

    /// Carries out one record's effect: all documents dropped if it says so, then its writes, then
    /// `state` (the fold's state after it) published. Also takes records without effect.
    ///
    /// Costs memory and time in proportion to the writes; one that is new may also split a bucket
    /// group of 1,024 slots. Lets the memory of expired documents and of replaced records go, a
    /// bounded amount at a time; where memory is short, spills the records that were written
    /// longest ago, if it may ([`Index::spill_to`](crate::Index::spill_to)).
    ///
    /// # Errors
    /// `Internal` when the effect contradicts the index: another partition, a position that falls,
    /// a row that is broken or of an unknown schema version; nothing was changed then.
    /// `LimitExceeded` without memory, nor room to spill to; nothing was changed then either.
    pub fn apply(&mut self, applied: &Applied, state: &PartitionState) -> Result<()> {
        self.check(applied, state).map_err(|error| error.with_partition(self.id))?;
        let (index, partition, writer) = self.split();
        let WriterState { live, rebuilt, published, .. } = writer;
        let (generation, published) = match rebuilt {
            Some(rebuilt) => (rebuilt, None),
            None => (live, Some(&**published)),
        };
        let memory = generation.space.memory.clone();
        let at = |error: Error| error.with_partition(partition.at.partition);
        let mut tried = Tried::NOTHING;
        while let Err(error) = generation.apply(index, applied, state, published) {
            let is_for_room = error.code() == ErrorCode::LimitExceeded;
            if !is_for_room || !generation.make_room(index, &mut tried).map_err(at)? {
                return Err(at(error));
            }
        }
        generation.tidy(index, applied.writes.len(), published).map_err(at)?;
        index.reclaim.go_on(&memory);
        Ok(())
    }

    fn check(&self, applied: &Applied, state: &PartitionState) -> Result<()> {
        let at = self.partition_ref().at;
        // The fold may have read around damage: see `Documents::row`.
        self.check_sound()?;
        if state.partition != at {
            let message =
                format!("an effect on {} was handed to the writer of {at}", state.partition);
            return Err(Error::internal(message));
        }
        let (was, becomes) = (self.progress(), Progress::from(state));
        let falls = becomes.offset_applied < was.offset_applied
            || becomes.partition_time < was.partition_time
            || becomes.schema_version < was.schema_version;
        if falls {
            let message = format!("the state would fall from {was:?} to {becomes:?}");
            return Err(Error::internal(message));
        }
        let schemas = &self.index.schemas;
        let known = becomes.schema_version.0 == 0 || schemas.get(becomes.schema_version).is_some();
        if !known {
            let version = becomes.schema_version;
            return Err(Error::internal(format!("add schema version {version} before its entry")));
        }
        for (key, row) in &applied.writes {
            let Some(row) = row else { continue };
            let version = row_schema_version(row).unwrap_or_default();
            let schema = schemas.get(version).ok_or_else(|| {
                let message = format!("a row of unknown schema version {version}");
                Error::internal(message).with_key_digest(key.digest())
            })?;
            Row::new(row, &schema.layout)
                .map_err(|error| Error::internal(error.message()).with_key_digest(key.digest()))?;
        }
        Ok(())
    }

    /// Says whether the partition may answer; see [`PartitionPhase`].
    pub fn set_phase(&mut self, phase: PartitionPhase) {
        self.state().published.store_phase_release(phase);
    }

    /// Starts an empty generation beside the one that readers see; `apply` and `row` go to it from
    /// now on. One that was under construction already is thrown away.
    ///
    /// # Errors
    /// `LimitExceeded` when the system gives no addresses for it; nothing has changed then.
    pub fn start_rebuild(&mut self) -> Result<()> {
        let (index, _, writer) = self.split();
        writer.abandon();
        let (hash, number) = (writer.live.space.hash, writer.live.space.generation);
        let reserved = writer.live.space.memory.reserved();
        let fresh = match &writer.source {
            Source::Private(addresses) => Generation::private(*addresses, hash)?,
            Source::Live(spaces) => {
                Generation::within(spaces.create(number, hash, reserved, None)?)
            }
        };
        fresh.space.memory.charge_to(&index.budget);
        writer.rebuilt = Some(fresh);
        Ok(())
    }

    /// As [`PartitionWriter::start_rebuild`], with a generation that goes on from an image instead
    /// of an empty one, with the fold's state as of the image.
    ///
    /// In the process's own memory its blocks are mapped, and proved when they are used; so this
    /// costs as much as the image has groups, not documents. A damaged block is mended then, from
    /// the image's parity; the first one that cannot be makes every later `apply` fail. To a live
    /// copy all blocks are copied, proved and mended meanwhile.
    ///
    /// # Errors
    /// `Unsupported` for an image of another partition; `Corrupt` for one that cannot be a table,
    /// or is damaged; `LimitExceeded`, `Unavailable`. No generation is under construction then.
    pub fn start_rebuild_of(&mut self, image: &Image, state: &PartitionState) -> Result<()> {
        self.start_of(image, state, None)
    }

    /// As [`PartitionWriter::start_rebuild_of`], of a partition of which another version has a live
    /// copy in the same directory. Where that has most of the documents alike, byte by byte, its
    /// records are used in place of copies, and stay as they are in its memory until this
    /// generation goes, or [stands alone](PartitionWriter::stand_alone).
    ///
    /// # Errors
    /// As [`PartitionWriter::start_rebuild_of`].
    pub fn start_rebuild_beside(
        &mut self,
        image: &Image,
        state: &PartitionState,
        beside: StoreId,
    ) -> Result<()> {
        let lender = self.lender(image, beside);
        if let Some(lender) = &lender {
            match self.start_of(image, state, Some(lender)) {
                // The lender may have ended, or its directory may have no second names.
                Err(error) if is_of_lender(&error) => {}
                started => return started,
            }
        }
        self.start_of(image, state, None)
    }

    /// The live copy of another version of this partition, if most of an image is there alike.
    fn lender(&self, image: &Image, beside: StoreId) -> Option<Lender> {
        let directory = self.index.live.as_ref()?;
        let lender = Lender::open(directory, beside, self.id).ok()?;
        has_most(&lender.space, image).ok()?.then_some(lender)
    }

    fn start_of(
        &mut self,
        image: &Image,
        state: &PartitionState,
        lender: Option<&Lender>,
    ) -> Result<()> {
        let at = self.partition_ref().at;
        let partitions = self.index.schemas.newest().definition.partitions;
        image.about().check_is_of(at, partitions)?;
        let (index, _, writer) = self.split();
        writer.abandon();
        let (hash, number) = (writer.live.space.hash, writer.live.space.generation);
        let reserved = writer.live.space.memory.reserved();
        let generation = match &writer.source {
            Source::Private(addresses) => {
                Generation::of_image(image, *addresses, index.spill_place())
            }
            Source::Live(spaces) => {
                let space = spaces.create(number, hash, reserved, lender)?;
                let number = space.generation;
                let made = match lender {
                    Some(lender) => {
                        Generation::of_image_beside(image, &lender.space, space, state, index)
                    }
                    None => Generation::of_image_copied(image, space, state, index),
                };
                made.inspect_err(|_| spaces.remove(number))
            }
        };
        let generation = generation.map_err(|error| error.with_partition(at.partition))?;
        generation.space.memory.charge_to(&index.budget);
        writer.rebuilt = Some(generation);
        Ok(())
    }

    /// Whether the generation that is written uses records of another version's memory.
    pub fn is_borrowing(&self) -> bool {
        self.state().target().space.memory.borrowed().is_some()
    }

    /// Makes the generation that readers see, which is of this state, one that uses no other
    /// version's memory; one that does not stays as it is. One under construction is thrown away.
    /// Costs time and memory in proportion to the documents.
    ///
    /// # Errors
    /// `LimitExceeded`, `Unavailable`, `Corrupt`; readers see the one that they saw before.
    pub fn stand_alone(&mut self, state: &PartitionState) -> Result<()> {
        let (index, _, writer) = self.split();
        if writer.live.space.memory.borrowed().is_none() {
            return Ok(());
        }
        writer.abandon();
        let Source::Live(spaces) = &writer.source else { return Ok(()) };
        let live = &writer.live;
        let (hash, number) = (live.space.hash, live.space.generation);
        let space = spaces.create(number, hash, live.space.memory.reserved(), None)?;
        let number = space.generation;
        let alone = live.alone(space, state, index).inspect_err(|_| spaces.remove(number))?;
        writer.rebuilt = Some(alone);
        self.publish_rebuild();
        Ok(())
    }

    /// Throws the generation under construction away; the one that readers see is written again.
    pub fn abandon_rebuild(&mut self) {
        let (_, _, writer) = self.split();
        writer.abandon();
    }

    /// Makes the generation under construction the one that readers see, in one step, and lets the
    /// old one go. Whether its position may be served in place of the old one's is for the caller
    /// to judge. Without a generation under construction nothing happens.
    pub fn publish_rebuild(&mut self) {
        let (index, partition, writer) = self.split();
        let Some(rebuilt) = writer.rebuilt.take() else { return };
        let old = std::mem::replace(&mut writer.live, rebuilt);
        let (live, published) = (&writer.live, &writer.published);
        let turn = published.prepare(&live.status());
        match &writer.source {
            Source::Private(_) => {
                let old = partition.header.swap_space(live.space.clone());
                published.take_turn(turn);
                index.reclaim.retire_space(old);
            }
            Source::Live(spaces) => {
                // Whoever takes over between these two steps finishes them: see `live::takeover`.
                published.store_generation(live.space.generation);
                published.take_turn(turn);
                spaces.remove(old.space.generation);
            }
        }
    }

    /// Whether a generation that is built anew may have room where this one, which has run out of
    /// it, has none: a live copy in a memory file system goes on in its directory.
    pub fn may_find_room(&mut self) -> bool {
        let (_, _, writer) = self.split();
        let generation = writer.target().space.generation;
        match &mut writer.source {
            Source::Private(_) => false,
            Source::Live(spaces) => spaces.note_full(generation),
        }
    }

    /// Notes what is known of the log, for those who read beside this process and for whoever takes
    /// over; published with the next entry, or by [`PartitionWriter::publish_following`].
    pub fn note_following(&mut self, following: Following) {
        let (_, _, writer) = self.split();
        let noted = &mut writer.target_mut().following;
        let (log_id, drop_all_count) = (noted.log_id, noted.drop_all_count);
        *noted = Following { log_id, drop_all_count, ..following };
    }

    /// Publishes what was noted of the log, unless a generation is under construction.
    pub fn publish_following(&mut self) {
        let (_, _, writer) = self.split();
        if writer.rebuilt.is_none() {
            writer.published.publish(&writer.live.status());
        }
    }

    /// Whether the generation that is written may go on: nothing of an image was found damaged
    /// beyond mending, and nothing of what was spilled. Anybody in this process may find it, a
    /// reader as well.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn check_sound(&self) -> Result<()> {
        let target = &self.state().target().space;
        let sound = target.memory.check_sound().and_then(|()| {
            // Of a live copy this process's readers have a mapping of their own.
            if !target.memory.is_live() {
                return Ok(());
            }
            let _pin = self.index.reclaim.enter();
            // SAFETY: the guard is held while the space is looked at.
            let read = unsafe { self.partition_ref().header.load_space(&self.index.reclaim) };
            let same = read.ok().filter(|space| space.generation == target.generation);
            same.map_or(Ok(()), |space| space.memory.check_sound())
        });
        sound.map_err(|error| error.with_partition(self.id))
    }

    /// How many blocks of the image that this generation goes on from were damaged and mended so
    /// far, by whoever came to them: there is nothing wrong with what is read, but with the disk.
    pub fn blocks_mended(&self) -> u64 {
        self.state().target().blocks_mended()
    }

    /// Writes an image of the documents, with a state of the caller's beside them; answers its
    /// bytes. It is of exactly one position, since only this handle can change it. Costs time in
    /// proportion to the documents, and nothing else can be applied meanwhile; readers go on.
    ///
    /// # Errors
    /// `Unsupported` for one that uses another version's memory: an image has all that it names.
    /// Those of the sink; `LimitExceeded` for what is too large for an image; `Corrupt` when this
    /// generation is of an image itself that was found damaged.
    pub fn write_image(&self, state: Vec<u8>, sink: &mut dyn ImageSink) -> Result<u64> {
        if self.is_borrowing() {
            let message = "a copy that uses another version's memory has no image of its own";
            return Err(Error::unsupported(message));
        }
        let Generation { space, table, progress, held, .. } = self.state().target();
        let partitions = self.index.schemas.newest().definition.partitions;
        let partition = self.partition_ref().at;
        let about = ImageAbout { partition, partitions, progress: *progress, held: *held };
        image::write(&space.memory, about, table.content(), state, sink)
    }

    /// Visits the identity bytes and the row of every document, expired ones that still take memory
    /// included: the state of exactly one position, since only this handle can change it.
    ///
    /// # Errors
    /// The first one that `visit` returns; it ends the visit. `Corrupt` from a damaged image, or
    /// spill file; `Unavailable` when that cannot be read.
    pub fn visit_rows(&self, visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.state().target().table.visit_rows(visit)
    }
}

impl Documents for PartitionWriter {
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
