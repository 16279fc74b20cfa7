//! Workspace of one push: a folder with the spilled rows, the progress of reading, and a number
//! that no other workspace has. The folder survives a crash and stays until the push has ended.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use forebay_core::id::Offset;
use forebay_core::limits::PUSH_WORKSPACE_TTL_MS;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use tracing::{debug, info};

use super::limits::RowCounts;
use super::spill::disk_error;

/// Prefix of the folders of pushes.
const PREFIX: &str = "push-";
const LOCK: &str = "lock";
const ROWS: &str = "rows";
const PROGRESS: &str = "kept.json";
const START: &str = "began.json";
const NUMBER: &str = "number";

/// Progress of reading: the completely read files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReadProgress {
    /// Number of rows of each file, in the order of the files.
    pub file_rows: Vec<u64>,
    /// Counters over all rows.
    pub counts: RowCounts,
    /// Bytes of the rows in the spill file.
    pub bytes: u64,
}

/// Position of a store when the files of a repartitioning push were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartOffsets {
    /// For each partition, the first offset that is not in the push.
    pub offsets: Vec<u64>,
    /// The latest time of all partitions.
    pub time_us: Option<i64>,
}

impl StartOffsets {
    /// Returns the first offset of each partition that is not in the push.
    pub(crate) fn offsets(&self) -> Vec<Offset> {
        self.offsets.iter().map(|offset| Offset(*offset)).collect()
    }
}

/// The locked folder of a push.
pub(crate) struct PushWorkspace {
    folder: PathBuf,
    /// Lock of the folder.
    _lock: File,
}

impl PushWorkspace {
    /// Locks the folder of the push with this number; removes folders that were abandoned long ago.
    ///
    /// # Errors
    /// `Unavailable` if the same push is in progress; else as the disk.
    pub(crate) fn lock(scratch: &Path, number: u64) -> Result<Self> {
        let folder = scratch.join(format!("{PREFIX}{number:016x}"));
        fs::create_dir_all(&folder).map_err(|error| disk_error(&error))?;
        let lock = File::create(folder.join(LOCK)).map_err(|error| disk_error(&error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = "the same push is already running; wait for its end";
                return Err(Error::unavailable(message));
            }
            Err(TryLockError::Error(error)) => return Err(disk_error(&error)),
        }
        if let Ok(now) = lock.metadata().and_then(|lock| lock.modified()) {
            sweep(scratch, &folder, now);
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Returns the workspace's number; stores `fresh` if it has none yet. The same push on another
    /// host has another number, so the two build separate stores or versions, each of which is
    /// complete. A torn number counts as none.
    ///
    /// # Errors
    /// As the disk.
    pub(crate) fn number(&self, fresh: u64) -> Result<u64> {
        let stored = found(fs::read(self.folder.join(NUMBER)))?.unwrap_or_default();
        if let Some(number) = str::from_utf8(&stored).ok().and_then(|text| text.parse().ok()) {
            return Ok(number);
        }
        self.replace(NUMBER, fresh.to_string().as_bytes())?;
        Ok(fresh)
    }

    /// Returns the path of the spilled rows.
    pub(crate) fn rows_path(&self) -> PathBuf {
        self.folder.join(ROWS)
    }

    /// Returns the progress of an earlier attempt; a torn file counts as no progress.
    ///
    /// # Errors
    /// As the disk.
    pub(crate) fn read_progress(&self) -> Result<ReadProgress> {
        let rows = found(fs::metadata(self.rows_path()))?;
        let progress = found(fs::read(self.folder.join(PROGRESS)))?;
        let (Some(rows), Some(bytes)) = (rows, progress) else {
            return Ok(ReadProgress::default());
        };
        let progress: ReadProgress = serde_json::from_slice(&bytes).unwrap_or_default();
        let is_whole = progress.bytes <= rows.len();
        Ok(if is_whole { progress } else { ReadProgress::default() })
    }

    /// Stores the progress of reading.
    pub(crate) fn save_read_progress(&self, progress: &ReadProgress) -> Result<()> {
        let bytes =
            serde_json::to_vec(progress).map_err(|error| Error::internal(error.to_string()))?;
        self.replace(PROGRESS, &bytes)
    }

    /// Returns the position of the store that an earlier attempt has stored; a torn file counts as
    /// none.
    ///
    /// # Errors
    /// As the disk.
    pub(crate) fn start_offsets(&self) -> Result<Option<StartOffsets>> {
        let stored = found(fs::read(self.folder.join(START)))?;
        Ok(stored.and_then(|stored| serde_json::from_slice(&stored).ok()))
    }

    /// Stores the position of the store.
    pub(crate) fn save_start_offsets(&self, start: &StartOffsets) -> Result<()> {
        let bytes = serde_json::to_vec(start).map_err(|e| Error::internal(e.to_string()))?;
        self.replace(START, &bytes)
    }

    /// Replaces a file of the folder atomically.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        let new = path.with_extension("new");
        fs::write(&new, bytes).map_err(|error| disk_error(&error))?;
        fs::rename(&new, path).map_err(|error| disk_error(&error))
    }

    /// Removes the folder.
    pub(crate) fn remove(self) {
        remove(&self.folder);
    }
}

/// Returns what a file has; `None` if there is no such file.
fn found<T>(read: io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &io::Error) -> Error {
    Error::of_disk("a push could not read its progress", error)
}

/// Removes the folders of pushes that were abandoned long before this time, by the disk's clock.
fn sweep(scratch: &Path, own_folder: &Path, now: SystemTime) {
    let entries = fs::read_dir(scratch).into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()).filter(|path| path != own_folder) {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let is_push = name.is_some_and(|name| name.starts_with(PREFIX));
        let lock = folder.join(LOCK);
        let used = fs::metadata(folder.join(ROWS)).and_then(|rows| rows.modified());
        let age = used.ok().and_then(|used| now.duration_since(used).ok());
        let is_old = age.is_some_and(|age| age > Duration::from_millis(PUSH_WORKSPACE_TTL_MS));
        if is_push && is_old && File::open(lock).is_ok_and(|lock| lock.try_lock().is_ok()) {
            info!(folder = %folder.display(), "interrupted push removed");
            remove(&folder);
        }
    }
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        debug!(folder = %folder.display(), %error, "push folder not removed yet");
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    #[test]
    fn workspace_excludes_the_same_push_and_resumes_its_progress() {
        let scratch = tempfile::tempdir().unwrap();
        let workspace = PushWorkspace::lock(scratch.path(), 7).unwrap();
        assert_eq!(
            PushWorkspace::lock(scratch.path(), 7).err().unwrap().code(),
            ErrorCode::Unavailable
        );
        PushWorkspace::lock(scratch.path(), 8).unwrap();
        let progress = ReadProgress { file_rows: vec![3], bytes: 4, ..ReadProgress::default() };
        workspace.save_read_progress(&progress).unwrap();
        let read = |workspace: &PushWorkspace| workspace.read_progress().unwrap();
        assert_eq!(read(&workspace), ReadProgress::default(), "its rows are not there");
        fs::write(workspace.rows_path(), "rows").unwrap();
        assert_eq!([5, 6].map(|fresh| workspace.number(fresh).unwrap()), [5, 5]);
        drop(workspace);
        let reopened = PushWorkspace::lock(scratch.path(), 7).unwrap();
        assert_eq!(reopened.number(8).unwrap(), 5);
        assert_eq!(read(&reopened), progress);
        fs::write(reopened.rows_path(), "row").unwrap();
        assert_eq!(read(&reopened), ReadProgress::default(), "some of its rows are gone");
        reopened.remove();
        assert!(!scratch.path().join("push-0000000000000007").exists());
    }

    #[test]
    fn workspace_returns_read_errors_other_than_a_missing_file() {
        let scratch = tempfile::tempdir().unwrap();
        let workspace = PushWorkspace::lock(scratch.path(), 7).unwrap();
        assert_eq!(workspace.start_offsets().unwrap(), None);
        assert_eq!(workspace.read_progress().unwrap(), ReadProgress::default());
        fs::write(workspace.rows_path(), "rows").unwrap();
        // A read of a folder fails on every disk.
        for name in [NUMBER, PROGRESS, START] {
            fs::create_dir(workspace.folder.join(name)).unwrap();
        }
        let errors = [
            workspace.number(5).err(),
            workspace.read_progress().err(),
            workspace.start_offsets().err(),
        ];
        for error in errors {
            let error = error.expect("an error");
            assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
            assert!(error.to_string().contains("look at the disk"), "{error}");
        }
    }

    fn now(scratch: &Path) -> SystemTime {
        File::create(scratch.join("now")).unwrap().metadata().unwrap().modified().unwrap()
    }

    #[test]
    fn workspace_removes_only_folders_abandoned_long_ago() {
        let scratch = tempfile::tempdir().unwrap();
        let old = now(scratch.path()) - 2 * Duration::from_millis(PUSH_WORKSPACE_TTL_MS);
        for number in [1, 2, 3] {
            let workspace = PushWorkspace::lock(scratch.path(), number).unwrap();
            let rows = File::create(workspace.rows_path()).unwrap();
            if number != 3 {
                rows.set_modified(old).unwrap();
            }
            if number == 2 {
                std::mem::forget(workspace);
            }
        }
        PushWorkspace::lock(scratch.path(), 4).unwrap();
        let exists = |number: u64| scratch.path().join(format!("push-{number:016x}")).exists();
        assert_eq!([1, 2, 3, 4].map(exists), [false, true, true, true]);
    }
}
