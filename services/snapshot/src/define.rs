//! Definitions that this service puts into the control log, and their versions into partitions.

use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{Epoch, LogId, Offset, PartitionRef, SchemaVersion};
use forebay_core::schema::Definition;
use forebay_core::{ErrorCode, Result};
use forebay_log::open_log;
use forebay_wire::entry::encode_entry;

use crate::keeper::SnapshotParts;

/// Appends an entry to a partition's log.
pub(crate) async fn append(
    parts: &SnapshotParts,
    at: PartitionRef,
    log_id: LogId,
    schema_version: SchemaVersion,
    body: EntryBody,
) -> Result<Offset> {
    let entry = Entry { log_id, epoch: Epoch(0), schema_version, source: None, body };
    Ok(parts.log.append(at, encode_entry(&entry)?).await?.offset)
}

/// Puts a definition into the control log; answers whether it took effect, or another one was
/// first.
pub(crate) async fn define(parts: &SnapshotParts, definition: &Definition) -> Result<bool> {
    let (log, entropy) = (&*parts.log, &*parts.entropy);
    let control = open_log(log, entropy, PartitionRef::CONTROL).await?;
    let body = EntryBody::Control(ControlRecord::Define(Box::new(definition.clone())));
    match append(parts, PartitionRef::CONTROL, control, SchemaVersion(0), body).await {
        // The catalog tells.
        Err(error) if error.code() == ErrorCode::UnknownOutcome => {}
        appended => drop(appended?),
    }
    parts.catch_up().await?;
    let catalog = parts.catalog.catalog();
    let found = catalog.store(definition.store).and_then(|history| history.at(definition.version));
    Ok(found.is_some_and(|schema| schema.definition == *definition))
}

/// Puts the version of a definition into all partitions of its store.
pub(crate) async fn announce(parts: &SnapshotParts, definition: &Definition) -> Result<()> {
    for partition in definition.partitions.partitions() {
        let at = PartitionRef { store: definition.versions.home(), partition };
        let log_id = open_log(&*parts.log, &*parts.entropy, at).await?;
        append(parts, at, log_id, definition.version, EntryBody::Definition).await?;
    }
    Ok(())
}
