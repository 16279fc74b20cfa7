//! The two backends of a store handle: a writer over a client's connection, or the memory of an
//! in-memory reader.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::id::StoreId;
use forebay_core::schema::Definition;

use crate::change_spec::ChangeSpec;
use crate::memory_store::MemoryStore;
use crate::options::ClientOptions;
use crate::outcome::BatchOutcome;
use crate::pending_write::{WriteError, send};
use crate::store_state::StoreState;

/// The destination of a store's writes. Cheap to clone.
#[derive(Clone)]
pub(crate) enum StoreBackend {
    /// A writer, over a client's connection.
    Node(Arc<StoreState>),
    /// An in-memory reader.
    Memory(Arc<MemoryStore>),
}

impl StoreBackend {
    pub(crate) fn id(&self) -> StoreId {
        match self {
            Self::Node(state) => state.id(),
            Self::Memory(memory) => memory.id(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Node(state) => state.name(),
            Self::Memory(memory) => memory.name(),
        }
    }

    /// Returns the default deadline of a call; a store in memory needs none.
    pub(crate) fn deadline(&self) -> Duration {
        match self {
            Self::Node(state) => state.connection().deadline(),
            Self::Memory(_) => ClientOptions::default().deadline,
        }
    }

    /// Returns the store's definition as last seen.
    pub(crate) fn definition(&self) -> Arc<Definition> {
        match self {
            Self::Node(state) => state.definition(),
            Self::Memory(memory) => memory.definition(),
        }
    }

    /// Fetches the newest definition.
    ///
    /// # Errors
    /// `NotFound` if the store was deleted, `Unavailable` if the writer does not answer.
    pub(crate) async fn refresh(&self) -> Result<Arc<Definition>> {
        match self {
            Self::Node(state) => state.refresh().await,
            Self::Memory(_) => Ok(self.definition()),
        }
    }

    /// Sends changes, until the outcome of each is known or the deadline passes.
    ///
    /// # Errors
    /// Errors of [`Write::send`](crate::writes::Write::send).
    pub(crate) async fn write(
        &self,
        specs: Vec<ChangeSpec>,
        deadline: Duration,
    ) -> Result<BatchOutcome, WriteError> {
        match self {
            Self::Node(state) => send(Arc::clone(state), specs, deadline).await,
            Self::Memory(memory) => Ok(memory.write(&specs)?),
        }
    }
}
