//! Waits until the replica of a version of a store's documents has a wanted state.

use std::time::Duration;

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::state_rows::RestoredState;
use forebay_core::versions::{StoreLogs, StoreVersion};
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::Bounds;
use forebay_snapshot::RemoteShardExport;
use forebay_wire::shard_copy::copy_endpoint;
use futures::future::try_join_all;
use tokio::time::Instant;

use crate::context::SnapshotParts;

/// Longest wait for a replicator: to have a shard, and to catch up with the log.
const REPLICATOR_WAIT: Duration = Duration::from_secs(120);
/// Time between two checks of the replicator.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A partition of a version of a store's documents.
#[derive(Clone, Copy)]
pub(crate) struct VersionPartition<'s> {
    /// Name of the store.
    pub name: &'s str,
    /// The logs that the version follows.
    pub logs: StoreLogs,
    pub storage_id: StoreId,
    pub partition: PartitionId,
}

/// Returns the state of a partition at its replicator, once the state is as wanted.
///
/// # Errors
/// `Unavailable` if the wait takes too long; `NotFound` if the version is dropped, even during the
/// wait; else as the replicator.
pub(crate) async fn await_replica_state(
    parts: &SnapshotParts,
    version_partition: VersionPartition<'_>,
    is_wanted: impl Fn(&RestoredState) -> bool,
) -> Result<RestoredState> {
    let began = Instant::now();
    loop {
        let error = match exported_state(parts, version_partition).await {
            Ok(found) if is_wanted(&found) => return Ok(found),
            Ok(_) => {
                let message = "the replicator has not applied the log to its end; look at the \
                    replicator's lag, and try again";
                Error::unavailable(message).with_partition(version_partition.partition)
            }
            Err(error) if is_temporary(&error) => error,
            Err(error) => return Err(error),
        };
        let catalog = parts.context.catalog.catalog();
        let versions = &catalog.store_by_name(version_partition.name)?.definition.versions;
        if versions.by_storage_id(version_partition.storage_id).is_none() {
            let message = "the version was dropped; list the versions of the store";
            return Err(Error::not_found(message).with_store(version_partition.name));
        }
        if began.elapsed() > REPLICATOR_WAIT {
            return Err(Error::unavailable(error.message()).with_context(error.context().clone()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until the replicators have applied all entries that a version's logs hold at the call.
///
/// # Errors
/// As [`await_replica_state`].
pub(crate) async fn await_caught_up(
    parts: &SnapshotParts,
    name: &str,
    version: &StoreVersion,
) -> Result<()> {
    let StoreVersion { logs, storage_id, .. } = *version;
    // Writers may append as fast as a replicator applies, so no wait precedes the read of an end.
    let bounds = logs.all().map(|at| parts.context.log.bounds(at));
    let bounds = try_join_all(bounds).await?;
    for (partition, Bounds { end, .. }) in logs.partitions.partitions().zip(bounds) {
        let version_partition = VersionPartition { name, logs, storage_id, partition };
        await_replica_state(parts, version_partition, |found| found.state.offset_applied >= end)
            .await?;
    }
    Ok(())
}

async fn exported_state(
    parts: &SnapshotParts,
    version_partition: VersionPartition<'_>,
) -> Result<RestoredState> {
    let VersionPartition { name, logs, storage_id, partition } = version_partition;
    let address = parts.replicators.address(logs.at(partition)).await?;
    let channel = copy_endpoint(&address)?.connect_lazy();
    let mut shard =
        RemoteShardExport::freeze(channel, name, Some(storage_id), partition, 0).await?;
    let state = shard.state().await;
    shard.end().await;
    state
}

/// Returns whether a replicator that refuses a shard may have it soon: it may not know the version
/// yet, or too many others copy from it.
fn is_temporary(error: &Error) -> bool {
    use ErrorCode::{LimitExceeded, NotFound, Unavailable};
    matches!(error.code(), LimitExceeded | NotFound | Unavailable)
}
