//! Repartition of a store, after a push has built a version with another number of partitions:
//!
//! 1. The forwarder appends the writes since the push to the version's logs.
//! 2. Writers hold new writes until the remaining entries are forwarded.
//! 3. The version becomes live; writers and readers switch to it.
//!
//! The process that maintains the snapshots of the first new partition completes a repartition, so
//! the repartition continues if any process dies. Late appends of slow writers to the old logs are
//! forwarded for as long as a version follows the old logs; then the old logs are deleted.

mod carrier;
mod group;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::change::EntryBody;
use forebay_core::id::StoreId;
use forebay_core::limits::MOVE_WAIT_MS;
use forebay_core::schema::Definition;
use forebay_core::versions::{Carried, StoreVersion};
use forebay_core::{Error, Result};
use forebay_log::open_log;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use self::carrier::Carrier;
pub(crate) use self::carrier::holds_from;
pub(crate) use self::group::carried_client;
use crate::define::{alter_versions, append, delete_unused_logs};
use crate::keeper::SnapshotParts;
use crate::standing::{Standing, standing};

/// Maximum number of forwarding rounds before writes are held: each round takes less time.
const CARRY_ROUNDS_MAX: usize = 16;
/// Number of entries below which a round is almost instantaneous.
const CARRIED_AT_ONCE: u64 = 64;
/// Time between two reads of logs that receive hardly any appends.
const CARRY_EVERY: Duration = Duration::from_millis(500);
/// First and longest wait after a failure.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// Time in which an active forwarder makes progress.
const OTHERS_LOOK: Duration = Duration::from_millis(500);

/// The repartitions that this process completes.
#[derive(Default)]
pub(crate) struct Moves {
    /// Tasks by store.
    under_way: BTreeMap<StoreId, JoinHandle<()>>,
}

impl Moves {
    /// Starts the repartitions of these stores, and stops those of other stores.
    pub(crate) fn see_to(&mut self, parts: &SnapshotParts, stores: &[Definition]) {
        let is_ours = |id: &StoreId| stores.iter().any(|store| store.store == *id);
        self.under_way.retain(|id, task| {
            let goes_on = is_ours(id) && !task.is_finished();
            if !goes_on {
                task.abort();
            }
            goes_on
        });
        for store in stores.iter().filter(|store| moved(store).is_some()) {
            self.under_way.entry(store.store).or_insert_with(|| {
                tokio::spawn(keep_moving(parts.clone(), store.name.clone(), store.store))
            });
        }
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        self.under_way.values().for_each(JoinHandle::abort);
    }
}

/// Returns the version to whose logs entries may be forwarded.
fn moved(definition: &Definition) -> Option<(&StoreVersion, &Carried)> {
    let versions = definition.versions.all().iter();
    versions.rev().find_map(|version| Some((version, version.carried.as_ref()?)))
}

async fn keep_moving(parts: SnapshotParts, name: String, store: StoreId) {
    let (mut backoff, mut is_held_up) = (Backoff::new(RETRY_WAIT.0, RETRY_WAIT.1), false);
    loop {
        match see_to_end(&parts, &name, store, is_held_up).await {
            Ok(()) => return,
            Err(error) => warn!(store = name, %error, "repartition stalled"),
        }
        is_held_up = true;
        tokio::time::sleep(backoff.next_wait(&*parts.entropy)).await;
    }
}

/// Completes a repartition. Two processes that forward at once delay each other while both restart;
/// so a process that failed before lets another active one continue.
///
/// # Errors
/// As the log and the replicators; another call continues.
async fn see_to_end(
    parts: &SnapshotParts,
    name: &str,
    store: StoreId,
    is_held_up: bool,
) -> Result<()> {
    let newest = || {
        let catalog = parts.catalog.catalog();
        let newest = catalog.by_name(name).ok().filter(|schema| schema.definition.store == store);
        newest.map(|schema| schema.definition.clone())
    };
    let Some(definition) = newest() else { return Ok(()) };
    let Some((version, carried)) = moved(&definition) else { return Ok(()) };
    let mut carrier = Carrier::begin(parts, &definition, version).await?;
    if definition.versions.live().number < version.number {
        if is_held_up && carrier.others_carry(OTHERS_LOOK).await? {
            return Err(Error::unavailable("another process forwards and continues"));
        }
        let written = come_near(parts, &definition, version, &mut carrier).await?;
        go_live(parts, &written, version, &mut carrier).await?;
    }
    loop {
        carrier.carry().await?;
        let Some(now) = newest() else { return Ok(()) };
        let follows = |version: &StoreVersion| version.logs == carried.from;
        if !now.versions.all().iter().any(follows) {
            break;
        }
        tokio::time::sleep(CARRY_EVERY).await;
    }
    alter_versions(parts, name, |definition| match moved(definition) {
        Some((version, _)) => definition.with_carrying_ended(version.number).map(Some),
        None => Ok(None),
    })
    .await?;
    delete_unused_logs(parts, store).await?;
    info!(store = name, "old partitions receive no more writes");
    Ok(())
}

/// Forwards the writes since the push until few are left and the replicators have caught up, then
/// holds new writes; returns the definition that holds them.
async fn come_near(
    parts: &SnapshotParts,
    definition: &Definition,
    version: &StoreVersion,
    carrier: &mut Carrier<'_>,
) -> Result<Definition> {
    let (name, logs) = (&definition.name, version.logs);
    if definition.written() == logs {
        return Ok(definition.clone());
    }
    for _ in 0..CARRY_ROUNDS_MAX {
        let carried = carrier.carry().await?;
        catch_up(parts, name, version).await?;
        if carried <= CARRIED_AT_ONCE {
            break;
        }
    }
    alter_versions(parts, name, |definition| {
        let is_written = definition.written() == logs;
        if is_written { Ok(None) } else { definition.with_writes_to(version.number).map(Some) }
    })
    .await
}

/// Makes the version live for which writes are held, once its logs have all earlier writes.
async fn go_live(
    parts: &SnapshotParts,
    definition: &Definition,
    version: &StoreVersion,
    carrier: &mut Carrier<'_>,
) -> Result<()> {
    let name = &definition.name;
    let Some(Carried { from, .. }) = &version.carried else { return Ok(()) };
    // This round shortens the last one, during which nobody writes.
    carrier.carry().await?;
    // All writers know of the hold after this wait; a later append of one of them is forwarded
    // later.
    tokio::time::sleep(Duration::from_millis(MOVE_WAIT_MS)).await;
    // A latest read of an old log learns from this entry that the store was repartitioned.
    let mut ends = BTreeMap::new();
    for at in from.all() {
        let log_id = open_log(&*parts.log, &*parts.entropy, at).await?;
        let moved = append(parts, at, log_id, definition.version, EntryBody::Definition).await?;
        ends.insert(at.partition, moved);
    }
    carrier.carry().await?;
    let is_behind = |(partition, next)| ends.get(&partition).is_none_or(|end| next <= *end);
    if carrier.carried().any(is_behind) {
        return Err(Error::unavailable("log trimmed since the previous backup; raise log_window"));
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

/// Waits until the replicators have applied all entries that a version's logs hold at the call.
///
/// # Errors
/// `Unavailable` if the replicators do not catch up in time.
pub(crate) async fn catch_up(
    parts: &SnapshotParts,
    name: &str,
    version: &StoreVersion,
) -> Result<()> {
    for partition in version.logs.partitions.partitions() {
        let end = parts.log.bounds(version.logs.at(partition)).await?.end;
        let of = Standing { name, logs: version.logs, kept_as: version.kept_as, partition };
        standing(parts, of, |found| found.state.offset_applied >= end).await?;
    }
    Ok(())
}
