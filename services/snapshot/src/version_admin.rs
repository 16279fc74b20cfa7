//! Administration of the versions of a store's documents: list them, activate one, roll back, drop
//! one.

use std::cell::Cell;

use forebay_core::catalog::StoreHistory;
use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::schema::Definition;
use forebay_core::versions::{StoreVersions, VersionNumber};
use forebay_core::{Error, Result};

use crate::context::SnapshotParts;
use crate::definitions::alter_versions;

/// Returns the versions of a store's documents.
///
/// # Errors
/// `NotFound` if the store does not exist; else as the log.
pub(crate) async fn versions(parts: &SnapshotParts, store: &str) -> Result<StoreVersions> {
    Ok(alter_versions(parts, store, |_| Ok(None)).await?.versions)
}

/// Activates a version of a store's documents.
///
/// # Errors
/// `NotFound` for an unknown version, `Conflict` while writes are paused for a version; else as the
/// log.
pub(crate) async fn activate_version(
    parts: &SnapshotParts,
    store: &str,
    number: VersionNumber,
) -> Result<StoreVersions> {
    let live = |definition: &Definition| {
        let versions = &definition.versions;
        if versions.live().number == number {
            return Ok(None);
        }
        check_not_paused(versions)?;
        definition.with_live(number).map(Some)
    };
    Ok(alter_versions(parts, store, live).await?.versions)
}

/// Activates the version of a store's documents that was live before the live one. A version that
/// was never live is not a target, so a killed push does not affect the choice.
///
/// # Errors
/// `NotFound` without such a version, `Conflict` while writes are paused for a version; else as the
/// log.
pub(crate) async fn rollback_version(parts: &SnapshotParts, store: &str) -> Result<StoreVersions> {
    let chosen = Cell::new(None);
    let rollback = move |definition: &Definition| {
        let versions = &definition.versions;
        // An attempt whose append seemed to fail may have taken effect; another one would undo it.
        if chosen.get() == Some(versions.live().number) {
            return Ok(None);
        }
        check_not_paused(versions)?;
        let catalog = parts.context.catalog.catalog();
        let history = catalog.store(definition.store);
        let target = history.and_then(|history| history.rollback_target(definition));
        chosen.set(target);
        definition.with_live(target.ok_or_else(no_rollback_target)?).map(Some)
    };
    Ok(alter_versions(parts, store, rollback).await?.versions)
}

fn no_rollback_target() -> Error {
    Error::not_found(
        "the store has no earlier live version with the present partitions; `version list` names \
         its versions, `version activate` activates another one",
    )
}

/// Refuses an activation while writes are paused for a version.
fn check_not_paused(versions: &StoreVersions) -> Result<()> {
    if !versions.writes_paused() {
        return Ok(());
    }
    let message = "the new partitions lack some earlier writes; wait until their version is live";
    Err(Error::conflict(message))
}

/// Drops a version of a store's documents that is not live, and its snapshots.
///
/// # Errors
/// `NotFound` for an unknown version, `InvalidArgument` for the live one; else as the log and the
/// object store.
pub(crate) async fn drop_version(
    parts: &SnapshotParts,
    store: &str,
    number: VersionNumber,
) -> Result<Definition> {
    parts.catch_up().await?;
    let before = parts.context.catalog.catalog().store_by_name(store)?.definition.clone();
    let drop = |definition: &Definition| definition.without_version(number).map(Some);
    let definition = alter_versions(parts, store, drop).await?;
    if let Some(version) = before.versions.get(number) {
        for partition in version.logs.partitions.partitions() {
            let at = PartitionRef { store: version.storage_id, partition };
            parts.snapshots.partition(at).remove_all().await?;
        }
        delete_unused_logs(parts, before.store).await?;
    }
    Ok(definition)
}

/// Deletes the logs that no version of a store's documents follows any more and from which nothing
/// is forwarded, and their dead-letter logs.
///
/// # Errors
/// As the log.
pub(crate) async fn delete_unused_logs(parts: &SnapshotParts, store: StoreId) -> Result<()> {
    let unused = parts.context.catalog.catalog().store(store).map(StoreHistory::unused_logs);
    for logs in unused.unwrap_or_default() {
        parts.context.log.delete(logs).await?;
        if let Some(letters) = logs.dead_letters() {
            parts.context.log.delete(letters).await?;
        }
    }
    Ok(())
}
