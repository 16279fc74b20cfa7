//! Manifests of a stream's exports: each export has a manifest with an ascending number, which only
//! one process can write. Bytes: `proto/spec/events.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::id::StoreId;
use forebay_core::{Error, Result};
use forebay_snapshot::SnapshotStore;
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Format that this build writes, and the newest one that it reads.
const FORMAT: u32 = 1;
const MANIFESTS: &str = "manifests";
const DATA: &str = "data";
/// Number of manifests that are read concurrently.
const READ_AT_ONCE: usize = 16;

/// Manifest of one export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: u32,
    /// Number of the export, consecutive from 1.
    pub(crate) number: u64,
    /// Name of the stream.
    pub(crate) stream: String,
    /// Time of the export, in microseconds since the Unix epoch.
    pub(crate) taken_at_us: i64,
    /// Exported range of each partition.
    pub(crate) partitions: Vec<ExportedRange>,
    /// Files of the export.
    pub(crate) files: Vec<ExportedFile>,
}

/// Exported range of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExportedRange {
    /// Number of the partition.
    pub(crate) partition: u32,
    /// First offset.
    pub(crate) from: u64,
    /// First offset after the range, where the next export starts.
    pub(crate) to: u64,
    /// Number of events in the range.
    pub(crate) events: u64,
}

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExportedFile {
    /// Name of the file in the data folder.
    pub(crate) name: String,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Number of events.
    pub(crate) events: u64,
    /// Partition of the events.
    pub(crate) partition: u32,
    /// Time of the earliest event, in microseconds since the Unix epoch.
    pub(crate) from_us: i64,
    /// Time of the latest event.
    pub(crate) to_us: i64,
}

impl Manifest {
    /// Returns an empty manifest that follows another one.
    pub(crate) fn after(last: Option<&Self>, stream: &str, taken_at_us: i64) -> Self {
        Self {
            format: FORMAT,
            number: last.map_or(1, |last| last.number + 1),
            stream: stream.to_owned(),
            taken_at_us,
            partitions: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Returns the offset after the exported range of a partition.
    pub(crate) fn end_of(&self, partition: u32) -> u64 {
        let of_it = self.partitions.iter().find(|it| it.partition == partition);
        of_it.map_or(0, |exported| exported.to)
    }

    fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |error| Error::corrupt(format!("the export `{name}` is damaged: {error}"));
        let manifest: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        if manifest.format > FORMAT {
            let message = format!("the export `{name}` has format {}", manifest.format);
            return Err(Error::new(forebay_core::ErrorCode::UpgradeNeeded, message));
        }
        Ok(manifest)
    }
}

/// Manifests by stream and number.
type ManifestCache = BTreeMap<(StoreId, u64), Arc<Manifest>>;

/// Exports of all streams in a folder of an object store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Exports {
    root: SnapshotStore,
    /// Cache of read manifests, which never change.
    cache: Arc<Mutex<ManifestCache>>,
}

impl Exports {
    pub(crate) fn new(root: SnapshotStore) -> Self {
        Self { root, cache: Arc::default() }
    }

    fn manifests(&self, stream: StoreId) -> SnapshotStore {
        self.root.folder(&stream.to_string()).folder(MANIFESTS)
    }

    /// Returns the data folder of a stream.
    pub(crate) fn data(&self, stream: StoreId) -> SnapshotStore {
        self.root.folder(&stream.to_string()).folder(DATA)
    }

    /// Returns all exports of a stream, oldest first.
    ///
    /// # Errors
    /// `Corrupt`, `UpgradeNeeded`; else as the object store.
    pub(crate) async fn of_stream(&self, stream: StoreId) -> Result<Vec<Arc<Manifest>>> {
        let names = self.manifests(stream).names().await?;
        let read = stream::iter(names).map(|name| self.manifest(stream, name));
        let mut found: Vec<_> = read.buffered(READ_AT_ONCE).try_collect().await?;
        found.sort_by_key(|manifest| manifest.number);
        Ok(found)
    }

    async fn manifest(&self, stream: StoreId, name: String) -> Result<Arc<Manifest>> {
        let strange = || {
            Error::corrupt(format!(
                "the file `{name}` among the exports is no export; remove the file"
            ))
        };
        let number = name.strip_suffix(".json").and_then(|number| number.parse().ok());
        let number: u64 = number.ok_or_else(strange)?;
        if let Some(manifest) = self.cache.lock().get(&(stream, number)) {
            return Ok(Arc::clone(manifest));
        }
        let bytes = self.manifests(stream).file(&name).await?.ok_or_else(strange)?;
        let manifest = Arc::new(Manifest::decode(&bytes, &name)?);
        self.cache.lock().insert((stream, number), Arc::clone(&manifest));
        Ok(manifest)
    }

    /// Publishes an export.
    ///
    /// # Errors
    /// `Conflict` if another process has published an export of this number; else as the object
    /// store.
    pub(crate) async fn add(&self, stream: StoreId, manifest: &Manifest) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(manifest);
        let bytes = bytes.map_err(|error| Error::internal(error.to_string()))?;
        let name = format!("{:010}.json", manifest.number);
        self.manifests(stream).create_file(&name, Bytes::from(bytes)).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::after(None, "orders", 7);
        manifest.partitions.push(ExportedRange { partition: 1, from: 0, to: 9, events: 4 });
        manifest
    }

    #[tokio::test]
    async fn exports_have_increasing_unique_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        let exports = || Exports::new(SnapshotStore::open(&url).unwrap());
        let (exports, other, stream) = (exports(), exports(), StoreId(7));
        assert_eq!(exports.of_stream(stream).await.unwrap(), []);
        exports.add(stream, &manifest()).await.unwrap();
        let mut second = Manifest::after(Some(&manifest()), "orders", 8);
        assert_eq!((second.number, manifest().end_of(1), manifest().end_of(0)), (2, 9, 0));
        other.add(stream, &second).await.unwrap();
        second.taken_at_us = 9;
        let error = exports.add(stream, &second).await.unwrap_err();
        assert_eq!(error.code(), forebay_core::ErrorCode::Conflict);
        let numbers = |found: Vec<Arc<Manifest>>| -> Vec<_> {
            found.iter().map(|it| (it.number, it.taken_at_us)).collect()
        };
        assert_eq!(numbers(exports.of_stream(stream).await.unwrap()), [(1, 7), (2, 8)]);
        assert_eq!(numbers(other.of_stream(StoreId(8)).await.unwrap()), []);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_manifest_or_refused(bytes: Vec<u8>, text: String) {
            drop(Manifest::decode(&bytes, "1.json"));
            drop(Manifest::decode(text.as_bytes(), "1.json"));
        }
    }

    #[test]
    fn bytes_that_are_no_manifest_are_refused() {
        for bytes in [&b""[..], b"{}", b"[1]", b"\xff"] {
            assert!(Manifest::decode(bytes, "1.json").is_err());
        }
        let newer = serde_json::to_vec(&Manifest { format: 2, ..manifest() }).unwrap();
        let error = Manifest::decode(&newer, "1.json").unwrap_err();
        assert_eq!(error.code(), forebay_core::ErrorCode::UpgradeNeeded);
    }
}
