//! Completion of one repartition: forwards until the new version is live and the old logs are
//! unused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::change::EntryBody;
use forebay_core::id::StoreId;
use forebay_core::limits::REPARTITION_PAUSE_MS;
use forebay_core::schema::Definition;
use forebay_core::versions::{RepartitionSource, StoreVersion};
use forebay_core::{Error, Result};
use forebay_entries::open_log;
use tracing::info;

use super::forwarder::Forwarder;
use crate::await_replica::await_caught_up;
use crate::context::SnapshotParts;
use crate::definitions::{alter_versions, append};
use crate::version_admin::delete_unused_logs;

/// Number of entries below which a round is almost instantaneous.
const FORWARDED_AT_ONCE: u64 = 64;
/// Time between two rounds of forwarding.
const FORWARD_EVERY: Duration = Duration::from_millis(500);

/// Returns the version to whose logs entries may be forwarded.
pub(super) fn forwarding_target(
    definition: &Definition,
) -> Option<(&StoreVersion, &RepartitionSource)> {
    let versions = definition.versions.all().iter();
    versions.rev().find_map(|version| Some((version, version.repartition_source.as_ref()?)))
}

/// Completes a repartition. Two processes that forward at once delay each other while both restart;
/// so a process that failed before looks this long for another active one, and lets it continue.
///
/// # Errors
/// As the log and the replicators; another call continues.
pub(super) async fn complete(
    parts: &SnapshotParts,
    name: &str,
    store: StoreId,
    look: Option<Duration>,
) -> Result<()> {
    let newest = || {
        let catalog = parts.context.catalog.catalog();
        let newest =
            catalog.store_by_name(name).ok().filter(|schema| schema.definition.store == store);
        newest.map(|schema| schema.definition.clone())
    };
    let Some(definition) = newest() else { return Ok(()) };
    let Some((version, source)) = forwarding_target(&definition) else { return Ok(()) };
    let mut forwarder = Forwarder::begin(parts, &definition, version).await?;
    if definition.versions.live().number < version.number {
        if let Some(look) = look
            && forwarder.another_forwarder_active(look).await?
        {
            return Err(Error::unavailable("another process forwards and continues"));
        }
        let written = pause_writes(parts, &definition, version, &mut forwarder).await?;
        go_live(parts, &written, version, &mut forwarder).await?;
    }
    loop {
        forwarder.forward().await?;
        let Some(now) = newest() else { return Ok(()) };
        let follows = |version: &StoreVersion| version.logs == source.from;
        if !now.versions.all().iter().any(follows) {
            break;
        }
        tokio::time::sleep(FORWARD_EVERY).await;
    }
    alter_versions(parts, name, |definition| match forwarding_target(definition) {
        Some((version, _)) => definition.with_forwarding_ended(version.number).map(Some),
        None => Ok(None),
    })
    .await?;
    delete_unused_logs(parts, store).await?;
    info!(store = name, "old partitions receive no more writes");
    Ok(())
}

/// Forwards the writes since the push until few are left and the replicators have caught up, then
/// pauses new writes; returns the definition that pauses them. If the writers append as fast as
/// this process forwards, only the pause lets it reach the end of the logs.
async fn pause_writes(
    parts: &SnapshotParts,
    definition: &Definition,
    version: &StoreVersion,
    forwarder: &mut Forwarder<'_>,
) -> Result<Definition> {
    let (name, logs) = (&definition.name, version.logs);
    if definition.write_logs() == logs {
        return Ok(definition.clone());
    }
    let mut previous = u64::MAX;
    loop {
        let appended = forward_and_catch_up(parts, name, version, forwarder).await?;
        if !does_another_catch_up_help(appended, previous) {
            break;
        }
        previous = appended;
    }
    alter_versions(parts, name, |definition| {
        let is_written = definition.write_logs() == logs;
        if is_written { Ok(None) } else { definition.with_writes_to(version.number).map(Some) }
    })
    .await
}

/// Returns whether another catch-up leaves fewer entries to forward. `appended` and `previous` are
/// the appends of the last round of this catch-up and of the one before.
fn does_another_catch_up_help(appended: u64, previous: u64) -> bool {
    appended > FORWARDED_AT_ONCE && appended <= previous / 2
}

/// Forwards all entries, and then those that writers append until the replicators have applied the
/// first ones. Returns the number of entries that the last round has appended.
async fn forward_and_catch_up(
    parts: &SnapshotParts,
    name: &str,
    version: &StoreVersion,
    forwarder: &mut Forwarder<'_>,
) -> Result<u64> {
    let appended = forwarder.forward().await?;
    let later = forward_during(forwarder, await_caught_up(parts, name, version)).await?;
    Ok(later.unwrap_or(appended))
}

/// Forwards entries until `catching_up` has ended. Another process sees by these entries that this
/// one forwards. Returns the number of entries that the last round has appended; `None` without a
/// round.
///
/// # Errors
/// As [`Forwarder::forward`] and `catching_up`.
async fn forward_during(
    forwarder: &mut Forwarder<'_>,
    catching_up: impl Future<Output = Result<()>>,
) -> Result<Option<u64>> {
    let mut appended = None;
    let is_caught_up = AtomicBool::new(false);
    let catching_up = async {
        catching_up.await?;
        is_caught_up.store(true, Ordering::Relaxed);
        Ok::<_, Error>(())
    };
    // A round always ends: only a forwarder that knows its last append can continue.
    let forwarding = async {
        tokio::time::sleep(FORWARD_EVERY).await;
        while !is_caught_up.load(Ordering::Relaxed) {
            appended = Some(forwarder.forward().await?);
            tokio::time::sleep(FORWARD_EVERY).await;
        }
        Ok::<_, Error>(())
    };
    tokio::try_join!(catching_up, forwarding)?;
    Ok(appended)
}

/// Makes the version live for which writes are paused, once its logs have all earlier writes.
async fn go_live(
    parts: &SnapshotParts,
    definition: &Definition,
    version: &StoreVersion,
    forwarder: &mut Forwarder<'_>,
) -> Result<()> {
    let name = &definition.name;
    let Some(RepartitionSource { from, .. }) = &version.repartition_source else { return Ok(()) };
    // This round shortens the last one, during which nobody writes.
    forwarder.forward().await?;
    // All writers know of the pause after this wait; a later append of one of them is forwarded
    // later.
    tokio::time::sleep(Duration::from_millis(REPARTITION_PAUSE_MS)).await;
    // A latest read of an old log learns from this entry that the store was repartitioned.
    let mut ends = BTreeMap::new();
    for at in from.all() {
        let log_id = open_log(&*parts.context.log, &*parts.context.entropy, at).await?;
        let end = append(parts, at, log_id, definition.version, EntryBody::Definition).await?;
        ends.insert(at.partition, end);
    }
    forwarder.forward().await?;
    let is_behind = |(partition, next)| ends.get(&partition).is_none_or(|end| next <= *end);
    if forwarder.forwarded_offsets().any(is_behind) {
        let message =
            "the old partitions were not forwarded to their ends; the service tries again";
        return Err(Error::unavailable(message).with_store(name));
    }
    let number = version.number;
    alter_versions(parts, name, |definition| {
        let is_live = definition.versions.live().number == number;
        if is_live { Ok(None) } else { definition.with_live(number).map(Some) }
    })
    .await?;
    let partitions = version.logs.partitions.0;
    info!(store = name, version = %number, partitions, "repartition complete");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use forebay_core::ErrorCode;
    use forebay_core::entropy::SeededEntropy;
    use forebay_core::id::{Offset, PartitionCount, PartitionRef};
    use forebay_log::faulty::FaultRates;
    use forebay_log::{FaultyLog, MemoryLog};
    use tokio::time::Instant;

    use super::*;
    use crate::context::ReplicatorLocator;
    use crate::repartition::fixture::{create_repartition, parts, users};

    const SECOND: Duration = Duration::from_secs(1);

    /// A locator that no call may use.
    struct UnusedLocator;

    #[async_trait]
    impl ReplicatorLocator for UnusedLocator {
        async fn address(&self, _at: PartitionRef) -> Result<String> {
            Err(Error::internal("a replicator was asked before the ends of all logs were read"))
        }
    }

    #[tokio::test]
    async fn ends_of_all_logs_are_read_before_the_first_wait() {
        let folder = tempfile::tempdir().unwrap();
        let parts = SnapshotParts { replicators: Arc::new(UnusedLocator), ..parts(&folder) };
        let (start_offsets, partitions) = (vec![Offset(2), Offset(3)], PartitionCount(3));
        let definition = users().with_repartitioned_version(StoreId(8), partitions, start_offsets);
        let definition = definition.unwrap();
        let version = definition.versions.newest();
        // The last partition has no log, so the read of its end fails.
        parts.context.log.create(version.logs.store, PartitionCount(2)).await.unwrap();
        let error = await_caught_up(&parts, "users", version).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_catch_up_during_a_slow_round_of_forwarding() {
        let folder = tempfile::tempdir().unwrap();
        let mut parts = parts(&folder);
        let memory = MemoryLog::new(Arc::clone(&parts.context.clock));
        let entropy = Arc::new(SeededEntropy::new(1));
        let log = Arc::new(FaultyLog::new(memory, entropy, FaultRates::default()));
        parts.context.log = log.clone();
        let definition = create_repartition(&parts).await;
        let version = definition.versions.newest();
        let mut forwarder = Forwarder::begin(&parts, &definition, version).await.unwrap();
        log.set_rates(FaultRates {
            append_delayed: 10_000,
            delay_max: 60 * SECOND,
            ..FaultRates::default()
        });
        let began = Instant::now();
        let catching_up = async {
            tokio::time::sleep(SECOND).await;
            assert_eq!(began.elapsed(), SECOND, "the round does not delay the wait");
            Ok(())
        };
        assert_eq!(forward_during(&mut forwarder, catching_up).await.unwrap(), Some(15));
        assert!(began.elapsed() > 10 * SECOND, "{:?}", began.elapsed());

        assert_eq!(forward_during(&mut forwarder, async { Ok(()) }).await.unwrap(), None);
        let failing = async { Err(Error::unavailable("no replicator")) };
        let error = forward_during(&mut forwarder, failing).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable);
    }

    #[test]
    fn rounds_end_once_few_entries_are_left_or_a_round_is_not_half_as_long() {
        assert!(does_another_catch_up_help(10_000, u64::MAX));
        assert!(does_another_catch_up_help(5_000, 10_000));
        assert!(!does_another_catch_up_help(5_001, 10_000), "writers append as fast");
        assert!(!does_another_catch_up_help(FORWARDED_AT_ONCE, u64::MAX));
    }
}
