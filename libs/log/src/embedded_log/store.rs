//! Creation and removal of a store's directory, each atomic across a crash.

use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_core::id::{PartitionCount, StoreId};
use forebay_core::{Error, Result};

use super::errors::{DiskSpace, io_error, write_error};
use super::format::{STORE_FILE_BYTES, encode_store_file};
use super::paths::{DELETED, NEW, Paths, STORE_FILE};
use crate::disk::Disk;

/// Creates a store's directory with its partition count. The caller must sync the directory of logs
/// to make it durable.
pub(super) fn make(
    disk: &Arc<dyn Disk>,
    paths: &Paths,
    store: StoreId,
    partitions: PartitionCount,
) -> Result<()> {
    let aside = paths.store_aside(store, NEW);
    let make = || {
        remove_if_there(disk, &aside)?;
        disk.create_dir(&aside)?;
        let file = disk.create(&aside.join(STORE_FILE))?;
        file.write_at(&encode_store_file(store, partitions), 0)?;
        file.sync_data()?;
        disk.sync_dir(&aside)?;
        disk.rename(&aside, &paths.store(store))
    };
    make().map_err(|error| {
        let bytes_free = disk.free_bytes(&paths.logs).unwrap_or_default();
        let room = DiskSpace { bytes_needed: STORE_FILE_BYTES as u64, bytes_free };
        write_error("make", &aside, &error, room)
    })
}

/// Moves a store's directory aside. The caller must sync the directory of logs to make the move
/// durable, then call [`sweep`]. A missing store is no error.
pub(super) fn move_aside(disk: &Arc<dyn Disk>, paths: &Paths, store: StoreId) -> Result<()> {
    let (dir, aside) = (paths.store(store), paths.store_aside(store, DELETED));
    let rename = || {
        remove_if_there(disk, &aside)?;
        disk.rename(&dir, &aside)
    };
    match rename() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", &dir, &error))
        }
        _ => Ok(()),
    }
}

/// Removes the files of a store that was moved aside.
///
/// # Errors
/// `Unavailable`; the next open removes the remaining files.
pub(super) fn sweep(disk: &Arc<dyn Disk>, paths: &Paths, store: StoreId) -> Result<(), Error> {
    let aside = paths.store_aside(store, DELETED);
    remove_if_there(disk, &aside).map_err(|error| io_error("remove", &aside, &error))
}

fn remove_if_there(disk: &Arc<dyn Disk>, dir: &Path) -> io::Result<()> {
    match disk.remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
