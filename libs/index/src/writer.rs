//! The one writer of a partition: carries out what the fold answered, and publishes it.
//!
//! Readers go on meanwhile. A document is swung from its old row to its new one in one step, also
//! when everything around it is dropped, so nobody sees it between two entries. The order of the
//! steps is in the essay of the crate.

use std::sync::{Arc, PoisonError};

use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::PartitionId;
use forebay_core::row::{Row, row_schema_version};
use forebay_core::{Error, Result};

use crate::header::{Held, PartitionPhase, Progress};
use crate::image::{self, Image, ImageAbout, ImageSink};
use crate::index::Inner;
use crate::memory::Memory;
use crate::storage::{Partition, SeededHash, Space};
use crate::table::{PREFETCHED, Publishing, Root, Table};

/// Bucket groups that one `apply` looks through for what has expired, and one more for this many
/// writes.
const EXPIRED_PER_APPLY: usize = 4;
const WRITES_PER_EXPIRED: usize = 128;

/// Bytes of old records that one `apply` walks for reclaim, beyond twice what it replaces.
const WALKED_PER_APPLY: u64 = 4 * 1024;

/// One generation of a partition's documents.
#[derive(Debug)]
struct Generation {
    space: Arc<Space>,
    table: Table,
    progress: Progress,
    held: Held,
}

impl Generation {
    /// An empty one, in a space of its own.
    fn new(addresses: u64, hash: SeededHash) -> Result<Self> {
        let memory = Memory::reserve(addresses)?;
        Ok(Self::within(Space::new(memory, hash, Root::NONE)))
    }

    /// An empty one, in a space that holds another.
    fn within(space: Arc<Space>) -> Self {
        let table = Table::new(space.memory.clone(), space.hash);
        Self { space, table, progress: Progress::START, held: Held::default() }
    }

    /// One that goes on from an image.
    fn of_image(image: &Image, addresses: u64) -> Result<Self> {
        let table = Table::of_image(image, addresses)?;
        let space = Space::new(table.memory().clone(), table.hash(), table.root());
        let ImageAbout { progress, mut held, .. } = *image.about();
        held.memory_bytes = table.bytes();
        Ok(Self { space, table, progress, held })
    }

    /// Writes a row, or removes it, and accounts for it.
    fn write(
        &mut self,
        index: &Inner,
        key: &[u8],
        row: Option<&[u8]>,
        publishing: Publishing<'_>,
    ) -> Result<()> {
        let held = &mut self.held;
        let Some(row) = row else {
            if let Some(old) = self.table.remove(key)? {
                held.lose(key.len(), old);
            }
            return Ok(());
        };
        match self.table.insert(key, row, index.expiry_of(row), publishing)? {
            Some(old) => held.row_bytes = held.row_bytes.saturating_sub(old as u64),
            None => {
                held.documents += 1;
                held.key_bytes += key.len() as u64;
            }
        }
        held.row_bytes += row.len() as u64;
        Ok(())
    }

    /// Takes in what one record wrote, and the state after it.
    fn take_in(
        &mut self,
        index: &Inner,
        applied: &Applied,
        state: &PartitionState,
        publishing: Publishing<'_>,
    ) -> Result<()> {
        for writes in applied.writes.chunks(PREFETCHED) {
            self.table.prefetch(writes.iter().map(|(key, _)| key.as_bytes()));
            for (key, row) in writes {
                self.write(index, key.as_bytes(), row.as_deref(), publishing)?;
            }
        }
        let most = EXPIRED_PER_APPLY + applied.writes.len() / WRITES_PER_EXPIRED;
        let (table, held) = (&mut self.table, &mut self.held);
        let expiry_of = |row: &[u8]| index.expiry_of(row);
        table.expire(state.partition_time, most, expiry_of, |key, row| held.lose(key, row))?;
        self.table.reclaim(WALKED_PER_APPLY, publishing)?;
        self.progress = Progress::from(state);
        self.held.memory_bytes = self.table.bytes();
        Ok(())
    }
}

/// What a partition's writer keeps from one entry to the next.
#[derive(Debug)]
pub(crate) struct WriterState {
    addresses: u64,
    live: Generation,
    /// The generation that is built beside the live one, which readers do not see yet.
    rebuilt: Option<Generation>,
}

impl WriterState {
    /// The writer of an empty partition whose spaces have at most this many addresses.
    pub(crate) fn new(addresses: u64, hash: SeededHash) -> Result<Self> {
        Ok(Self { addresses, live: Generation::new(addresses, hash)?, rebuilt: None })
    }

    /// The space that readers begin in.
    pub(crate) fn space(&self) -> Arc<Space> {
        self.live.space.clone()
    }

    fn target(&self) -> &Generation {
        self.rebuilt.as_ref().unwrap_or(&self.live)
    }

    fn target_mut(&mut self) -> &mut Generation {
        self.rebuilt.as_mut().unwrap_or(&mut self.live)
    }
}

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

    /// Carries out one record's effect: all documents dropped if it says so, then its writes, then
    /// `state` (the fold's state after it) published. Also takes records without effect.
    ///
    /// Costs memory and time in proportion to the writes; one that is new may also split a bucket
    /// group of 1,024 slots. Lets the memory of expired documents and of replaced records go, a
    /// bounded amount at a time.
    ///
    /// # Errors
    /// `Internal` when the effect contradicts the index: another partition, a position that falls,
    /// a row that is broken or of an unknown schema version; nothing was changed then.
    /// `LimitExceeded` without memory: some of the writes were made, unless they came after a drop
    /// of all, and none of it is published as a position. After either the partition should be
    /// poisoned and rebuilt.
    pub fn apply(&mut self, applied: &Applied, state: &PartitionState) -> Result<()> {
        self.check(applied, state).map_err(|error| error.with_partition(self.id))?;
        let (index, partition, writer) = self.split();
        let is_seen = writer.rebuilt.is_none();
        let generation = writer.target_mut();
        let space = generation.space.clone();
        // What comes after a drop is written unseen and shown when all of it is there.
        let root = if applied.drop_all { None } else { Some(&space.root) };
        let publishing = Publishing { root, reclaim: &index.reclaim };
        let dropped = applied.drop_all.then(|| {
            let fresh = Generation::within(space.clone());
            std::mem::replace(generation, fresh)
        });
        if let Err(error) = generation.take_in(index, applied, state, publishing) {
            if let Some(dropped) = dropped {
                let unseen = std::mem::replace(generation, dropped);
                unseen.table.retire(&index.reclaim);
            }
            return Err(error.with_partition(partition.at.partition));
        }
        if dropped.is_some() {
            generation.table.root().store_release(&space.root);
        }
        if is_seen {
            partition.header.publish(&generation.progress, &generation.held);
        }
        if let Some(dropped) = dropped {
            dropped.table.retire(&index.reclaim);
        }
        index.reclaim.go_on(&space.memory);
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
        self.partition_ref().header.store_phase_release(phase);
    }

    /// Starts an empty generation beside the one that readers see; `apply` and `row` go to it from
    /// now on. One that was under construction already is thrown away.
    ///
    /// # Errors
    /// `LimitExceeded` when the system gives no addresses for it; nothing has changed then.
    pub fn start_rebuild(&mut self) -> Result<()> {
        let writer = self.state();
        let fresh = Generation::new(writer.addresses, writer.live.space.hash);
        self.start(fresh?);
        Ok(())
    }

    /// As [`PartitionWriter::start_rebuild`], with a generation that goes on from an image instead
    /// of an empty one. Its blocks are mapped, and proved when they are used; so this costs as much
    /// as the image has groups, not documents. The first block that is found damaged makes every
    /// later `apply` fail.
    ///
    /// # Errors
    /// `Unsupported` for an image of another partition; `Corrupt` for one that cannot be a table;
    /// `LimitExceeded`, `Unavailable`. Nothing has changed then.
    pub fn start_rebuild_of(&mut self, image: &Image) -> Result<()> {
        let at = self.partition_ref().at;
        let partitions = self.index.schemas.newest().definition.partitions;
        image.about().check_is_of(at, partitions)?;
        let generation = Generation::of_image(image, self.state().addresses);
        self.start(generation.map_err(|error| error.with_partition(self.id))?);
        Ok(())
    }

    fn start(&mut self, generation: Generation) {
        let (_, _, writer) = self.split();
        // Nobody has seen one that is under construction, so it may go at once.
        writer.rebuilt = Some(generation);
    }

    /// Throws the generation under construction away; the one that readers see is written again.
    pub fn abandon_rebuild(&mut self) {
        let (_, _, writer) = self.split();
        writer.rebuilt = None;
    }

    /// Makes the generation under construction the one that readers see, in one step, and lets the
    /// old one go. Whether its position may be served in place of the old one's is for the caller
    /// to judge. Without a generation under construction nothing happens.
    pub fn publish_rebuild(&mut self) {
        let (index, partition, writer) = self.split();
        let Some(rebuilt) = writer.rebuilt.take() else { return };
        writer.live = rebuilt;
        let live = &writer.live;
        let old = partition.header.swap_space(live.space.clone());
        partition.header.publish(&live.progress, &live.held);
        index.reclaim.retire_space(old);
    }

    /// Whether the generation that is written may go on: it is not of an image, or no block of that
    /// was found damaged. Anybody may find one, a reader as well.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn check_sound(&self) -> Result<()> {
        let sound = self.state().target().space.memory.check_sound();
        sound.map_err(|error| error.with_partition(self.id))
    }

    /// Writes an image of the documents, with a state of the caller's beside them; answers its
    /// bytes. It is of exactly one position, since only this handle can change it. Costs time in
    /// proportion to the documents, and nothing else can be applied meanwhile; readers go on.
    ///
    /// # Errors
    /// Those of the sink; `LimitExceeded` for what is too large for an image; `Corrupt` when this
    /// generation is of an image itself that was found damaged.
    pub fn write_image(&self, state: Vec<u8>, sink: &mut dyn ImageSink) -> Result<u64> {
        let Generation { space, table, progress, held } = self.state().target();
        let partitions = self.index.schemas.newest().definition.partitions;
        let partition = self.partition_ref().at;
        let about = ImageAbout { partition, partitions, progress: *progress, held: *held };
        image::write(&space.memory, about, table.content(), state, sink)
    }

    /// Visits the identity bytes and the row of every document, expired ones that still take memory
    /// included: the state of exactly one position, since only this handle can change it.
    ///
    /// # Errors
    /// The first one that `visit` returns; it ends the visit. `Corrupt` from a damaged image.
    pub fn visit_rows(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.state().target().table.rows().try_for_each(|found| {
            let (key, row) = found?;
            visit(key, row)
        })
    }
}

impl Documents for PartitionWriter {
    /// Where the generation is of an image and the row's block is damaged, the answer is wrong, and
    /// the `apply` that follows refuses whatever was made of it.
    fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state().target().table.row(key).ok().flatten().map(<[u8]>::to_vec)
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
