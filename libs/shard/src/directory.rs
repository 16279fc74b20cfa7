//! The folder of a process's shards, with one subfolder per shard. A partition may have several
//! shards, which are numbered.
//!
//! If a shard cannot continue with its log, a new shard of the partition is built in addition to
//! it. The head of a shard says whether the shard serves reads. A kill between two steps may leave
//! several such shards: then the newest one counts, and the others are removed. An unfinished copy
//! of a partition from elsewhere stays, so that it can be resumed, until a local shard contains
//! everything of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::key_order::KeyOrder;
use forebay_core::state_rows::RestoredState;
use forebay_core::{Error, ErrorCode, Result};

use forebay_wire::v1::CopyPlan;

use crate::bulk_load::BulkLoad;
use crate::copy::Import;
use crate::resources::Resources;
use crate::shard::{Shard, destroy};
use crate::writer::ShardWriter;

const PREFIX: &str = "shard-";
const IMPORT: &str = "copy-";
const EXPORTS: &str = "copies";

/// The folder of a process's shards.
#[derive(Clone)]
pub struct ShardDirectory {
    dir: PathBuf,
    resources: Resources,
    /// Whether the shards store events.
    have_events: bool,
}

impl ShardDirectory {
    /// Returns the shards of this folder, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>, resources: Resources) -> Self {
        Self { dir: dir.into(), resources, have_events: false }
    }

    /// Works like [`ShardDirectory::new`], for shards with events.
    pub fn with_events(dir: impl Into<PathBuf>, resources: Resources) -> Self {
        Self { have_events: true, ..Self::new(dir, resources) }
    }

    /// Returns the resources of the shards.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    fn open(&self, path: &Path, at: PartitionRef, order: KeyOrder) -> Result<Shard> {
        match self.have_events {
            true => Shard::open_with_events(path, at, order, &self.resources),
            false => Shard::open(path, at, order, &self.resources),
        }
    }

    /// Resumes the newest shard of a partition that served reads, or else the newest shard. All
    /// other shards of the partition are removed, and so are damaged ones, which are rebuilt from
    /// the log. Returns `None` if no shard is left.
    ///
    /// # Errors
    /// - `Unavailable`: the disk refuses, or another process has the shard open.
    /// - `UpgradeNeeded`: a newer build wrote the shard.
    pub fn resume(
        &self,
        at: PartitionRef,
        partitions: PartitionCount,
        order: KeyOrder,
    ) -> Result<Option<(ShardWriter, RestoredState)>> {
        let mut found: Option<(ShardWriter, RestoredState)> = None;
        for number in self.copies(at)?.into_iter().rev() {
            let path = self.path(at, number);
            if found.as_ref().is_some_and(|(_, restored)| restored.follow_state.is_served) {
                destroy(&path)?;
                continue;
            }
            let result = self.open(&path, at, order).and_then(|shard| {
                let mut writer = ShardWriter::new(shard);
                let restored = writer.resume()?;
                Ok((writer, restored))
            });
            let (writer, restored) = match result {
                Err(error) if error.code() == ErrorCode::Corrupt => {
                    tracing::warn!(%at, %error, "damaged shard removed");
                    destroy(&path)?;
                    continue;
                }
                result => result?,
            };
            match restored.filter(|restored| restored.state.partitions == partitions) {
                Some(restored) if found.is_none() || restored.follow_state.is_served => {
                    if let Some((before, _)) = found.replace((writer, restored)) {
                        self.remove(before)?;
                    }
                }
                _ => drop(self.remove(writer)?),
            }
        }
        if let Some((_, restored)) =
            found.as_ref().filter(|(_, found)| found.follow_state.is_served)
        {
            self.remove_passed_import(at, restored);
        }
        Ok(found)
    }

    /// Removes the unfinished copy of a partition if the local shard is past the copy, because the
    /// copier has then given the copy up.
    fn remove_passed_import(&self, at: PartitionRef, restored: &RestoredState) {
        let path = self.import_path(at);
        if !path.exists() {
            return;
        }
        let result = Import::resume(&path).and_then(|import| match import {
            Some(import) if import.is_passed_by(&restored.state) => import.remove().map(|()| true),
            _ => Ok(false),
        });
        match result {
            Ok(true) => tracing::info!(%at, "abandoned copy removed"),
            Ok(false) => {}
            // Another process may be copying, and no caller waits for it here.
            Err(error) => tracing::info!(%at, %error, "abandoned copy not removed"),
        }
    }

    /// Creates an empty shard of a partition, in addition to the existing ones.
    ///
    /// # Errors
    /// As [`ShardDirectory::resume`].
    pub fn create(&self, at: PartitionRef, order: KeyOrder) -> Result<ShardWriter> {
        Ok(ShardWriter::new(self.open(&self.next_path(at)?, at, order)?))
    }

    /// Starts the bulk load of a new shard of a partition, in addition to the existing ones.
    ///
    /// # Errors
    /// As [`ShardDirectory::resume`].
    pub fn begin_load(&self, at: PartitionRef, order: KeyOrder) -> Result<BulkLoad> {
        BulkLoad::begin(&self.next_path(at)?, at, order, &self.resources)
    }

    /// Returns the path of the next shard of a partition.
    fn next_path(&self, at: PartitionRef) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.dir).map_err(|error| self.folder_error(&error))?;
        let number = self.copies(at)?.last().map_or(1, |last| last + 1);
        Ok(self.path(at, number))
    }

    /// Resumes the unfinished copy of a partition of this store.
    ///
    /// # Errors
    /// `Conflict` if the copy is in progress, else as [`ShardDirectory::resume`].
    pub fn resume_import(&self, store: &str, partition: PartitionId) -> Result<Option<Import>> {
        for (at, path) in self.imports()? {
            if at.partition != partition {
                continue;
            }
            // A copy of another store may be in progress.
            if Import::plan_in(&path)?.is_some_and(|plan| plan.store == store) {
                return Import::resume(&path);
            }
        }
        Ok(None)
    }

    /// Starts to copy a partition as planned; an earlier copy of the partition is removed.
    ///
    /// # Errors
    /// - `Corrupt`: the plan omits keys, or names files that are not those of a shard.
    /// - `Conflict`: a copy of the partition to this folder is in progress.
    /// - `LimitExceeded`: the disk is full.
    /// - Else as [`ShardDirectory::resume`].
    pub fn begin_import(&self, plan: CopyPlan) -> Result<Import> {
        let (store, partition) = (StoreId(plan.store_id), PartitionId(plan.partition));
        Import::begin(&self.import_path(PartitionRef { store, partition }), plan)
    }

    /// Turns a complete copy into the newest shard of its partition.
    ///
    /// # Errors
    /// - `Unavailable`: the copy is incomplete.
    /// - `Corrupt`: the copy is no shard; it is removed then.
    /// - `LimitExceeded`: the disk is full.
    /// - Else as [`ShardDirectory::resume`].
    pub fn take_in(&self, import: Import) -> Result<()> {
        let path = self.next_path(import.partition())?;
        import.finish(&path)
    }

    /// Returns the folder of frozen shards, on the same disk as their files.
    pub fn exports(&self) -> PathBuf {
        self.dir.join(EXPORTS)
    }

    /// Removes a shard and its files; returns its writer if the shard still has readers.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn remove(&self, writer: ShardWriter) -> Result<Option<ShardWriter>> {
        let path = writer.shard().path().to_owned();
        match writer.into_shard() {
            Ok(shard) => drop(shard),
            Err(still_read) => return Ok(Some(still_read)),
        }
        destroy(&path).map(|()| None)
    }

    /// Returns the stores with shards or unfinished copies.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn stores(&self) -> Result<BTreeSet<StoreId>> {
        let imports = self.imports()?.into_iter().map(|(at, _)| at.store);
        Ok(self.names()?.into_iter().map(|(at, _)| at.store).chain(imports).collect())
    }

    /// Removes all shards of a store, which must be closed, and its unfinished copies.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses, or a shard is open; `Conflict` if a copy to this folder
    /// is in progress.
    pub fn remove_store(&self, store: StoreId) -> Result<()> {
        let names = self.names()?.into_iter().filter(|(at, _)| at.store == store);
        names.map(|(at, number)| self.path(at, number)).try_for_each(|path| destroy(&path))?;
        let imports = self.imports()?.into_iter().filter(|(at, _)| at.store == store);
        let mut imports = imports.filter_map(|(_, path)| Import::resume(&path).transpose());
        imports.try_for_each(|import| import?.remove())
    }

    /// Returns the numbers of a partition's shards, in ascending order.
    fn copies(&self, at: PartitionRef) -> Result<Vec<u32>> {
        let names = self.names()?.into_iter();
        let mut copies: Vec<_> =
            names.filter(|(partition, _)| *partition == at).map(|(_, number)| number).collect();
        copies.sort_unstable();
        Ok(copies)
    }

    fn names(&self) -> Result<Vec<(PartitionRef, u32)>> {
        Ok(self.file_names()?.iter().filter_map(|name| parse(name)).collect())
    }

    fn file_names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| self.folder_error(&error))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.folder_error(&error))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    fn path(&self, at: PartitionRef, number: u32) -> PathBuf {
        let PartitionRef { store, partition } = at;
        self.dir.join(format!("{PREFIX}{:016x}-{:04}-{number}", store.0, partition.0))
    }

    fn imports(&self) -> Result<Vec<(PartitionRef, PathBuf)>> {
        let names = self.file_names()?.into_iter();
        let copies = names.filter_map(|name| {
            let (store, partition) = name.strip_prefix(IMPORT)?.split_once('-')?;
            Some((partition_ref(store, partition)?, self.dir.join(&name)))
        });
        Ok(copies.collect())
    }

    fn import_path(&self, at: PartitionRef) -> PathBuf {
        self.dir.join(format!("{IMPORT}{:016x}-{:04}", at.store.0, at.partition.0))
    }

    fn folder_error(&self, error: &std::io::Error) -> Error {
        let dir = self.dir.display();
        Error::unavailable(format!(
            "the shards' folder {dir} cannot be used: {error}; look at the folder and its disk"
        ))
    }
}

fn parse(name: &str) -> Option<(PartitionRef, u32)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let at = partition_ref(parts.next()?, parts.next()?)?;
    Some((at, parts.next()?.parse().ok()?))
}

fn partition_ref(store: &str, partition: &str) -> Option<PartitionRef> {
    let store = StoreId(u64::from_str_radix(store, 16).ok()?);
    Some(PartitionRef { store, partition: PartitionId(partition.parse().ok()?) })
}
