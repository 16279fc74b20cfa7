//! Activation of a pushed version: the version enters the store's definition, becomes live once its
//! replicas have caught up, and replaces the versions before the previous live one.

use std::time::Duration;

use forebay_core::id::Offset;
use forebay_core::schema::Definition;
use forebay_core::versions::{StoreVersion, VersionNumber};
use forebay_core::{Error, ErrorCode, Result};
use futures::future::try_join_all;
use tokio::time::Instant;
use tracing::{info, warn};

use super::changed_outcomes::{ChangedOutcome, OutcomeComparison};
use super::new_version::NewVersion;
use crate::await_replica::await_caught_up;
use crate::new_store::FinishedPartition;
use crate::repartition::check_log_holds;
use crate::version_admin::drop_version;

/// Longest wait for a version to become live while nothing is forwarded to its logs.
const LIVE_WAIT: Duration = Duration::from_secs(150);
/// Time between two checks of the version.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A version that is live.
pub(super) struct LiveVersion {
    pub(super) number: VersionNumber,
    pub(super) changed_outcomes: Vec<ChangedOutcome>,
}

/// Adds a version with these partitions to the store's definition. Makes the version live once the
/// replicators have caught up; for a repartition, waits until it is live. Then drops the versions
/// before the previous live one.
///
/// # Errors
/// `Conflict` if the log was trimmed or the store's documents were dropped in the meantime;
/// `Unavailable` if no process completes a repartition; else as the log and the replicators.
pub(super) async fn go_live(
    version: &NewVersion<'_>,
    finished: &[FinishedPartition],
) -> Result<LiveVersion> {
    let repartition_offsets = version.repartition_offsets();
    let start = match &repartition_offsets {
        Some(offsets) => offsets.clone(),
        None => finished.iter().map(|it| it.progress.offset_applied).collect(),
    };
    let added = add_to_definition(version, &start).await?;
    let pushed = version.find_in(&added)?;
    let mut previous = added.versions.live();
    if pushed.number > previous.number {
        let source = pushed.repartition_source.as_ref();
        let from = source.map_or(pushed.logs, |source| source.from);
        check_log_holds(version.parts, from, &start).await?;
    } else if pushed.number == previous.number {
        // Another process has made the version live in the meantime.
        previous = version.definition.versions.live();
    }
    match repartition_offsets {
        None => activate(version, pushed).await?,
        Some(_) => await_live(version, pushed).await?,
    }
    let (store, number) = (&*version.definition.name, pushed.number);
    info!(store, version = %number, "pushed version live");
    let comparison = OutcomeComparison { parts: version.parts, store, previous, pushed };
    let changed_outcomes = match repartition_offsets {
        None => comparison.in_same_logs(&start).await,
        Some(_) => comparison.across_repartition().await,
    };
    drop_older(version, previous.number, number).await;
    Ok(LiveVersion { number, changed_outcomes })
}

/// Adds the version to the newest definition, unless it is there; returns that definition.
async fn add_to_definition(version: &NewVersion<'_>, start: &[Offset]) -> Result<Definition> {
    let is_repartition = version.repartition_offsets().is_some();
    version
        .alter(|definition| {
            if definition.versions.by_storage_id(version.storage_id).is_some() {
                return Ok(None);
            }
            if !is_repartition {
                return definition.with_version(version.storage_id, start.to_vec()).map(Some);
            }
            if definition.drop_all_count != version.definition.drop_all_count {
                let message = "the store's documents were dropped during the push; push again";
                return Err(Error::conflict(message));
            }
            let (storage_id, partitions) = (version.storage_id, version.partitions);
            definition.with_repartitioned_version(storage_id, partitions, start.to_vec()).map(Some)
        })
        .await
}

/// Makes the version live, once its replicas have caught up with the store's log.
async fn activate(version: &NewVersion<'_>, pushed: &StoreVersion) -> Result<()> {
    await_caught_up(version.parts, &version.definition.name, pushed).await?;
    let live = version.alter(|definition| {
        let number = version.find_in(definition)?.number;
        let is_live = definition.versions.live().number == number;
        if is_live { Ok(None) } else { definition.with_live(number).map(Some) }
    });
    live.await.map(drop)
}

/// Waits until the version is live. The process that maintains the store's snapshots completes the
/// repartition.
async fn await_live(version: &NewVersion<'_>, pushed: &StoreVersion) -> Result<()> {
    let name = &version.definition.name;
    let (mut last, mut moved_at) = (None, Instant::now());
    while moved_at.elapsed() < LIVE_WAIT {
        let catalog = version.parts.context.catalog.catalog();
        let definition = &catalog.store_by_name(name)?.definition;
        if version.find_in(definition)?.number <= definition.versions.live().number {
            return Ok(());
        }
        let progress = (definition.version, forwarded_entries(version, pushed).await?);
        if last != Some(progress) {
            (last, moved_at) = (Some(progress), Instant::now());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let message = "the writes since the start of the push were not forwarded to the new \
        partitions; run a snapshot service for the store, and push again";
    Err(Error::unavailable(message).with_store(name))
}

/// Returns the number of entries in the version's logs.
async fn forwarded_entries(version: &NewVersion<'_>, pushed: &StoreVersion) -> Result<u64> {
    let bounds = pushed.logs.all().map(|at| version.parts.context.log.bounds(at));
    Ok(try_join_all(bounds).await?.into_iter().map(|bounds| bounds.end.0).sum())
}

/// Drops all versions except these two.
async fn drop_older(version: &NewVersion<'_>, previous: VersionNumber, live: VersionNumber) {
    let store = &version.definition.name;
    let all = version.definition.versions.all().iter().map(|it| it.number);
    for number in all.filter(|number| ![previous, live].contains(number)) {
        match drop_version(version.parts, store, number).await {
            Err(error) if error.code() != ErrorCode::NotFound => {
                warn!(store, version = %number, %error, "older version not dropped");
            }
            _ => {}
        }
    }
}
