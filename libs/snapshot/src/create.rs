//! Write-once objects.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, Result};

/// Creates an object. If the object exists with the same bytes, the call succeeds: an earlier
/// request of this process wrote it, its answer was lost, and the request was sent again.
///
/// # Errors
/// `AlreadyExists` if the object has other bytes; the errors of the object store.
pub(crate) async fn create(objects: &dyn ObjectStore, path: &Path, bytes: Bytes) -> Result<()> {
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
    async fn what_is_there_already_is_ours_where_it_is_the_same() {
        let (objects, path) = (InMemory::new(), Path::from("a/manifest"));
        for _ in 0..2 {
            create(&objects, &path, Bytes::from_static(b"one")).await.unwrap();
        }
        let other = create(&objects, &path, Bytes::from_static(b"two")).await.unwrap_err();
        assert!(matches!(other, Error::AlreadyExists { .. }), "{other}");
        let there = objects.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(there, Bytes::from_static(b"one"));
    }
}
