//! Bulk load of a new shard, which has no reader before the load is complete.
//!
//! The documents arrive in any order, so each file may contain any key. The files are compacted
//! when the load ends, or when there are many of them, and not continuously, because nothing reads
//! them during the load.

use std::borrow::Cow;
use std::path::Path;

use forebay_core::Result;
use forebay_core::fold::RowLookup;
use forebay_core::id::PartitionRef;
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::SHARD_LOAD_FILES_MAX;
use rocksdb::WriteBatch;

use crate::resources::Resources;
use crate::shard::{Shard, destroy};
use crate::writer::{ShardWriter, put_documents};

/// A bulk load of a shard. A load that is not ended does not count: a kill leaves nothing that is
/// resumed.
pub struct BulkLoad {
    shard: Shard,
    resources: Resources,
}

impl BulkLoad {
    pub(crate) fn begin(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        let options = |durable: &_| resources.bulk_load_options(durable);
        let shard = Shard::open_with(path, at, order, resources, options)?;
        Ok(Self { shard, resources: resources.clone() })
    }

    /// Writes documents; the last write of a key counts. Blocks on the disk.
    ///
    /// # Errors
    /// As [`ShardWriter::apply`]; the caller must then abandon the load.
    pub fn load(&mut self, writes: &[(Key, Option<Vec<u8>>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        put_documents(&mut batch, self.shard.order(), writes)?;
        self.shard.write(batch, self.shard.partition_time())?;
        if self.shard.overlapping_files()? >= SHARD_LOAD_FILES_MAX {
            self.shard.compact();
        }
        Ok(())
    }

    /// Ends the load and returns a shard that can follow its log. The call compacts all loaded
    /// rows, which takes as long as to read and write them, and flushes them.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses; the load is removed then.
    pub fn end(self) -> Result<ShardWriter> {
        let Self { shard, resources } = self;
        let (at, order, path) = (shard.partition(), shard.order(), shard.path().to_owned());
        let flush_result = shard.flush();
        if flush_result.is_ok() {
            shard.compact();
        }
        drop(shard);
        let result = flush_result.and_then(|()| Shard::open(&path, at, order, &resources));
        if result.is_err() {
            // The load does not count, and the disk may be full.
            drop(destroy(&path));
        }
        result.map(ShardWriter::new)
    }

    /// Abandons and removes the load.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn give_up(self) -> Result<()> {
        let path = self.shard.path().to_owned();
        drop(self.shard);
        destroy(&path)
    }
}

impl RowLookup for BulkLoad {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.shard.row(key)?.map(|row| Cow::from(row.to_vec())))
    }
}
