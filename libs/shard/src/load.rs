//! A shard that begins with many documents at once, which nobody reads before it has all of them.
//!
//! They come in any order, so each file that they fill may hold any key. They are merged when all
//! are there, or when there are many of them, and not as they come: nothing is read meanwhile.

use std::borrow::Cow;
use std::path::Path;

use forebay_core::Result;
use forebay_core::fold::Documents;
use forebay_core::id::PartitionRef;
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::SHARD_LOAD_FILES_MAX;
use rocksdb::WriteBatch;

use crate::directory::destroy;
use crate::resources::Resources;
use crate::shard::Shard;
use crate::writer::{ShardWriter, put_documents};

/// The beginning of a copy. Without an end it is none: a kill leaves nothing that counts.
pub struct ShardLoad {
    shard: Shard,
    resources: Resources,
}

impl ShardLoad {
    pub(crate) fn begin(
        path: &Path,
        at: PartitionRef,
        order: KeyOrder,
        resources: &Resources,
    ) -> Result<Self> {
        let shard = Shard::open_with(path, at, order, |durable| resources.load_options(durable))?;
        Ok(Self { shard, resources: resources.clone() })
    }

    /// Writes documents; later ones under the same key count. Waits for the disk.
    ///
    /// # Errors
    /// As [`ShardWriter::apply`]; it is to be given up then.
    pub fn load(&mut self, writes: &[(Key, Option<Vec<u8>>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        put_documents(&mut batch, self.shard.order(), writes)?;
        self.shard.write(batch, self.shard.partition_time())?;
        if self.shard.overlapping_files()? >= SHARD_LOAD_FILES_MAX {
            self.shard.compact();
        }
        Ok(())
    }

    /// Makes it a shard that follows its log. Merges all that was loaded, which takes as long as to
    /// read and write it, and puts it on the disk.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses; nothing is left of it then.
    pub fn end(self) -> Result<ShardWriter> {
        let Self { shard, resources } = self;
        let (at, order, path) = (shard.partition(), shard.order(), shard.path().to_owned());
        let flushed = shard.flush();
        if flushed.is_ok() {
            shard.compact();
        }
        drop(shard);
        let opened = flushed.and_then(|()| Shard::open(&path, at, order, &resources));
        if opened.is_err() {
            // It counts for nothing, and the disk may be full.
            drop(destroy(&path));
        }
        opened.map(ShardWriter::new)
    }

    /// Removes it.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub fn give_up(self) -> Result<()> {
        let path = self.shard.path().to_owned();
        drop(self.shard);
        destroy(&path)
    }
}

impl Documents for ShardLoad {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.shard.row(key)?.map(|row| Cow::from(row.to_vec())))
    }
}
