//! The state of a partition's writer between entries: its generations, and the source of its
//! spaces.

use std::sync::Arc;

use forebay_core::Result;

use crate::generation::Generation;
use crate::header_words::Words;
use crate::key::SeededHash;
use crate::memory_account::MemoryAccount;
use crate::shared_copy::{PublishedWords, Spaces};
use crate::space::Space;

/// The state that a partition's writer keeps between entries.
#[derive(Debug)]
pub(crate) struct WriterState {
    pub(crate) current: Generation,
    /// The generation under construction next to the current one; readers do not see it yet.
    pub(crate) rebuilt: Option<Generation>,
    /// The words by which readers see applied entries.
    pub(crate) published: PublishedWords,
    /// The source of new spaces.
    pub(crate) source: Source,
}

/// The source of a writer's spaces.
#[derive(Debug)]
pub(crate) enum Source {
    /// The process's own memory, at most this many addresses per space.
    Private(u64),
    /// Files that other processes read.
    Shared(Spaces),
}

impl WriterState {
    /// Creates the writer of an empty partition in the process's own memory, with at most this many
    /// addresses per space.
    pub(crate) fn private(
        addresses: u64,
        hash: SeededHash,
        account: &Arc<MemoryAccount>,
    ) -> Result<Self> {
        let current = Generation::private(addresses, hash)?;
        current.space.memory.charge_to(account);
        let published = PublishedWords::Own(Arc::new(Words::new()));
        Ok(Self { current, rebuilt: None, published, source: Source::Private(addresses) })
    }

    /// Creates the writer of a shared copy that this process holds.
    pub(crate) fn of_shared(
        current: Generation,
        published: PublishedWords,
        spaces: Spaces,
    ) -> Self {
        Self { current, rebuilt: None, published, source: Source::Shared(spaces) }
    }

    /// The space that readers begin in.
    pub(crate) fn space(&self) -> Arc<Space> {
        self.current.space.clone()
    }

    /// The words by which readers see applied entries.
    pub(crate) fn published(&self) -> &PublishedWords {
        &self.published
    }

    pub(crate) fn target(&self) -> &Generation {
        self.rebuilt.as_ref().unwrap_or(&self.current)
    }

    pub(crate) fn target_mut(&mut self) -> &mut Generation {
        self.rebuilt.as_mut().unwrap_or(&mut self.current)
    }

    /// Discards the generation under construction, which no reader has seen.
    pub(crate) fn abandon(&mut self) {
        if let (Some(rebuilt), Source::Shared(spaces)) = (self.rebuilt.take(), &self.source) {
            spaces.remove(rebuilt.space.generation);
        }
    }
}
