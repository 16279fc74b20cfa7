//! Write-once files of a folder in an object store, which are read whole or in parts.

use std::ops::Range;

use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as Refused, ObjectStoreExt};

use crate::error::refusal_error;
use crate::store::SnapshotStore;
use crate::write_once_object::put_if_absent;

impl SnapshotStore {
    /// Returns a subfolder, which need not exist.
    pub fn folder(&self, name: &str) -> Self {
        let mut folder = self.clone();
        folder.root = self.path_of(name);
        folder
    }

    /// Returns the names of the files directly in this folder, sorted.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn names(&self) -> Result<Vec<String>> {
        let listed = self.objects.list(Some(&self.root)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| refusal_error("looking for files", &error))?;
        let depth = self.root.parts().count() + 1;
        let own = listed.iter().filter(|found| found.location.parts().count() == depth);
        let mut names: Vec<_> =
            own.filter_map(|found| found.location.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Creates a file.
    ///
    /// # Errors
    /// `Conflict` if the file exists with other bytes; the errors of the object store.
    pub async fn create_file(&self, name: &str, bytes: Bytes) -> Result<()> {
        let created = put_if_absent(&*self.objects, &self.path_of(name), bytes).await;
        created.map_err(|error| refusal_error("writing a file", &error))
    }

    /// Reads a whole file; returns `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn file(&self, name: &str) -> Result<Option<Bytes>> {
        let read = async { self.objects.get(&self.path_of(name)).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Refused::NotFound { .. }) => Ok(None),
            Err(error) => Err(refusal_error("reading a file", &error)),
        }
    }

    /// Reads a range of a file.
    ///
    /// # Errors
    /// `NotFound`; the errors of the object store.
    pub async fn file_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let read = self.objects.get_range(&self.path_of(name), range).await;
        read.map_err(|error| refusal_error("reading a file", &error))
    }

    /// Reads a range of a [found](SnapshotStore::files) file, given its name.
    ///
    /// # Errors
    /// `NotFound`; the errors of the object store.
    pub async fn found_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let path = Path::parse(name);
        let path =
            path.map_err(|_| Error::invalid_argument(format!("the name `{name}` is not a path")))?;
        let read = self.objects.get_range(&path, range).await;
        read.map_err(|error| refusal_error("reading a file", &error))
    }

    /// Removes a file; a missing file is no error.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn remove_file(&self, name: &str) -> Result<()> {
        match self.objects.delete(&self.path_of(name)).await {
            Ok(()) | Err(Refused::NotFound { .. }) => Ok(()),
            Err(error) => Err(refusal_error("removing a file", &error)),
        }
    }

    fn path_of(&self, name: &str) -> Path {
        self.root.clone().join(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_core::ErrorCode;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn file_is_written_once_and_read_in_parts() {
        let store = SnapshotStore::of(Arc::new(InMemory::new()), Path::from("out"));
        let folder = store.folder("data");
        folder.create_file("b", Bytes::from_static(b"bytes")).await.unwrap();
        folder.create_file("a", Bytes::from_static(b"others")).await.unwrap();
        folder.folder("below").create_file("c", Bytes::new()).await.unwrap();
        assert_eq!(folder.names().await.unwrap(), ["a", "b"]);
        let error = folder.create_file("b", Bytes::from_static(b"other")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Conflict);
        assert_eq!(folder.file("b").await.unwrap().unwrap(), "bytes");
        assert_eq!(folder.file_range("b", 1..3).await.unwrap(), "yt");
        for _ in 0..2 {
            folder.remove_file("b").await.unwrap();
        }
        assert_eq!(folder.file("b").await.unwrap(), None);
        assert_eq!(store.names().await.unwrap(), [""; 0]);
    }
}
