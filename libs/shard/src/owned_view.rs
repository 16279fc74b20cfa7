//! A view that keeps its shard open, for reads that span several calls.

use std::sync::Arc;

use forebay_core::Result;
use self_cell::self_cell;

use crate::shard::Shard;
use crate::view::View;

self_cell! {
    struct Cell {
        owner: Arc<Shard>,
        #[covariant]
        dependent: View,
    }
}

/// All documents of a shard at one position. Until the view is dropped, the shard stays open and
/// the files of the view stay on the disk.
pub struct OwnedView(Cell);

impl OwnedView {
    /// Opens a view of the current documents.
    ///
    /// # Errors
    /// As [`Shard::view`].
    pub fn open(shard: Arc<Shard>) -> Result<Self> {
        Cell::try_new(shard, |shard| shard.view()).map(Self)
    }

    /// Returns the view.
    pub fn view(&self) -> &View<'_> {
        self.0.borrow_dependent()
    }

    /// Returns the shard of the view.
    pub fn shard(&self) -> &Arc<Shard> {
        self.0.borrow_owner()
    }
}
