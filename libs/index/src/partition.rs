//! A partition: its header, which readers see, and the state of its writer while no writer is
//! taken.

use std::sync::Mutex;

use forebay_core::id::PartitionRef;

use crate::header::Header;
use crate::key::SeededHash;
use crate::shared_copy::InitialSource;
use crate::writer_state::WriterState;

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
