//! A donor as a new space sees it: its file, the donation of its memory, and the records that both
//! have in equal form.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::{Error, Result};

use crate::memory::{Memory, file_error};
use crate::space::Space;
use crate::table::{Document, PREFETCHED, ReuseCount, Root, Scratch, Search};

/// Attempts to find records while the donor reuses memory.
const TRIES_MAX: usize = 8;

/// A donor: a space of another version of the same partition, whose records a new space shares.
#[derive(Debug)]
pub(crate) struct DonorSpace {
    /// The space as its readers map it.
    pub(crate) space: Arc<Space>,
    /// The name of the donor's file.
    pub(crate) path: PathBuf,
    /// The possible names of the donor's own link to its own donor's file.
    pub(crate) donor_links: Vec<PathBuf>,
}

impl DonorSpace {
    /// Gives the donor's file one more name, and donates all its memory; returns the number of
    /// bytes.
    pub(crate) fn donate(&self, name: &Path) -> Result<u64> {
        let missing_file = || Error::not_found("the donor's file is gone");
        std::fs::hard_link(&self.path, name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing_file(),
            _ => file_error("link", &self.path, &error),
        })?;
        // This mapping writes the space's header and nothing else.
        Ok(Memory::open_shared(name, true, &self.donor_links)?.donate())
    }
}

/// The records of a donor that a table may refer to.
pub(crate) struct DonorRecords<'m> {
    donor: &'m Space,
    /// The address that the donor's address 0 has in the recipient.
    at: u64,
    /// Number of donated bytes.
    bytes: u64,
}

impl<'m> DonorRecords<'m> {
    /// Describes the memory of this donor that `recipient` maps; without a recipient, all of the
    /// donor's memory.
    pub(crate) fn of(donor: &'m Space, recipient: Option<&Memory>) -> Self {
        let range = recipient.and_then(Memory::donor_range);
        let (start, bytes) = range.unwrap_or((0, donor.memory.opened()));
        Self { donor, at: start, bytes }
    }

    /// Returns which of these documents, [`PREFETCHED`] at most, the donor has in equal form: for
    /// each document the address of the record in the recipient, and its bytes. A record that the
    /// donor is moving may be missed.
    pub(crate) fn find(&self, documents: &[Document]) -> [Option<(u64, u64)>; PREFETCHED] {
        let memory = &*self.donor.memory;
        for _ in 0..TRIES_MAX {
            let reused = ReuseCount::load(memory);
            let records = self.find_once(memory, documents);
            if let (Ok(records), true) = (records, reused.is_unchanged(memory)) {
                return records;
            }
        }
        [None; PREFETCHED]
    }

    fn find_once(
        &self,
        memory: &Memory,
        documents: &[Document],
    ) -> Result<[Option<(u64, u64)>; PREFETCHED]> {
        let root = Root::load(self.donor.root());
        let mut searches = [Search::default(); PREFETCHED];
        for (search, (key, _)) in searches.iter_mut().zip(documents) {
            *search = Search::begin(memory, root, self.donor.hash.of(key));
        }
        for search in &mut searches[..documents.len()] {
            // SAFETY: the memory is live, and the result is used only if no memory was reused.
            unsafe { search.prefetch_bucket(memory) };
        }
        for search in &mut searches[..documents.len()] {
            // SAFETY: as above.
            unsafe { search.prefetch_record(memory) };
        }
        let (mut records, mut scratch) = ([None; PREFETCHED], Scratch::default());
        for ((answer, search), (key, row)) in records.iter_mut().zip(&searches).zip(documents) {
            // SAFETY: as above.
            let record = unsafe { search.end_equal(memory, (key, row), &scratch) }?;
            let donated_record = record.filter(|(address, bytes)| address + bytes <= self.bytes);
            *answer = donated_record.map(|(address, bytes)| (self.at + address, bytes));
            scratch.clear();
        }
        Ok(records)
    }
}
