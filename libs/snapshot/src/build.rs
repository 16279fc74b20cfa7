//! The image of documents that come one by one, in whatever order.

use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::fold::{Applied, Documents, PartitionState};
use forebay_core::id::{PartitionCount, PartitionRef};
use forebay_core::key::Key;
use forebay_core::key_order::{DOCUMENTS, KeyOrder};
use forebay_core::layout::Layout;
use forebay_core::schema::Definition;
use forebay_core::state_rows::Resumed;
use forebay_core::{Error, Result};
use forebay_index::{ImageSink, Index, PartitionWriter};

use crate::delta::WRITES_AT_ONCE;
use crate::frozen::{FrozenShard, ShardState};
use crate::image_state::ImageState;

/// What was written of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltImage {
    /// Its documents, expired ones included.
    pub documents: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Makes the image of a partition. All of it is in memory until it is written.
pub struct ImageBuilder {
    index: Index,
    writer: PartitionWriter,
    /// Before anything was applied.
    empty: PartitionState,
}

impl ImageBuilder {
    /// Without documents yet, in at most so many bytes of memory. The seed is that of the image's
    /// hash of keys.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition, `LimitExceeded` without addresses.
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
        let schemas = definitions.iter().map(|definition| {
            let layout = Layout::of(definition);
            Arc::new(SchemaAt { definition: definition.clone(), layout })
        });
        let index = Index::new(schemas, [at.partition], seed)?;
        index.limit_memory(memory_bytes);
        let writer = index.writer(at.partition)?;
        Ok(Self { index, writer, empty: PartitionState::new(at, partitions) })
    }

    /// Takes over documents; those that come again replace the ones before, and `None` takes one
    /// away. Fastest with about a thousand at once.
    ///
    /// # Errors
    /// `LimitExceeded` without memory; `Internal` for a row that fits no definition.
    pub fn add(&mut self, writes: Vec<(Key, Option<Vec<u8>>)>) -> Result<()> {
        self.writer.apply(&Applied { writes, ..Applied::default() }, &self.empty)
    }

    /// Takes over all documents of a shard; answers the state that stands beside them.
    ///
    /// # Errors
    /// Those of [`FrozenShard::read`] and [`ImageBuilder::add`].
    pub async fn take_shard(
        &mut self,
        shard: &mut FrozenShard,
        order: KeyOrder,
    ) -> Result<Resumed> {
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

    /// Its documents so far, as a fold sees them.
    pub(crate) fn documents(&self) -> &impl Documents {
        &self.writer
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.index.memory().used
    }

    /// Writes the image, of the position that this state has.
    ///
    /// # Errors
    /// Those of the sink; `Internal` for a state of another partition or without a log.
    pub fn write(mut self, state: &ImageState, sink: &mut dyn ImageSink) -> Result<BuiltImage> {
        self.writer.apply(&Applied::default(), &state.state)?;
        let documents = self.writer.held().documents;
        let bytes = self.writer.write_image(state.encode()?, sink)?;
        Ok(BuiltImage { documents, bytes })
    }
}
