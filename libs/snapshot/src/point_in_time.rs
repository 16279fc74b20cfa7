//! A partition at a point in time: a snapshot, and the log after it folded up to that time.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState, Record};
use forebay_core::id::{DocumentVersion, LogId, Offset, PartitionCount, PartitionRef, Position};
use forebay_core::key::Key;
use forebay_core::row::set_row_version;
use forebay_core::schema::Definition;
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};
use forebay_index::{Image, Index, MappedFile, PartitionWriter};
use forebay_tasks::block_in_place;
use forebay_wire::entry::decode_entry;
use futures::stream::TryStreamExt;

use crate::backup::LogSegment;
use crate::build::ImageBuilder;
use crate::delta::{WRITES_AT_ONCE, delta_writes};
use crate::image_state::ImageState;
use crate::loaded_partition::LoadBase;
use crate::log_segment::kept_records;
use crate::manifest::{DeltaLayer, Manifest};
use crate::partition::PartitionSnapshots;
use crate::restore_chain::RestoreTarget;

/// Start of a new store's log, and of its first snapshot.
#[derive(Clone, Copy, Debug)]
pub struct NewLog {
    /// Partition of the new store.
    pub at: PartitionRef,
    /// Id of the log.
    pub log_id: LogId,
    /// Position of the last entry that the snapshot covers; the entries up to there contain no
    /// documents.
    pub position: Position,
    /// First offset that the snapshot does not cover.
    pub offset_applied: Offset,
}

impl NewLog {
    /// Returns a position whose document version is below the versions of all later writes.
    fn first(&self) -> Position {
        Position { index_in_entry: 1, ..self.position }
    }

    /// Returns this version, for a store whose documents were never repartitioned.
    pub(crate) fn first_version(&self) -> DocumentVersion {
        self.first().document_version()
    }

    /// Returns the state of a partition of this definition before its first document, at this time.
    pub fn begins(&self, definition: &Definition, time: Timestamp) -> LoadBase {
        let state = PartitionState {
            partition_time: time,
            schema_version: definition.version,
            drop_all_count: definition.drop_all_count,
            ..self.state(definition.partitions)
        };
        LoadBase {
            state: ImageState::unopened(state, Some(time)),
            version: definition.document_version(self.first()),
        }
    }

    /// Returns the initial state of the log, for a partition without writes.
    pub(crate) fn state(&self, partitions: PartitionCount) -> PartitionState {
        PartitionState {
            log_id: Some(self.log_id),
            offset_applied: self.offset_applied,
            position: self.position,
            ..PartitionState::new(self.at, partitions)
        }
    }
}

/// A partition of a store at a point in time. The initial image is on disk; later writes are in
/// memory.
pub struct PointInTimePartition {
    index: Index,
    writer: PartitionWriter,
    schemas: SchemaSet,
    state: ImageState,
}

impl PointInTimePartition {
    /// Loads a snapshot of a store with these definitions. The image is downloaded to an unnamed
    /// file in `scratch`.
    ///
    /// # Errors
    /// The errors of the object store and of the disk; `Corrupt`; `LimitExceeded` if memory is
    /// exhausted.
    pub async fn begin(
        from: &PartitionSnapshots,
        manifest: &Manifest,
        definitions: &[Definition],
        scratch: &Path,
        memory_bytes: u64,
    ) -> Result<Self> {
        let image = fetch(from, manifest, scratch).await?;
        let progress = image.metadata().progress;
        if progress != manifest.base.progress {
            return Err(Error::corrupt("the image of a snapshot is at another position"));
        }
        let Manifest { at, partitions, .. } = *manifest;
        let state = ImageState::decode(at, partitions, progress, image.state())?;
        let mut point_in_time = Self::of_image(&image, state, definitions, memory_bytes)?;
        for delta in &manifest.deltas {
            point_in_time.lay_over(from, manifest, delta).await?;
        }
        if point_in_time.state.state.log_id != Some(manifest.log_id) {
            return Err(Error::corrupt("the state of a snapshot is of another log"));
        }
        Ok(point_in_time)
    }

    /// Loads an image and its state, for a store with these definitions.
    ///
    /// # Errors
    /// `Corrupt`; `InvalidArgument` without a definition; `LimitExceeded` if memory is exhausted.
    pub fn of_image(
        image: &Image,
        state: ImageState,
        definitions: &[Definition],
        memory_bytes: u64,
    ) -> Result<Self> {
        let schemas: Vec<_> = definitions.iter().cloned().map(SchemaAt::of).collect();
        let partition = state.state.partition.partition;
        let index = Index::new(schemas.clone(), [partition], 0)?;
        index.limit_memory(memory_bytes);
        let mut writer = index.writer(partition)?;
        writer.start_rebuild_from_image(image, &state.state)?;
        Ok(Self { index, writer, schemas: SchemaSet::new(schemas)?, state })
    }

    async fn lay_over(
        &mut self,
        from: &PartitionSnapshots,
        manifest: &Manifest,
        delta: &DeltaLayer,
    ) -> Result<()> {
        let mut chunks = Box::pin(from.chunks(delta.rows.clone()));
        while let Some(chunk) = chunks.try_next().await? {
            block_in_place(|| self.lay_chunk(&chunk))?;
        }
        self.state = from.delta_state(manifest, delta).await?;
        self.writer.apply(&FoldEffects::default(), &self.state.state)
    }

    fn lay_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        delta_writes(chunk).try_for_each(|writes| {
            let effects = FoldEffects { writes: writes?, ..FoldEffects::default() };
            self.writer.apply(&effects, &self.state.state)
        })
    }

    /// Returns the current state.
    pub fn state(&self) -> &PartitionState {
        &self.state.state
    }

    /// Visits the identity bytes and the row of every document, including expired ones.
    ///
    /// # Errors
    /// The errors of `visit`; `Corrupt` if the image is damaged.
    pub fn visit_rows(&self, visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.writer.visit_rows(visit)
    }

    /// Folds the records of a chunk up to the target; returns whether the chunk has records after
    /// the target.
    ///
    /// # Errors
    /// `Corrupt` if the records are not the next ones; `UpgradeNeeded` for records of a newer
    /// build; `LimitExceeded` if memory is exhausted.
    pub fn go_on(
        &mut self,
        segment: &LogSegment,
        records: &[u8],
        target: RestoreTarget,
    ) -> Result<bool> {
        for record in kept_records(records) {
            let record = record?;
            if !segment.offsets.contains(&record.offset) {
                return Err(Error::corrupt("the records of a backup are out of place"));
            }
            if target.is_passed_by(&record) {
                return Ok(true);
            }
            if record.offset >= self.state.state.offset_applied {
                let (offset, append_time) = (record.offset, record.append_time);
                self.apply(Record { offset, append_time, entry: decode_entry(record.entry) })?;
            }
        }
        Ok(false)
    }

    fn apply(&mut self, record: Record) -> Result<()> {
        let append_time = record.append_time;
        let effects = self.state.state.apply(record, &self.writer, &self.schemas);
        let unknown = |version| {
            let message = "but no definition of that version";
            Error::corrupt(format!("a backup has entries of schema version {version}, {message}"))
        };
        let effects = effects.map_err(|error| error.into_error(unknown))?;
        if effects.skipped.is_none() {
            self.state.append_time = Some(append_time);
        }
        self.writer.apply(&effects, &self.state.state)
    }

    /// Adds all documents to the image of a new store; returns the initial state of that store. The
    /// state drops the idempotency keys of the old store, because no client retries its writes in
    /// the new one.
    ///
    /// # Errors
    /// The errors of [`ImageBuilder::add`].
    pub fn restore(self, image: &mut ImageBuilder, log: NewLog) -> Result<ImageState> {
        let version = log.first_version();
        let mut writes = Vec::with_capacity(WRITES_AT_ONCE);
        self.writer.visit_rows(|key, row| {
            let mut row = row.to_vec();
            set_row_version(&mut row, version);
            writes.push((Key::from_identity_bytes(key), Some(row)));
            match writes.len() < WRITES_AT_ONCE {
                true => Ok(()),
                false => image.add(std::mem::take(&mut writes)),
            }
        })?;
        image.add(writes)?;
        let ImageState { state: past_state, append_time, .. } = self.state;
        drop(self.index);
        let state = PartitionState {
            partition_time: past_state.partition_time,
            schema_version: past_state.schema_version,
            drop_all_count: past_state.drop_all_count,
            ..log.state(past_state.partitions)
        };
        Ok(ImageState::unopened(state, append_time))
    }
}

async fn fetch(from: &PartitionSnapshots, manifest: &Manifest, scratch: &Path) -> Result<Image> {
    let mut file = tempfile::tempfile_in(scratch).map_err(|error| disk_error(&error))?;
    let mut chunks = Box::pin(from.chunks(manifest.base.chunks.clone()));
    while let Some(chunk) = chunks.try_next().await? {
        block_in_place(|| file.write_all(&chunk)).map_err(|error| disk_error(&error))?;
    }
    Image::open(Arc::new(MappedFile::from(file)))
}

fn disk_error(error: &io::Error) -> Error {
    Error::of_disk("an image could not be stored during the restore", error)
}
