//! The state that committers, readers and administration of an embedded log share: its stores,
//! files and failure. A failed sync of a file or a name stops the log permanently.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_core::clock::Clock;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, Result};
use parking_lot::{Mutex, RwLock};

use super::errors::{Poison, io_error};
use super::files::Files;
use super::options::EmbeddedOptions;
use super::partition::{OpenedPartition, Partition};
use super::paths::Paths;
use super::recover::{self, Checks};
use super::{journal, store};
use crate::change_log::{check_not_control, check_same_count, no_such_log};
use crate::disk::{Disk, DiskFile, DiskLock};
use crate::tail_cache::CacheBudget;

/// State that committers, readers and administration share.
pub(super) struct LogState {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: EmbeddedOptions,
    pub(super) paths: Paths,
    pub(super) files: Files,
    pub(super) poison: Poison,
    pub(super) budget: Arc<CacheBudget>,
    /// `None` once the log is closed.
    pub(super) stores: RwLock<Option<BTreeMap<StoreId, Vec<Arc<Partition>>>>>,
    /// Lock of administration: held while stores are created or removed and segments trimmed.
    pub(super) admin: Mutex<()>,
    pub(super) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// Returns the error for a log that was closed.
pub(super) fn closed_error() -> Error {
    Error::closed("the log was closed; open it again")
}

impl LogState {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: EmbeddedOptions,
    ) -> Result<Self> {
        let paths = Paths::new(&options.data_dir);
        make_data_dir(&*disk, &paths.data_dir)?;
        let lock = take_lock(&*disk, &paths)?;
        let replayed = journal::replay(&disk, &paths)?;
        let checks = Checks { at_open: options.open_verification, journaled: &replayed.journaled };
        let opened = recover::open_stores(&disk, &paths, checks)?;
        replayed.retire(&disk, &paths)?;
        let budget = CacheBudget::new(options.tail_cache_bytes, options.tail_cache_total_bytes);
        let budget = Arc::new(budget);
        let stores = opened.into_iter().map(|(store, partitions)| {
            (store, make_partitions(&paths, store, partitions, &budget))
        });
        Ok(Self {
            stores: RwLock::new(Some(stores.collect())),
            files: Files::new(disk.clone()),
            poison: Poison::new(),
            admin: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
            disk,
            clock,
            options,
            paths,
            budget,
        })
    }

    pub(super) fn partition(&self, at: PartitionRef) -> Result<Arc<Partition>> {
        let stores = self.stores.read();
        let partitions = stores.as_ref().ok_or_else(closed_error)?.get(&at.store);
        let partition = partitions.and_then(|all| all.get(at.partition.0 as usize));
        partition.cloned().ok_or_else(|| no_such_log(at))
    }

    pub(super) fn create(&self, store: StoreId, count: PartitionCount) -> Result<()> {
        check_not_control(store)?;
        let count = PartitionCount::new(count.0)?;
        let _admin = self.admin.lock();
        self.poison.check()?;
        if let Some(partitions) = self.stores.read().as_ref().ok_or_else(closed_error)?.get(&store)
        {
            return check_same_count(store, PartitionCount(partitions.len() as u32), count);
        }
        // A failed deletion may have left a directory under the name.
        store::move_aside(&self.disk, &self.paths, store)?;
        store::make(&self.disk, &self.paths, store, count)?;
        self.sync_dir(&self.paths.logs)?;
        let empty_partitions = count.partitions().map(|_| OpenedPartition::empty()).collect();
        let partitions = make_partitions(&self.paths, store, empty_partitions, &self.budget);
        self.stores.write().as_mut().ok_or_else(closed_error)?.insert(store, partitions);
        Ok(())
    }

    pub(super) fn delete(&self, store: StoreId) -> Result<()> {
        check_not_control(store)?;
        let _admin = self.admin.lock();
        self.poison.check()?;
        let partitions = self.stores.write().as_mut().ok_or_else(closed_error)?.remove(&store);
        for partition in partitions.into_iter().flatten() {
            partition.mark_deleted();
        }
        store::move_aside(&self.disk, &self.paths, store)?;
        self.files.forget(&self.paths.store(store));
        self.sync_dir(&self.paths.logs)?;
        if let Err(error) = store::sweep(&self.disk, &self.paths, store) {
            tracing::warn!(%error, "deleted store not removed from disk until the next start");
        }
        Ok(())
    }

    pub(super) fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        let _admin = self.admin.lock();
        self.poison.check()?;
        let partition = self.partition(at)?;
        for path in partition.take_trimmed(before)? {
            self.files.forget(&path);
            // The log removes segments one by one, oldest first, so that no crash leaves a gap.
            self.disk.remove(&path).map_err(|error| io_error("remove", &path, &error))?;
            self.sync_dir(&partition.dir)?;
        }
        Ok(())
    }

    pub(super) fn sync_file(&self, path: &Path, file: &dyn DiskFile) -> Result<()> {
        file.sync_data().map_err(|error| self.stop("make durable", path, &error))
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> Result<()> {
        let result = self.disk.sync_dir(dir);
        result.map_err(|error| self.stop("make durable", dir, &error))
    }

    /// Stops the log permanently.
    pub(super) fn stop(&self, doing: &str, path: &Path, error: &io::Error) -> Error {
        self.poison.set(doing, path, error);
        self.poison.check().err().unwrap_or_else(|| io_error(doing, path, error))
    }
}

/// Creates the data directory and its missing parents, durably.
fn make_data_dir(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let is_missing = |dir: &&Path| disk.list(dir).is_err();
    let missing_count = dir.ancestors().take_while(is_missing).count();
    disk.create_dir(dir).map_err(|error| io_error("make", dir, &error))?;
    for parent in dir.ancestors().skip(1).take(missing_count.max(1)) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match disk.sync_dir(parent) {
            // The directory belongs to another user, who is responsible for the durability of its
            // names.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => result.map_err(|error| io_error("make durable", parent, &error))?,
        }
    }
    Ok(())
}

fn take_lock(disk: &dyn Disk, paths: &Paths) -> Result<Box<dyn DiskLock>> {
    let path = paths.lock();
    disk.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::conflict(format!(
            "{} is open in another process, or twice in this one; stop the other process or use \
             another data directory",
            paths.data_dir.display()
        )),
        _ => io_error("lock", &path, &error),
    })
}

fn make_partitions(
    paths: &Paths,
    store: StoreId,
    opened: Vec<OpenedPartition>,
    budget: &Arc<CacheBudget>,
) -> Vec<Arc<Partition>> {
    let places = PartitionCount(opened.len() as u32).partitions();
    let partitions = places.zip(opened).map(|(partition, opened)| {
        let at = PartitionRef { store, partition };
        Arc::new(Partition::new(at, paths.partition(at), opened, budget))
    });
    partitions.collect()
}
