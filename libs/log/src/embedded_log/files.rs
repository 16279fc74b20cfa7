//! The open files of an embedded log: at most [`LOG_FILES_OPEN_MAX`] at once. The least recently
//! used file closes first; a file in use stays open for its user.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::limits::LOG_FILES_OPEN_MAX;
use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};

pub(super) struct Files {
    disk: Arc<dyn Disk>,
    open: Mutex<OpenFiles>,
}

#[derive(Default)]
struct OpenFiles {
    /// Each file with the number of its last use.
    files: BTreeMap<PathBuf, (Arc<dyn DiskFile>, u64)>,
    uses: u64,
}

impl Files {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, open: Mutex::default() }
    }

    /// Returns the file, and opens it if needed.
    pub(super) fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut open = self.open.lock();
        open.uses += 1;
        let now = open.uses;
        if let Some((file, used)) = open.files.get_mut(path) {
            *used = now;
            return Ok(file.clone());
        }
        let file = self.disk.open(path)?;
        open.keep(path, &file);
        Ok(file)
    }

    /// Creates a file and retains its handle.
    pub(super) fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        self.open.lock().keep(path, &file);
        Ok(file)
    }

    /// Closes one file, or all files below a directory.
    pub(super) fn forget(&self, path: &Path) {
        self.open.lock().files.retain(|open, _| !open.starts_with(path));
    }
}

impl OpenFiles {
    fn keep(&mut self, path: &Path, file: &Arc<dyn DiskFile>) {
        self.uses += 1;
        self.files.insert(path.to_path_buf(), (file.clone(), self.uses));
        if self.files.len() > LOG_FILES_OPEN_MAX {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                self.files.remove(&path);
            }
        }
    }
}
