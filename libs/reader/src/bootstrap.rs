//! A copy that begins with a snapshot: its image is fetched into a file and mapped, what has
//! changed since is laid over it, and then the log is followed from there. Where there is no
//! snapshot, the image is made of a shard, which a replicator sends.
//!
//! The image goes to the directory of the checkpoints, so an attempt that breaks off, at a kill
//! too, goes on with what is there: every chunk is proved by its hash, whoever wrote it. A reader
//! without such a directory has it in a file without a name.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use forebay_core::key_order::KeyOrder;
use forebay_core::limits::SNAPSHOT_SYNC_BYTES;
use forebay_core::{Error, Result};
use forebay_index::{Image, ImageSink};
use forebay_log::disk::{DiskFile, open_file};
use forebay_snapshot::{
    ChunkHash, ChunkId, FrozenShard, ImageBuilder, ImageState, Manifest, PartitionSnapshots,
    delta_writes, elsewhere, in_place,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::SemaphorePermit;

use crate::checkpoint::{Checkpoints, open_image};
use crate::generation::Generation;
use crate::progress::Fetching;

/// Where an image is fetched to.
enum Place {
    /// A file of the checkpoints.
    Kept(PathBuf, Arc<dyn DiskFile>),
    /// A file without a name.
    Unnamed(Arc<dyn DiskFile>),
}

impl Place {
    /// A file for an image of this name and so many bytes.
    fn make(checkpoints: &Option<Checkpoints>, name: &str, bytes: u64) -> Result<Self> {
        Ok(match checkpoints {
            Some(checkpoints) => {
                let (path, file) = in_place(|| checkpoints.fetched_file(name, bytes))?;
                Self::Kept(path, file)
            }
            None => {
                let file = in_place(tempfile::tempfile).map_err(|error| refused(&error))?;
                Self::Unnamed(open_file(file))
            }
        })
    }

    fn file(&self) -> &Arc<dyn DiskFile> {
        let (Self::Kept(_, file) | Self::Unnamed(file)) = self;
        file
    }

    /// The image that is there, durably, and its file's name where it has one.
    fn opened(self, bytes: u64) -> Result<(Image, ImageState, Option<PathBuf>)> {
        let file = self.file();
        in_place(|| {
            file.truncate(bytes)?;
            match self {
                Self::Kept(..) => file.sync_data(),
                // It is gone with the process, whatever the disk has of it.
                Self::Unnamed(_) => Ok(()),
            }
        })
        .map_err(|error| refused(&error))?;
        let (image, state) = in_place(|| open_image(Arc::clone(file)))?;
        let path = match self {
            Self::Kept(path, _) => Some(path),
            Self::Unnamed(_) => None,
        };
        Ok((image, state, path))
    }
}

/// Makes the image of a shard that a replicator sends, and opens it; its file's name, where it has
/// one. Takes memory for all of it meanwhile.
///
/// # Errors
/// Those of the replicator and of the disk; `LimitExceeded` without memory.
pub(crate) async fn image_of_shard(
    shard: &mut FrozenShard,
    mut builder: ImageBuilder,
    order: KeyOrder,
    checkpoints: &Option<Checkpoints>,
) -> Result<(Image, ImageState, Option<PathBuf>)> {
    let resumed = builder.take_shard(shard, order).await?;
    let state = ImageState::of_shard(&resumed);
    let place = Place::make(checkpoints, SHARD, builder.memory_bytes())?;
    let file = place.file();
    let written = in_place(|| {
        file.truncate(0).map_err(|error| refused(&error))?;
        builder.write(&state, &mut Written(&**file))
    })?;
    place.opened(written.bytes)
}

/// What the file is called of an image that is made of a shard.
const SHARD: &str = "shard";

/// An image on its way to a file.
struct Written<'f>(&'f dyn DiskFile);

impl ImageSink for Written<'_> {
    fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        self.0.write_at(bytes, at).map_err(|error| refused(&error))
    }
}

/// A copy's beginning with one snapshot.
pub(crate) struct Bootstrap<'b> {
    pub snapshots: &'b PartitionSnapshots,
    pub manifest: &'b Manifest,
    pub chunks_at_once: usize,
}

impl Bootstrap<'_> {
    /// Fetches the image, as far as it is not there yet, and opens it; what is told says how far it
    /// is. The turn ends with the last byte. Answers the file's name, where it has one.
    ///
    /// # Errors
    /// Those of the object store, of the disk, and of [`Image::open`].
    pub(crate) async fn fetch(
        &self,
        checkpoints: &Option<Checkpoints>,
        turn: Option<SemaphorePermit<'_>>,
        tell: impl Fn(Fetching),
    ) -> Result<(Image, ImageState, Option<PathBuf>)> {
        let first = self.manifest.base.chunks.first();
        let name = first.map(|first| first.hash.to_string()).unwrap_or_default();
        let bytes = self.manifest.base.bytes();
        let place = Place::make(checkpoints, &name, bytes)?;
        self.fetch_chunks(&place, &tell).await?;
        drop(turn);
        let (image, state, path) = place.opened(bytes)?;
        image.about().check_is_of(self.manifest.at, self.manifest.partitions)?;
        if image.about().progress != self.manifest.base.progress {
            return Err(Error::corrupt("the image of a snapshot is of another position"));
        }
        Ok((image, state, path))
    }

    async fn fetch_chunks(&self, place: &Place, tell: &impl Fn(Fetching)) -> Result<()> {
        let file = place.file();
        let base = &self.manifest.base;
        let length = base.chunks.first().map_or(0, |first| u64::from(first.bytes));
        let has = file.size().map_err(|error| refused(&error))?;
        let chunks: Vec<_> = base.chunks.iter().copied().zip((0..).map(|n| n * length)).collect();
        let (from, to) = (self.snapshots.clone(), Arc::new(Fetched::to(place)));
        let fetches = stream::iter(chunks)
            .map(move |(id, at)| fetch_chunk(from.clone(), Arc::clone(&to), id, at, at < has));
        let mut fetches = fetches.buffer_unordered(self.chunks_at_once);
        let mut fetching = Fetching { bytes: 0, bytes_in_all: base.bytes() };
        while let Some(bytes) = fetches.try_next().await? {
            fetching.bytes += bytes;
            tell(fetching);
        }
        Ok(())
    }

    /// Makes the copy what the snapshot is: the image, and its deltas over it.
    ///
    /// # Errors
    /// Those of the object store; `Corrupt` for what is no snapshot; `LimitExceeded` without
    /// memory. The copy is empty then.
    pub(crate) async fn take_over(
        &self,
        copy: &mut Generation,
        image: &Image,
        base: ImageState,
    ) -> Result<()> {
        in_place(|| copy.begin_with(image, &base.state))?;
        let laid_over = self.lay_over(copy, base).await;
        let taken = laid_over.and_then(|state| copy.take_over(state));
        taken.inspect_err(|_| copy.give_up())
    }

    async fn lay_over(&self, copy: &mut Generation, base: ImageState) -> Result<ImageState> {
        let mut state = base.clone();
        for delta in &self.manifest.deltas {
            let mut chunks = Box::pin(self.snapshots.chunks(delta.rows.clone()));
            while let Some(chunk) = chunks.try_next().await? {
                in_place(|| {
                    delta_writes(&chunk).try_for_each(|writes| copy.lay_over(writes?, &state.state))
                })?;
            }
            state = self.snapshots.delta_state(self.manifest, delta).await?;
        }
        if state.state.log_id != Some(self.manifest.log_id) {
            return Err(Error::corrupt("a snapshot whose state is of another log"));
        }
        in_place(|| copy.note_state(&base.state, &state.state))?;
        Ok(state)
    }
}

/// A file that an image is fetched to, which is put on the disk while it grows.
struct Fetched {
    file: Arc<dyn DiskFile>,
    /// Whether its bytes are to outlive this process.
    is_kept: bool,
    /// Bytes that were written since it was last put on the disk, or is being put there.
    unsynced: AtomicU64,
    is_syncing: AtomicBool,
}

impl Fetched {
    fn to(place: &Place) -> Self {
        let (file, is_kept) = (Arc::clone(place.file()), matches!(place, Place::Kept(..)));
        Self { file, is_kept, unsynced: AtomicU64::new(0), is_syncing: AtomicBool::new(false) }
    }

    async fn write(&self, chunk: &[u8], at: u64) -> Result<()> {
        in_place(|| self.file.write_at(chunk, at)).map_err(|error| refused(&error))?;
        let unsynced = self.unsynced.fetch_add(chunk.len() as u64, Relaxed) + chunk.len() as u64;
        if !self.is_kept || unsynced < SNAPSHOT_SYNC_BYTES || self.is_syncing.swap(true, Relaxed) {
            return Ok(());
        }
        self.unsynced.store(0, Relaxed);
        let file = Arc::clone(&self.file);
        // An error is told once, and the last sync would not see it again.
        let synced = elsewhere(move || file.sync_data().map_err(|error| refused(&error))).await;
        self.is_syncing.store(false, Relaxed);
        synced
    }
}

/// Fetches one chunk to its place, if it is not there yet; how many bytes that are.
async fn fetch_chunk(
    from: PartitionSnapshots,
    to: Arc<Fetched>,
    id: ChunkId,
    at: u64,
    may_be_there: bool,
) -> Result<u64> {
    if !may_be_there || !in_place(|| is_chunk(&*to.file, &id, at))? {
        let chunk = from.chunk(id).await?;
        to.write(&chunk, at).await?;
    }
    Ok(id.bytes.into())
}

/// Whether these bytes of a file are those of a chunk.
fn is_chunk(file: &dyn DiskFile, id: &ChunkId, at: u64) -> Result<bool> {
    let mut bytes = vec![0; id.bytes as usize];
    let read = file.read_at(&mut bytes, at).map_err(|error| refused(&error))?;
    Ok(read == bytes.len() && ChunkHash::of(&bytes) == id.hash)
}

fn refused(error: &io::Error) -> Error {
    let message = format!("keeping a snapshot's image: {error}; look at the disk");
    match error.kind() {
        io::ErrorKind::StorageFull => Error::new(forebay_core::ErrorCode::LimitExceeded, message),
        _ => Error::unavailable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that keeps nothing, and counts how often it is put on the disk.
    #[derive(Debug, Default)]
    struct Counting {
        synced: AtomicU64,
        is_broken: bool,
    }

    impl DiskFile for Counting {
        fn size(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn read_at(&self, _buffer: &mut [u8], _at: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn write_at(&self, _bytes: &[u8], _at: u64) -> io::Result<()> {
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

    async fn write_all(file: &Arc<Counting>, is_kept: bool, quarters: u64) -> Result<()> {
        let file: Arc<dyn DiskFile> = Arc::clone(file) as Arc<dyn DiskFile>;
        let place = if is_kept { Place::Kept(PathBuf::new(), file) } else { Place::Unnamed(file) };
        let (to, chunk) = (Fetched::to(&place), vec![0; SNAPSHOT_SYNC_BYTES as usize / 4]);
        for quarter in 0..quarters {
            to.write(&chunk, quarter * chunk.len() as u64).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn an_image_is_put_on_the_disk_while_it_is_fetched() {
        let file = Arc::new(Counting::default());
        write_all(&file, true, 3).await.unwrap();
        assert_eq!(file.synced.load(Relaxed), 0);
        write_all(&file, true, 9).await.unwrap();
        assert_eq!(file.synced.load(Relaxed), 2);
        write_all(&file, false, 9).await.unwrap();
        assert_eq!(file.synced.load(Relaxed), 2, "one without a name goes with the process");
        let broken = Arc::new(Counting { is_broken: true, ..Counting::default() });
        assert!(write_all(&broken, true, 9).await.is_err());
        assert_eq!(broken.synced.load(Relaxed), 1, "the first error ends it");
    }
}
