//! The one writer of a partition: carries out what the fold answered, and publishes it.
//!
//! Readers go on meanwhile. A document is swung from its old row to its new one in one step, also
//! when everything around it is dropped, so nobody sees it between two entries. The order of the
//! steps is in the essay of the crate.

use std::sync::{Arc, PoisonError};

use forebay_core::clock::Timestamp;
use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::PartitionId;
use forebay_core::row::{Row, row_schema_version};
use forebay_core::{Error, Result};

use crate::expiry::ExpiryQueue;
use crate::header::{Header, Held, PartitionPhase, Progress};
use crate::index::Inner;
use crate::memory::Memory;
use crate::storage::{Partition, SeededHash};
use crate::table::{Publishing, Table};

/// Expired documents that one `apply` removes, beyond two for each of its own writes.
const EXPIRED_PER_APPLY: usize = 256;

/// Bytes of old records that one `apply` walks for reclaim, beyond twice what it replaces.
const WALKED_PER_APPLY: u64 = 4 * 1024;

/// One generation of a partition's documents.
#[derive(Debug)]
struct Generation {
    table: Table,
    progress: Progress,
    held: Held,
    expiries: ExpiryQueue,
}

impl Generation {
    fn new(table: Table) -> Self {
        let (progress, held) = (Progress::START, Held::default());
        Self { table, progress, held, expiries: ExpiryQueue::default() }
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
            if let Some(old) = self.table.remove(key) {
                held.documents -= 1;
                held.key_bytes -= key.len() as u64;
                held.row_bytes -= old as u64;
            }
            return Ok(());
        };
        match self.table.insert(key, row, publishing)? {
            Some(old) => held.row_bytes -= old as u64,
            None => {
                held.documents += 1;
                held.key_bytes += key.len() as u64;
            }
        }
        held.row_bytes += row.len() as u64;
        if let Some(at) = index.expiry_of(row) {
            self.expiries.note(key, at);
        }
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
        for (key, row) in &applied.writes {
            self.write(index, key.as_bytes(), row.as_deref(), publishing)?;
        }
        let most = EXPIRED_PER_APPLY + 2 * applied.writes.len();
        self.expire(index, state.partition_time, most, publishing)?;
        self.table.reclaim(WALKED_PER_APPLY, publishing);
        self.progress = Progress::from(state);
        self.held.memory_bytes = self.table.bytes();
        Ok(())
    }

    /// Removes documents that have expired at the partition time that is about to be published.
    fn expire(
        &mut self,
        index: &Inner,
        now: Timestamp,
        most: usize,
        publishing: Publishing<'_>,
    ) -> Result<()> {
        for _ in 0..most {
            let Some(key) = self.expiries.next_due(now) else { break };
            match self.table.row(&key).and_then(|row| index.expiry_of(row)) {
                Some(at) if at <= now => self.write(index, &key, None, publishing)?,
                Some(at) => self.expiries.note(&key, at),
                None => {}
            }
        }
        Ok(())
    }
}

/// What a partition's writer keeps from one entry to the next.
#[derive(Debug)]
pub(crate) struct WriterState {
    memory: Arc<Memory>,
    hash: SeededHash,
    live: Generation,
    /// The generation that is built beside the live one, which readers do not see yet.
    rebuilt: Option<Generation>,
}

impl WriterState {
    pub(crate) fn new(memory: Arc<Memory>, hash: SeededHash) -> Self {
        let live = Generation::new(Table::new(memory.clone(), hash));
        Self { memory, hash, live, rebuilt: None }
    }

    fn fresh(&self) -> Generation {
        Generation::new(Table::new(self.memory.clone(), self.hash))
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
        let header = writer.rebuilt.is_none().then_some(&partition.header);
        let (dropped, publishing) = if applied.drop_all {
            // What comes after a drop is written unseen and shown by the publish below.
            let fresh = writer.fresh();
            let dropped = std::mem::replace(writer.target_mut(), fresh);
            (Some(dropped), Publishing { root: None, reclaim: &index.reclaim })
        } else {
            let root = header.map(Header::root);
            (None, Publishing { root, reclaim: &index.reclaim })
        };
        let generation = writer.target_mut();
        if let Err(error) = generation.take_in(index, applied, state, publishing) {
            if let Some(dropped) = dropped {
                let unseen = std::mem::replace(generation, dropped);
                unseen.table.retire(&index.reclaim);
            }
            return Err(error.with_partition(partition.at.partition));
        }
        if let Some(header) = header {
            header.publish(generation.table.root(), &generation.progress, &generation.held);
        }
        if let Some(dropped) = dropped {
            dropped.table.retire(&index.reclaim);
        }
        index.reclaim.go_on();
        Ok(())
    }

    fn check(&self, applied: &Applied, state: &PartitionState) -> Result<()> {
        let at = self.partition_ref().at;
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
    pub fn start_rebuild(&mut self) {
        self.abandon_rebuild();
        let (_, _, writer) = self.split();
        let fresh = writer.fresh();
        writer.rebuilt = Some(fresh);
    }

    /// Throws the generation under construction away; the one that readers see is written again.
    pub fn abandon_rebuild(&mut self) {
        let (index, _, writer) = self.split();
        if let Some(rebuilt) = writer.rebuilt.take() {
            rebuilt.table.retire(&index.reclaim);
        }
    }

    /// Makes the generation under construction the one that readers see, in one step, and lets the
    /// old one go. Whether its position may be served in place of the old one's is for the caller
    /// to judge. Without a generation under construction nothing happens.
    pub fn publish_rebuild(&mut self) {
        let (index, partition, writer) = self.split();
        let Some(rebuilt) = writer.rebuilt.take() else { return };
        let old = std::mem::replace(&mut writer.live, rebuilt);
        let live = &writer.live;
        partition.header.publish(live.table.root(), &live.progress, &live.held);
        old.table.retire(&index.reclaim);
    }

    /// Visits the identity bytes and the row of every document, expired ones that still take memory
    /// included: the state of exactly one position, since only this handle can change it.
    ///
    /// # Errors
    /// The first one that `visit` returns; it ends the visit.
    pub fn visit_rows(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.state().target().table.rows().try_for_each(|(key, row)| visit(key, row))
    }
}

impl Documents for PartitionWriter {
    fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state().target().table.row(key).map(<[u8]>::to_vec)
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
