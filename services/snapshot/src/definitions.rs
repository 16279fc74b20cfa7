//! Appends of definitions to the control log, and of their versions to the partitions.

use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{LogId, Offset, PartitionRef, SchemaVersion};
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::open_log;
use forebay_wire::entry::encode_entry;

use crate::context::SnapshotParts;

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
    let entry = Entry::original(log_id, schema_version, body);
    Ok(parts.context.log.append(at, encode_entry(&entry)?).await?.offset)
}

/// Appends a definition to the control log; returns whether it took effect, or another one came
/// first.
pub(crate) async fn define(parts: &SnapshotParts, definition: &Definition) -> Result<bool> {
    let (log, entropy) = (&*parts.context.log, &*parts.context.entropy);
    let control = open_log(log, entropy, PartitionRef::CONTROL).await?;
    let body = EntryBody::Control(ControlRecord::Define(Box::new(definition.clone())));
    match append(parts, PartitionRef::CONTROL, control, SchemaVersion(0), body).await {
        // The catalog shows the outcome.
        Err(error) if error.code() == ErrorCode::UnknownOutcome => {}
        appended => drop(appended?),
    }
    parts.catch_up().await?;
    let catalog = parts.context.catalog.catalog();
    let found = catalog.store(definition.store).and_then(|history| history.at(definition.version));
    Ok(found.is_some_and(|schema| *schema.definition == *definition))
}

/// Appends the version of a definition to all partitions to which its store is written.
async fn announce(parts: &SnapshotParts, definition: &Definition) -> Result<()> {
    for at in definition.write_logs().all() {
        let log_id = open_log(&*parts.context.log, &*parts.context.entropy, at).await?;
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
        let newest = parts.context.catalog.catalog().store_by_name(store)?.definition.clone();
        let Some(next) = alter(&newest)? else { return Ok(Definition::clone(&newest)) };
        if define(parts, &next).await? {
            announce(parts, &next).await?;
            return Ok(next);
        }
    }
    Err(Error::unavailable("the store was altered during each attempt; try again")
        .with_store(store))
}
