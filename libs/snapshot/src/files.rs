//! Foreign files in an object store, which are read once.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path as LocalPath;

use forebay_core::{Error, Result};
use forebay_tasks::block_in_place;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetResultPayload, ObjectMeta, ObjectStoreExt};

use crate::error::refusal_error;
use crate::store::SnapshotStore;

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    path: Path,
    /// Length in bytes.
    pub bytes: u64,
    /// Tag that distinguishes this content of the path from other ones.
    pub tag: String,
}

impl FoundFile {
    fn of(meta: ObjectMeta) -> Self {
        let tag = meta.e_tag.unwrap_or_else(|| meta.last_modified.to_rfc3339());
        Self { path: meta.location, bytes: meta.size, tag }
    }

    /// Returns the path, for messages.
    pub fn name(&self) -> &str {
        self.path.as_ref()
    }
}

impl SnapshotStore {
    /// Returns the file of this store's own name, or all files in its folder and below, by name.
    ///
    /// # Errors
    /// `NotFound` if there is none; the errors of the object store.
    pub async fn files(&self) -> Result<Vec<FoundFile>> {
        let list_error = |error: &object_store::Error| refusal_error("looking for files", error);
        match self.objects.head(&self.root).await {
            Ok(meta) => return Ok(vec![FoundFile::of(meta)]),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(list_error(&error)),
        }
        let listed = self.objects.list(Some(&self.root)).map_ok(FoundFile::of);
        let mut files: Vec<_> = listed.try_collect().await.map_err(|error| list_error(&error))?;
        files.retain(|file| file.bytes > 0);
        files.sort_by(|one, other| one.path.cmp(&other.path));
        match files.is_empty() {
            true => Err(Error::not_found(format!("there is no file at `{}`", self.root))),
            false => Ok(files),
        }
    }

    /// Opens a file. A file of another machine is downloaded to an unnamed file in `scratch`.
    ///
    /// # Errors
    /// - The errors of the object store and of the disk.
    /// - `Conflict`: the file has changed since it was found.
    /// - `Unavailable`: the download is incomplete.
    pub async fn open_file(&self, file: &FoundFile, scratch: &LocalPath) -> Result<File> {
        let fetch_error = |error: &object_store::Error| refusal_error("fetching a file", error);
        let object = self.objects.get(&file.path).await.map_err(|error| fetch_error(&error))?;
        if FoundFile::of(object.meta.clone()) != *file {
            let message =
                format!("the file `{}` changed during the read; begin again", file.name());
            return Err(Error::conflict(message));
        }
        let mut stream = match object.payload {
            GetResultPayload::File(opened, _) => return Ok(opened),
            GetResultPayload::Stream(stream) => stream,
        };
        let mut copy = tempfile::tempfile_in(scratch).map_err(|error| full(&error))?;
        let mut bytes_received = 0;
        while let Some(bytes) = stream.try_next().await.map_err(|error| fetch_error(&error))? {
            block_in_place(|| copy.write_all(&bytes)).map_err(|error| full(&error))?;
            bytes_received += bytes.len() as u64;
        }
        if bytes_received != file.bytes {
            let message = format!(
                "the download of a file ended early, after {bytes_received} of {} bytes of `{}`",
                file.bytes,
                file.name()
            );
            return Err(Error::unavailable(format!("{message}; try again")));
        }
        copy.rewind().map_err(|error| full(&error))?;
        Ok(copy)
    }
}

fn full(error: &io::Error) -> Error {
    Error::of_disk("a file could not be stored during the read", error)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use forebay_core::ErrorCode;
    use object_store::memory::InMemory;

    use super::*;

    fn names(files: &[FoundFile]) -> Vec<&str> {
        files.iter().map(FoundFile::name).collect()
    }

    #[tokio::test]
    async fn path_names_one_file_or_all_files_of_a_folder() {
        let objects = Arc::new(InMemory::new());
        for (name, text) in [("in/b.csv", "b"), ("in/a.csv", "a"), ("in/empty", ""), ("c", "c")] {
            objects.put(&Path::from(name), text.into()).await.unwrap();
        }
        let store_at = |name: &str| SnapshotStore::of(objects.clone(), Path::from(name));
        assert_eq!(names(&store_at("in").files().await.unwrap()), ["in/a.csv", "in/b.csv"]);
        assert_eq!(names(&store_at("in/b.csv").files().await.unwrap()), ["in/b.csv"]);
        assert_eq!(store_at("on").files().await.unwrap_err().code(), ErrorCode::NotFound);
    }

    #[tokio::test]
    async fn changed_file_is_not_opened() {
        let (objects, scratch) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
        objects.put(&Path::from("a"), "one".into()).await.unwrap();
        let store = SnapshotStore::of(objects.clone(), Path::from("a"));
        let found = store.files().await.unwrap().remove(0);
        let mut text = String::new();
        store.open_file(&found, scratch.path()).await.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        objects.put(&Path::from("a"), "two".into()).await.unwrap();
        let changed = store.open_file(&found, scratch.path()).await.unwrap_err();
        assert_eq!(changed.code(), ErrorCode::Conflict);
    }
}
