//! The index over all partitions that a process follows: the public entry to writers and readers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase, Progress, ReplicaState};
use forebay_core::schema_set::SchemaSet;
use forebay_core::value::FieldType;
use forebay_core::{Error, Result};

use crate::counters::{Counters, ReadCounts};
use crate::gather::{Conversion, GatherField, GatherPlan};
use crate::handle::FieldHandle;
use crate::header_words::Status;
use crate::inner::{Inner, Partition};
use crate::key::{DocumentKey, Identity, KeyShape, SeededHash};
use crate::memory::{reserved_for, shared_addresses_for};
use crate::memory_account::{MemoryAccount, MemoryUse};
use crate::number::Element;
use crate::reclaim::Reclaim;
use crate::resources::Resources;
use crate::scan::Scan;
use crate::shared_copy::{self, InitialSource, SharedCopyDirectory};
use crate::view::{ReadAt, View};
use crate::writer::PartitionWriter;
use crate::writer_state::WriterState;

/// The status of a partition: one consistent state, as one entry left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The partition's id.
    pub partition: PartitionId,
    /// Whether the partition may answer.
    pub phase: Phase,
    /// The entries that were applied.
    pub progress: Progress,
    /// The documents and bytes that the partition holds.
    pub usage: PartitionUsage,
    /// The writer's notes about the log.
    pub cursor: LogCursor,
}

/// A pull snapshot of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMetrics {
    /// Documents found and not found since the index was created.
    pub reads: ReadCounts,
    /// Memory use of the partitions that this process writes.
    pub memory: MemoryUse,
    /// The followed partitions, by id.
    pub partitions: Vec<PartitionStatus>,
}

impl IndexMetrics {
    /// Bytes of memory that all documents and their index take.
    pub fn memory_bytes(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.usage.memory_bytes).sum()
    }
}

/// The documents of one store that this process holds; cheap to clone, safe to share.
///
/// ```
/// use std::sync::PoisonError;
/// use forebay_core::catalog::SchemaAt;
/// use forebay_core::clock::Timestamp;
/// use forebay_core::id::StoreId;
/// use forebay_core::key::KeyType;
/// use forebay_core::schema::StoreSpec;
/// use forebay_core::value::FieldType;
/// use forebay_core::replica_state::Phase;
/// use forebay_index::{Index, ReadAt};
///
/// let float = FieldType::FLOAT32;
/// let definition = StoreSpec::documents("users", KeyType::String)
///     .partitions(1)
///     .field("score", float)
///     .define(StoreId(1))?;
/// let partitions: Vec<_> = definition.partitions.partitions().collect();
/// let index = Index::new([SchemaAt::of(definition)], partitions, 7)?;
/// let mut writer = index.writer(forebay_core::id::PartitionId(0))?;
/// writer.set_phase(Phase::Serving);
///
/// let score = index.field_as("score", float)?;
/// let view = index.view(ReadAt::new(Timestamp::from_micros(0)));
/// assert_eq!(view.get_f32(&score, "nobody", -1.0)?, -1.0);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) inner: Arc<Inner>,
}

impl Index {
    /// Creates an empty index of the store with these definitions, over the given partitions. All
    /// partitions start [`Bootstrapping`](Phase::Bootstrapping). `hash_seed` should be
    /// random in production.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition, with definitions of several stores, without a
    /// partition, or with a partition that the store does not have; `LimitExceeded` when the system
    /// has no address range for it.
    pub fn new(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash_seed: u64,
    ) -> Result<Self> {
        let followed: BTreeSet<_> = followed.into_iter().collect();
        Self::with_addresses(reserved_for(followed.len()), definitions, followed, hash_seed)
    }

    /// As [`Index::new`], with at most this many addresses for each partition.
    pub(crate) fn with_addresses(
        addresses: u64,
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash_seed: u64,
    ) -> Result<Self> {
        let (hash, account) = (SeededHash::new(hash_seed), Arc::new(MemoryAccount::new()));
        Self::build(definitions, followed, hash, account.clone(), None, |at| {
            Ok(Partition::private(at, WriterState::private(addresses, hash, &account)?))
        })
    }

    /// Creates an index that reads the shared copies of this directory, as their owners write them.
    /// `hash_seed` is for the copies that this process will start after it takes hold of them. Call
    /// [`Index::prepare`] afterwards, concurrently with the first reads.
    ///
    /// # Errors
    /// As [`Index::new`]; `NotFound` if there is no shared copy yet, see
    /// [`SharedCopyDirectory::is_made`]; `Unavailable`, `Unsupported`, `Corrupt` for a copy that
    /// cannot be read.
    pub fn open_shared(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash_seed: u64,
        directory: SharedCopyDirectory,
    ) -> Result<Self> {
        let (copy_directory, hash) = (directory.clone(), SeededHash::new(hash_seed));
        let account = Arc::new(MemoryAccount::new());
        Self::build(definitions, followed, hash, account, Some(copy_directory), |at| {
            Ok(Partition::from_source(at, InitialSource::shared_copy(&directory, at)?))
        })
    }

    /// As [`Index::open_shared`], for partitions whose readers begin with these: a shared copy, or
    /// an image until there is a shared copy ([`Index::switch_to_shared_copy`]).
    ///
    /// # Errors
    /// As [`Index::new`].
    pub fn open_from_sources(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        initial_sources: impl IntoIterator<Item = (PartitionId, InitialSource)>,
        hash_seed: u64,
        directory: SharedCopyDirectory,
    ) -> Result<Self> {
        let mut initial_sources: BTreeMap<_, _> = initial_sources.into_iter().collect();
        let followed: Vec<_> = initial_sources.keys().copied().collect();
        let (hash, account) = (SeededHash::new(hash_seed), Arc::new(MemoryAccount::new()));
        Self::build(definitions, followed, hash, account, Some(directory), |at| {
            let source = initial_sources
                .remove(&at.partition)
                .ok_or_else(|| Error::internal("a partition has no initial source"))?;
            Ok(Partition::from_source(at, source))
        })
    }

    fn build(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash: SeededHash,
        account: Arc<MemoryAccount>,
        shared_copies: Option<SharedCopyDirectory>,
        mut make: impl FnMut(PartitionRef) -> Result<Partition>,
    ) -> Result<Self> {
        let schemas = SchemaSet::new(definitions)?;
        let definition = &schemas.newest().definition;
        let (store, shape) = (definition.store, KeyShape::of(definition));
        let home = definition.versions.home();
        let count = definition.partitions.0;
        let followed: BTreeSet<_> = followed.into_iter().collect();
        let invalid =
            |message: String| Error::invalid_argument(message).with_store(&definition.name);
        let Some(last) = followed.last() else {
            return Err(invalid(
                "the filter names no partition; follow at least one partition".into(),
            ));
        };
        if last.0 >= count {
            let message = format!("the store has partitions 0 to {}", count - 1);
            return Err(invalid(message).with_partition(*last));
        }
        let partition = |partition: PartitionId| {
            let mut make_boxed = || make(PartitionRef { store, partition }).map(Box::new);
            followed.contains(&partition).then(&mut make_boxed).transpose()
        };
        let partitions = definition.partitions.partitions().map(partition);
        let partitions = partitions.collect::<Result<_>>()?;
        let reclaim = if shared_copies.is_none() { Reclaim::new() } else { Reclaim::unprepared() };
        Ok(Self {
            inner: Arc::new(Inner {
                store: home,
                shape,
                schemas,
                partitions,
                resources: Resources { reclaim, account, spill_dir: OnceLock::new() },
                counters: Counters::new(),
                hash,
                shared_copies,
            }),
        })
    }

    /// Creates the collector of an index over shared copies, which makes reads as cheap as they can
    /// be, and frees the memory of earlier copies. The first call in a process that has threads
    /// blocks for 10 ms or more; reads continue during the call.
    pub fn prepare(&self) {
        self.inner.resources.reclaim.prepare();
    }

    /// The definitions that the index knows.
    pub fn schemas(&self) -> &SchemaSet {
        &self.inner.schemas
    }

    /// The partitions that the index follows, by id.
    pub fn followed(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.inner.followed_ids()
    }

    /// Returns the partition that a key belongs to, followed or not.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is not of the store's key type, or whose partition key is
    /// missing or superfluous by the definition; `LimitExceeded` for a key that is too long.
    pub fn partition_of<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<PartitionId> {
        self.inner.shape.locate(&key.into(), &mut Identity::default())
    }

    /// Takes the writer of a partition.
    ///
    /// # Errors
    /// `InvalidArgument` while another handle of the writer exists, or if the partition is not
    /// followed.
    pub fn writer(&self, partition: PartitionId) -> Result<PartitionWriter> {
        PartitionWriter::take(self.inner.clone(), partition)
    }

    /// Makes this process the owner of a partition's shared copy: takes the writer, in whatever
    /// state the previous owner left it, and finishes the write that was in progress. Returns the
    /// state that the previous owner had reached, or `None` for a copy that starts empty (because
    /// there was none, or because it cannot be used). If the partition's readers began with an
    /// image and there is no shared copy yet, the call creates it.
    ///
    /// Only the one process that has the lock of the copy's directory may call this, once.
    ///
    /// # Errors
    /// `InvalidArgument` while another handle of the writer exists, if the partition is not
    /// followed, or in an index of the process's own memory; `NotFound`, `LimitExceeded`,
    /// `Unavailable`.
    pub fn acquire_writer(
        &self,
        partition: PartitionId,
    ) -> Result<(PartitionWriter, Option<ReplicaState>)> {
        let place = self.inner.followed_partition(partition)?;
        let directory = self.inner.shared_copies.as_ref().ok_or_else(|| {
            Error::invalid_argument("an index in the process's own memory has its writers already")
        })?;
        let partitions = self.inner.schemas.newest().definition.partitions;
        if let Some(hash) = place.hash {
            let addresses = shared_addresses_for(self.followed().count());
            shared_copy::make(directory, place.at.store, partition, hash, addresses)?;
        }
        let resumed = {
            let mut state = place.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let (writer, resumed) = shared_copy::acquire_writer(
                directory,
                place.at,
                partitions,
                self.inner.hash,
                place.hash,
            )?;
            writer.space().memory.charge_to(&self.inner.resources.account);
            *state = Some(writer);
            resumed
        };
        Ok((self.writer(partition)?, resumed))
    }

    /// Whether some partition refers to records in another version's memory: see
    /// [`PartitionWriter::start_rebuild_sharing_records`].
    pub fn shares_records(&self) -> bool {
        let _pin = self.inner.resources.reclaim.enter();
        self.inner.followed_ids().filter_map(|id| self.inner.partition(id)).any(|partition| {
            // SAFETY: the guard is held for as long as the space is in use.
            let space = unsafe { partition.header.load_space(&self.inner.resources.reclaim) };
            space.is_ok_and(|space| space.memory.donor_range().is_some())
        })
    }

    /// Switches the readers of a partition that began with an image to its shared copy, once the
    /// shared copy serves and either has reached the image's position or follows another log.
    /// Returns whether the readers have a shared copy now; in an index of the process's own memory
    /// always `true`.
    ///
    /// # Errors
    /// `InvalidArgument` if the partition is not followed; the errors of
    /// [`InitialSource::shared_copy`] for an existing copy. After an error the readers stay with
    /// the image.
    pub fn switch_to_shared_copy(&self, partition: PartitionId) -> Result<bool> {
        let followed_partition = self.inner.followed_partition(partition)?;
        let Some(directory) =
            self.inner.shared_copies.as_ref().filter(|_| !followed_partition.header.is_shared())
        else {
            return Ok(true);
        };
        let image = followed_partition.header.status();
        let Some(initial_source) =
            InitialSource::replacing_image(directory, followed_partition.at, &image)?
        else {
            return Ok(false);
        };
        let InitialSource { published, space, attach } = initial_source;
        let image = attach.and_then(|attach| {
            followed_partition.header.switch_to_shared_copy(published, space, attach)
        });
        image.into_iter().for_each(|image| self.inner.resources.reclaim.retire_space(image));
        Ok(true)
    }

    /// Bounds the memory of documents and their index, over all partitions that this process
    /// writes. The default is no bound. An `apply` that would need more fails with `LimitExceeded`
    /// and changes nothing. The owner of a shared copy accounts for all of its memory.
    pub fn limit_memory(&self, bytes: u64) {
        self.inner.resources.account.set_limit(bytes);
    }

    /// Spills documents to disk when memory is short, at most this many bytes, 0 for none: when
    /// usage nears the bound of [`Index::limit_memory`], the least recently written documents are
    /// spilled. The index itself stays in memory; a read of a spilled document waits for the disk.
    /// Shared copies have their spill files in their own directory; for the process's own memory an
    /// unnamed file is created in `dir`. The first directory and the last number count.
    pub fn spill_to(&self, dir: impl Into<PathBuf>, bytes_max: u64) {
        self.inner.resources.spill_dir.get_or_init(|| dir.into());
        self.inner.resources.account.set_spill_limit(bytes_max);
    }

    /// The memory that the partitions take which this process writes, and its bound.
    pub fn memory(&self) -> MemoryUse {
        self.inner.resources.account.in_use()
    }

    /// Frees the memory of earlier copies; call it now and then if this process writes no
    /// partition.
    pub fn collect_garbage(&self) {
        self.inner.resources.reclaim.free_spaces();
    }

    /// Opens a view: the reads of one call, all at one time. A view costs a few nanoseconds; a view
    /// that is held delays the reclaim of old rows, never a writer.
    #[inline]
    pub fn view<'a>(&'a self, at: ReadAt<'a>) -> View<'a> {
        View::open(&self.inner, at)
    }

    /// Resolves a field by name or alias, to be read as the type `read_type`: the field's own type,
    /// a type that widens to it, or a type that it widens to.
    ///
    /// # Errors
    /// `NotFound` for a field that the newest definition does not have, `InvalidArgument` for
    /// another type, naming both.
    pub fn field_as(&self, name: &str, read_type: FieldType) -> Result<FieldHandle> {
        FieldHandle::resolve(&self.inner.schemas.newest().definition, name, Some(read_type))
    }

    /// Resolves a field by name or alias, to be read as its own current type.
    ///
    /// # Errors
    /// `NotFound` for a field that the newest definition does not have.
    pub fn field(&self, name: &str) -> Result<FieldHandle> {
        FieldHandle::resolve(&self.inner.schemas.newest().definition, name, None)
    }

    /// Plans a gather of these fields into a matrix of `E`; see [`GatherPlan`].
    ///
    /// # Errors
    /// `NotFound` for a field that does not exist; `InvalidArgument` without fields, for strings,
    /// bytes and lists, for a pair of types that loses values unless asked for, and for a default
    /// that is not of the field's shape.
    pub fn plan_gather<E: Element>(
        &self,
        fields: &[GatherField<'_>],
        conversion: Conversion,
    ) -> Result<GatherPlan<E>> {
        GatherPlan::new(&self.inner.schemas.newest().definition, fields, conversion)
    }

    /// Starts a scan of all followed partitions; see [`Scan`].
    pub fn scan(&self) -> Scan {
        Scan::new(self.inner.clone())
    }

    /// Returns the status of a partition. The call takes no lock and never waits.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not followed.
    pub fn status(&self, partition: PartitionId) -> Result<PartitionStatus> {
        let header = &self.inner.followed_partition(partition)?.header;
        let Status { progress, usage, cursor, .. } = header.status();
        let phase = header.load_phase_acquire();
        Ok(PartitionStatus { partition, phase, progress, usage, cursor })
    }

    /// Returns counts and states, for metrics exporters.
    pub fn metrics(&self) -> IndexMetrics {
        let partitions = self.followed().filter_map(|id| self.status(id).ok()).collect();
        let (reads, memory) = (self.inner.counters.counts(), self.memory());
        IndexMetrics { reads, memory, partitions }
    }
}
