//! Point-in-time recovery of a store: creates a new store whose logs begin after snapshots of the
//! old store's state. A repeated restore resumes an interrupted one, since the same restore creates
//! the same store.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, SchemaVersion, StoreId};
use forebay_core::{Error, Result};
use forebay_snapshot::{
    Backup, PartitionBackup, PointInTimePartition, RestoreChain, RestoreTarget,
};
use forebay_tasks::block_in_place;
use forebay_wire::token::Token;
use futures::TryStreamExt;
use tracing::info;

use crate::context::BackupParts;
use crate::new_store::{FinishedPartition, NewStore, PartitionParts, check_free, id_of};

/// The point in time to which a store is restored.
#[derive(Clone, Debug, PartialEq)]
pub enum PointInTime {
    /// The newest backup.
    Newest,
    /// The backup with this id.
    Backup(u64),
    /// Just before the first entry at or after this time, in each partition.
    Before(Timestamp),
    /// After the entries that a token names. Partitions that the token does not name are restored
    /// to the append time of the last of those entries.
    Token(Token),
}

/// A restored store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredStore {
    /// Id of the store.
    pub store: StoreId,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of documents, including expired ones.
    pub documents: u64,
}

impl BackupParts {
    /// Creates a store named `restore_as` with the state of another one at `point`. Calls `tell`
    /// with the number of finished partitions and the number of all partitions.
    ///
    /// # Errors
    /// `Conflict` if the name is taken, `NotFound` without a backup that reaches the point in time,
    /// `LimitExceeded` without memory; else as the object stores and the log. In this case the new
    /// store does not exist, and the same restore resumes from the existing parts.
    pub async fn restore(
        &self,
        store: &str,
        restore_as: &str,
        point: &PointInTime,
        tell: impl Fn(u32, u32),
    ) -> Result<RestoredStore> {
        self.service.catch_up().await?;
        check_free(&self.service, restore_as)?;
        let backups = match point {
            PointInTime::Newest => self.backups.backups_with_newest(store).await?,
            _ => self.backups.backups(store).await?,
        };
        let backups = choose_backups(backups, store, point)?;
        let newest = backups.last().ok_or_else(|| no_backup(store))?;
        let new_store = NewStore {
            parts: &self.service,
            id: self.new_store(restore_as, newest, point)?,
            name: restore_as,
            partitions: newest.partition_count(),
            like: &newest.definitions,
        };
        new_store.create_logs().await?;
        let restore = Restore { parts: self, backups: &backups, newest, new_store };
        let count = newest.partition_count();
        let mut partitions: BTreeMap<PartitionId, FinishedPartition> = BTreeMap::new();
        for is_named_round in [true, false] {
            let named_time =
                partitions.values().map(|partition| partition.progress.partition_time).max();
            for partition in count.partitions() {
                let Some(target) = target_of(point, partition, is_named_round, named_time) else {
                    continue;
                };
                partitions.insert(partition, restore.partition(partition, target).await?);
                tell(partitions.len() as u32, count.0);
            }
        }
        let versions = partitions.values().map(|partition| partition.progress.schema_version);
        let newest_seen = versions.max().unwrap_or_default().max(SchemaVersion(1));
        restore.new_store.define(newest_seen).await?;
        let documents = partitions.values().map(|partition| partition.documents).sum();
        info!(store, restore_as, documents, "store restored");
        Ok(RestoredStore { store: restore.new_store.id, partitions: count.0, documents })
    }

    /// Returns the id of the store that this restore creates.
    fn new_store(&self, restore_as: &str, newest: &Backup, point: &PointInTime) -> Result<StoreId> {
        let point = match point {
            PointInTime::Newest => format!("{}", newest.name),
            PointInTime::Backup(id) => format!("backup {id}"),
            PointInTime::Before(time) => format!("before {}", time.as_micros()),
            PointInTime::Token(token) => format!("token {:?}", token.encode()),
        };
        let words = format!("{restore_as}\n{}\n{point}", newest.store);
        let definition = newest.definitions.last();
        let definition =
            definition.ok_or_else(|| Error::corrupt("the backup has no definition"))?;
        Ok(id_of(&self.service, &words, definition))
    }
}

/// Selects the backups for a restore, the newest of which has all definitions: the backups of the
/// store, or of the version of it, that the point names; otherwise of the newest one whose backups
/// reach the point.
fn choose_backups(
    mut backups: Vec<Backup>,
    store: &str,
    point: &PointInTime,
) -> Result<Vec<Backup>> {
    let mut stores: Vec<StoreId> = Vec::new();
    for backup in backups.iter().rev() {
        if !stores.contains(&backup.store) {
            stores.push(backup.store);
        }
    }
    let chosen_store = match point {
        PointInTime::Newest => None,
        PointInTime::Backup(id) => {
            let place = backups.iter().position(|backup| backup.name.id == *id);
            backups.truncate(place.ok_or_else(|| no_backup(store))? + 1);
            backups.last().map(|backup| backup.store)
        }
        PointInTime::Token(token) => Some(token.store),
        PointInTime::Before(time) => {
            stores.iter().copied().find(|store| is_led_to(&backups, *store, *time))
        }
    };
    // If no backups reach the point, the restore reports why the newest does not.
    let chosen_store = chosen_store.or(stores.first().copied());
    backups.retain(|backup| Some(backup.store) == chosen_store);
    match backups.is_empty() {
        true => Err(no_backup(store)),
        false => Ok(backups),
    }
}

/// Returns whether the backups of a store reach a time in each of its partitions.
fn is_led_to(backups: &[Backup], store: StoreId, time: Timestamp) -> bool {
    let store_backups: Vec<_> = backups.iter().filter(|backup| backup.store == store).collect();
    let count = store_backups.last().map_or(0, |newest| newest.partitions.len());
    (0..count).all(|number| {
        let partition_backups: Vec<_> =
            store_backups.iter().filter_map(|backup| backup.partitions.get(number)).collect();
        RestoreChain::find(&partition_backups, RestoreTarget::Before(time)).is_ok()
    })
}

/// Returns the target of a partition in the round of the partitions that a token names, or in the
/// round of the others; `None` in the other round.
fn target_of(
    point: &PointInTime,
    partition: PartitionId,
    is_named_round: bool,
    named_time: Option<Timestamp>,
) -> Option<RestoreTarget> {
    let (is_named, target) = match point {
        PointInTime::Newest | PointInTime::Backup(_) => (true, RestoreTarget::Newest),
        PointInTime::Before(time) => (true, RestoreTarget::Before(*time)),
        PointInTime::Token(token) => match token.positions.get(&partition) {
            Some((log_id, position)) => (true, RestoreTarget::Behind(*log_id, position.offset)),
            None => {
                let time = named_time.map_or(Timestamp::MIN, |time| time.plus_micros(1));
                (false, RestoreTarget::Before(time))
            }
        },
    };
    (is_named == is_named_round).then_some(target)
}

/// A restore in progress.
struct Restore<'r> {
    parts: &'r BackupParts,
    backups: &'r [Backup],
    newest: &'r Backup,
    new_store: NewStore<'r>,
}

impl Restore<'_> {
    /// Creates the snapshot of a partition, and the log that begins after it.
    async fn partition(
        &self,
        partition: PartitionId,
        target: RestoreTarget,
    ) -> Result<FinishedPartition> {
        let log = match self.new_store.begin(partition).await? {
            PartitionParts::Finished(finished_partition) => return Ok(finished_partition),
            PartitionParts::Log(log) => log,
        };
        let point_in_time = self.state_at_target(partition, target).await?;
        let mut builder = self.new_store.image(log)?;
        let state = block_in_place(|| point_in_time.restore(&mut builder, log))?;
        self.new_store.publish(log, builder, &state).await
    }

    /// Returns the partition's state at the target.
    async fn state_at_target(
        &self,
        partition: PartitionId,
        target: RestoreTarget,
    ) -> Result<PointInTimePartition> {
        let number = partition.0 as usize;
        let backups: Vec<&PartitionBackup> =
            self.backups.iter().filter_map(|backup| backup.partitions.get(number)).collect();
        let chain = RestoreChain::find(&backups, target)
            .map_err(|error| error.with_partition(partition))?;
        let from = self.parts.backups.partition(self.newest.at(partition));
        let manifest = from.read(chain.snapshot).await?;
        let BackupParts { scratch, service, .. } = self.parts;
        let memory = service.options.memory_bytes;
        let definitions = &self.newest.definitions;
        let mut point_in_time =
            PointInTimePartition::begin(&from, &manifest, definitions, scratch, memory).await?;
        let chunks = chain.log.iter().map(|segment| segment.chunk).collect();
        let mut chunks = Box::pin(from.chunks(chunks));
        for segment in &chain.log {
            let Some(records) = chunks.try_next().await? else { break };
            if block_in_place(|| point_in_time.go_on(segment, &records, chain.target))? {
                break;
            }
        }
        Ok(point_in_time)
    }
}

fn no_backup(store: &str) -> Error {
    let message = "the store has no such backup; list its backups, and check the backups folder";
    Error::not_found(message).with_store(store)
}
