//! Removal of shared copies, and of files that no header leads to any more.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use forebay_core::ErrorCode;
use forebay_core::id::{PartitionId, StoreId};

use super::directory::SharedCopyDirectory;
use super::header_file::{HeaderFile, NAME_BYTES_MAX};
use super::spaces::{PREFIX, Spaces};
use crate::memory::SPACE_HEADER_NAME_AT;
use crate::sharing::DONOR_LINK_SUFFIX;

/// Age below which an unreferenced space is not removed.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(60);

/// Removes the header of a partition, and its space.
pub(super) fn remove(directory: &SharedCopyDirectory, store: StoreId, partition: PartitionId) {
    let path = directory.header(store, partition);
    if let Ok(header) = HeaderFile::open(&path, false) {
        let spaces = Spaces::new(directory, header.description(), store, partition);
        spaces.remove(header.words().load_generation());
    }
    // A remaining header is found and replaced by the next owner.
    drop(std::fs::remove_file(&path));
}

/// Removes spaces that no header leads to: those of removed directories, of an earlier boot, and of
/// killed owners. A space that cannot be removed stays for a later sweep.
pub(super) fn sweep(directory: &SharedCopyDirectory) {
    // The link to a donor's file becomes removable once its recipient is gone, so links come
    // second.
    for is_donor_link in [false, true] {
        for dir in directory.memory_dir.iter().chain([&directory.dir]) {
            drop(sweep_one(directory, dir, is_donor_link));
        }
    }
}

/// Sweeps one directory: its spaces, or the links of spaces to donors' files.
fn sweep_one(
    directory: &SharedCopyDirectory,
    dir: &Path,
    is_donor_link: bool,
) -> std::io::Result<()> {
    let own_user = rustix::process::geteuid().as_raw();
    let (names, now) = (std::fs::read_dir(dir)?, time_in(dir)?);
    for entry in names.flatten() {
        let name = entry.file_name();
        let is_asked = name.to_str().is_some_and(|name| {
            name.starts_with(PREFIX) && name.ends_with(DONOR_LINK_SUFFIX) == is_donor_link
        });
        let is_own =
            entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.uid() == own_user);
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        // A recent space may not have its header yet.
        let is_old = modified.is_ok_and(|modified_at| modified_at + ORPHAN_AGE_MIN < now);
        if is_asked && is_own && is_old && !is_in_use(directory, &entry.path()) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
    Ok(())
}

/// Returns the current time by the clock that dates files in a directory.
fn time_in(dir: &Path) -> std::io::Result<SystemTime> {
    let path = dir.join(format!("{PREFIX}now-{}", std::process::id()));
    let modified = File::create(&path).and_then(|file| file.metadata()?.modified());
    std::fs::remove_file(&path)?;
    modified
}

/// Whether a file is in use: a space, or the link of a space to a donor's file.
fn is_in_use(directory: &SharedCopyDirectory, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    match name.strip_suffix(DONOR_LINK_SUFFIX) {
        Some(recipient) => {
            let mut dirs = directory.memory_dir.iter().chain([&directory.dir]);
            dirs.any(|dir| dir.join(recipient).exists())
        }
        None => is_led_to(path),
    }
}

/// Whether the header that a space belongs to exists and has the same token.
fn is_led_to(space: &Path) -> bool {
    let mut name = vec![0; NAME_BYTES_MAX];
    let read =
        File::open(space).and_then(|file| file.read_exact_at(&mut name, SPACE_HEADER_NAME_AT));
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let header = std::str::from_utf8(&name[..end]);
    let (Ok(()), Ok(header)) = (read, header) else { return true };
    if header.is_empty() {
        // The space is being created, or the name of its header is not recorded.
        return true;
    }
    let token = match HeaderFile::open(Path::new(header), false) {
        Ok(header) => header.description().token,
        Err(error) => return error.code() != ErrorCode::NotFound,
    };
    let name = space.file_name().and_then(|name| name.to_str()).unwrap_or("");
    name.starts_with(&format!("{PREFIX}{token:016x}-"))
}
