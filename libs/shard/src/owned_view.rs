//! A view that holds its shard open, for reads that go on from call to call.

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

/// All documents of a shard at one position, for as long as this lives. The shard stays open until
/// then, and on the disk are all files that the view is of.
pub struct OwnedView(Cell);

impl OwnedView {
    /// The documents as they are now.
    ///
    /// # Errors
    /// As [`Shard::view`].
    pub fn open(shard: Arc<Shard>) -> Result<Self> {
        Cell::try_new(shard, |shard| shard.view()).map(Self)
    }

    /// The view.
    pub fn view(&self) -> &View<'_> {
        self.0.borrow_dependent()
    }

    /// The shard that it is of.
    pub fn shard(&self) -> &Arc<Shard> {
        self.0.borrow_owner()
    }
}
