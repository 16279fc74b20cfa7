//! The context of an index: the state that its readers and writers share, with its partitions. A
//! partition is a header, which readers see, and the state of its writer while no writer is taken.

use std::sync::Mutex;

use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};

use crate::counters::Counters;
use crate::header::Header;
use crate::key::{KeyShape, SeededHash};
use crate::resources::Resources;
use crate::shared_copy::{InitialSource, SharedCopyDirectory};
use crate::writer_state::WriterState;

/// The state that readers and writers share.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The store; the same id for every version of its documents.
    pub(crate) store: StoreId,
    pub(crate) shape: KeyShape,
    pub(crate) schemas: SchemaSet,
    /// The partitions, by id; `None` for a partition that is not followed.
    pub(crate) partitions: Box<[Option<Box<Partition>>]>,
    pub(crate) resources: Resources,
    pub(crate) counters: Counters,
    /// The hash by which copies that start here find keys.
    pub(crate) hash: SeededHash,
    /// The directory of the shared copies to read; `None` in an index of the process's own memory.
    pub(crate) shared_copies: Option<SharedCopyDirectory>,
}

impl Inner {
    /// Returns a partition that this index follows.
    pub(crate) fn followed_partition(&self, id: PartitionId) -> Result<&Partition> {
        self.partition(id).ok_or_else(|| self.not_followed(id))
    }

    #[inline]
    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn not_followed(&self, id: PartitionId) -> Error {
        let count = self.partitions.len();
        let followed: Vec<_> = self.followed_ids().map(|id| id.to_string()).collect();
        let message = format!(
            "this reader follows partitions {} of {count}; open a reader whose filter has this \
             partition",
            followed.join(", ")
        );
        Error::invalid_argument(message).with_partition(id)
    }

    pub(crate) fn followed_ids(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.iter().flatten().map(|partition| partition.at.partition)
    }
}

/// A partition of an index.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) at: PartitionRef,
    pub(crate) header: Header,
    /// The writer's state, locked when a writer is taken and returned, never by reads. For a shared
    /// copy this is `None` until this process holds the copy.
    pub(crate) writer: Mutex<Option<WriterState>>,
    /// The hash by which a shared copy that starts here finds keys, if it is not the index's own:
    /// the hash of the image that readers use until then, so that a scan can continue in the shared
    /// copy.
    pub(crate) hash: Option<SeededHash>,
}

impl Partition {
    /// Creates a partition in the process's own memory.
    pub(crate) fn private(at: PartitionRef, writer: WriterState) -> Self {
        let header = Header::new(writer.published().clone(), writer.space(), None);
        Self { at, header, writer: Mutex::new(Some(writer)), hash: None }
    }

    /// Creates a partition that is read from a shared copy, or from an image until there is a
    /// shared copy.
    pub(crate) fn from_source(at: PartitionRef, source: InitialSource) -> Self {
        let InitialSource { published, space, attach } = source;
        let hash = attach.is_none().then_some(space.hash);
        let header = Header::new(published, space, attach);
        Self { at, header, writer: Mutex::new(None), hash }
    }
}
