//! The state of a partition's writer between entries: its generations, and the source of its
//! spaces.

use std::sync::Arc;

use forebay_core::Result;

use crate::budget::Budget;
use crate::generation::Generation;
use crate::header_words::Words;
use crate::key::SeededHash;
use crate::live::{Published, Spaces};
use crate::space::Space;

/// The state that a partition's writer keeps between entries.
#[derive(Debug)]
pub(crate) struct WriterState {
    pub(crate) live: Generation,
    /// The generation under construction next to the live one; readers do not see it yet.
    pub(crate) rebuilt: Option<Generation>,
    /// The words by which readers see applied entries.
    pub(crate) published: Published,
    /// The source of new spaces.
    pub(crate) source: Source,
}

/// The source of a writer's spaces.
#[derive(Debug)]
pub(crate) enum Source {
    /// The process's own memory, at most this many addresses per space.
    Private(u64),
    /// Files that other processes read.
    Live(Spaces),
}

impl WriterState {
    /// Creates the writer of an empty partition in the process's own memory, with at most this many
    /// addresses per space.
    pub(crate) fn private(addresses: u64, hash: SeededHash, budget: &Arc<Budget>) -> Result<Self> {
        let live = Generation::private(addresses, hash)?;
        live.space.memory.charge_to(budget);
        let published = Published::Own(Arc::new(Words::new()));
        Ok(Self { live, rebuilt: None, published, source: Source::Private(addresses) })
    }

    /// Creates the writer of a live copy that this process holds.
    pub(crate) fn of_live(live: Generation, published: Published, spaces: Spaces) -> Self {
        Self { live, rebuilt: None, published, source: Source::Live(spaces) }
    }

    /// The space that readers begin in.
    pub(crate) fn space(&self) -> Arc<Space> {
        self.live.space.clone()
    }

    /// The words by which readers see applied entries.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    pub(crate) fn target(&self) -> &Generation {
        self.rebuilt.as_ref().unwrap_or(&self.live)
    }

    pub(crate) fn target_mut(&mut self) -> &mut Generation {
        self.rebuilt.as_mut().unwrap_or(&mut self.live)
    }

    /// Discards the generation under construction, which no reader has seen.
    pub(crate) fn abandon(&mut self) {
        if let (Some(rebuilt), Source::Live(spaces)) = (self.rebuilt.take(), &self.source) {
            spaces.remove(rebuilt.space.generation);
        }
    }
}
