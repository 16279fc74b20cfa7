//! Resources that all shards of a process share: a block cache and a budget for unflushed writes.
//!
//! Bulk loads have a separate budget. If a budget is exceeded, each write of any shard under it
//! flushes a file, however small; with a common budget, shards that follow their logs would then
//! flush a file for each entry.

use forebay_core::limits::{SHARD_FILES_OPEN_MAX, SHARD_MEMORY_BYTES_MIN, SHARD_TABLE_BYTES};
use forebay_core::{Error, Result};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, CompactionDecision, DBCompressionType, LogLevel,
    Options, WriteBufferManager,
};

use crate::engine;
use crate::event_position::RetentionFloor;
use crate::expiry::DurableWatermark;
use crate::open_shard_count::{OpenShardCount, OpenShardGuard};

/// Option that stops RocksDB from rewriting a bottommost file merely because it was read. Once no
/// view is older than the file's last write, RocksDB rewrites the file, as the file may contain
/// entries that were retained for a view. RocksDB cannot tell whether it does, so one select would
/// rewrite all events of a stream. A delay longer than RocksDB's clock disables this rewrite.
/// Retained entries go when the file is compacted for another reason.
const NOT_MADE_ANEW: &str = "bottommost_file_compaction_delay=4294967295";
/// Filter bits per key, as RocksDB's manual advises.
const FILTER_BITS: f64 = 10.0;
/// Cache of a database that only copies read or write, for the indexes of its files.
const EXPORT_CACHE_BYTES: usize = 8 << 20;
/// Divisor of the memory: the share that unflushed writes may take.
const WRITES_SHARE: usize = 4;
/// Filter size as a fraction of a full memtable: some 14 bits for each row of 170 B.
const WRITES_FILTER_RATIO: f64 = 0.01;

/// Memory of all shards of a process, and their use of the disk. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    cache: Cache,
    writes: WriteBufferManager,
    loads: WriteBufferManager,
    table_bytes: usize,
    is_direct: bool,
    are_writes_filtered: bool,
    /// Open shards with these resources or a clone of them.
    open: OpenShardCount,
}

impl Resources {
    /// Creates resources with this much memory for blocks of files and for unflushed writes. Shards
    /// flush if their unflushed writes exceed a quarter of the memory; bulk loads flush if theirs
    /// exceed another quarter. RocksDB enforces these bounds softly; memory that iterators pin
    /// comes on top.
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
        let open = OpenShardCount::default();
        Ok(Self { cache, writes, loads, table_bytes, is_direct, are_writes_filtered, open })
    }

    /// Bypasses the operating system's page cache for reads and writes of files, if the file system
    /// supports it: blocks outside the shards' own cache come from the disk.
    #[must_use]
    pub fn with_direct_io(mut self, is_direct: bool) -> Self {
        self.is_direct = is_direct;
        self
    }

    /// Adds filters to memtables, for shards that mostly receive lookups of missing keys: such
    /// lookups then skip unflushed writes, as they skip files. A filter takes a hundredth of the
    /// memtable size for each shard that is written.
    #[must_use]
    pub fn with_filtered_writes(mut self) -> Self {
        self.are_writes_filtered = true;
        self
    }

    /// Returns when no shard with these resources is open, so that the folders of the shards may be
    /// removed. A reader that never ends delays the return forever.
    pub async fn all_closed(&self) {
        self.open.none_open().await;
    }

    /// Registers a shard that opens.
    pub(crate) fn register_shard(&self) -> OpenShardGuard {
        self.open.enter()
    }

    /// Returns the options of a shard.
    pub(crate) fn options(&self, durable: &DurableWatermark) -> Options {
        let mut options = self.written_options();
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
        options.set_level_compaction_dynamic_level_bytes(true);
        let durable = durable.clone();
        options.set_compaction_filter("forebay expiry", move |_level, key, row| {
            durable.decide(key, row)
        });
        options
    }

    /// Returns the options of a shard with events: for the whole shard, and for its events.
    pub(crate) fn event_options(
        &self,
        durable: &DurableWatermark,
        floor: &RetentionFloor,
    ) -> (Options, Options) {
        let mut options = self.options(durable);
        options.create_missing_column_families(true);
        // A flush writes the changes of an entry to both column families, or to none.
        options.set_atomic_flush(true);
        let (durable, floor) = (durable.clone(), floor.clone());
        options.set_compaction_filter("forebay events", move |_level, key, row| {
            if floor.is_below(key) {
                return CompactionDecision::Remove;
            }
            durable.decide(key, row)
        });
        // All levels use the same compression: with a stronger one below, compaction would rewrite
        // a file in order to move it there.
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

    /// Returns the options of a bulk load, which has no readers: its files are compacted at once at
    /// the end, not repeatedly.
    pub(crate) fn bulk_load_options(&self, durable: &DurableWatermark) -> Options {
        let mut options = self.options(durable);
        options.set_write_buffer_manager(&self.loads);
        options.set_disable_auto_compactions(true);
        options
    }

    /// Returns the options of a frozen shard, which is read sequentially.
    pub(crate) fn export_options() -> Options {
        with_files(&Cache::new_lru_cache(EXPORT_CACHE_BYTES))
    }

    /// Returns the options of a database that ingests the files of a copy, and of these files.
    /// Later compactions compress the files more strongly.
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
    // The indexes and filters are partitioned into parts of block size. Otherwise, if those of all
    // files do not fit into the cache, each lookup would read a whole one from the disk, a megabyte
    // and more for a large file.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // A test detects that RocksDB no longer knows the option.
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
    use std::task::{Context, Waker};

    use forebay_core::fold::{FoldEffects, PartitionState};
    use forebay_core::id::{LogId, PartitionCount, PartitionId, PartitionRef, StoreId};
    use forebay_core::key::{Key, KeyType};
    use forebay_core::key_order::KeyOrder;
    use forebay_core::state_rows::FollowState;

    use rocksdb::WaitForCompactOptions;

    use super::*;
    use crate::ShardDirectory;

    #[test]
    fn filter_hides_no_written_row() {
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
        // Half of a thousand written keys are deleted again, and the last keys are unflushed.
        for round in 0..4_u32 {
            let writes = (0..1_000).map(|it| (key(it), (it % 2 == round % 2).then(|| vec![1])));
            let effects = FoldEffects { writes: writes.collect(), ..FoldEffects::default() };
            writer.apply(&effects, &state, FollowState::default()).unwrap();
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
    fn all_closed_waits_for_the_last_reader() {
        let folder = tempfile::tempdir().unwrap();
        let resources = Resources::new(SHARD_MEMORY_BYTES_MIN).unwrap();
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let order = KeyOrder { primary: KeyType::Bytes, partition: None };
        let writer = ShardDirectory::new(folder.path(), resources.clone()).create(at, order);
        let reader = Arc::clone(writer.as_ref().unwrap().shard());
        let mut all_closed = std::pin::pin!(resources.all_closed());
        let mut context = Context::from_waker(Waker::noop());
        assert!(all_closed.as_mut().poll(&mut context).is_pending());
        drop(writer);
        assert!(all_closed.as_mut().poll(&mut context).is_pending(), "a reader holds the shard");
        drop(reader);
        assert!(all_closed.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn read_does_not_rewrite_files() {
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
            let effects = FoldEffects { writes, ..FoldEffects::default() };
            writer.apply(&effects, &state, FollowState::default()).unwrap();
        };
        write(0);
        shard.flush().unwrap();
        // The second write, which is read, comes after the flushed file.
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
