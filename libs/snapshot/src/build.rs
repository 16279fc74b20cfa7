//! Builds the image of documents that arrive one by one, in any order.

use forebay_core::catalog::SchemaAt;
use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{PartitionCount, PartitionRef};
use forebay_core::key::Key;
use forebay_core::key_order::{DOCUMENTS, KeyOrder};
use forebay_core::schema::Definition;
use forebay_core::state_rows::RestoredState;
use forebay_core::{Error, Result};
use forebay_index::{ImageSink, Index, PartitionWriter};

use crate::delta::WRITES_AT_ONCE;
use crate::image_state::ImageState;
use crate::remote_export::{RemoteShardExport, ShardState};

/// Size of a written image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltImage {
    /// Number of documents, including expired ones.
    pub documents: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A builder of a partition's image. The whole image is in memory until it is written.
pub struct ImageBuilder {
    index: Index,
    writer: PartitionWriter,
    /// State before the first document.
    empty: PartitionState,
}

impl ImageBuilder {
    /// Creates a builder without documents that uses at most `memory_bytes` of memory. The seed is
    /// the seed of the image's key hash.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition; `LimitExceeded` if the process has no addresses
    /// left.
    pub fn new(
        definitions: &[Definition],
        at: PartitionRef,
        partitions: PartitionCount,
        seed: u64,
        memory_bytes: u64,
    ) -> Result<Self> {
        if definitions.is_empty() {
            return Err(Error::invalid_argument("an image needs the store's definition"));
        }
        let schemas = definitions.iter().cloned().map(SchemaAt::of);
        let index = Index::new(schemas, [at.partition], seed)?;
        index.limit_memory(memory_bytes);
        let writer = index.writer(at.partition)?;
        Ok(Self { index, writer, empty: PartitionState::new(at, partitions) })
    }

    /// Adds documents; a later document replaces an earlier one of the same key, and `None` removes
    /// it. Batches of about a thousand documents are the fastest.
    ///
    /// # Errors
    /// `LimitExceeded` if memory is exhausted; `Internal` for a row that fits no definition.
    pub fn add(&mut self, writes: Vec<(Key, Option<Vec<u8>>)>) -> Result<()> {
        self.writer.apply(&FoldEffects { writes, ..FoldEffects::default() }, &self.empty)
    }

    /// Adds all documents of a shard; returns the shard's state.
    ///
    /// # Errors
    /// The errors of [`RemoteShardExport::read`] and [`ImageBuilder::add`].
    pub async fn take_shard(
        &mut self,
        shard: &mut RemoteShardExport,
        order: KeyOrder,
    ) -> Result<RestoredState> {
        let (mut state, mut writes) = (ShardState::default(), Vec::new());
        let read = shard.read(|key, row| {
            if key.first() != Some(&DOCUMENTS) {
                state.take(key, row);
                return Ok(());
            }
            writes.push((order.identity(key)?, Some(row.to_vec())));
            match writes.len() < WRITES_AT_ONCE {
                true => Ok(()),
                false => self.add(std::mem::take(&mut writes)),
            }
        });
        read.await?;
        self.add(writes)?;
        state.decode()
    }

    /// Returns the lookup of the rows so far, for a fold.
    pub(crate) fn rows(&self) -> &impl RowLookup {
        &self.writer
    }

    /// Returns the used bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.index.memory().used
    }

    /// Writes the image at the position of this state.
    ///
    /// # Errors
    /// The errors of the sink; `Internal` for a state of another partition or without a log.
    pub fn write(mut self, state: &ImageState, sink: &mut dyn ImageSink) -> Result<BuiltImage> {
        self.writer.apply(&FoldEffects::default(), &state.state)?;
        let documents = self.writer.usage().documents;
        let bytes = self.writer.write_image(state.encode()?, sink)?;
        Ok(BuiltImage { documents, bytes })
    }
}
