//! Appends of definitions to the control log, and of their versions to the partitions.

use forebay_core::catalog::{ControlRecord, StoreHistory};
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{Epoch, LogId, Offset, PartitionRef, SchemaVersion, StoreId};
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::open_log;
use forebay_wire::entry::encode_entry;

use crate::keeper::SnapshotParts;

/// Number of attempts to append a definition while others alter it at the same time.
const DEFINE_ATTEMPTS: usize = 8;

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

/// Appends a definition to the control log; returns whether it took effect, or another one came
/// first.
pub(crate) async fn define(parts: &SnapshotParts, definition: &Definition) -> Result<bool> {
    let (log, entropy) = (&*parts.log, &*parts.entropy);
    let control = open_log(log, entropy, PartitionRef::CONTROL).await?;
    let body = EntryBody::Control(ControlRecord::Define(Box::new(definition.clone())));
    match append(parts, PartitionRef::CONTROL, control, SchemaVersion(0), body).await {
        // The catalog shows the outcome.
        Err(error) if error.code() == ErrorCode::UnknownOutcome => {}
        appended => drop(appended?),
    }
    parts.catch_up().await?;
    let catalog = parts.catalog.catalog();
    let found = catalog.store(definition.store).and_then(|history| history.at(definition.version));
    Ok(found.is_some_and(|schema| schema.definition == *definition))
}

/// Appends the version of a definition to all partitions to which its store is written.
async fn announce(parts: &SnapshotParts, definition: &Definition) -> Result<()> {
    for at in definition.written().all() {
        let log_id = open_log(&*parts.log, &*parts.entropy, at).await?;
        append(parts, at, log_id, definition.version, EntryBody::Definition).await?;
    }
    Ok(())
}

/// Alters the newest definition of a store, and announces it in the store's partitions; `None`
/// leaves the definition unchanged.
///
/// # Errors
/// As `alter`; `Unavailable` if others alter the store at each attempt.
pub(crate) async fn alter_versions(
    parts: &SnapshotParts,
    store: &str,
    alter: impl Fn(&Definition) -> Result<Option<Definition>>,
) -> Result<Definition> {
    for _ in 0..DEFINE_ATTEMPTS {
        parts.catch_up().await?;
        let newest = parts.catalog.catalog().by_name(store)?.definition.clone();
        let Some(next) = alter(&newest)? else { return Ok(newest) };
        if define(parts, &next).await? {
            announce(parts, &next).await?;
            return Ok(next);
        }
    }
    Err(Error::unavailable("the store was altered during each attempt; try again")
        .with_store(store))
}

/// Deletes the logs that no version of a store's documents follows any more and from which nothing
/// is forwarded, and their dead-letter logs.
///
/// # Errors
/// As the log.
pub(crate) async fn delete_unused_logs(parts: &SnapshotParts, store: StoreId) -> Result<()> {
    let unused = parts.catalog.catalog().store(store).map(StoreHistory::unused_logs);
    for logs in unused.unwrap_or_default() {
        parts.log.delete(logs).await?;
        if let Some(letters) = logs.dead_letters() {
            parts.log.delete(letters).await?;
        }
    }
    Ok(())
}
