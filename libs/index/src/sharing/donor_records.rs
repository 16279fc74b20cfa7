//! Shared records: a table refers to records in another table's memory (the donor's) instead of
//! copying them, if two versions of a partition have them in equal form.

use forebay_core::Result;

use crate::memory::Memory;
use crate::space::Space;
use crate::table::{Document, PREFETCHED, Reused, Root, Scratch, Search};

/// Attempts to find records while the donor reuses memory.
const TRIES_MAX: usize = 8;

/// The records of a donor that a table may refer to.
pub(crate) struct DonorRecords<'m> {
    lender: &'m Space,
    /// The address that the donor's address 0 has in the borrower.
    at: u64,
    /// Number of borrowed bytes.
    bytes: u64,
}

impl<'m> DonorRecords<'m> {
    /// Describes what `borrower` has borrowed from this donor; without a borrower, all of the
    /// donor's memory.
    pub(crate) fn of(lender: &'m Space, borrower: Option<&Memory>) -> Self {
        let borrowed = borrower.and_then(Memory::borrowed);
        let (at, bytes) = borrowed.unwrap_or((0, lender.memory.opened()));
        Self { lender, at, bytes }
    }

    /// Returns which of these documents, [`PREFETCHED`] at most, the donor has in equal form: for
    /// each document the address of the record in the borrower, and its bytes. A record that the
    /// donor is moving may be missed.
    pub(crate) fn find(&self, documents: &[Document]) -> [Option<(u64, u64)>; PREFETCHED] {
        let memory = &*self.lender.memory;
        for _ in 0..TRIES_MAX {
            let reused = Reused::before(memory);
            let found = self.look(memory, documents);
            if let (Ok(found), true) = (found, reused.is_unchanged(memory)) {
                return found;
            }
        }
        [None; PREFETCHED]
    }

    fn look(
        &self,
        memory: &Memory,
        documents: &[Document],
    ) -> Result<[Option<(u64, u64)>; PREFETCHED]> {
        let root = Root::load(self.lender.root());
        let mut all = [Search::default(); PREFETCHED];
        for (search, (key, _)) in all.iter_mut().zip(documents) {
            *search = Search::begin(memory, root, self.lender.hash.of(key));
        }
        for search in &mut all[..documents.len()] {
            // SAFETY: the memory is live, and the result is used only if no memory was reused.
            unsafe { search.ask_for_bucket(memory) };
        }
        for search in &mut all[..documents.len()] {
            // SAFETY: as above.
            unsafe { search.ask_for_record(memory) };
        }
        let (mut found, mut scratch) = ([None; PREFETCHED], Scratch::default());
        for ((found, search), (key, row)) in found.iter_mut().zip(&all).zip(documents) {
            // SAFETY: as above.
            let record = unsafe { search.end_equal(memory, (key, row), &scratch) }?;
            let lent = record.filter(|(address, bytes)| address + bytes <= self.bytes);
            *found = lent.map(|(address, bytes)| (self.at + address, bytes));
            scratch.clear();
        }
        Ok(found)
    }
}
