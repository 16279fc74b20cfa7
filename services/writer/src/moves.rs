//! Moves of a store's documents to other logs, as a writer makes them: nothing is appended to the
//! new logs before the ones from before say that writes have moved.
//!
//! So whoever reads the latest of a log from before, behind that entry, knows to look elsewhere,
//! and ahead of it has missed nothing. Other writers may learn of the move a moment later than this
//! one: it waits that long first. What a still slower one appends is carried to the new logs all
//! the same.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_core::id::StoreId;
use forebay_core::limits::MOVE_WAIT_MS;
use forebay_core::schema::Definition;
use forebay_core::versions::Carried;
use forebay_core::{Error, Result};
use tokio::sync::Mutex;

use crate::writer::Writer;

/// The moves that this writer knows of.
#[derive(Default)]
pub(crate) struct Moves {
    /// The logs that may be appended to: those from before say so.
    open: Mutex<BTreeSet<StoreId>>,
}

impl Writer {
    /// Makes sure that the logs may be appended to that a store is written to.
    ///
    /// # Errors
    /// `Unavailable` where one of the logs from before does not say so yet.
    pub(crate) async fn open_moved(&self, definition: &Definition) -> Result<()> {
        let logs = definition.written();
        let version = definition.versions.all().iter().find(|version| version.logs == logs);
        let Some(Carried { from, .. }) = version.and_then(|version| version.carried.as_ref())
        else {
            return Ok(());
        };
        let mut open = self.moves.open.lock().await;
        if open.contains(&logs.store) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(MOVE_WAIT_MS)).await;
        for at in from.all() {
            let announced = self.queue(at).log().announce(definition.version).await;
            announced.map_err(|error| as_absent(&error))?;
        }
        open.insert(logs.store);
        self.forget(from.store);
        Ok(())
    }
}

/// Whatever became of an announcement, nothing of the write was appended.
fn as_absent(error: &Error) -> Error {
    Error::unavailable(error.message()).with_context(error.context().clone())
}
