//! Manifests: the position of a snapshot, and the chunks that make it up. Format:
//! `proto/spec/snapshot.md`. Decoders accept any bytes.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{
    Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
    StoreId,
};
use forebay_core::replica_state::Progress;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_wire::v1;

use crate::chunk::ChunkId;
use crate::frame::Frame;

const FRAME: Frame =
    Frame { magic: u32::from_le_bytes(*b"FBSN"), description: "the manifest of a snapshot" };

/// Name of a snapshot's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName {
    /// Id of the log.
    pub log_id: LogId,
    /// Epoch of the position.
    pub epoch: Epoch,
    /// First offset that the snapshot does not contain.
    pub offset_applied: Offset,
    /// Id of the snapshot.
    pub id: u64,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log_id, epoch, offset_applied, id } = self;
        write!(f, "{:016x}-{:010}-{:020}-{id:016x}", log_id.0, epoch.0, offset_applied.0)
    }
}

impl FromStr for SnapshotName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let parse = || {
            let mut parts = name.splitn(4, '-');
            let log_id = LogId(u64::from_str_radix(parts.next()?, 16).ok()?);
            let epoch = Epoch(parts.next()?.parse().ok()?);
            let offset_applied = Offset(parts.next()?.parse().ok()?);
            let id = u64::from_str_radix(parts.next()?, 16).ok()?;
            // Every snapshot has exactly one name.
            Some(Self { log_id, epoch, offset_applied, id }).filter(|it| it.to_string() == name)
        };
        parse().ok_or_else(|| {
            Error::invalid_argument(format!("the name `{name}` is not the name of a snapshot"))
        })
    }
}

/// The image of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseLayer {
    /// Progress of the partition in this layer.
    pub progress: Progress,
    /// Number of documents.
    pub documents: u64,
    /// Bytes of the image: all chunks but the last have the same length.
    pub chunks: Vec<ChunkId>,
}

impl BaseLayer {
    /// Returns the length of the image in bytes.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum()
    }
}

/// Changes since the layer below.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaLayer {
    /// Progress of the partition in this layer.
    pub progress: Progress,
    /// Number of documents that the layer replaces or adds.
    pub written: u64,
    /// Number of documents that the layer deletes.
    pub deleted: u64,
    /// Rows of the changed documents.
    pub rows: Vec<ChunkId>,
    /// State of the fold in this layer.
    pub state: Vec<ChunkId>,
}

/// Manifest of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Id of the snapshot.
    pub id: u64,
    /// Partition of the snapshot.
    pub at: PartitionRef,
    /// Number of partitions of the store.
    pub partitions: PartitionCount,
    /// Name of the store.
    pub store: String,
    /// Id of the log.
    pub log_id: LogId,
    /// Progress of the snapshot.
    pub progress: Progress,
    /// Definitions that the rows refer to, by ascending version.
    pub definitions: Vec<Definition>,
    /// The image.
    pub base: BaseLayer,
    /// Later changes, the oldest first.
    pub deltas: Vec<DeltaLayer>,
}

impl Manifest {
    /// Returns the name of the snapshot.
    pub fn name(&self) -> SnapshotName {
        let Progress { position, offset_applied, .. } = self.progress;
        SnapshotName { log_id: self.log_id, epoch: position.epoch, offset_applied, id: self.id }
    }

    /// Returns all chunks of the snapshot.
    pub fn chunks(&self) -> impl Iterator<Item = &ChunkId> {
        let deltas = self.deltas.iter().flat_map(|delta| delta.rows.iter().chain(&delta.state));
        self.base.chunks.iter().chain(deltas)
    }

    /// Returns the number of documents in the deltas.
    pub fn delta_documents(&self) -> u64 {
        self.deltas.iter().map(|delta| delta.written + delta.deleted).sum()
    }

    /// Encodes the manifest.
    ///
    /// # Errors
    /// `LimitExceeded` if the manifest is too large to be read.
    pub fn encode(&self) -> Result<Bytes> {
        FRAME.encode(&v1::SnapshotManifest::from(self))
    }

    /// Decodes a manifest.
    ///
    /// # Errors
    /// `Unsupported` for a format that this build does not know; `Corrupt` for damage.
    pub fn decode(object: &[u8]) -> Result<Self> {
        Self::try_from(FRAME.decode::<v1::SnapshotManifest>(object)?)
    }

    fn check(&self) -> Result<()> {
        let layers = std::iter::once(&self.base.progress)
            .chain(self.deltas.iter().map(|delta| &delta.progress))
            .chain([&self.progress]);
        let offsets: Vec<_> = layers.map(|progress| progress.offset_applied).collect();
        if !offsets.is_sorted() {
            return Err(damaged("the layers are not in ascending order"));
        }
        let versions: Vec<_> =
            self.definitions.iter().map(|definition| definition.version).collect();
        let is_ascending =
            versions.iter().zip(versions.iter().skip(1)).all(|(one, next)| one < next);
        let is_of_store =
            self.definitions.iter().all(|definition| definition.store == self.at.store);
        if !is_ascending || !is_of_store {
            return Err(damaged("the definitions are of another store, or out of order"));
        }
        if self.at.partition.0 >= self.partitions.0 {
            return Err(damaged("the store does not have the partition"));
        }
        let (last, others) =
            self.base.chunks.split_last().ok_or_else(|| damaged("the image is missing"))?;
        let length = others.first().unwrap_or(last).bytes;
        if others.iter().any(|chunk| chunk.bytes != length) || last.bytes > length {
            return Err(damaged("the chunks have different lengths"));
        }
        Ok(())
    }
}

fn damaged(problem: &str) -> Error {
    FRAME.damaged(problem)
}

pub(crate) fn to_wire(progress: &Progress) -> v1::SnapshotPosition {
    v1::SnapshotPosition {
        position: Some(progress.position.into()),
        offset_applied: progress.offset_applied.0,
        partition_time_us: progress.partition_time.as_micros(),
        schema_version: progress.schema_version.0,
    }
}

pub(crate) fn of_wire(wire: Option<&v1::SnapshotPosition>) -> Result<Progress> {
    let wire = wire.ok_or_else(|| damaged("the progress of a layer is missing"))?;
    let position = wire.position.ok_or_else(|| damaged("the position of a layer is missing"))?;
    Ok(Progress {
        position: Position::try_from(position)?,
        offset_applied: Offset(wire.offset_applied),
        partition_time: Timestamp::from_micros(wire.partition_time_us),
        schema_version: SchemaVersion(wire.schema_version),
    })
}

fn chunks_of(wire: &[v1::SnapshotChunk]) -> Result<Vec<ChunkId>> {
    wire.iter().map(ChunkId::try_from).collect()
}

fn chunks_to(chunks: &[ChunkId]) -> Vec<v1::SnapshotChunk> {
    chunks.iter().map(|chunk| (*chunk).into()).collect()
}

impl From<&Manifest> for v1::SnapshotManifest {
    fn from(manifest: &Manifest) -> Self {
        let Manifest { base, deltas, .. } = manifest;
        let delta = |delta: &DeltaLayer| v1::SnapshotDelta {
            at: Some(to_wire(&delta.progress)),
            written: delta.written,
            deleted: delta.deleted,
            rows: chunks_to(&delta.rows),
            state: chunks_to(&delta.state),
        };
        Self {
            snapshot_id: manifest.id,
            store_id: manifest.at.store.0,
            store: manifest.store.clone(),
            partition: manifest.at.partition.0,
            partitions: manifest.partitions.0,
            log_id: manifest.log_id.0,
            at: Some(to_wire(&manifest.progress)),
            definitions: manifest.definitions.iter().map(Into::into).collect(),
            base: Some(v1::SnapshotImage {
                at: Some(to_wire(&base.progress)),
                documents: base.documents,
                chunks: chunks_to(&base.chunks),
            }),
            deltas: deltas.iter().map(delta).collect(),
        }
    }
}

impl TryFrom<v1::SnapshotManifest> for Manifest {
    type Error = Error;

    fn try_from(wire: v1::SnapshotManifest) -> Result<Self> {
        let (store, partition) = (StoreId(wire.store_id), PartitionId(wire.partition));
        let base = wire.base.ok_or_else(|| damaged("the image is missing"))?;
        let delta = |delta: &v1::SnapshotDelta| {
            Ok(DeltaLayer {
                progress: of_wire(delta.at.as_ref())?,
                written: delta.written,
                deleted: delta.deleted,
                rows: chunks_of(&delta.rows)?,
                state: chunks_of(&delta.state)?,
            })
        };
        let definitions = wire.definitions.into_iter().map(Definition::try_from);
        let manifest = Self {
            id: wire.snapshot_id,
            at: PartitionRef { store, partition },
            partitions: PartitionCount(wire.partitions),
            store: wire.store,
            log_id: LogId(wire.log_id),
            progress: of_wire(wire.at.as_ref())?,
            definitions: definitions.collect::<Result<_>>()?,
            base: BaseLayer {
                progress: of_wire(base.at.as_ref())?,
                documents: base.documents,
                chunks: chunks_of(&base.chunks)?,
            },
            deltas: wire.deltas.iter().map(delta).collect::<Result<_>>()?,
        };
        manifest.check()?;
        Ok(manifest)
    }
}
