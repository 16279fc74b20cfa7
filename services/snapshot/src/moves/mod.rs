//! Moves of a store's documents to another number of partitions, from where a push has made the
//! version that has them: what is written meanwhile is carried, then writes are held until the rest
//! has come, then the version is live and writers and readers move.
//!
//! Whoever keeps the snapshots of the first of the new partitions sees a move to its end, so it
//! goes on whichever process dies. What slow writers still append to the logs from before is
//! carried for as long as a version follows those; then they go.

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

/// Times that what was written meanwhile is carried before writes are held: each takes less time.
const CARRY_ROUNDS_MAX: usize = 16;
/// So few entries are carried in hardly any time.
const CARRIED_AT_ONCE: u64 = 64;
/// Time between two looks at logs that hardly anybody appends to any more.
const CARRY_EVERY: Duration = Duration::from_millis(500);
/// First and longest wait behind a failure.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// Who carries gets on in this time.
const OTHERS_LOOK: Duration = Duration::from_millis(500);

/// The moves that this process sees to their end.
#[derive(Default)]
pub(crate) struct Moves {
    /// By store.
    under_way: BTreeMap<StoreId, JoinHandle<()>>,
}

impl Moves {
    /// Begins to see to the moves of these stores, and leaves those of others.
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

/// The version to whose logs something may be carried.
fn moved(definition: &Definition) -> Option<(&StoreVersion, &Carried)> {
    let versions = definition.versions.all().iter();
    versions.rev().find_map(|version| Some((version, version.carried.as_ref()?)))
}

async fn keep_moving(parts: SnapshotParts, name: String, store: StoreId) {
    let (mut backoff, mut is_held_up) = (Backoff::new(RETRY_WAIT.0, RETRY_WAIT.1), false);
    loop {
        match see_to_end(&parts, &name, store, is_held_up).await {
            Ok(()) => return,
            Err(error) => warn!(store = name, %error, "a move to other partitions is held up"),
        }
        is_held_up = true;
        tokio::time::sleep(backoff.next_wait(&*parts.entropy)).await;
    }
}

/// Sees a move to its end. Two that carry at once hold up each other, for as long as both begin
/// anew; so whoever was held up lets another one go on that does.
///
/// # Errors
/// Those of the log and of the replicators; it goes on with another call.
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
            return Err(Error::unavailable("another process carries, and goes on"));
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
    info!(store = name, "nothing comes to the partitions from before any more");
    Ok(())
}

/// Carries what was written since the push until little is left and the replicators have come as
/// far, and has writes held; answers the definition that says so.
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

/// Makes the version live that writes wait for: once all that was written before is there.
async fn go_live(
    parts: &SnapshotParts,
    definition: &Definition,
    version: &StoreVersion,
    carrier: &mut Carrier<'_>,
) -> Result<()> {
    let name = &definition.name;
    let Some(Carried { from, .. }) = &version.carried else { return Ok(()) };
    // Less is left to be carried while nobody writes.
    carrier.carry().await?;
    // All writers have heard of it by then; what one of them still appends is carried later.
    tokio::time::sleep(Duration::from_millis(MOVE_WAIT_MS)).await;
    // Whoever reads the latest of a log from before knows by this to look elsewhere.
    let mut ends = BTreeMap::new();
    for at in from.all() {
        let log_id = open_log(&*parts.log, &*parts.entropy, at).await?;
        let moved = append(parts, at, log_id, definition.version, EntryBody::Definition).await?;
        ends.insert(at.partition, moved);
    }
    carrier.carry().await?;
    let is_behind = |(partition, next)| ends.get(&partition).is_none_or(|end| next <= *end);
    if carrier.carried().any(is_behind) {
        return Err(Error::unavailable("the logs from before end before what was appended"));
    }
    let number = version.number;
    alter_versions(parts, name, |definition| {
        let is_live = definition.versions.live().number == number;
        if is_live { Ok(None) } else { definition.with_live(number).map(Some) }
    })
    .await?;
    let partitions = version.logs.partitions.0;
    info!(store = name, version = %number, partitions, "the documents are in other partitions");
    Ok(())
}

/// Waits until the replicators have applied what a version's logs hold now.
///
/// # Errors
/// `Unavailable` where they do not in time.
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
