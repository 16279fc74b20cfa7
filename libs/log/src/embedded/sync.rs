//! Syncs of files and names. A failure stops the log permanently.

use std::io;
use std::path::Path;

use forebay_core::{Error, Result};

use super::Shared;
use super::fault::refused;
use crate::disk::DiskFile;

impl Shared {
    pub(super) fn sync_file(&self, path: &Path, file: &dyn DiskFile) -> Result<()> {
        file.sync_data().map_err(|error| self.stop("make durable", path, &error))
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> Result<()> {
        let synced = self.disk.sync_dir(dir);
        synced.map_err(|error| self.stop("make durable", dir, &error))
    }

    /// Stops the log permanently.
    pub(super) fn stop(&self, doing: &str, path: &Path, error: &io::Error) -> Error {
        self.poison.set(doing, path, error);
        self.poison.check().err().unwrap_or_else(|| refused(doing, path, error))
    }
}
