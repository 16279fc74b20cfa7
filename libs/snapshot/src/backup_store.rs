//! Backups in an object store, next to the snapshots that they name.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_core::{Error, ErrorCode, Result};
use futures::stream::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::backup::{Backup, BackupName};
use crate::error::refusal_error;
use crate::partition::is_of_object;
use crate::store::SnapshotStore;
use crate::write_once_object::put_if_absent;

/// A backup that cannot be read, with its error.
type PassedOver = (BackupName, Error);

const BACKUPS: &str = "backups";
const BACKUP: &str = "backup";

impl SnapshotStore {
    /// Returns the backups of the stores of this name, the oldest first. Backups that are damaged,
    /// or that have an unknown format, are skipped.
    ///
    /// # Errors
    /// The errors of the object store; the error of the last skipped backup if no other backup is
    /// left.
    pub async fn backups(&self, store: &str) -> Result<Vec<Backup>> {
        match self.all_backups(store, None).await? {
            (backups, Some((_, error))) if backups.is_empty() => Err(error),
            (backups, _) => Ok(backups),
        }
    }

    /// Works like [`SnapshotStore::backups`], for callers that need the newest backup and accept no
    /// older one.
    ///
    /// # Errors
    /// As [`SnapshotStore::backups`]; the error of the newest backup if that backup cannot be read.
    pub async fn backups_with_newest(&self, store: &str) -> Result<Vec<Backup>> {
        let (backups, passed_over) = self.all_backups(store, None).await?;
        match passed_over {
            Some((name, error)) if backups.last().is_none_or(|last| last.name < name) => {
                let advice = "try again, or name an older backup by its id";
                let message = format!(
                    "the newest backup {name} is unreadable: {}; {advice}",
                    error.message()
                );
                Err(Error::new(error.code(), message))
            }
            _ => Ok(backups),
        }
    }

    /// Returns the readable backups, and the newest unreadable one with its error. If a list misses
    /// a backup, the next backup names it; for the newest backup, only `newest_name` does.
    async fn all_backups(
        &self,
        store: &str,
        newest_name: Option<BackupName>,
    ) -> Result<(Vec<Backup>, Option<PassedOver>)> {
        let listed = self.listed_backups(store).await?;
        let mut names = listed.clone();
        names.extend(newest_name);
        let (mut backups, mut passed_over) = (Vec::new(), None);
        while let Some(name) = names.pop_last() {
            match self.backup(store, name).await {
                Ok(backup) => {
                    names.extend(backup.before);
                    backups.push(backup);
                }
                // The backup was removed after the next one was taken.
                Err(error) if error.code() == ErrorCode::NotFound && !listed.contains(&name) => {}
                Err(error) if is_of_object(&error) => {
                    tracing::warn!(store, %name, %error, "unreadable backup skipped");
                    passed_over.get_or_insert((name, error));
                }
                Err(error) => return Err(error),
            }
        }
        backups.reverse();
        Ok((backups, passed_over))
    }

    async fn listed_backups(&self, store: &str) -> Result<BTreeSet<BackupName>> {
        let folder = self.backups_of(store);
        let listed: Vec<_> =
            self.objects.list(Some(&folder)).try_collect().await.map_err(backup_store_error)?;
        let name = |path: &Path| {
            let (name, kind) = path.filename()?.split_once('.')?;
            (kind == BACKUP).then_some(())?;
            BackupName::parse(name)
        };
        Ok(listed.iter().filter_map(|object| name(&object.location)).collect())
    }

    /// Removes all but the newest `keep` backups of a store, and the data that only they need, once
    /// no process has named that data for the grace period. Other processes may take backups
    /// concurrently. Returns the number of removed backups.
    ///
    /// # Errors
    /// The errors of the object store; `Unsupported` for a backup of a newer build, `Corrupt` for
    /// an unreadable one. In these two cases nothing is removed, because the backup's needs are
    /// unknown.
    pub async fn expire_backups(
        &self,
        newest: &Backup,
        keep: usize,
        grace: Duration,
    ) -> Result<usize> {
        let store = &newest.definition()?.name;
        let (mut backups, passed_over) = self.all_backups(store, Some(newest.name)).await?;
        // Another process has removed the missing backup.
        let is_there = |(_, error): &PassedOver| error.code() != ErrorCode::NotFound;
        if let Some((name, error)) = passed_over.filter(is_there) {
            let advice = "no backup was removed; remove this backup yourself if the error persists";
            let message = format!("the backup {name} is unreadable: {}; {advice}", error.message());
            return Err(Error::new(error.code(), message));
        }
        backups.retain(|backup| backup.store == newest.store);
        let retained_backups = backups.split_off(backups.len().saturating_sub(keep.max(1)));
        for Backup { name, .. } in &backups {
            match self.objects.delete(&self.backup_path(store, *name)).await {
                // Another process was faster.
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(backup_store_error(error)),
            }
        }
        for partition in newest.partition_count().partitions() {
            let number = partition.0 as usize;
            let partitions: Vec<_> =
                retained_backups.iter().filter_map(|it| it.partitions.get(number)).collect();
            let mut named_snapshots =
                partitions.iter().map(|partition| partition.snapshot).collect();
            let logs = partitions.iter().flat_map(|partition| &partition.log).map(|log| log.chunk);
            let snapshots = self.partition(newest.at(partition));
            snapshots.expire_others(&named_snapshots, grace).await?;
            snapshots.collect_beside(grace, &mut named_snapshots, logs).await?;
        }
        Ok(backups.len())
    }

    /// Reads a backup of a store of this name.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`; the errors of the object store.
    pub async fn backup(&self, store: &str, name: BackupName) -> Result<Backup> {
        let object =
            self.objects.get(&self.backup_path(store, name)).await.map_err(backup_store_error)?;
        let backup = Backup::decode(&object.bytes().await.map_err(backup_store_error)?)?;
        if backup.name != name || backup.definition()?.name != store {
            return Err(Error::corrupt(format!(
                "the object of the backup {name} holds another backup"
            )));
        }
        Ok(backup)
    }

    /// Publishes a backup whose contents are stored.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn publish_backup(&self, backup: &Backup) -> Result<()> {
        let store = &backup.definition()?.name;
        let path = self.backup_path(store, backup.name);
        put_if_absent(self.objects.as_ref(), &path, backup.encode()?)
            .await
            .map_err(backup_store_error)?;
        let found = self.backup(store, backup.name).await?;
        match found == *backup {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::Corrupt,
                "the stored backup differs from the written backup; take the backup again",
            )),
        }
    }

    fn backups_of(&self, store: &str) -> Path {
        self.root.clone().join(BACKUPS).join(store)
    }

    fn backup_path(&self, store: &str, name: BackupName) -> Path {
        self.backups_of(store).join(format!("{name}.{BACKUP}"))
    }
}

fn backup_store_error(error: object_store::Error) -> Error {
    refusal_error("using the object store of the backups", &error)
}
