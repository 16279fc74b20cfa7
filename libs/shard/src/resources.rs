//! What all shards of a process share: one cache, one bound for what is not on disk yet.
//!
//! What shards begin with has a bound of its own: beyond it each write of any shard under it ends a
//! file, however small, and those that follow their logs would end one for each entry.

use forebay_core::limits::{SHARD_FILES_OPEN_MAX, SHARD_MEMORY_BYTES_MIN, SHARD_TABLE_BYTES};
use forebay_core::{Error, Result};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, CompactionDecision, DBCompressionType, LogLevel,
    Options, WriteBufferManager,
};

use crate::engine;
use crate::events::EventFloor;
use crate::expiry::DurableTime;

/// A file is not made anew for being read. The engine does that once nobody has a view any more
/// from before the file's last write, as there may be something in it that was kept for a view;
/// it cannot tell, so that one select would write all events of a stream once more. It never does
/// where it is told to wait for longer than its clock says. What was kept goes when the file is
/// compacted for another reason.
const NOT_MADE_ANEW: &str = "bottommost_file_compaction_delay=4294967295";
/// Bits of a filter for each key, as the engine's manual advises.
const FILTER_BITS: f64 = 10.0;
/// Cache of a database that only copies read or write: of its files' indexes.
const EXPORT_CACHE_BYTES: usize = 8 << 20;
/// Part of the memory that writes may take before they go to disk.
const WRITES_SHARE: usize = 4;
/// Of a full table of writes, what a filter of its keys takes: some 14 bits for each row of 170 B.
const WRITES_FILTER_RATIO: f64 = 0.01;

/// The memory of all shards of a process, and how they use the disk. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    cache: Cache,
    writes: WriteBufferManager,
    loads: WriteBufferManager,
    table_bytes: usize,
    is_direct: bool,
    are_writes_filtered: bool,
}

impl Resources {
    /// With this much memory for blocks of files and for writes that are not on disk yet, which go
    /// there beyond a quarter of it, and beyond another quarter where shards begin. The engine
    /// bounds all of it softly; what iterators pin comes on top.
    ///
    /// # Errors
    /// `LimitExceeded` below [`SHARD_MEMORY_BYTES_MIN`]; `Unsupported` if the process has
    /// loaded another RocksDB than [`ROCKSDB_VERSION`](crate::ROCKSDB_VERSION).
    pub fn new(memory_bytes: usize) -> Result<Self> {
        engine::check_version()?;
        if memory_bytes < SHARD_MEMORY_BYTES_MIN {
            let message = "the memory of the shards is too small; raise it";
            let (limit, actual) = (SHARD_MEMORY_BYTES_MIN as u64, memory_bytes as u64);
            return Err(Error::limit_exceeded(message, limit, actual));
        }
        let cache = Cache::new_lru_cache(memory_bytes);
        let writes_bytes = memory_bytes / WRITES_SHARE;
        let bound = || {
            let cache = cache.clone();
            WriteBufferManager::new_write_buffer_manager_with_cache(writes_bytes, false, cache)
        };
        let (writes, loads) = (bound(), bound());
        let table_bytes = SHARD_TABLE_BYTES.min(writes_bytes / 2);
        let (is_direct, are_writes_filtered) = (false, false);
        Ok(Self { cache, writes, loads, table_bytes, is_direct, are_writes_filtered })
    }

    /// The same, with files that are read and written past the cache of the operating system, where
    /// the file system can: what the shards' own cache does not hold comes from the disk.
    #[must_use]
    pub fn with_direct_io(mut self, is_direct: bool) -> Self {
        self.is_direct = is_direct;
        self
    }

    /// The same, for shards that are mostly asked for keys which they do not have: what is not on
    /// disk yet is then not searched for those, as files are not. Of each shard that is written it
    /// takes a hundredth of the bytes that a table of its writes may have.
    #[must_use]
    pub fn with_filtered_writes(mut self) -> Self {
        self.are_writes_filtered = true;
        self
    }

    /// Options of one shard.
    pub(crate) fn options(&self, durable: &DurableTime) -> Options {
        let mut options = self.written_options();
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
        options.set_level_compaction_dynamic_level_bytes(true);
        let durable = durable.clone();
        options.set_compaction_filter("forebay expiry", move |_level, key, row| {
            durable.decide(key, row)
        });
        options
    }

    /// Options of one shard with events: all of it, and its events alone.
    pub(crate) fn event_options(
        &self,
        durable: &DurableTime,
        floor: &EventFloor,
    ) -> (Options, Options) {
        let mut options = self.options(durable);
        options.create_missing_column_families(true);
        // What an entry has added is on disk in both parts, or in none.
        options.set_atomic_flush(true);
        let (durable, floor) = (durable.clone(), floor.clone());
        options.set_compaction_filter("forebay events", move |_level, key, row| {
            if floor.is_below(key) {
                return CompactionDecision::Remove;
            }
            durable.decide(key, row)
        });
        // Pressed alike everywhere: pressed harder below, a file would be made anew to go there.
        (options, self.written_options())
    }

    fn written_options(&self) -> Options {
        let mut options = with_files(&self.cache);
        options.create_if_missing(true);
        options.set_write_buffer_manager(&self.writes);
        options.set_write_buffer_size(self.table_bytes);
        options.set_use_direct_reads(self.is_direct);
        options.set_use_direct_io_for_flush_and_compaction(self.is_direct);
        if self.are_writes_filtered {
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(WRITES_FILTER_RATIO);
        }
        options
    }

    /// Options of a shard that is loaded, of which nobody reads yet: its files are made one by one
    /// compaction, not again and again.
    pub(crate) fn load_options(&self, durable: &DurableTime) -> Options {
        let mut options = self.options(durable);
        options.set_write_buffer_manager(&self.loads);
        options.set_disable_auto_compactions(true);
        options
    }

    /// Options of a frozen shard, which is read through.
    pub(crate) fn export_options() -> Options {
        with_files(&Cache::new_lru_cache(EXPORT_CACHE_BYTES))
    }

    /// Options of a database that takes in the files of a copy, and of those files. Compactions
    /// press them harder later.
    pub(crate) fn import_options(is_compressed: bool) -> Options {
        let mut options = with_files(&Cache::new_lru_cache(EXPORT_CACHE_BYTES));
        if !is_compressed {
            options.set_compression_type(DBCompressionType::None);
        }
        options.create_if_missing(true);
        options.set_disable_auto_compactions(true);
        options
    }
}

fn with_files(cache: &Cache) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_bloom_filter(FILTER_BITS, false);
    blocks.set_cache_index_and_filter_blocks(true);
    // In parts as small as blocks: one whole would be read from the disk for each key where those
    // of all files have no room in the cache, a megabyte and more of a large file.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // A test tells if the engine does not know it any more.
    let options = Options::default().get_options_from_string(NOT_MADE_ANEW);
    let mut options = options.unwrap_or_default();
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_max_open_files(SHARD_FILES_OPEN_MAX);
    // A store has many shards, and most of them are small.
    options.set_manifest_preallocation_size(64 << 10);
    options.set_skip_stats_update_on_db_open(true);
    options.set_log_level(LogLevel::Warn);
    if let Some(folder) = engine::log_folder() {
        options.set_db_log_dir(folder);
    }
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use forebay_core::fold::{Applied, PartitionState};
    use forebay_core::id::{LogId, PartitionCount, PartitionId, PartitionRef, StoreId};
    use forebay_core::key::{Key, KeyType};
    use forebay_core::key_order::KeyOrder;
    use forebay_core::state_rows::Followed;

    use rocksdb::WaitForCompactOptions;

    use super::*;
    use crate::ShardDirectory;

    #[test]
    fn a_filter_hides_no_write() {
        let folder = tempfile::tempdir().unwrap();
        let resources = Resources::new(SHARD_MEMORY_BYTES_MIN).unwrap().with_filtered_writes();
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let order = KeyOrder { primary: KeyType::Bytes, partition: None };
        let directory = ShardDirectory::new(folder.path(), resources);
        let mut writer = directory.create(at, order).unwrap();
        let mut state = PartitionState::new(at, PartitionCount(1));
        state.log_id = Some(LogId(1));
        let key = |number: u32| Key::plain(&number.to_le_bytes()).unwrap();
        let found = |writer: &crate::ShardWriter, number| {
            writer.shard().row(key(number).as_bytes()).unwrap().map(|row| row.to_vec())
        };
        // A thousand that are written, half of them gone again, the last ones not on disk yet.
        for round in 0..4_u32 {
            let written = (0..1_000).map(|it| (key(it), (it % 2 == round % 2).then(|| vec![1])));
            let applied = Applied { writes: written.collect(), ..Applied::default() };
            writer.apply(&applied, &state, Followed::default()).unwrap();
            for number in 0..2_000 {
                let is_there = number < 1_000 && number % 2 == round % 2;
                assert_eq!(found(&writer, number), is_there.then(|| vec![1]), "{number}");
            }
            if round < 2 {
                writer.shard().flush().unwrap();
            }
        }
    }

    #[test]
    fn no_file_is_made_anew_for_being_read() {
        let folder = tempfile::tempdir().unwrap();
        let resources = Resources::new(SHARD_MEMORY_BYTES_MIN).unwrap();
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let order = KeyOrder { primary: KeyType::Bytes, partition: None };
        let directory = ShardDirectory::new(folder.path(), resources);
        let mut writer = directory.create(at, order).unwrap();
        let shard = Arc::clone(writer.shard());
        let mut state = PartitionState::new(at, PartitionCount(1));
        state.log_id = Some(LogId(1));
        let mut write = |first: u32| {
            let key = |number: u32| Key::plain(&number.to_le_bytes()).unwrap();
            let writes = (first..first + 10).map(|it| (key(it), Some(vec![1]))).collect();
            let applied = Applied { writes, ..Applied::default() };
            writer.apply(&applied, &state, Followed::default()).unwrap();
        };
        write(0);
        shard.flush().unwrap();
        // What is read lies behind the file.
        write(10);
        let files = || {
            shard.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
            let files = shard.db.live_files().unwrap().into_iter();
            files.map(|file| file.name).collect::<BTreeSet<_>>()
        };
        let before = files();
        assert_eq!(before.len(), 1);
        for _ in 0..3 {
            drop(shard.view().unwrap());
            assert_eq!(files(), before);
        }
    }
}
