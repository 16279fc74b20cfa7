//! Bootstrap of a replica from a snapshot. The tail (1) fetches the snapshot's image into a file
//! and copies or maps it, (2) applies the snapshot's deltas to it, (3) follows the log from the
//! snapshot's position. If there is no snapshot, the tail builds the image from a shard that a
//! replicator sends.
//!
//! The image goes to the directory of the checkpoints, so an attempt that was interrupted, even by
//! a kill, resumes with the chunks that are on disk: a hash verifies every chunk, regardless of its
//! writer. A replica without such a directory fetches the image into an unnamed file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use forebay_core::id::{PartitionCount, PartitionRef};
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::SNAPSHOT_SYNC_BYTES;
use forebay_core::replica_state::Progress;
use forebay_core::{Error, Result};
use forebay_index::{Image, ImageSink};
use forebay_log::disk::{DiskFile, open_file};
use forebay_snapshot::{
    ChunkHash, ChunkId, ImageBuilder, ImageState, Manifest, PartitionSnapshots, RemoteShardExport,
    delta_writes,
};
use forebay_tasks::{block_in_place, run_blocking};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;

use crate::checkpoint::{Checkpoints, open_checkpoint, open_image};
use crate::partial_file::PartialFile;
use crate::partition_replica::PartitionReplica;
use crate::progress::SnapshotDownload;

/// The file that an image is fetched to.
enum ImageDestination {
    /// A file in the directory of the checkpoints.
    Kept(PathBuf, Arc<dyn DiskFile>),
    /// An unnamed file.
    Unnamed(Arc<dyn DiskFile>),
}

impl ImageDestination {
    /// Opens a file for an image of this name and size.
    fn make(checkpoints: &Option<Checkpoints>, name: &str, bytes: u64) -> Result<Self> {
        Ok(match checkpoints {
            Some(checkpoints) => {
                let (path, file) = block_in_place(|| checkpoints.fetched_file(name, bytes))?;
                Self::Kept(path, file)
            }
            None => {
                let file =
                    block_in_place(tempfile::tempfile).map_err(|error| disk_error(&error))?;
                Self::Unnamed(open_file(file))
            }
        })
    }

    fn file(&self) -> &Arc<dyn DiskFile> {
        let (Self::Kept(_, file) | Self::Unnamed(file)) = self;
        file
    }

    /// Prepares the file to receive `bytes` bytes; returns how many may be present already.
    fn begin(&self, bytes: u64) -> io::Result<u64> {
        let present_bytes = self.file().size()?;
        if present_bytes > bytes {
            self.file().truncate(bytes)?;
        }
        Ok(present_bytes)
    }

    /// Makes the complete image durable and opens it; returns the image, its state and its file's
    /// path, if the file is named.
    fn open(self, bytes: u64) -> Result<(Image, ImageState, Option<PathBuf>)> {
        let file = self.file();
        block_in_place(|| {
            file.truncate(bytes)?;
            match self {
                Self::Kept(..) => file.sync_data(),
                // An unnamed file is gone with the process, so a sync has no use.
                Self::Unnamed(_) => Ok(()),
            }
        })
        .map_err(|error| disk_error(&error))?;
        let (image, state) = block_in_place(|| open_checkpoint(Arc::clone(file)))?;
        let path = match self {
            Self::Kept(path, _) => Some(path),
            Self::Unnamed(_) => None,
        };
        Ok((image, state, path))
    }
}

/// Builds the image of a shard that a replicator sends, and opens it; returns the image, its state
/// and its file's path, if the file is named. Holds the whole image in memory until it is written.
///
/// # Errors
/// Returns the errors of the replicator and of the disk, and `LimitExceeded` if the memory does not
/// suffice.
pub(crate) async fn image_of_shard(
    shard: &mut RemoteShardExport,
    mut builder: ImageBuilder,
    order: KeyOrder,
    checkpoints: &Option<Checkpoints>,
) -> Result<(Image, ImageState, Option<PathBuf>)> {
    let restored = builder.take_shard(shard, order).await?;
    let state = ImageState::of_shard(&restored);
    let place = ImageDestination::make(checkpoints, SHARD, builder.memory_bytes())?;
    let file = place.file();
    let write_result = block_in_place(|| {
        file.truncate(0).map_err(|error| disk_error(&error))?;
        builder.write(&state, &mut ImageFileSink(&**file))
    })?;
    place.open(write_result.bytes)
}

/// Name of the file of an image that is built from a shard.
const SHARD: &str = "shard";

/// The sink that writes an image to a file.
struct ImageFileSink<'f>(&'f dyn DiskFile);

impl ImageSink for ImageFileSink<'_> {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(bytes, offset).map_err(|error| disk_error(&error))
    }
}

/// The bootstrap of a replica from one snapshot.
pub(crate) struct Bootstrap<'b> {
    pub snapshots: &'b PartitionSnapshots,
    pub manifest: &'b Manifest,
    pub chunks_at_once: usize,
}

impl Bootstrap<'_> {
    /// Starts to fetch the missing chunks of the image; reports the progress to `tell`.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    pub(crate) fn fetch(
        &self,
        checkpoints: &Option<Checkpoints>,
        tell: impl Fn(SnapshotDownload) + Send + 'static,
    ) -> Result<ImageFetch> {
        let Manifest { at, partitions, base, .. } = self.manifest;
        let first = base.chunks.first();
        let name = first.map(|first| first.hash.to_string()).unwrap_or_default();
        let (bytes, length) = (base.bytes(), first.map_or(0, |first| u64::from(first.bytes)));
        let place = ImageDestination::make(checkpoints, &name, bytes)?;
        let present_bytes =
            block_in_place(|| place.begin(bytes)).map_err(|error| disk_error(&error))?;
        let partial = Arc::new(PartialFile::new(Arc::clone(place.file()), bytes, length));
        let chunks = chunks_in_turn(&base.chunks, length);
        let (from, to) = (self.snapshots.clone(), ImageFileWriter::to(&place));
        let (arrived, at_once) = (DownloadGuard(Arc::clone(&partial)), self.chunks_at_once);
        let mut fetching = JoinSet::new();
        fetching.spawn(async move {
            let fetches = stream::iter(chunks).map(|chunk| {
                let fetched = fetch_chunk(&from, &to, chunk, chunk.at < present_bytes);
                let partial = &arrived.0;
                async move {
                    if !chunk.is_asked_first {
                        partial.wait_turn(chunk.at).await;
                    }
                    fetched.await
                }
            });
            let mut fetches = fetches.buffer_unordered(at_once);
            let mut download = SnapshotDownload { bytes: 0, bytes_in_all: bytes };
            while let Some((at, bytes)) = fetches.try_next().await? {
                arrived.0.note(at);
                download.bytes += bytes;
                tell(download);
            }
            Ok(())
        });
        let is_of = (*at, *partitions, base.progress);
        Ok(ImageFetch { place, is_of, partial, fetching })
    }

    /// Applies the snapshot's deltas to a replica that holds the snapshot's image, and lets it take
    /// over the snapshot's state.
    ///
    /// # Errors
    /// Returns the errors of the object store; `Corrupt` for invalid snapshot data; `LimitExceeded`
    /// if the memory does not suffice. After an error the replica is empty.
    pub(crate) async fn take_over(
        &self,
        replica: &mut PartitionReplica,
        base: ImageState,
    ) -> Result<()> {
        let laid_over = self.apply_delta(replica, base).await;
        // For a shard, `take_over` flushes to the disk, so it may block.
        let result = laid_over.and_then(|state| block_in_place(|| replica.take_over(state)));
        result.inspect_err(|_| block_in_place(|| replica.discard_rebuild()))
    }

    async fn apply_delta(
        &self,
        replica: &mut PartitionReplica,
        base: ImageState,
    ) -> Result<ImageState> {
        let mut state = base.clone();
        for delta in &self.manifest.deltas {
            let mut chunks = Box::pin(self.snapshots.chunks(delta.rows.clone()));
            while let Some(chunk) = chunks.try_next().await? {
                block_in_place(|| {
                    delta_writes(&chunk)
                        .try_for_each(|writes| replica.apply_delta(writes?, &state.state))
                })?;
            }
            state = self.snapshots.delta_state(self.manifest, delta).await?;
        }
        if state.state.log_id != Some(self.manifest.log_id) {
            return Err(Error::corrupt("the state of a snapshot is of another log"));
        }
        block_in_place(|| replica.note_state(&base.state, &state.state))?;
        Ok(state)
    }
}

/// A chunk of an image.
#[derive(Clone, Copy)]
struct Chunk {
    id: ChunkId,
    at: u64,
    /// Whether opening the image reads the chunk.
    is_asked_first: bool,
}

/// Returns the chunks of an image in fetch order: first the chunks that opening the image reads,
/// which are the first one and the last ones.
fn chunks_in_turn(chunks: &[ChunkId], length: u64) -> Vec<Chunk> {
    // About a thousandth of an image describes it; its state is small in comparison.
    let rest = chunks.len().saturating_sub(1 + chunks.len() / 256);
    let chunk = |(number, id): (usize, &ChunkId)| {
        let is_asked_first = number == 0 || number >= rest;
        Chunk { id: *id, at: number as u64 * length, is_asked_first }
    };
    let mut chunks: Vec<_> = chunks.iter().enumerate().map(chunk).collect();
    // A stable sort keeps the order within each group.
    chunks.sort_by_key(|chunk| !chunk.is_asked_first);
    chunks
}

/// A guard whose drop ends all waits for chunks.
struct DownloadGuard(Arc<PartialFile>);

impl Drop for DownloadGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A running fetch of an image; a drop cancels it.
pub(crate) struct ImageFetch {
    place: ImageDestination,
    is_of: (PartitionRef, PartitionCount, Progress),
    partial: Arc<PartialFile>,
    /// Set of exactly one task.
    fetching: JoinSet<Result<()>>,
}

impl ImageFetch {
    /// Lets a replica start from the image while the image is being fetched, and waits for the last
    /// byte; returns the image's state.
    ///
    /// # Errors
    /// Returns the errors of the object store, of the disk, of [`Image::open`] and of
    /// [`PartitionReplica::start_from_image`]. After an error the replica is empty.
    pub(crate) async fn begin(&mut self, replica: &mut PartitionReplica) -> Result<ImageState> {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            // On this runtime a blocking wait for a chunk would block the thread that fetches it,
            // so fetch the whole image first.
            self.partial.want_all();
            self.end().await?;
        }
        let start = block_in_place(|| {
            let (image, state) = self.open()?;
            replica.start_from_image(&image, &state.state)?;
            Ok(state)
        });
        if start.is_err() && !self.partial.has_failed() {
            self.fetching.shutdown().await;
            return start;
        }
        self.partial.want_all();
        // If the fetch failed, its error is the cause of the failed start.
        match self.end().await {
            Ok(()) => start,
            Err(error) => {
                if start.is_ok() {
                    block_in_place(|| replica.discard_rebuild());
                }
                Err(error)
            }
        }
    }

    async fn end(&mut self) -> Result<()> {
        match self.fetching.join_next().await {
            Some(Ok(fetched)) => fetched,
            Some(Err(_)) => Err(Error::internal("the download of an image broke off; see the log")),
            None => Ok(()),
        }
    }

    /// Syncs the file to disk; returns its path, if the file is named.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    pub(crate) async fn keep(self) -> Result<Option<PathBuf>> {
        // An unnamed file is gone with the process, so a sync has no use.
        let ImageDestination::Kept(path, file) = self.place else { return Ok(None) };
        run_blocking(move || file.sync_data().map_err(|error| disk_error(&error))).await?;
        Ok(Some(path))
    }

    fn open(&self) -> Result<(Image, ImageState)> {
        let (image, state) = open_image(Arc::clone(&self.partial) as _)?;
        let (at, partitions, progress) = self.is_of;
        image.metadata().check_is_of(at, partitions)?;
        if image.metadata().progress != progress {
            return Err(Error::corrupt("the image of a snapshot is at another position"));
        }
        Ok((image, state))
    }
}

/// The file that an image is fetched to; written back to disk while it grows.
struct ImageFileWriter {
    file: Arc<dyn DiskFile>,
    /// Whether the bytes must outlive this process.
    is_kept: bool,
    /// Bytes written since the last sync started.
    unsynced: AtomicU64,
    is_syncing: AtomicBool,
}

impl ImageFileWriter {
    fn to(place: &ImageDestination) -> Self {
        let (file, is_kept) =
            (Arc::clone(place.file()), matches!(place, ImageDestination::Kept(..)));
        Self { file, is_kept, unsynced: AtomicU64::new(0), is_syncing: AtomicBool::new(false) }
    }

    async fn write(&self, chunk: &[u8], offset: u64) -> Result<()> {
        block_in_place(|| self.file.write_at(chunk, offset)).map_err(|error| disk_error(&error))?;
        let unsynced = self.unsynced.fetch_add(chunk.len() as u64, Relaxed) + chunk.len() as u64;
        if !self.is_kept || unsynced < SNAPSHOT_SYNC_BYTES || self.is_syncing.swap(true, Relaxed) {
            return Ok(());
        }
        self.unsynced.store(0, Relaxed);
        let file = Arc::clone(&self.file);
        // The kernel reports a write-back error once, so the final sync would miss it.
        let synced =
            run_blocking(move || file.sync_data().map_err(|error| disk_error(&error))).await;
        self.is_syncing.store(false, Relaxed);
        synced
    }
}

/// Fetches one chunk to its offset, unless it is present; returns the offset and the chunk's size.
async fn fetch_chunk(
    from: &PartitionSnapshots,
    to: &ImageFileWriter,
    Chunk { id, at, .. }: Chunk,
    may_be_there: bool,
) -> Result<(u64, u64)> {
    if !may_be_there || !block_in_place(|| is_chunk(&*to.file, &id, at))? {
        let chunk = from.chunk(id).await?;
        to.write(&chunk, at).await?;
    }
    Ok((at, id.bytes.into()))
}

/// Returns whether the bytes at an offset of a file are this chunk.
fn is_chunk(file: &dyn DiskFile, id: &ChunkId, offset: u64) -> Result<bool> {
    let mut bytes = vec![0; id.bytes as usize];
    let read = file.read_at(&mut bytes, offset).map_err(|error| disk_error(&error))?;
    Ok(read == bytes.len() && ChunkHash::of(&bytes) == id.hash)
}

fn disk_error(error: &io::Error) -> Error {
    Error::of_disk("the snapshot's image could not be stored", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that stores nothing and counts its syncs.
    #[derive(Debug, Default)]
    struct CountingFile {
        synced: AtomicU64,
        is_broken: bool,
    }

    impl DiskFile for CountingFile {
        fn size(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.synced.fetch_add(1, Relaxed);
            if self.is_broken { Err(io::Error::other("a torn cable")) } else { Ok(()) }
        }

        fn truncate(&self, _size: u64) -> io::Result<()> {
            Ok(())
        }
    }

    async fn write_all(file: &Arc<CountingFile>, is_kept: bool, quarters: u64) -> Result<()> {
        let file: Arc<dyn DiskFile> = Arc::clone(file) as Arc<dyn DiskFile>;
        let place = if is_kept {
            ImageDestination::Kept(PathBuf::new(), file)
        } else {
            ImageDestination::Unnamed(file)
        };
        let (to, chunk) = (ImageFileWriter::to(&place), vec![0; SNAPSHOT_SYNC_BYTES as usize / 4]);
        for quarter in 0..quarters {
            to.write(&chunk, quarter * chunk.len() as u64).await?;
        }
        Ok(())
    }

    #[test]
    fn chunks_that_describe_an_image_are_fetched_first() {
        let chunks = |count: u64| -> Vec<ChunkId> {
            (0..count).map(|number| ChunkId::of(&number.to_le_bytes(), 1)).collect()
        };
        let places = |count| -> Vec<u64> {
            let chunks = chunks(count);
            let in_turn = chunks_in_turn(&chunks, 8);
            assert!(in_turn.iter().all(|chunk| chunks[(chunk.at / 8) as usize] == chunk.id));
            in_turn.into_iter().map(|chunk| chunk.at / 8).collect()
        };
        assert!(places(0).is_empty());
        assert_eq!(places(1), [0]);
        assert_eq!(places(2), [0, 1]);
        assert_eq!(places(5), [0, 4, 1, 2, 3]);
        assert_eq!(places(300)[..4], [0, 298, 299, 1]);
    }

    #[tokio::test]
    async fn image_is_synced_while_it_is_fetched() {
        let file = Arc::new(CountingFile::default());
        write_all(&file, true, 3).await.unwrap();
        assert_eq!(file.synced.load(Relaxed), 0);
        write_all(&file, true, 9).await.unwrap();
        assert_eq!(file.synced.load(Relaxed), 2);
        write_all(&file, false, 9).await.unwrap();
        assert_eq!(file.synced.load(Relaxed), 2, "one without a name goes with the process");
        let broken_file = Arc::new(CountingFile { is_broken: true, ..CountingFile::default() });
        assert!(write_all(&broken_file, true, 9).await.is_err());
        assert_eq!(broken_file.synced.load(Relaxed), 1, "the first error ends it");
    }
}
