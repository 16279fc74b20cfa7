//! The folder in which the shards of a process lie: one folder for each copy of a partition.
//!
//! A copy that cannot go on with its log is followed by another, which is built beside it. Which
//! one is served stands in its head. Of several that are, as a kill between two steps leaves them,
//! the newest one counts; the others go. What was copied of a partition from elsewhere and not
//! taken in stays, to be gone on with, until a shard here has all of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::key_order::KeyOrder;
use forebay_core::state_rows::Resumed;
use forebay_core::{Error, ErrorCode, Result};
use rocksdb::{DB, Options};

use forebay_wire::v1::CopyPlan;

use crate::copy::Import;
use crate::error::explained;
use crate::load::ShardLoad;
use crate::resources::Resources;
use crate::shard::Shard;
use crate::writer::ShardWriter;

const PREFIX: &str = "shard-";
const IMPORT: &str = "copy-";
const EXPORTS: &str = "copies";

/// Where the shards of a process lie.
#[derive(Clone)]
pub struct ShardDirectory {
    dir: PathBuf,
    resources: Resources,
    /// Whether its shards have events.
    have_events: bool,
}

impl ShardDirectory {
    /// The shards of this folder, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>, resources: Resources) -> Self {
        Self { dir: dir.into(), resources, have_events: false }
    }

    /// As [`ShardDirectory::new`], of shards with events.
    pub fn with_events(dir: impl Into<PathBuf>, resources: Resources) -> Self {
        Self { have_events: true, ..Self::new(dir, resources) }
    }

    fn open(&self, path: &Path, at: PartitionRef, order: KeyOrder) -> Result<Shard> {
        match self.have_events {
            true => Shard::open_with_events(path, at, order, &self.resources),
            false => Shard::open(path, at, order, &self.resources),
        }
    }

    /// Goes on with what an earlier process has left of a partition: the newest copy that was
    /// served, or else the newest one. All others are removed, and those that are damaged too:
    /// another one is built from the log. `None` where nothing is.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses, and where another process has the shard open;
    /// `UpgradeNeeded` for a copy of a newer build.
    pub fn resume(
        &self,
        at: PartitionRef,
        partitions: PartitionCount,
        order: KeyOrder,
    ) -> Result<Option<(ShardWriter, Resumed)>> {
        let mut found: Option<(ShardWriter, Resumed)> = None;
        for number in self.copies(at)?.into_iter().rev() {
            let path = self.path(at, number);
            if found.as_ref().is_some_and(|(_, resumed)| resumed.followed.is_served) {
                destroy(&path)?;
                continue;
            }
            let opened = self.open(&path, at, order).and_then(|shard| {
                let mut writer = ShardWriter::new(shard);
                let resumed = writer.resume()?;
                Ok((writer, resumed))
            });
            let (writer, resumed) = match opened {
                Err(error) if error.code() == ErrorCode::Corrupt => {
                    tracing::warn!(%at, %error, "a damaged copy of a shard is removed");
                    destroy(&path)?;
                    continue;
                }
                opened => opened?,
            };
            match resumed.filter(|resumed| resumed.state.partitions == partitions) {
                Some(resumed) if found.is_none() || resumed.followed.is_served => {
                    if let Some((before, _)) = found.replace((writer, resumed)) {
                        self.remove(before)?;
                    }
                }
                _ => drop(self.remove(writer)?),
            }
        }
        if let Some((_, resumed)) = found.as_ref().filter(|(_, found)| found.followed.is_served) {
            self.remove_passed_import(at, resumed);
        }
        Ok(found)
    }

    /// Removes what was copied of a partition of which its shard has more by now: whoever copied
    /// has given that up.
    fn remove_passed_import(&self, at: PartitionRef, resumed: &Resumed) {
        let path = self.import_path(at);
        if !path.exists() {
            return;
        }
        let passed = Import::resume(&path).and_then(|import| match import {
            Some(import) if import.is_passed_by(&resumed.state) => import.remove().map(|()| true),
            _ => Ok(false),
        });
        match passed {
            Ok(true) => tracing::info!(%at, "removed a copy that was given up"),
            Ok(false) => {}
            // It may be under way, and nobody waits for its end.
            Err(error) => tracing::info!(%at, %error, "what was copied of a shard stays"),
        }
    }

    /// An empty copy of a partition, beside those that are there.
    ///
    /// # Errors
    /// As [`ShardDirectory::resume`].
    pub fn create(&self, at: PartitionRef, order: KeyOrder) -> Result<ShardWriter> {
        Ok(ShardWriter::new(self.open(&self.next_path(at)?, at, order)?))
    }

    /// A copy of a partition that begins with many documents, beside those that are there.
    ///
    /// # Errors
    /// As [`ShardDirectory::resume`].
    pub fn begin_load(&self, at: PartitionRef, order: KeyOrder) -> Result<ShardLoad> {
        ShardLoad::begin(&self.next_path(at)?, at, order, &self.resources)
    }

    /// Where the next copy of a partition lies.
    fn next_path(&self, at: PartitionRef) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.dir).map_err(|error| self.refused(&error))?;
        let number = self.copies(at)?.last().map_or(1, |last| last + 1);
        Ok(self.path(at, number))
    }

    /// Goes on with what was copied of a partition of this store.
    ///
    /// # Errors
    /// `Conflict` while somebody does, else as [`ShardDirectory::resume`].
    pub fn resume_import(&self, store: &str, partition: PartitionId) -> Result<Option<Import>> {
        for (at, path) in self.imports()? {
            if at.partition != partition {
                continue;
            }
            // Another store's may be under way.
            if Import::plan_in(&path)?.is_some_and(|plan| plan.store == store) {
                return Import::resume(&path);
            }
        }
        Ok(None)
    }

    /// Begins to copy a partition as planned; what was copied of it before is gone.
    ///
    /// # Errors
    /// `Corrupt` for a plan that leaves keys out or names other files than a shard's, `Conflict`
    /// while somebody copies the partition to here, `LimitExceeded` for a full disk, else as
    /// [`ShardDirectory::resume`].
    pub fn begin_import(&self, plan: CopyPlan) -> Result<Import> {
        let (store, partition) = (StoreId(plan.store_id), PartitionId(plan.partition));
        Import::begin(&self.import_path(PartitionRef { store, partition }), plan)
    }

    /// Makes a shard of what was copied, the newest of its partition.
    ///
    /// # Errors
    /// `Unavailable` for a copy that has not ended, `Corrupt` for one that makes no shard, of which
    /// nothing is left then, `LimitExceeded` for a full disk, else as [`ShardDirectory::resume`].
    pub fn take_in(&self, import: Import) -> Result<()> {
        let path = self.next_path(import.partition())?;
        import.finish(&path)
    }

    /// Where shards are frozen for copies: on the disk of their files.
    pub fn exports(&self) -> PathBuf {
        self.dir.join(EXPORTS)
    }

    /// Removes a copy and its files; answers its writer while somebody still reads it.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub fn remove(&self, writer: ShardWriter) -> Result<Option<ShardWriter>> {
        let path = writer.shard().path().to_owned();
        match writer.into_shard() {
            Ok(shard) => drop(shard),
            Err(still_read) => return Ok(Some(still_read)),
        }
        destroy(&path).map(|()| None)
    }

    /// The stores of which there are shards, or something that was copied.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub fn stores(&self) -> Result<BTreeSet<StoreId>> {
        let imports = self.imports()?.into_iter().map(|(at, _)| at.store);
        Ok(self.names()?.into_iter().map(|(at, _)| at.store).chain(imports).collect())
    }

    /// Removes all shards of a store, of which none may be open, and what was copied of it.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses, and where one is open; `Conflict` while one is copied
    /// to here.
    pub fn remove_store(&self, store: StoreId) -> Result<()> {
        let names = self.names()?.into_iter().filter(|(at, _)| at.store == store);
        names.map(|(at, number)| self.path(at, number)).try_for_each(|path| destroy(&path))?;
        let imports = self.imports()?.into_iter().filter(|(at, _)| at.store == store);
        let mut imports = imports.filter_map(|(_, path)| Import::resume(&path).transpose());
        imports.try_for_each(|import| import?.remove())
    }

    /// Numbers of the copies of a partition, in ascending order.
    fn copies(&self, at: PartitionRef) -> Result<Vec<u32>> {
        let names = self.names()?.into_iter();
        let mut copies: Vec<_> =
            names.filter(|(of, _)| *of == at).map(|(_, number)| number).collect();
        copies.sort_unstable();
        Ok(copies)
    }

    fn names(&self) -> Result<Vec<(PartitionRef, u32)>> {
        Ok(self.file_names()?.iter().filter_map(|name| parse(name)).collect())
    }

    fn file_names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| self.refused(&error))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.refused(&error))?;
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

    fn refused(&self, error: &std::io::Error) -> Error {
        let dir = self.dir.display();
        Error::unavailable(format!("the shards' folder {dir} cannot be used: {error}"))
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

pub(crate) fn destroy(path: &Path) -> Result<()> {
    DB::destroy(&Options::default(), path)
        .map_err(|error| explained(&error, "removing a shard"))?;
    // What the engine knows nothing of, if anything.
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::unavailable(format!("removing a shard: {error}")))
        }
        _ => Ok(()),
    }
}
