//! Build of one snapshot of one partition: from an exported shard into the object store, as a full
//! image or as a delta to the previous snapshot.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionCount, PartitionRef};
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::{SNAPSHOT_CHUNK_BYTES, SNAPSHOT_DELTAS_MAX};
use forebay_core::replica_state::Progress;
use forebay_core::schema::Definition;
use forebay_core::state_rows::RestoredState;
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::{changed_keys, follow_version};
use forebay_log::RecordRange;
use forebay_snapshot::{
    BaseLayer, ChunkHash, ChunkId, ChunkUpload, DeltaBlocks, DeltaLayer, ImageBuilder, ImageState,
    ImageUpload, Manifest, PartitionSnapshots, RemoteShardExport,
};
use forebay_tasks::block_in_place;
use forebay_wire::shard_copy::{block_rows, copy_endpoint};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::context::SnapshotParts;

/// A new image replaces the old one and its deltas once the deltas name more than one in this many
/// of the image's documents.
const FOLD_SHARE: u64 = 3;
/// A snapshot reads back the chunks that it shares with earlier ones if the number of its deltas is
/// a multiple of this number. A chunk that was damaged in the object store is detected this way,
/// and the build then writes a full image.
const READ_BACK_EVERY: usize = 16;

/// A build of a snapshot, and its destination.
pub(crate) struct Build<'b> {
    pub parts: &'b SnapshotParts,
    pub to: PartitionSnapshots,
    /// Definitions of the store, by ascending version.
    pub definitions: Vec<Definition>,
    /// The snapshot must include the entries before this offset of the log.
    pub at_least: Offset,
}

/// Outcome of a build.
#[derive(Debug)]
pub(crate) enum BuildOutcome {
    /// A new, published snapshot.
    New(Manifest),
    /// No new snapshot: this one is of the same position.
    Same(Manifest),
    /// No new snapshot: the replicator has not applied the required entries.
    Behind,
}

impl Build<'_> {
    fn newest(&self) -> Result<&Definition> {
        self.definitions.last().ok_or_else(|| Error::not_found("the store has no definition"))
    }

    /// Builds a snapshot of the shard's current state, publishes and verifies it. If the object
    /// store has lost or damaged a chunk of the previous snapshot, builds a full image instead.
    ///
    /// # Errors
    /// As the replicator, the log and the object store; `LimitExceeded` without memory. In this
    /// case no snapshot is published.
    pub async fn run(self) -> Result<BuildOutcome> {
        let began = Instant::now();
        let known_chunks = Arc::new(self.to.known_chunks().await?);
        let outcome = self.build(Some(known_chunks)).await?;
        let BuildOutcome::New(manifest) = &outcome else { return Ok(outcome) };
        let Some(error) = self.publish(manifest, began).await? else { return Ok(outcome) };
        warn!(at = %manifest.at, %error, "snapshot chunk lost or damaged; building all chunks");
        let began = Instant::now();
        let full_outcome = self.build(None).await?;
        if let BuildOutcome::New(manifest) = &full_outcome {
            self.publish(manifest, began).await?.map_or(Ok(()), Err)?;
        }
        Ok(full_outcome)
    }

    /// Builds a snapshot that reuses the known chunks; without `known_chunks`, builds a full image.
    async fn build(&self, known_chunks: Option<KnownChunks>) -> Result<BuildOutcome> {
        let (at, parts) = (self.to.partition(), self.parts);
        let store = self.newest()?.name.clone();
        let log = self.newest()?.logs().at(at.partition);
        let address = parts.replicators.address(log).await?;
        let bytes_per_second = parts.options.bytes_per_second;
        let channel = copy_endpoint(&address)?.connect_lazy();
        let mut shard = RemoteShardExport::freeze(
            channel,
            &store,
            Some(at.store),
            at.partition,
            bytes_per_second,
        )
        .await?;
        let outcome = self.build_shard(&mut shard, known_chunks).await;
        shard.end().await;
        outcome
    }

    /// Publishes and verifies a snapshot whose build started at `began`. Returns `Ok(Some(error))`
    /// if a chunk that the snapshot shares with others is lost or damaged. Shared chunks are
    /// usually intact, so only some snapshots read them.
    async fn publish(&self, manifest: &Manifest, began: Instant) -> Result<Option<Error>> {
        let of_others = manifest.chunks().filter(|chunk| chunk.written_by != manifest.id);
        let shared: Vec<_> = of_others.copied().collect();
        let is_sharing = !shared.is_empty();
        if manifest.deltas.len().is_multiple_of(READ_BACK_EVERY) {
            match self.to.read_back(shared).await {
                Err(error) if is_lost(&error) => return Ok(Some(error)),
                read => read?,
            }
        }
        // A chunk that the manifest names may have been removed in the meantime
        // (proto/spec/snapshot.md).
        let longest = self.parts.options.grace / 2;
        if began.elapsed() > longest {
            let message = format!(
                "the snapshot took more than {} s, half of the grace period; raise the grace \
                 period",
                longest.as_secs()
            );
            return Err(Error::unavailable(message).with_partition(manifest.at.partition));
        }
        match self.to.publish(manifest).await {
            Err(error) if is_sharing && error.code() == ErrorCode::NotFound => Ok(Some(error)),
            published => {
                published?;
                info!(
                    at = %manifest.at, store = manifest.store, snapshot = %manifest.name(),
                    deltas = manifest.deltas.len(), "snapshot verified"
                );
                Ok(None)
            }
        }
    }

    async fn build_shard(
        &self,
        shard: &mut RemoteShardExport,
        known_chunks: Option<KnownChunks>,
    ) -> Result<BuildOutcome> {
        let at = shard.partition();
        if at != self.to.partition() {
            return Err(Error::unavailable(
                "the store was recreated; the service builds its snapshot later",
            ));
        }
        let (log_id, position) = (shard.log_id(), shard.position()?);
        if self.at_least > Offset(0) && shard.state().await?.state.offset_applied < self.at_least {
            return Ok(BuildOutcome::Behind);
        }
        let before = match self.to.newest(Some(log_id)).await {
            // There are snapshots, but none can be read.
            Err(error) if is_lost(&error) => None,
            found => found?,
        };
        let before = match before {
            Some(before) if before.progress.position >= position => {
                return Ok(BuildOutcome::Same(before));
            }
            before => before,
        };
        let id = self.parts.context.entropy.next_u64()?;
        let before = before.filter(|_| known_chunks.is_some());
        let mut upload = ChunkUpload::new(self.to.clone(), id, known_chunks.unwrap_or_default());
        let (partitions, store) = (self.newest()?.partitions, self.newest()?.name.clone());
        let layers = match before {
            Some(before) => self.delta(shard, before, &mut upload).await,
            None => self.base(shard, &mut upload).await,
        };
        let Layers { state, base, deltas } = upload.end(layers).await?;
        let progress = Progress::from(&state.state);
        let is_known = |definition: &&Definition| definition.version <= progress.schema_version;
        let definitions = self.definitions.iter().filter(is_known).cloned().collect();
        let manifest =
            Manifest { id, at, partitions, store, log_id, progress, definitions, base, deltas };
        Ok(BuildOutcome::New(manifest))
    }

    /// Builds a full image of the shard, of which every chunk is written.
    async fn base(
        &self,
        shard: &mut RemoteShardExport,
        upload: &mut ChunkUpload,
    ) -> Result<Layers> {
        upload.write_all();
        let definition = self.newest()?;
        let (order, partitions) = (KeyOrder::of(definition), definition.partitions);
        let (memory_bytes, seed) =
            (self.parts.options.memory_bytes, self.parts.context.entropy.next_u64()?);
        let at = self.to.partition();
        let builder = ImageBuilder::new(&self.definitions, at, partitions, seed, memory_bytes)?;
        write_base(shard, builder, upload, order, (at, partitions)).await
    }

    /// Builds a delta with the changes since a snapshot, over its layers; builds a full image if
    /// there are too many changes, or they cannot be determined.
    async fn delta(
        &self,
        shard: &mut RemoteShardExport,
        before: Manifest,
        upload: &mut ChunkUpload,
    ) -> Result<Layers> {
        let state = shard.state().await?;
        let keys_max =
            (before.base.documents / FOLD_SHARE).saturating_sub(before.delta_documents());
        let is_dropped = self.drop_all_count(&before) < state.state.drop_all_count;
        let is_too_much = keys_max == 0 || before.deltas.len() >= SNAPSHOT_DELTAS_MAX;
        let keys = match is_dropped || is_too_much {
            true => None,
            false => self.keys_changed_since(shard, &before, &state, keys_max).await?,
        };
        let Some(keys) = keys else { return self.base(shard, upload).await };
        let order = KeyOrder::of(self.newest()?);
        let keys: Vec<_> = keys.into_iter().collect();
        let state = ImageState::of_shard(&state);
        let delta = write_delta(shard, &keys, &state, upload, order).await?;
        let mut deltas = before.deltas;
        deltas.push(delta);
        Ok(Layers { state, base: before.base, deltas })
    }

    /// Returns how often all documents had been dropped at a snapshot.
    fn drop_all_count(&self, before: &Manifest) -> u32 {
        before.definitions.last().map_or(0, |definition| definition.drop_all_count)
    }

    /// Returns the keys of the documents changed since a snapshot, in the shard's key form; `None`
    /// if a full image is needed.
    async fn keys_changed_since(
        &self,
        shard: &RemoteShardExport,
        before: &Manifest,
        state: &RestoredState,
        keys_max: u64,
    ) -> Result<Option<BTreeSet<Vec<u8>>>> {
        let offsets = before.progress.offset_applied..state.state.offset_applied;
        let order = KeyOrder::of(self.newest()?);
        let keys_max = usize::try_from(keys_max).unwrap_or(usize::MAX);
        let log = follow_version(Arc::clone(&self.parts.context.log), self.newest()?);
        let range = RecordRange { log: &*log, at: shard.partition(), offsets };
        match changed_keys(range, shard.log_id(), keys_max).await {
            // Every replica skips a key that does not belong to the store.
            Ok(keys) => {
                Ok(keys
                    .map(|keys| keys.iter().flat_map(|key| order.stored(key.as_bytes())).collect()))
            }
            // The log was trimmed, so a full image is needed.
            Err(error) if error.code() == ErrorCode::TokenLost => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Stored chunks by their hashes.
type KnownChunks = Arc<HashMap<ChunkHash, ChunkId>>;

/// Returns whether the object store has lost or damaged an object.
pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NotFound | ErrorCode::Corrupt)
}

/// The layers of a manifest.
struct Layers {
    state: ImageState,
    base: BaseLayer,
    deltas: Vec<DeltaLayer>,
}

async fn write_base(
    shard: &mut RemoteShardExport,
    mut builder: ImageBuilder,
    upload: &mut ChunkUpload,
    order: KeyOrder,
    (at, partitions): (PartitionRef, PartitionCount),
) -> Result<Layers> {
    let restored = builder.take_shard(shard, order).await?;
    if (restored.state.partition, restored.state.partitions) != (at, partitions) {
        return Err(Error::corrupt("the replicator sent the shard of another partition"));
    }
    let state = ImageState::of_shard(&restored);
    let base = store_image(builder, &state, upload)?;
    Ok(Layers { state, base, deltas: Vec::new() })
}

/// Writes an image with this state.
fn store_image(
    builder: ImageBuilder,
    state: &ImageState,
    upload: &mut ChunkUpload,
) -> Result<BaseLayer> {
    let runtime = Handle::current();
    let (documents, chunks) = block_in_place(|| {
        let mut image = ImageUpload::new(upload, runtime);
        let built = builder.write(state, &mut image)?;
        Ok::<_, Error>((built.documents, image.finish()?))
    })?;
    Ok(BaseLayer { progress: Progress::from(&state.state), documents, chunks })
}

/// Publishes an image as the first snapshot of its partition, for a store with this name and these
/// definitions, the newest one last.
pub(crate) async fn publish_first(
    parts: &SnapshotParts,
    builder: ImageBuilder,
    state: &ImageState,
    store: &str,
    definitions: Vec<Definition>,
) -> Result<Manifest> {
    let PartitionState { partition: at, partitions, log_id, .. } = state.state;
    let log_id = log_id.ok_or_else(|| Error::internal("the snapshot has no log id"))?;
    let (snapshots, id) = (parts.snapshots.partition(at), parts.context.entropy.next_u64()?);
    let mut upload = ChunkUpload::new(snapshots.clone(), id, Arc::default());
    let base = store_image(builder, state, &mut upload);
    let base = upload.end(base).await?;
    let (store, progress, deltas) = (store.to_owned(), base.progress, Vec::new());
    let manifest =
        Manifest { id, at, partitions, store, log_id, progress, definitions, base, deltas };
    snapshots.publish(&manifest).await?;
    Ok(manifest)
}

/// Writes a delta with the rows of these ascending keys, and the state at their position.
async fn write_delta(
    shard: &mut RemoteShardExport,
    keys: &[Vec<u8>],
    state: &ImageState,
    upload: &mut ChunkUpload,
    order: KeyOrder,
) -> Result<DeltaLayer> {
    let mut delta = Delta { order, blocks: DeltaBlocks::default(), written: 0, deleted: 0 };
    let (mut rest, mut rows) = (keys, Vec::new());
    while !rest.is_empty() {
        let (answered, block) = shard.rows_of(rest).await?;
        for full in delta.take(&rest[..answered], &block)? {
            rows.push(upload.put(full).await?);
        }
        rest = &rest[answered..];
    }
    if let Some(last) = delta.blocks.take() {
        rows.push(upload.put(last).await?);
    }
    let mut state_chunks = Vec::new();
    for chunk in state.encode()?.chunks(SNAPSHOT_CHUNK_BYTES) {
        state_chunks.push(upload.put(chunk.to_vec().into()).await?);
    }
    let Delta { written, deleted, .. } = delta;
    let progress = Progress::from(&state.state);
    Ok(DeltaLayer { progress, written, deleted, rows, state: state_chunks })
}

/// The rows of a delta under construction.
struct Delta {
    order: KeyOrder,
    blocks: DeltaBlocks,
    written: u64,
    deleted: u64,
}

impl Delta {
    /// Adds a shard's answer about these keys: rows in the order of the keys, and none for absent
    /// documents. Returns the chunks that are full.
    fn take(&mut self, keys: &[Vec<u8>], block: &[u8]) -> Result<Vec<Bytes>> {
        let (mut keys, mut full) = (keys.iter(), Vec::new());
        for row in block_rows(block) {
            let (key, row) = row?;
            loop {
                let requested_key = keys.next().ok_or_else(|| {
                    Error::corrupt("the replicator sent rows that were not requested")
                })?;
                let is_it = requested_key == key;
                full.extend(self.push(requested_key, is_it.then_some(row))?);
                if is_it {
                    break;
                }
            }
        }
        for key in keys {
            full.extend(self.push(key, None)?);
        }
        Ok(full)
    }

    fn push(&mut self, stored: &[u8], row: Option<&[u8]>) -> Result<Option<Bytes>> {
        match row {
            Some(_) => self.written += 1,
            None => self.deleted += 1,
        }
        Ok(self.blocks.push(self.order.identity(stored)?.as_bytes(), row))
    }
}
