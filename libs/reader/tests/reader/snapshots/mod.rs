//! Snapshots of a world's partitions as a builder would write them: folded from the log, in small
//! chunks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{PartitionState, Record, RowLookup};
use forebay_core::key::Key;
use forebay_core::replica_state::Progress;
use forebay_core::schema_set::SchemaSet;
use forebay_index::ImageSink;
use forebay_log::ReadLimit;
use forebay_snapshot::{
    BaseLayer, ChunkId, DeltaBlocks, DeltaLayer, ImageBuilder, ImageState, Manifest,
    PartitionSnapshots, SnapshotStore,
};
use forebay_testkit::objects::TestObjects;
use forebay_wire::entry::decode_entry;
use object_store::path::Path;

use crate::world::{World, at};

/// Bytes of a chunk in these tests.
const CHUNK: usize = 16 * 1024;

/// The folder of the snapshots.
pub const FOLDER: &str = "snapshots";

/// Rows by key; `None` for a deleted row.
type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The state of a partition at one offset.
#[derive(Clone)]
pub struct PartitionFold {
    pub state: PartitionState,
    append_time: Option<Timestamp>,
    rows: Rows,
    /// Changes since the last published layer.
    changed: Rows,
}

struct FoldRows<'r>(&'r Rows);

impl RowLookup for FoldRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.0.get(key).and_then(Option::as_deref).map(Cow::from))
    }
}

impl PartitionFold {
    pub fn empty(world: &World, partition: u32) -> Self {
        let state = PartitionState::new(at(partition), world.definition.partitions);
        let (rows, changed) = (Rows::new(), Rows::new());
        Self { state, append_time: None, rows, changed }
    }

    /// Folds the log to its end.
    pub async fn go_on(&mut self, world: &World) {
        let schemas = SchemaSet::new([SchemaAt::of(world.definition.clone())]).unwrap();
        loop {
            let limit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
            let from = self.state.offset_applied;
            let read = world.log.read(self.state.partition, from, limit).await.unwrap();
            if read.records.is_empty() {
                return;
            }
            for record in read.records {
                let (offset, append_time) = (record.offset, record.append_time);
                let record = Record { offset, append_time, entry: decode_entry(&record.entry) };
                let effects = self.state.apply(record, &FoldRows(&self.rows), &schemas).unwrap();
                self.append_time = Some(append_time);
                for (key, row) in effects.writes {
                    self.rows.insert(key.as_bytes().to_vec(), row.clone());
                    self.changed.insert(key.as_bytes().to_vec(), row);
                }
            }
        }
    }

    fn image_state(&self) -> ImageState {
        let (state, append_time) = (self.state.clone(), self.append_time);
        ImageState { state, append_time, clock_error_us: None, opened: None }
    }
}

/// The snapshot store of a world.
pub struct WorldSnapshots {
    pub objects: Arc<TestObjects>,
    pub store: SnapshotStore,
}

impl WorldSnapshots {
    pub fn new() -> Self {
        let objects = Arc::new(TestObjects::default());
        let store = SnapshotStore::of(objects.clone(), Path::from(FOLDER));
        Self { objects, store }
    }

    pub fn of(&self, partition: u32) -> PartitionSnapshots {
        self.store.partition(at(partition))
    }

    /// Publishes a snapshot that is one image.
    pub async fn publish(&self, world: &World, id: u64, fold: &mut PartitionFold) -> Manifest {
        let base = self.image(world, id, fold).await;
        self.publish_layers(world, id, fold, base, Vec::new()).await
    }

    /// Publishes a snapshot that consists of another one and the changes since.
    pub async fn publish_over(
        &self,
        world: &World,
        id: u64,
        fold: &mut PartitionFold,
        before: &Manifest,
    ) -> Manifest {
        let to = self.of(fold.state.partition.partition.0);
        let (mut blocks, mut chunks) = (DeltaBlocks::default(), Vec::new());
        for (key, row) in &fold.changed {
            chunks.extend(blocks.push(key, row.as_deref()));
        }
        chunks.extend(blocks.take());
        let mut rows = Vec::new();
        for chunk in chunks {
            rows.push(put_chunk(&to, id, chunk.to_vec()).await);
        }
        let mut state = Vec::new();
        for chunk in fold.image_state().encode().unwrap().chunks(CHUNK) {
            state.push(put_chunk(&to, id, chunk.to_vec()).await);
        }
        let deleted = fold.changed.values().filter(|row| row.is_none()).count() as u64;
        let written_rows = fold.changed.len() as u64 - deleted;
        let progress = Progress::from(&fold.state);
        let mut deltas = before.deltas.clone();
        deltas.push(DeltaLayer { progress, written: written_rows, deleted, rows, state });
        self.publish_layers(world, id, fold, before.base.clone(), deltas).await
    }

    async fn publish_layers(
        &self,
        world: &World,
        id: u64,
        fold: &mut PartitionFold,
        base: BaseLayer,
        deltas: Vec<DeltaLayer>,
    ) -> Manifest {
        fold.changed.clear();
        let manifest = Manifest {
            id,
            at: fold.state.partition,
            partitions: fold.state.partitions,
            store: "users".to_owned(),
            log_id: fold.state.log_id.unwrap(),
            progress: Progress::from(&fold.state),
            definitions: vec![world.definition.clone()],
            base,
            deltas,
        };
        self.of(manifest.at.partition.0).publish(&manifest).await.unwrap();
        manifest
    }

    async fn image(&self, world: &World, id: u64, fold: &PartitionFold) -> BaseLayer {
        let PartitionState { partition: at, partitions, .. } = fold.state;
        let definitions = [world.definition.clone()];
        let mut builder = ImageBuilder::new(&definitions, at, partitions, 5, 1 << 30).unwrap();
        let rows = fold.rows.iter().filter(|(_, row)| row.is_some());
        let writes: Vec<_> =
            rows.map(|(key, row)| (Key::from_identity_bytes(key), row.clone())).collect();
        writes.chunks(1_000).for_each(|writes| builder.add(writes.to_vec()).unwrap());
        let mut image = MemoryImage::default();
        let image_facts = builder.write(&fold.image_state(), &mut image).unwrap();
        let mut chunks = Vec::new();
        for chunk in image.0.chunks(CHUNK) {
            chunks.push(put_chunk(&self.of(at.partition.0), id, chunk.to_vec()).await);
        }
        let progress = Progress::from(&fold.state);
        BaseLayer { progress, documents: image_facts.documents, chunks }
    }
}

async fn put_chunk(snapshots: &PartitionSnapshots, id: u64, bytes: Vec<u8>) -> ChunkId {
    let chunk = ChunkId::of(&bytes, id);
    snapshots.put_chunk(chunk, bytes.into()).await.unwrap();
    chunk
}

/// An in-memory image.
#[derive(Default)]
struct MemoryImage(Vec<u8>);

impl ImageSink for MemoryImage {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        self.0.resize(self.0.len().max(to), 0);
        self.0[from..to].copy_from_slice(bytes);
        Ok(())
    }
}
