//! The store of an in-memory reader, as its writes see it: entries are applied at once.

use std::sync::Arc;

use forebay_core::clock::Timestamp;
use forebay_core::id::StoreId;
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::{Error, Result};
use forebay_reader::{MemoryReader, SimulatedState};
use forebay_wire::token::Token;

use crate::change_spec::{ChangeSpec, resolve_all};
use crate::options::ClientParts;
use crate::outcome::{BatchOutcome, WriteResult};
use crate::plan::{Item, rounds};

/// A store in memory, as its writes see it.
pub(crate) struct MemoryStore {
    replica: MemoryReader,
}

impl MemoryStore {
    /// Opens an empty store with the host's clock, which then stands still, and the host's
    /// randomness.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` for an invalid store.
    pub(crate) fn open(spec: &StoreSpec) -> Result<Self> {
        let parts = ClientParts::default();
        let definition = spec.define(parts.entropy.store_id()?);
        let definition = definition.map_err(|error| error.with_store(&spec.name))?;
        let replica = MemoryReader::open(definition, parts.clock.now(), parts.entropy)?;
        Ok(Self { replica })
    }

    pub(crate) fn reader(&self) -> &forebay_reader::Reader {
        self.replica.reader()
    }

    pub(crate) fn id(&self) -> StoreId {
        self.replica.reader().definition().store
    }

    pub(crate) fn name(&self) -> &str {
        self.replica.reader().store()
    }

    pub(crate) fn definition(&self) -> Arc<Definition> {
        self.replica.reader().definition()
    }

    /// # Errors
    /// Errors of [`InMemoryReader::alter`](crate::memory::InMemoryReader::alter).
    pub(crate) fn alter(&self, alterations: &[Alteration]) -> Result<Definition> {
        self.replica.alter(alterations).map(|schema| (*schema.definition).clone())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.replica.now()
    }

    /// # Errors
    /// `InvalidArgument` for a time before the clock's current time, `Closed`.
    pub(crate) fn set_clock(&self, now: Timestamp) -> Result<()> {
        self.replica.set_clock(now)
    }

    /// # Errors
    /// `Closed`.
    pub(crate) fn simulate(&self, state: SimulatedState) -> Result<()> {
        self.replica.simulate(state)
    }

    /// Applies changes, cut into entries as a client cuts them on their way to a writer.
    ///
    /// # Errors
    /// Errors of the changes, with nothing written; `Closed`.
    pub(crate) fn write(&self, specs: &[ChangeSpec]) -> Result<BatchOutcome> {
        let definition = self.definition();
        let routed = resolve_all(specs, &definition)?;
        let item = |(place, routed)| Item::new(routed, place);
        let items = routed.iter().enumerate().map(item).collect::<Result<_>>();
        let items = items.map_err(|error| error.with_store(self.name()))?;
        let mut token = Token::new(definition.store);
        let mut results: Vec<Option<Result<WriteResult>>> = vec![None; specs.len()];
        for chunk in rounds(items).into_iter().flatten() {
            let Some(partition) = chunk.first().map(|item| item.partition) else { continue };
            let changes = chunk.iter().map(|item| routed[item.place].change.clone()).collect();
            let (log_id, position, judged) =
                self.replica.apply(partition, definition.version, changes)?;
            token.advance(partition, log_id, position)?;
            for (item, result) in chunk.iter().zip(judged) {
                results[item.place] = Some(WriteResult::try_from(result.outcome));
            }
        }
        let untold = || Err(Error::internal("a change has no result"));
        let results = results.into_iter().map(|result| result.unwrap_or_else(untold)).collect();
        Ok(BatchOutcome { token, results })
    }
}
