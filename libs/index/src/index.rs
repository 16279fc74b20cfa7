//! The index over all partitions that a process follows: what is shared, and who may touch it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::value::FieldType;
use forebay_core::{Error, Result};

use crate::budget::{Budget, MemoryUse};
use crate::counters::{Counters, ReadCounts};
use crate::gather::{Conversion, GatherField, GatherPlan};
use crate::handle::FieldHandle;
use crate::header::{Following, Held, PartitionPhase, Progress, Status};
use crate::key::{DocumentKey, Identity, KeyShape};
use crate::lines::MemoryLines;
use crate::live::{self, Beginning, LiveDirectory, Resumed};
use crate::memory::{SpillPlace, live_addresses_for, reserved_for};
use crate::number::Element;
use crate::reclaim::Reclaim;
use crate::scan::Scan;
use crate::schemas::SchemaSet;
use crate::storage::{Partition, SeededHash};
use crate::view::{ReadAt, View};
use crate::writer::{PartitionWriter, WriterState};

/// What readers and writers share.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The store, whatever version of its documents this is.
    pub(crate) store: StoreId,
    pub(crate) shape: KeyShape,
    pub(crate) schemas: SchemaSet,
    /// By partition id; `None` where it is not followed.
    partitions: Box<[Option<Box<Partition>>]>,
    pub(crate) reclaim: Reclaim,
    pub(crate) counters: Counters,
    /// By which copies that are begun here find keys.
    hash: SeededHash,
    /// What all writers together may hand out.
    pub(crate) budget: Arc<Budget>,
    /// Where the documents of the process's own memory are spilled.
    spill_dir: OnceLock<PathBuf>,
    /// Where the live copies lie that are read; `None` in an index of the process's own memory.
    pub(crate) live: Option<LiveDirectory>,
}

impl Inner {
    /// A partition that this index follows.
    pub(crate) fn followed(&self, id: PartitionId) -> Result<&Partition> {
        self.partition(id).ok_or_else(|| self.not_followed(id))
    }

    #[inline]
    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn not_followed(&self, id: PartitionId) -> Error {
        let all = self.partitions.len();
        let followed: Vec<_> = self.followed_ids().map(|id| id.to_string()).collect();
        let message = format!(
            "this reader follows partitions {} of {all}; open one whose filter has this partition",
            followed.join(", ")
        );
        Error::invalid_argument(message).with_partition(id)
    }

    /// Where a space in the process's own memory spills to.
    pub(crate) fn spill_place(&self) -> Option<SpillPlace> {
        self.spill_dir.get().map(|dir| SpillPlace::Unnamed(dir.clone()))
    }

    pub(crate) fn followed_ids(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.iter().flatten().map(|partition| partition.at.partition)
    }
}

/// What a partition says of itself: one consistent state, as one entry left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Which partition.
    pub partition: PartitionId,
    /// Whether it may answer.
    pub phase: PartitionPhase,
    /// What was applied.
    pub progress: Progress,
    /// What it holds.
    pub held: Held,
    /// What its writer has noted of the log.
    pub following: Following,
}

/// A pull snapshot of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMetrics {
    /// Documents found and not found since the index was made.
    pub reads: ReadCounts,
    /// What the partitions take that this process writes.
    pub memory: MemoryUse,
    /// The followed partitions, by id.
    pub partitions: Vec<PartitionStatus>,
}

impl IndexMetrics {
    /// Bytes of memory that all documents and their index take.
    pub fn memory_bytes(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.held.memory_bytes).sum()
    }
}

/// The documents of one store that this process holds; cheap to clone, safe to share.
///
/// ```
/// use std::sync::{Arc, PoisonError};
/// use forebay_core::catalog::SchemaAt;
/// use forebay_core::clock::Timestamp;
/// use forebay_core::id::StoreId;
/// use forebay_core::key::KeyType;
/// use forebay_core::layout::Layout;
/// use forebay_core::schema::StoreSpec;
/// use forebay_core::value::{FieldType, ScalarType};
/// use forebay_index::{Index, PartitionPhase, ReadAt};
///
/// let float = FieldType::Scalar(ScalarType::Float32);
/// let definition = StoreSpec::documents("users", KeyType::String, 1)
///     .field("score", float)
///     .define(StoreId(1))?;
/// let partitions: Vec<_> = definition.partitions.partitions().collect();
/// let layout = Layout::of(&definition);
/// let index = Index::new([Arc::new(SchemaAt { definition, layout })], partitions, 7)?;
/// let mut writer = index.writer(forebay_core::id::PartitionId(0))?;
/// writer.set_phase(PartitionPhase::Serving);
///
/// let score = index.handle("score", float)?;
/// let view = index.view(ReadAt::new(Timestamp::from_micros(0)));
/// assert_eq!(view.get_f32(&score, "nobody", -1.0)?, -1.0);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) inner: Arc<Inner>,
}

impl Index {
    /// An empty index of the store whose definitions these are, over the partitions given. All
    /// start [`Bootstrapping`](PartitionPhase::Bootstrapping). `hash_seed` should be random in
    /// production.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition, with definitions of several stores, without a
    /// partition, or with one that the store does not have; `LimitExceeded` when the system
    /// gives no addresses for it.
    pub fn new(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash_seed: u64,
    ) -> Result<Self> {
        let followed: BTreeSet<_> = followed.into_iter().collect();
        Self::within(reserved_for(followed.len()), definitions, followed, hash_seed)
    }

    /// As [`Index::new`], with at most this many addresses for each partition.
    pub(crate) fn within(
        addresses: u64,
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash_seed: u64,
    ) -> Result<Self> {
        let (hash, budget) = (SeededHash::new(hash_seed), Arc::new(Budget::new()));
        Self::of(definitions, followed, hash, budget.clone(), None, |at| {
            Ok(Partition::private(at, WriterState::private(addresses, hash, &budget)?))
        })
    }

    /// An index that reads the live copies of this directory, as whoever holds them writes them.
    /// `hash_seed` is for the copies that this process will begin, once it holds them.
    ///
    /// # Errors
    /// As [`Index::new`]; `NotFound` where there is no live copy yet, see
    /// [`LiveDirectory::is_made`]; `Unavailable`, `Unsupported`, `Corrupt` for one that cannot be
    /// read.
    ///
    /// To be followed by [`Index::prepare`], beside the first reads.
    pub fn live(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash_seed: u64,
        directory: LiveDirectory,
    ) -> Result<Self> {
        let (at, hash) = (directory.clone(), SeededHash::new(hash_seed));
        let budget = Arc::new(Budget::new());
        Self::of(definitions, followed, hash, budget, Some(at), |at| {
            Ok(Partition::beginning(at, Beginning::live(&directory, at)?))
        })
    }

    /// As [`Index::live`], of partitions whose readers begin here: in a live copy, or in an image
    /// until there is one ([`Index::go_live`]).
    ///
    /// # Errors
    /// As [`Index::new`].
    pub fn begin(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        beginnings: impl IntoIterator<Item = (PartitionId, Beginning)>,
        hash_seed: u64,
        directory: LiveDirectory,
    ) -> Result<Self> {
        let mut beginnings: BTreeMap<_, _> = beginnings.into_iter().collect();
        let followed: Vec<_> = beginnings.keys().copied().collect();
        let (hash, budget) = (SeededHash::new(hash_seed), Arc::new(Budget::new()));
        Self::of(definitions, followed, hash, budget, Some(directory), |at| {
            let beginning = beginnings.remove(&at.partition);
            let beginning = beginning.ok_or_else(|| Error::internal("it begins nowhere"))?;
            Ok(Partition::beginning(at, beginning))
        })
    }

    fn of(
        definitions: impl IntoIterator<Item = Arc<SchemaAt>>,
        followed: impl IntoIterator<Item = PartitionId>,
        hash: SeededHash,
        budget: Arc<Budget>,
        live: Option<LiveDirectory>,
        mut make: impl FnMut(PartitionRef) -> Result<Partition>,
    ) -> Result<Self> {
        let schemas = SchemaSet::new(definitions)?;
        let definition = &schemas.newest().definition;
        let (store, shape) = (definition.store, KeyShape::of(definition));
        let home = definition.versions.home();
        let count = definition.partitions.0;
        let followed: BTreeSet<_> = followed.into_iter().collect();
        let refused =
            |message: String| Error::invalid_argument(message).with_store(&definition.name);
        let Some(last) = followed.last() else {
            return Err(refused("follow at least one partition".into()));
        };
        if last.0 >= count {
            let message = format!("the store has partitions 0 to {}", count - 1);
            return Err(refused(message).with_partition(*last));
        }
        let partition = |partition: PartitionId| {
            let mut made = || make(PartitionRef { store, partition }).map(Box::new);
            followed.contains(&partition).then(&mut made).transpose()
        };
        let partitions = definition.partitions.partitions().map(partition);
        let partitions = partitions.collect::<Result<_>>()?;
        let reclaim = if live.is_none() { Reclaim::new() } else { Reclaim::unprepared() };
        Ok(Self {
            inner: Arc::new(Inner {
                store: home,
                shape,
                schemas,
                partitions,
                reclaim,
                counters: Counters::new(),
                hash,
                budget,
                spill_dir: OnceLock::new(),
                live,
            }),
        })
    }

    /// Makes the reads of an index over live copies as cheap as they can be, and lets the memory of
    /// earlier copies go. Blocks for 10 ms and more in a process that has threads, the first time
    /// that it is called there; reads go on meanwhile.
    pub fn prepare(&self) {
        self.inner.reclaim.prepare();
    }

    /// The definitions that it knows.
    pub fn schemas(&self) -> &SchemaSet {
        &self.inner.schemas
    }

    /// The partitions that it follows, by id.
    pub fn followed(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.inner.followed_ids()
    }

    /// The partition that a key belongs to, followed or not.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is not of the store's key type, or has or lacks a partition
    /// key against the definition; `LimitExceeded` for one that is too long.
    pub fn partition_of<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<PartitionId> {
        self.inner.shape.locate(&key.into(), &mut Identity::default())
    }

    /// Takes the writer of a partition.
    ///
    /// # Errors
    /// `InvalidArgument` while another handle of it lives, or when it is not followed.
    pub fn writer(&self, partition: PartitionId) -> Result<PartitionWriter> {
        PartitionWriter::take(self.inner.clone(), partition)
    }

    /// Holds the live copy of a partition: takes its writer, in whatever state the holder before
    /// has left it, and finishes what that was doing. Answers where that had come to; `None` for a
    /// copy that begins here, also because what was left cannot be used. One whose readers began
    /// with an image is made where it is not there.
    ///
    /// Only for the one process that has the lock of the copy's directory, once.
    ///
    /// # Errors
    /// `InvalidArgument` while another handle of it lives, when it is not followed, or in an index
    /// of the process's own memory; `NotFound`, `LimitExceeded`, `Unavailable`.
    pub fn hold(&self, partition: PartitionId) -> Result<(PartitionWriter, Option<Resumed>)> {
        let held = self.inner.followed(partition)?;
        let directory = self.inner.live.as_ref().ok_or_else(|| {
            Error::invalid_argument("an index of this process's own memory has its writers already")
        })?;
        let partitions = self.inner.schemas.newest().definition.partitions;
        if let Some(hash) = held.hash {
            let addresses = live_addresses_for(self.followed().count());
            live::make(directory, held.at.store, partition, hash, addresses)?;
        }
        let resumed = {
            let mut state = held.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let (writer, resumed) =
                live::hold(directory, held.at, partitions, self.inner.hash, held.hash)?;
            writer.space().memory.charge_to(&self.inner.budget);
            *state = Some(writer);
            resumed
        };
        Ok((self.writer(partition)?, resumed))
    }

    /// Whether what is read of some partition lies in another version's memory: see
    /// [`PartitionWriter::start_rebuild_beside`].
    pub fn is_borrowing(&self) -> bool {
        let _pin = self.inner.reclaim.enter();
        self.inner.followed_ids().filter_map(|id| self.inner.partition(id)).any(|partition| {
            // SAFETY: the guard is held while the space is looked at.
            let space = unsafe { partition.header.load_space(&self.inner.reclaim) };
            space.is_ok_and(|space| space.memory.borrowed().is_some())
        })
    }

    /// Lets the readers of a partition that began with an image go on with its live copy, once that
    /// serves and has come as far, or follows another log. Answers whether they have a live copy
    /// now; in an index of the process's own memory there is nothing to wait for.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not followed; those of [`Beginning::live`], of a copy that is
    /// there: readers stay where they are.
    pub fn go_live(&self, partition: PartitionId) -> Result<bool> {
        let followed = self.inner.followed(partition)?;
        let Some(directory) = self.inner.live.as_ref().filter(|_| !followed.header.is_live())
        else {
            return Ok(true);
        };
        let image = followed.header.status();
        let Some(beginning) = Beginning::in_place_of(directory, followed.at, &image)? else {
            return Ok(false);
        };
        let Beginning { published, space, attach } = beginning;
        let image = attach.and_then(|attach| followed.header.go_live(published, space, attach));
        image.into_iter().for_each(|image| self.inner.reclaim.retire_space(image));
        Ok(true)
    }

    /// Bounds the memory that documents and their index may take, of all partitions that this
    /// process writes; without it there is none. An `apply` that would need more is refused with
    /// `LimitExceeded`, and nothing is changed. Of a live copy its holder counts all.
    pub fn limit_memory(&self, bytes: u64) {
        self.inner.budget.set_limit(bytes);
    }

    /// Lets documents that have no room in memory lie on disk, at most this many bytes of them, 0
    /// for none: once the bound of [`Index::limit_memory`] is near, those go that were written
    /// longest ago. The index itself stays in memory; a read of such a document waits for the disk.
    /// Live copies have their files in their own directory; for the process's own memory a file
    /// without a name is made in this one. The first directory counts, and the last number.
    pub fn spill_to(&self, dir: impl Into<PathBuf>, bytes_max: u64) {
        self.inner.spill_dir.get_or_init(|| dir.into());
        self.inner.budget.set_spill_limit(bytes_max);
    }

    /// What the partitions take that this process writes, and what they may take.
    pub fn memory(&self) -> MemoryUse {
        self.inner.budget.in_use()
    }

    /// Lets go of what earlier copies took; to be called now and then where nobody writes.
    pub fn tidy(&self) {
        self.inner.reclaim.let_spaces_go();
    }

    /// Opens a view: the reads of one call, all at one time. Costs a few nanoseconds; a view that
    /// is held delays the reclaim of old rows, never a writer.
    #[inline]
    pub fn view<'a>(&'a self, at: ReadAt<'a>) -> View<'a> {
        View::open(&self.inner, at)
    }

    /// Resolves a field by name or alias, to be read as a type: the field's own, one that widens to
    /// it, or one that it widens to.
    ///
    /// # Errors
    /// `NotFound` for a field that the newest definition does not have, `InvalidArgument` for
    /// another type, naming both.
    pub fn handle(&self, field: &str, asked: FieldType) -> Result<FieldHandle> {
        FieldHandle::resolve(&self.inner.schemas.newest().definition, field, Some(asked))
    }

    /// Resolves a field by name or alias, to be read as its own type of now.
    ///
    /// # Errors
    /// `NotFound` for a field that the newest definition does not have.
    pub fn handle_of_own_type(&self, field: &str) -> Result<FieldHandle> {
        FieldHandle::resolve(&self.inner.schemas.newest().definition, field, None)
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
        Scan::new(self.clone())
    }

    /// What a partition says of itself. Takes no lock and waits for nobody.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not followed.
    pub fn status(&self, partition: PartitionId) -> Result<PartitionStatus> {
        let header = &self.inner.followed(partition)?.header;
        let Status { progress, held, following, .. } = header.status();
        let phase = header.load_phase_acquire();
        Ok(PartitionStatus { partition, phase, progress, held, following })
    }

    /// Counts and states, for whoever exports metrics.
    pub fn metrics(&self) -> IndexMetrics {
        let partitions = self.followed().filter_map(|id| self.status(id).ok()).collect();
        let (reads, memory) = (self.inner.counters.counts(), self.memory());
        IndexMetrics { reads, memory, partitions }
    }

    /// The memory of the partitions, for measuring what an access to it costs.
    ///
    /// # Errors
    /// `Unavailable` when a live copy cannot be mapped.
    #[doc(hidden)]
    pub fn memory_lines(&self) -> Result<MemoryLines<'_>> {
        MemoryLines::of(&self.inner)
    }
}
