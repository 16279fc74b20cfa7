//! Files that both ends of a copy keep over restarts.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use forebay_core::{Error, Result};

/// What is said of a disk that refuses.
pub(super) fn refused(doing: &str, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{doing}: {error}; look at the disk and the space on it"))
}

/// Writes a file that is there whole or not at all, whatever happens.
///
/// # Errors
/// `Unavailable` for a disk that refuses.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = path.with_extension("new");
    let writing = || {
        let mut file = File::create(&written)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&written, path)?;
        sync_folder(path)
    };
    writing().map_err(|error| refused("keeping the plan of a copy", &error))
}

/// Makes the names of a file's folder durable.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Removes a folder and all in it, if it is there.
///
/// # Errors
/// `Unavailable` for a disk that refuses.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(refused("removing what was kept of a copy", &error))
        }
        _ => Ok(()),
    }
}
