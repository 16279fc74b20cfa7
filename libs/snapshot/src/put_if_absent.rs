//! Creation of write-once objects.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, Result};

/// Creates an object. If the object exists with the same bytes, the call succeeds: an earlier
/// request of this process wrote it, its answer was lost, and the request was sent again.
///
/// # Errors
/// `AlreadyExists` if the object has other bytes; the errors of the object store.
pub(crate) async fn put_if_absent(
    objects: &dyn ObjectStore,
    path: &Path,
    bytes: Bytes,
) -> Result<()> {
    let options = PutOptions::from(PutMode::Create);
    let taken = match objects.put_opts(path, bytes.clone().into(), options).await {
        Err(error @ Error::AlreadyExists { .. }) => error,
        put => return put.map(drop),
    };
    let there = objects.get(path).await?.bytes().await?;
    if there == bytes { Ok(()) } else { Err(taken) }
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
        assert!(matches!(other, Error::AlreadyExists { .. }), "{other}");
        let there = objects.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(there, Bytes::from_static(b"one"));
    }
}
