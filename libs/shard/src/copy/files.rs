//! Files that both ends of a copy retain over restarts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use forebay_core::{Error, ErrorCode, Result};

use crate::error::from_rocksdb;

/// Name of the plan's file, at both ends.
pub(super) const PLAN: &str = "plan";
/// Name of the database, at both ends.
pub(super) const SHARD: &str = "shard";
/// Messages of the engine for a full disk.
const NO_ROOM: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// Maps an error of the disk.
pub(super) fn disk_error(doing: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(doing),
        _ => Error::unavailable(format!("{doing}: {error}; look at the disk and the space on it")),
    }
}

/// Maps an error of the engine.
pub(super) fn engine_refused(doing: &str, error: &rocksdb::Error) -> Error {
    match NO_ROOM.iter().any(|no_room| error.as_ref().contains(no_room)) {
        true => full(doing),
        false => from_rocksdb(error, doing),
    }
}

fn full(doing: &str) -> Error {
    let message = format!(
        "{doing}: the disk is full; make room and copy again: the copy continues where it stopped"
    );
    Error::new(ErrorCode::LimitExceeded, message)
}

/// Writes a file atomically and durably.
///
/// # Errors
/// `LimitExceeded` if the disk is full; `Unavailable` if the disk refuses.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let new_path = path.with_extension("new");
    let writing = || {
        let mut file = File::create(&new_path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new_path, path)?;
        sync_folder(path)
    };
    writing().map_err(|error| disk_error("keeping the plan of a copy", &error))
}

/// Makes the name of a file durable in its folder.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Removes the folder of a copy, if it exists. The plan goes first, because no process resumes a
/// copy without a plan.
///
/// # Errors
/// `Unavailable` if the disk refuses.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    let removing = || {
        match fs::remove_file(path.join(PLAN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_dir_all(path)
    };
    match removing() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(disk_error("removing the remains of a copy", &error))
        }
        _ => Ok(()),
    }
}
