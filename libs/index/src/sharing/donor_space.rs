//! A donor: a space of another version of the same partition, whose records a new space borrows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::{Error, Result};

use crate::memory::{Memory, refused};
use crate::space::Space;

/// A donor: a space of another version of the same partition, whose records a new space borrows.
#[derive(Debug)]
pub(crate) struct Lender {
    /// The space as its readers map it.
    pub(crate) space: Arc<Space>,
    pub(crate) path: PathBuf,
    /// The possible names of the donor's own link to a space that it has borrowed from.
    pub(crate) borrowed: Vec<PathBuf>,
}

impl Lender {
    /// Gives the donor's file one more name, and lends all its memory; returns the number of bytes.
    pub(crate) fn lend(&self, name: &Path) -> Result<u64> {
        let gone = || Error::not_found("what was to be borrowed is gone");
        std::fs::hard_link(&self.path, name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => gone(),
            _ => refused("link", &self.path, &error),
        })?;
        // This mapping writes the space's words and nothing else.
        Ok(Memory::open_live(name, true, &self.borrowed)?.lend())
    }
}
