//! Shared records: a table refers to records in another table's memory (the donor's) instead of
//! copying them, if two versions of a partition have them in equal form.

use forebay_core::Result;

use super::copied::{Reused, copy};
use super::directory::Root;
use super::scratch::Scratch;
use super::search::Search;
use super::{Document, PREFETCHED, slot};
use crate::memory::{Memory, is_spilled};
use crate::space::Space;

/// Attempts to find records while the donor reuses memory.
const TRIES_MAX: usize = 8;

/// The memory that a table has borrowed from a donor.
pub(crate) struct Borrowing<'m> {
    lender: &'m Space,
    /// The address that the donor's address 0 has in the borrower.
    at: u64,
    /// Number of borrowed bytes.
    bytes: u64,
}

impl<'m> Borrowing<'m> {
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
            let record = unsafe {
                search.end_by(memory, |group, word| {
                    let address = slot::address(word);
                    let is_inline = group.place().is_inline() && group.place().holds(address);
                    // Another record may take its place in the bucket of a group.
                    if is_spilled(address) || is_inline {
                        return Ok(None);
                    }
                    let record = copy(memory, address, &scratch)?;
                    let is_it = record.key == key;
                    Ok(is_it.then_some((address, record.bytes, record.row == row)))
                })
            }?;
            let lent = record
                .filter(|(address, bytes, is_alike)| *is_alike && address + bytes <= self.bytes);
            *found = lent.map(|(address, bytes, _)| (self.at + address, bytes));
            scratch.clear();
        }
        Ok(found)
    }
}
