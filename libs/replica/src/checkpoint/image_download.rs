//! The image of a snapshot, fetched into the directory of the checkpoints: fetched chunks survive
//! restarts, and the complete image becomes the newest checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::{Error, Result};
use forebay_log::disk::DiskFile;

use super::file::disk_error;
use super::folder::SUFFIX;
use super::{Checkpoints, SUFFIX_FETCHED};

impl Checkpoints {
    /// Opens the file that the image of this name is fetched to, including the chunks of earlier
    /// attempts. Removes the files of other images.
    ///
    /// # Errors
    /// Returns `LimitExceeded` if the disk has no space for the missing part of `bytes`, and
    /// `Unavailable` if the disk refuses.
    pub(crate) fn fetched_file(
        &self,
        image: &str,
        bytes: u64,
    ) -> Result<(PathBuf, Arc<dyn DiskFile>)> {
        let (disk, dir) = (&*self.folder.disk, &self.folder.dir);
        let name = format!("{}{image}{SUFFIX_FETCHED}", self.prefix());
        self.remove_fetched(Some(&name));
        let path = dir.join(name);
        let open_result = match disk.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => disk.create(&path),
            open_result => open_result,
        };
        let file = open_result.map_err(|error| disk_error("fetch", &error))?;
        let fetch_error = |error| disk_error("fetch", &error);
        // The last chunk may be present without earlier ones, so the file's length says nothing.
        let (stored_bytes, free) =
            (file.stored_bytes().map_err(fetch_error)?, disk.free_bytes(dir).map_err(fetch_error)?);
        let missing = bytes.saturating_sub(stored_bytes);
        if missing > free {
            let message = format!(
                "the disk of {} has no room for a snapshot; make room, or use another directory",
                dir.display()
            );
            return Err(Error::limit_exceeded(message, free, missing));
        }
        Ok((path, file))
    }

    /// Turns a fetched, durable image into the newest checkpoint, once the replica has started from
    /// it. The image records neither when the replica was opened here nor the deltas, so the next
    /// checkpoint is written even if nothing changes.
    ///
    /// Calling this any earlier would be wrong: a restart would take the image for a checkpoint and
    /// never fetch the deltas.
    pub(crate) fn take_fetched(&mut self, fetched: &Path) {
        let (disk, dir) = (&self.folder.disk, &self.folder.dir);
        let path = self.path(self.serial + 1, SUFFIX);
        let named = disk.rename(fetched, &path).and_then(|()| disk.sync_dir(dir));
        if let Err(error) = named {
            // The next attempt fetches the image again, except for its intact chunks.
            tracing::debug!(file = %fetched.display(), %error, "fetched image not a checkpoint");
            return;
        }
        self.serial += 1;
        self.restored = Some(path);
    }

    /// Removes partially fetched images, except the one named `but`.
    pub(super) fn remove_fetched(&self, but: Option<&str>) {
        let (disk, dir) = (&self.folder.disk, &self.folder.dir);
        let prefix = self.prefix();
        for name in disk.list(dir).unwrap_or_default() {
            let is_one = name.starts_with(&prefix) && name.ends_with(SUFFIX_FETCHED);
            if is_one && but != Some(&name[..]) {
                self.remove(&dir.join(&name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_core::ErrorCode;
    use forebay_core::id::{PartitionId, PartitionRef, StoreId};
    use forebay_log::disk::{Disk, RealDisk};

    use super::*;
    use crate::checkpoint::CheckpointFolder;

    #[tokio::test]
    async fn file_with_its_last_chunk_first_still_needs_room_for_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, dir) = (Arc::new(RealDisk), folder.path().to_owned());
        let checkpoints = CheckpointFolder {
            dir,
            disk: disk.clone(),
            interval: Duration::from_secs(10),
            bytes_max: u64::MAX,
        };
        let checkpoints = Arc::new(checkpoints);
        let at = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
        let locked = Checkpoints::lock(&checkpoints, at).unwrap();
        let (_, file) = locked.fetched_file("image", 1).unwrap();
        let bytes = disk.free_bytes(folder.path()).unwrap() + (1 << 30);
        file.write_at(&[1], bytes - 1).unwrap();
        let error = locked.fetched_file("image", bytes).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
        assert!(error.message().contains("no room for a snapshot"), "{error}");
    }
}
