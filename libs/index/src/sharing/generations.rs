//! Live generations that are built next to an existing generation: (1) from an image, sharing the
//! records that are equal in another version of the partition (the donor); (2) from a generation,
//! with all shared records copied.

use std::sync::Arc;

use forebay_core::Result;
use forebay_core::fold::PartitionState;
use forebay_core::row::row_expires_at;

use super::donor::DonorRecords;
use crate::generation::{Generation, bytes_of, prepare_one, write_fold_state};
use crate::image::Image;
use crate::memory::{BLOCK_BYTES, image_end};
use crate::resources::Resources;
use crate::space::Space;
use crate::table::{Document, PREFETCHED, PublishTarget, Table};

/// Number of documents that are compared with the donor's before all of them are.
const COMPARED_MAX: usize = 32 * PREFETCHED;

/// Whether a donor has at least half of an image's documents in equal form, estimated from the
/// first [`COMPARED_MAX`] documents. Shared records pin the donor's memory, so a smaller share is
/// not worth it.
///
/// # Errors
/// `Corrupt`, `LimitExceeded`, `Unavailable`: those of the image.
pub(crate) fn shares_most_documents(donor: &Space, image: &Image) -> Result<bool> {
    if image.is_spilled() {
        return Ok(false);
    }
    let (records, table) = (DonorRecords::of(donor, None), table_of(image)?);
    let (mut compared, mut equal) = (0, 0);
    table.visit_batches(|documents| {
        compared += documents.len();
        equal += records.find(documents).iter().flatten().count();
        Ok(compared < COMPARED_MAX)
    })?;
    Ok(equal > 0 && 2 * equal >= compared)
}

/// Maps an image and returns its table, for reads.
fn table_of(image: &Image) -> Result<Table> {
    let addresses = image_end(image, &[]).next_multiple_of(BLOCK_BYTES);
    Table::from_image(image, addresses, None)
}

impl Generation {
    /// Builds a generation from an image, with the fold's state as of the image. `space` is an
    /// empty shared space that maps the `donor`. Each block of the image is
    /// verified. Records that the donor has in equal form are referenced there; all others are
    /// copied.
    pub(crate) fn from_image_sharing(
        image: &Image,
        donor: &Space,
        space: Arc<Space>,
        state: &PartitionState,
        resources: &Resources,
    ) -> Result<Self> {
        let mut generation = Self::new_in(space);
        let memory = generation.space.memory.clone();
        memory.charge_to(&resources.account);
        let records = DonorRecords::of(donor, Some(&memory));
        table_of(image)?.visit_batches(|documents| {
            generation.fill(documents, Some(&records), resources)?;
            Ok(true)
        })?;
        generation.progress = image.metadata().progress;
        generation.repaired = image.repaired().clone();
        generation.note_log(state);
        generation.finish(state, resources)?;
        Ok(generation)
    }

    /// Copies this generation, with this state, into an empty space without a donor.
    pub(crate) fn copy_to(
        &self,
        space: Arc<Space>,
        state: &PartitionState,
        resources: &Resources,
    ) -> Result<Self> {
        let mut generation = Self::new_in(space);
        generation.space.memory.charge_to(&resources.account);
        self.table.visit_batches(|documents| {
            generation.fill(documents, None, resources)?;
            Ok(true)
        })?;
        (generation.progress, generation.cursor) = (self.progress, self.cursor);
        generation.repaired = self.repaired.clone();
        generation.finish(state, resources)?;
        Ok(generation)
    }

    /// Adds documents, none of which is in the table yet; no reader sees the generation yet.
    fn fill(
        &mut self,
        documents: &[Document],
        records: Option<&DonorRecords<'_>>,
        resources: &Resources,
    ) -> Result<()> {
        let shared_records = records.map(|records| records.find(documents)).unwrap_or_default();
        let Self { space, table, usage, .. } = self;
        let publishing = PublishTarget { root: Some(space.root()), reclaim: &resources.reclaim };
        let hashes = table.prefetch(documents.iter().map(|(key, _)| key.as_slice()));
        for (((key, row), hash), shared) in documents.iter().zip(hashes).zip(shared_records) {
            let Some(record) = shared else {
                prepare_one(table, usage, (hash, key), Some(row), publishing)?;
                continue;
            };
            let expires = row_expires_at(row);
            table.prepare_shared_record(hash, key, record, expires, publishing)?;
            usage.gain(key.len(), row.len());
        }
        table.publish()
    }

    fn finish(&mut self, state: &PartitionState, resources: &Resources) -> Result<()> {
        if let Some(fold_state) = &mut self.fold_state {
            write_fold_state(fold_state, state, resources)?;
        }
        self.usage.memory_bytes = bytes_of(&self.table, self.fold_state.as_ref());
        Ok(())
    }
}
