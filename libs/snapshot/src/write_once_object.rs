//! Write-once objects: their creation, and the remains of killed puts in a folder of this machine.
//! A put into a folder writes to a temporary file next to the object, under a name that no list
//! shows, and renames the file at the end.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path as LocalPath;
use std::time::SystemTime;

use bytes::Bytes;
use forebay_core::{Error, Result};
use object_store::path::Path;
use object_store::{Error as Refused, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

/// Creates an object. If the object exists with the same bytes, the call succeeds: an earlier
/// request of this process wrote it, its answer was lost, and the request was sent again.
///
/// # Errors
/// `AlreadyExists` if the object has other bytes; the errors of the object store.
pub(crate) async fn put_if_absent(
    objects: &dyn ObjectStore,
    path: &Path,
    bytes: Bytes,
) -> object_store::Result<()> {
    let options = PutOptions::from(PutMode::Create);
    let exists_error = match objects.put_opts(path, bytes.clone().into(), options).await {
        Err(error @ Refused::AlreadyExists { .. }) => error,
        result => return result.map(drop),
    };
    let stored_bytes = objects.get(path).await?.bytes().await?;
    if stored_bytes == bytes { Ok(()) } else { Err(exists_error) }
}

/// Removes the temporary files directly in this folder whose time is past; returns their number.
///
/// # Errors
/// `Unavailable` if the folder cannot be read, or a file cannot be removed.
pub(crate) fn remove_abandoned_uploads(
    folder: &LocalPath,
    is_past: impl Fn(SystemTime) -> bool,
) -> Result<u64> {
    let removal_error = |error: io::Error| {
        let message = format!(
            "the remains of an interrupted put in {} could not be removed: {error}",
            folder.display()
        );
        Error::unavailable(format!("{message}; look at its permissions"))
    };
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        files => files.map_err(removal_error)?,
    };
    let mut removed = 0;
    for file in files {
        let file = file.map_err(removal_error)?;
        if !file.file_name().to_str().is_some_and(is_temporary) {
            continue;
        }
        let removing = || match file.metadata()?.modified().map(&is_past)? {
            true => fs::remove_file(file.path()).map(|()| 1),
            false => Ok(0),
        };
        match removing() {
            // Another collector was faster, or the put has completed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => removed += result.map_err(removal_error)?,
        }
    }
    Ok(removed)
}

/// Returns whether a name is temporary: `object_store` appends `#` and a number, which never occur
/// in its own object names.
fn is_temporary(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn put_accepts_an_object_that_exists_with_the_same_bytes() {
        let (objects, path) = (InMemory::new(), Path::from("a/manifest"));
        for _ in 0..2 {
            put_if_absent(&objects, &path, Bytes::from_static(b"one")).await.unwrap();
        }
        let other = put_if_absent(&objects, &path, Bytes::from_static(b"two")).await.unwrap_err();
        assert!(matches!(other, Refused::AlreadyExists { .. }), "{other}");
        let stored_bytes = objects.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(stored_bytes, Bytes::from_static(b"one"));
    }
}
