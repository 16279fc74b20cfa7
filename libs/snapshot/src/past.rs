//! A partition as it was at one moment: a snapshot, and the log behind it folded up to there.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{Applied, PartitionState, Record};
use forebay_core::id::{DocumentVersion, LogId, Offset, PartitionCount, PartitionRef, Position};
use forebay_core::key::Key;
use forebay_core::layout::Layout;
use forebay_core::row::set_row_version;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_index::{Image, Index, MappedFile, PartitionWriter, SchemaSet};
use forebay_wire::entry::decode_entry;
use futures::stream::TryStreamExt;

use crate::backup::LogSegment;
use crate::blocking::in_place;
use crate::build::ImageBuilder;
use crate::delta::{WRITES_AT_ONCE, delta_writes};
use crate::image_state::ImageState;
use crate::loaded::LoadBase;
use crate::log_segment::kept_records;
use crate::manifest::{DeltaLayer, Manifest};
use crate::partition::PartitionSnapshots;
use crate::restore_chain::RestoreTarget;

/// What the log of a new store begins with, and what its first snapshot is of.
#[derive(Clone, Copy, Debug)]
pub struct NewLog {
    /// The partition of the new store.
    pub at: PartitionRef,
    /// The log's id.
    pub log_id: LogId,
    /// Position of the last entry that the snapshot has: there are no documents in those.
    pub position: Position,
    /// The first offset that it does not have.
    pub offset_applied: Offset,
}

impl NewLog {
    /// A position whose document version is below those of all that is ever written behind it.
    fn first(&self) -> Position {
        Position { place: 1, ..self.position }
    }

    /// That version, in a store whose documents have never moved.
    pub(crate) fn first_version(&self) -> DocumentVersion {
        self.first().document_version()
    }

    /// What a partition of this definition begins with, before any document is in it, at this time.
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

    /// The state that the log begins with, of a partition that nobody has written to.
    pub(crate) fn state(&self, partitions: PartitionCount) -> PartitionState {
        PartitionState {
            log_id: Some(self.log_id),
            offset_applied: self.offset_applied,
            position: self.position,
            ..PartitionState::new(self.at, partitions)
        }
    }
}

/// A partition of a store as it was. The image that it begins with is on disk, what was written
/// since is in memory.
pub struct PastPartition {
    index: Index,
    writer: PartitionWriter,
    schemas: SchemaSet,
    state: ImageState,
}

impl PastPartition {
    /// What a snapshot is, of a store of these definitions. Its image is fetched into a file
    /// without a name in this folder.
    ///
    /// # Errors
    /// Those of the object store and of the disk; `Corrupt`; `LimitExceeded` without memory.
    pub async fn begin(
        from: &PartitionSnapshots,
        manifest: &Manifest,
        definitions: &[Definition],
        scratch: &Path,
        memory_bytes: u64,
    ) -> Result<Self> {
        let image = fetch(from, manifest, scratch).await?;
        let progress = image.about().progress;
        if progress != manifest.base.progress {
            return Err(Error::corrupt("the image of a snapshot is of another position"));
        }
        let Manifest { at, partitions, .. } = *manifest;
        let state = ImageState::decode(at, partitions, progress, image.state())?;
        let mut past = Self::of_image(&image, state, definitions, memory_bytes)?;
        for delta in &manifest.deltas {
            past.lay_over(from, manifest, delta).await?;
        }
        if past.state.state.log_id != Some(manifest.log_id) {
            return Err(Error::corrupt("a snapshot whose state is of another log"));
        }
        Ok(past)
    }

    /// What an image and the state beside it are, of a store of these definitions.
    ///
    /// # Errors
    /// `Corrupt`; `InvalidArgument` without a definition; `LimitExceeded` without memory.
    pub fn of_image(
        image: &Image,
        state: ImageState,
        definitions: &[Definition],
        memory_bytes: u64,
    ) -> Result<Self> {
        let schemas: Vec<_> = definitions.iter().map(schema_of).collect();
        let partition = state.state.partition.partition;
        let index = Index::new(schemas.clone(), [partition], 0)?;
        index.limit_memory(memory_bytes);
        let mut writer = index.writer(partition)?;
        writer.start_rebuild_of(image, &state.state)?;
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
            in_place(|| self.lay_chunk(&chunk))?;
        }
        self.state = from.delta_state(manifest, delta).await?;
        self.writer.apply(&Applied::default(), &self.state.state)
    }

    fn lay_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        delta_writes(chunk).try_for_each(|writes| {
            let applied = Applied { writes: writes?, ..Applied::default() };
            self.writer.apply(&applied, &self.state.state)
        })
    }

    /// Where it stands.
    pub fn state(&self) -> &PartitionState {
        &self.state.state
    }

    /// Visits the identity bytes and the row of every document, some of which may have expired.
    ///
    /// # Errors
    /// Those of `visit`; `Corrupt` where the image is damaged.
    pub fn visit_rows(&self, visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.writer.visit_rows(visit)
    }

    /// Folds the records of a chunk, but for those behind the end; answers whether there were any.
    ///
    /// # Errors
    /// `Corrupt` where the records are not those that come next; `UpgradeNeeded` for those of a
    /// newer build; `LimitExceeded` without memory.
    pub fn go_on(
        &mut self,
        segment: &LogSegment,
        records: &[u8],
        target: RestoreTarget,
    ) -> Result<bool> {
        for record in kept_records(records) {
            let record = record?;
            if !segment.offsets.contains(&record.offset) {
                return Err(Error::corrupt("a backup has records out of their place"));
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
        let applied = self.state.state.apply(record, &self.writer, &self.schemas);
        let unknown = |version| {
            let message = "which it does not define";
            Error::corrupt(format!("a backup has entries of schema version {version}, {message}"))
        };
        let applied = applied.map_err(|blocked| blocked.into_error(unknown))?;
        if applied.skipped.is_none() {
            self.state.append_time = Some(append_time);
        }
        self.writer.apply(&applied, &self.state.state)
    }

    /// Adds all documents to the image of a new store; answers the state that it begins with. Who
    /// has written what to the old store is forgotten: nobody repeats that here.
    ///
    /// # Errors
    /// Those of [`ImageBuilder::add`].
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
        let ImageState { state: past, append_time, .. } = self.state;
        drop(self.index);
        let state = PartitionState {
            partition_time: past.partition_time,
            schema_version: past.schema_version,
            drop_all_count: past.drop_all_count,
            ..log.state(past.partitions)
        };
        Ok(ImageState::unopened(state, append_time))
    }
}

fn schema_of(definition: &Definition) -> Arc<SchemaAt> {
    let layout = Layout::of(definition);
    Arc::new(SchemaAt { definition: definition.clone(), layout })
}

async fn fetch(from: &PartitionSnapshots, manifest: &Manifest, scratch: &Path) -> Result<Image> {
    let mut file = tempfile::tempfile_in(scratch).map_err(|error| refused(&error))?;
    let mut chunks = Box::pin(from.chunks(manifest.base.chunks.clone()));
    while let Some(chunk) = chunks.try_next().await? {
        in_place(|| file.write_all(&chunk)).map_err(|error| refused(&error))?;
    }
    Image::open(Arc::new(MappedFile::from(file)))
}

fn refused(error: &io::Error) -> Error {
    let message = format!("keeping an image while it is restored: {error}; look at the disk");
    match error.kind() {
        io::ErrorKind::StorageFull => Error::new(forebay_core::ErrorCode::LimitExceeded, message),
        _ => Error::unavailable(message),
    }
}
