//! The snapshots of one partition: lookup, reads, publication and verification.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use forebay_core::id::{LogId, PartitionRef};
use forebay_core::limits::SNAPSHOT_CHUNKS_AT_ONCE;
use forebay_core::{Error, ErrorCode, Result};
use forebay_tasks::run_blocking;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::chunk::{ChunkHash, ChunkId, ChunkName, decode_chunk, encode_chunk};
use crate::error::refusal_error;
use crate::image_state::ImageState;
use crate::manifest::{DeltaLayer, Manifest, SnapshotName};
use crate::write_once_object::{put_if_absent, remove_abandoned_uploads};

const MANIFESTS: &str = "manifests";
const CHUNKS: &str = "chunks";
const CLOCK: &str = "clock";
const MANIFEST: &str = "manifest";
const VERIFIED: &str = "verified";
const EXPIRED: &str = "expired";

/// A snapshot as described by the names of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// Name of the snapshot.
    pub name: SnapshotName,
    /// Time at which the manifest was published.
    pub published: SystemTime,
    /// Whether the whole snapshot was read back.
    pub is_verified: bool,
    /// Time since which no reader may start with the snapshot, if it has expired.
    pub expired: Option<SystemTime>,
}

impl ListedSnapshot {
    /// Returns whether a reader may start with the snapshot.
    pub fn counts(&self) -> bool {
        self.is_verified && self.expired.is_none()
    }

    /// Adds the snapshots that count to `names`, and removes the expired ones, so that a later list
    /// may miss some snapshots.
    pub fn remember(listed: &[Self], names: &mut HashSet<SnapshotName>) {
        for Self { name, is_verified, expired, .. } in listed {
            if expired.is_some() {
                names.remove(name);
            } else if *is_verified {
                names.insert(*name);
            }
        }
    }

    /// Sorts the snapshots, the oldest first: logs by their last publication, and snapshots of one
    /// log by position, so that the store's clock does not matter within a log.
    pub fn sort_oldest_first(listed: &mut [Self]) {
        let mut last: BTreeMap<LogId, SystemTime> = BTreeMap::new();
        for Self { name, published, .. } in listed.iter() {
            let last = last.entry(name.log_id).or_insert(*published);
            *last = (*last).max(*published);
        }
        listed.sort_by_key(|listed| (last[&listed.name.log_id], listed.name));
    }
}

/// The snapshots of one partition. Cheap to clone.
#[derive(Clone)]
pub struct PartitionSnapshots {
    objects: Arc<dyn ObjectStore>,
    root: Path,
    at: PartitionRef,
    /// File system of the objects, if they are on this machine.
    local: Option<Arc<LocalFileSystem>>,
}

impl fmt::Debug for PartitionSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionSnapshots({}/{})", self.objects, self.root)
    }
}

impl PartitionSnapshots {
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        root: Path,
        at: PartitionRef,
        local: Option<Arc<LocalFileSystem>>,
    ) -> Self {
        Self { objects, root, at, local }
    }

    /// Returns the partition.
    pub fn partition(&self) -> PartitionRef {
        self.at
    }

    /// Lists all snapshots with a manifest by name. The object store's list may miss a recently
    /// published snapshot, and may contain a removed one.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn list(&self) -> Result<Vec<ListedSnapshot>> {
        let found = self.list_folder(MANIFESTS).await?;
        let mut marks: BTreeMap<SnapshotName, [Option<SystemTime>; 3]> = BTreeMap::new();
        for object in found {
            let Some((name, kind)) = object.0.split_once('.') else { continue };
            let Ok(name) = name.parse() else { continue };
            let Some(place) = [MANIFEST, VERIFIED, EXPIRED].iter().position(|it| *it == kind)
            else {
                continue;
            };
            marks.entry(name).or_default()[place] = Some(object.1);
        }
        let listed = marks.into_iter().filter_map(|(name, [published, verified, expired])| {
            let is_verified = verified.is_some();
            Some(ListedSnapshot { name, published: published?, is_verified, expired })
        });
        Ok(listed.collect())
    }

    /// Returns the manifest of the newest snapshot that counts. The snapshot belongs to this log,
    /// or without `log_id` to the log of the snapshot that was published last. A snapshot whose
    /// manifest is damaged, or has an unknown format, is skipped for an older one.
    ///
    /// # Errors
    /// The errors of the object store; the error of the last skipped manifest if no other one is
    /// left.
    pub async fn newest(&self, log_id: Option<LogId>) -> Result<Option<Manifest>> {
        let mut listed = self.list().await?;
        listed.retain(ListedSnapshot::counts);
        let last = listed.iter().max_by_key(|listed| listed.published);
        let Some(log_id) = log_id.or(last.map(|listed| listed.name.log_id)) else {
            return Ok(None);
        };
        listed.retain(|listed| listed.name.log_id == log_id);
        let mut passed_over = None;
        for ListedSnapshot { name, .. } in listed.into_iter().rev() {
            match self.read(name).await {
                Ok(manifest) => return Ok(Some(manifest)),
                Err(error) if is_of_object(&error) => {
                    tracing::warn!(at = %self.at, %name, %error, "unreadable snapshot skipped");
                    passed_over = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        passed_over.map_or(Ok(None), Err)
    }

    /// Reads the manifest of a snapshot.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`; the errors of the object store.
    pub async fn read(&self, name: SnapshotName) -> Result<Manifest> {
        let object = self.get(&self.mark(name, MANIFEST)).await?;
        let manifest = Manifest::decode(&object)?;
        if manifest.name() != name || manifest.at != self.at {
            let message =
                format!("the manifest {name} is of another snapshot; the manifest is ignored");
            return Err(Error::corrupt(message));
        }
        Ok(manifest)
    }

    /// Reads the bytes of a chunk.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`; the errors of the object store.
    pub async fn chunk(&self, id: ChunkId) -> Result<Bytes> {
        let object = self.get(&self.chunk_path(id.name())).await?;
        run_blocking(move || decode_chunk(&id, &object)).await
    }

    /// Streams the bytes of these chunks in order; several requests are in flight at a time.
    pub fn chunks(&self, ids: Vec<ChunkId>) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        let snapshots = self.clone();
        let fetches = stream::iter(ids).map(move |id| {
            let snapshots = snapshots.clone();
            async move { snapshots.chunk(id).await }
        });
        fetches.buffered(SNAPSHOT_CHUNKS_AT_ONCE)
    }

    /// Reads the state of a snapshot in one of its deltas.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`; the errors of the object store.
    pub async fn delta_state(&self, manifest: &Manifest, delta: &DeltaLayer) -> Result<ImageState> {
        let chunks: Vec<_> = self.chunks(delta.state.clone()).try_collect().await?;
        let Manifest { at, partitions, .. } = *manifest;
        ImageState::decode(at, partitions, delta.progress, &chunks.concat())
    }

    /// Stores a chunk.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn put_chunk(&self, id: ChunkId, bytes: Bytes) -> Result<()> {
        let object = run_blocking(move || encode_chunk(&bytes)).await?;
        let result = self.objects.put(&self.chunk_path(id.name()), object.into()).await;
        result.map(drop).map_err(store_error)
    }

    /// Publishes a manifest whose chunks are stored. The call reads back the chunks that were
    /// written for this snapshot, checks that the other chunks still exist, and only then lets the
    /// snapshot count. If the call fails, the snapshot does not count.
    ///
    /// # Errors
    /// `Corrupt` for a chunk with other bytes than were stored; `NotFound` for a removed chunk; the
    /// errors of the object store.
    pub async fn publish(&self, manifest: &Manifest) -> Result<()> {
        let name = manifest.name();
        self.create(&self.mark(name, MANIFEST), manifest.encode()?).await?;
        self.read(name).await?;
        let (new, shared): (Vec<_>, Vec<_>) =
            manifest.chunks().copied().partition(|id| id.written_by == manifest.id);
        let snapshots = self.clone();
        let looks = stream::iter(shared).map(move |id| {
            let snapshots = snapshots.clone();
            async move {
                snapshots
                    .objects
                    .head(&snapshots.chunk_path(id.name()))
                    .await
                    .map(drop)
                    .map_err(store_error)
            }
        });
        looks.buffer_unordered(SNAPSHOT_CHUNKS_AT_ONCE).try_collect::<()>().await?;
        self.read_back(new).await?;
        self.create(&self.mark(name, VERIFIED), Bytes::new()).await
    }

    /// Reads these chunks to verify them, and discards the bytes.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`; the errors of the object store.
    pub async fn read_back(&self, ids: Vec<ChunkId>) -> Result<()> {
        let mut read = Box::pin(self.chunks(ids));
        while read.try_next().await?.is_some() {}
        Ok(())
    }

    /// Expires a snapshot, so that it no longer counts; its chunks stay for readers that have
    /// started with it.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn expire(&self, name: SnapshotName) -> Result<()> {
        self.create(&self.mark(name, EXPIRED), Bytes::new()).await
    }

    /// Returns the chunks that a build may name without writing them: those of all unexpired
    /// snapshots.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn known_chunks(&self) -> Result<HashMap<ChunkHash, ChunkId>> {
        let mut known_chunks = HashMap::new();
        for listed in self.list().await?.into_iter().filter(|listed| listed.expired.is_none()) {
            match self.read(listed.name).await {
                Ok(manifest) => known_chunks.extend(manifest.chunks().map(|id| (id.hash, *id))),
                Err(error) if is_of_object(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known_chunks)
    }

    /// Returns the current time of the object store.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn now(&self) -> Result<SystemTime> {
        let path = self.root.clone().join(CLOCK);
        self.objects.put(&path, Bytes::new().into()).await.map_err(store_error)?;
        let written = self.objects.head(&path).await.map_err(store_error)?;
        Ok(written.last_modified.into())
    }

    /// Lists all chunks with their write times.
    pub(crate) async fn stored_chunks(&self) -> Result<Vec<(ChunkName, SystemTime)>> {
        let found = self.list_folder(CHUNKS).await?;
        let chunk = |(name, written): (String, _)| Some((ChunkName::parse(&name)?, written));
        Ok(found.into_iter().filter_map(chunk).collect())
    }

    /// Lists the names in this folder with their write times. Objects in subfolders are foreign,
    /// for example a copy, whose marks mean nothing here.
    async fn list_folder(&self, folder: &str) -> Result<Vec<(String, SystemTime)>> {
        let folder = self.root.clone().join(folder);
        let found: Vec<_> =
            self.objects.list(Some(&folder)).try_collect().await.map_err(store_error)?;
        let own_name = |object: object_store::ObjectMeta| {
            let mut parts = object.location.prefix_match(&folder)?;
            let name = parts.next()?.as_ref().to_owned();
            parts.next().is_none().then(|| (name, object.last_modified.into()))
        };
        Ok(found.into_iter().filter_map(own_name).collect())
    }

    pub(crate) async fn remove_chunks(&self, chunks: Vec<ChunkName>) -> Result<()> {
        self.remove(chunks.into_iter().map(|name| self.chunk_path(name)).collect()).await
    }

    /// Removes a snapshot's manifest, and then its marks, which mean nothing without the manifest.
    pub(crate) async fn remove_manifest(&self, name: SnapshotName) -> Result<()> {
        self.remove(vec![self.mark(name, MANIFEST)]).await?;
        self.remove(vec![self.mark(name, VERIFIED), self.mark(name, EXPIRED)]).await
    }

    /// Removes the partial files of killed puts whose time is past, if the objects are on this
    /// machine; returns their number.
    pub(crate) async fn remove_abandoned_uploads(
        &self,
        is_past: impl Fn(SystemTime) -> bool + Send + 'static,
    ) -> Result<u64> {
        let Some(local) = &self.local else { return Ok(0) };
        let folders = [self.root.clone().join(MANIFESTS), self.root.clone().join(CHUNKS)];
        let folders = folders.each_ref().map(|folder| local.path_to_filesystem(folder));
        run_blocking(move || {
            folders.into_iter().try_fold(0, |removed, folder| {
                Ok(removed + remove_abandoned_uploads(&folder.map_err(store_error)?, &is_past)?)
            })
        })
        .await
    }

    async fn remove(&self, paths: Vec<Path>) -> Result<()> {
        let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut removed = self.objects.delete_stream(paths);
        while let Some(path) = removed.next().await {
            match path {
                // Another collector was faster.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(store_error(error)),
            }
        }
        Ok(())
    }

    async fn get(&self, path: &Path) -> Result<Bytes> {
        self.objects.get(path).await.map_err(store_error)?.bytes().await.map_err(store_error)
    }

    async fn create(&self, path: &Path, bytes: Bytes) -> Result<()> {
        put_if_absent(self.objects.as_ref(), path, bytes).await.map_err(store_error)
    }

    fn mark(&self, name: SnapshotName, kind: &str) -> Path {
        self.root.clone().join(MANIFESTS).join(format!("{name}.{kind}"))
    }

    fn chunk_path(&self, name: ChunkName) -> Path {
        self.root.clone().join(CHUNKS).join(name.to_string())
    }
}

fn store_error(error: object_store::Error) -> Error {
    refusal_error("using the object store of the snapshots", &error)
}

/// Returns whether the object itself is bad, and not the connection.
pub(crate) fn is_of_object(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NotFound | ErrorCode::Corrupt | ErrorCode::Unsupported)
}
