//! A table as an image holds it, and a table that goes on from one.

use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::directory::{self, ENTRY_BYTES, Root};
use super::expiry::NEVER;
use super::segments::Segments;
use super::{Kept, Table};
use crate::image::{Content, Image, damaged};
use crate::memory::{CHUNK_BYTES_MIN, Chunk, Memory};
use crate::storage::SeededHash;

impl Table {
    /// What of it goes into an image.
    pub(crate) fn content(&self) -> Content {
        let groups = self.groups.iter().map(|kept| &kept.chunk);
        let chunks = groups.chain(&self.directory).map(|chunk| (chunk.address(), chunk.bytes()));
        Content {
            hash_seed: self.hash.seed(),
            root: self.root.word(),
            chunks: chunks.collect(),
            expiries: self.expiries(),
            segments: self.segments.list(),
        }
    }

    /// The table of an image, in memory of its own, which has at most this many addresses. Proves
    /// the directory; groups and records are proved when somebody comes to them.
    ///
    /// # Errors
    /// `Corrupt` when it cannot be a table; those of [`Memory::of_image`].
    pub(crate) fn of_image(image: &Image, addresses: u64) -> Result<Self> {
        let root = Root::of_image(image.root())?;
        let segments = Segments::of_image(image.segments())?;
        let directory = directory_of(root)?;
        let mut used: Vec<_> = segments.chunks().map(|at| (at.address(), at.bytes())).collect();
        used.extend(directory.iter().map(|at| (at.address(), at.bytes())));
        let memory = Memory::of_image(image, &used, addresses)?;
        let mut table = Self::new(memory.clone(), SeededHash::of_seed(image.hash_seed()));
        (table.root, table.directory, table.segments) = (root, directory, segments);
        table.take_groups(image.expiries())?;
        used.extend(table.groups.iter().map(|kept| (kept.chunk.address(), kept.chunk.bytes())));
        memory.adopt(used, table.segments.open_rest())?;
        Ok(table)
    }

    /// Finds the groups in the directory; several entries side by side may name one.
    fn take_groups(&mut self, expiries: &[i64]) -> Result<()> {
        if self.root == Root::NONE {
            return if expiries.is_empty() { Ok(()) } else { Err(damaged("groups of no table")) };
        }
        let entries = self.entries()?;
        let mut expiries = expiries.iter();
        let mut first = 0;
        for run in entries.chunk_by(|one, other| one == other) {
            let width = run.len();
            if !width.is_power_of_two() || first % width != 0 {
                return Err(damaged("a directory that is in no order"));
            }
            let expires = *expires_of(expiries.next())?;
            let chunk = Chunk::of_image(run[0], CHUNK_BYTES_MIN)
                .ok_or_else(|| damaged("a group that is no chunk"))?;
            let depth = self.root.depth() - width.ilog2();
            let (filled, live, is_counted) = (0, 0, false);
            let mut kept =
                Kept { chunk, depth, filled, live, is_counted, expires: NEVER, due: NEVER };
            let place = self.groups.len();
            if expires < NEVER {
                self.due.note(place, &mut kept, expires);
            }
            self.groups.push(kept);
            self.places.extend(std::iter::repeat_n(place as u32, width));
            first += width;
        }
        if expiries.next().is_some() { Err(damaged("more groups than it has")) } else { Ok(()) }
    }

    /// The addresses of the groups, by directory entry.
    fn entries(&self) -> Result<Vec<u64>> {
        let Some(chunk) = &self.directory else { return Ok(vec![self.root.address()]) };
        self.memory.prove(chunk.address(), chunk.bytes())?;
        let entry = |entry: u64| {
            let at = chunk.address() + entry * ENTRY_BYTES;
            // SAFETY: an entry of the table's own directory, which was just proved.
            directory::address(unsafe { self.memory.half_word(at) }.load(Ordering::Relaxed))
        };
        Ok((0..1 << self.root.depth()).map(entry).collect())
    }
}

/// The chunk of a root's directory.
fn directory_of(root: Root) -> Result<Option<Chunk>> {
    if root.depth() == 0 {
        return Ok(None);
    }
    let bytes = (ENTRY_BYTES << root.depth()).max(CHUNK_BYTES_MIN);
    let chunk = Chunk::of_image(root.address(), bytes);
    chunk.map(Some).ok_or_else(|| damaged("a directory that is no chunk"))
}

fn expires_of(expiry: Option<&i64>) -> Result<&i64> {
    expiry.ok_or_else(|| damaged("fewer groups than it has"))
}
