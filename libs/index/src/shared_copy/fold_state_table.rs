//! The fold's state next to the documents, as records of a second table in a shared space: the
//! deduplication windows of its clients and the positions of its sources. The state therefore
//! changes together with the documents, a whole entry at a time.
//!
//! ```text
//! client: key = client u128 | row = highest u64 | last_seen_us i64 | the 1,024 below it u64 * 16
//! source: key = partition u32 | row = epoch u32 | offset u64 | index_in_entry u16
//! ```

use std::collections::BTreeSet;

use forebay_core::dedup::ClientWindow;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{ClientId, PartitionId, Position};
use forebay_core::{Error, Result};

use crate::space::Space;
use crate::table::{PublishTarget, Table};

/// Serial of the fold-state table.
pub(crate) const SERIAL: u64 = 1;

/// The table of the fold's state.
#[derive(Debug)]
pub(crate) struct FoldStateTable(pub(crate) Table);

impl FoldStateTable {
    /// Creates an empty table, in an empty space.
    pub(crate) fn new(space: &Space) -> Self {
        Self(Table::new(space.memory.clone(), space.hash, SERIAL))
    }

    /// Prepares the changes of an entry.
    ///
    /// # Errors
    /// `LimitExceeded`; abandon the table's prepared writes then.
    pub(crate) fn prepare(
        &mut self,
        effects: &FoldEffects,
        state: &PartitionState,
        publishing: PublishTarget<'_>,
    ) -> Result<()> {
        // Each client is written once: two writes would both replace the same record.
        let clients: BTreeSet<ClientId> = effects.clients.iter().copied().collect();
        for client in clients {
            self.prepare_client(client, state.dedup.window(client), publishing)?;
        }
        effects.sources.iter().try_for_each(|source| {
            let position = state.sources.get(source).copied();
            self.prepare_source(*source, position.unwrap_or_default(), publishing)
        })
    }

    /// Prepares the whole of a state, in an empty table.
    ///
    /// # Errors
    /// As [`FoldStateTable::prepare`].
    pub(crate) fn prepare_all(
        &mut self,
        state: &PartitionState,
        publishing: PublishTarget<'_>,
    ) -> Result<()> {
        for (client, window) in state.dedup.windows() {
            self.prepare_client(client, Some(window), publishing)?;
        }
        let mut sources = state.sources.iter();
        sources
            .try_for_each(|(source, position)| self.prepare_source(*source, *position, publishing))
    }

    fn prepare_client(
        &mut self,
        client: ClientId,
        window: Option<&ClientWindow>,
        publishing: PublishTarget<'_>,
    ) -> Result<()> {
        let key = client.0.to_le_bytes();
        let hash = self.0.hash().of(&key);
        let Some(window) = window else { return self.0.prepare_removal(hash, &key).map(drop) };
        self.0.prepare(hash, &key, &window.to_bytes(), None, publishing).map(drop)
    }

    fn prepare_source(
        &mut self,
        source: PartitionId,
        position: Position,
        publishing: PublishTarget<'_>,
    ) -> Result<()> {
        let key = source.0.to_le_bytes();
        self.0
            .prepare(self.0.hash().of(&key), &key, &position.to_bytes(), None, publishing)
            .map(drop)
    }

    /// Restores the table's content into a state.
    ///
    /// # Errors
    /// `Corrupt` for records that no fold has written.
    pub(crate) fn restore(&self, state: &mut PartitionState) -> Result<()> {
        self.0.visit_rows(|key, row| {
            let invalid =
                || Error::corrupt("the shared copy holds fold state that no fold has written");
            if let Ok(client) = <[u8; 16]>::try_from(key) {
                let client = ClientId(u128::from_le_bytes(client));
                let window = row.try_into().map_err(|_| invalid())?;
                state.dedup.restore(client, ClientWindow::from_bytes(window));
            } else {
                let source = <[u8; 4]>::try_from(key).map_err(|_| invalid())?;
                let source = PartitionId(u32::from_le_bytes(source));
                let position = row.try_into().map_err(|_| invalid())?;
                state.sources.insert(source, Position::from_bytes(position));
            }
            Ok(())
        })
    }
}
