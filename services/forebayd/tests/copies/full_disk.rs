//! Copies to a disk that is really full: refused with a helpful error, and resumed later.

use std::sync::Arc;

use forebay::ErrorCode;
use forebay_core::clock::SystemClock;
use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};
use forebay_log::{ChangeLog, MemoryLog};
use forebay_replicator_service::CopyOptions;
use forebay_shard::{ExportRows, PartBlock, PartSource};
use forebay_wire::shard_copy::RowsBlock;

use crate::served_node::ServedNode;
use crate::small_disk::{SmallDisk, run_again_where_mounting_is_permitted};
use crate::{copy, digests, directory, fill, freeze, is_applied, spec, target};

const DISK_BYTES: usize = 32 << 20;
/// Filler that leaves space for half of the shard.
const FILLER_BYTES: usize = 24 << 20;
const DOCUMENTS: i64 = 16_000;

fn assert_full(error: &Error) {
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    let (free_bytes, remaining_bytes) =
        (error.context().limit.unwrap(), error.context().actual.unwrap());
    assert!(
        remaining_bytes > free_bytes,
        "{remaining_bytes} bytes are about to come, {free_bytes} are free"
    );
    assert!(error.message().contains("the disk is full; make room"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_to_a_full_disk_is_refused_and_resumes_once_space_returns() {
    for are_files_moved in [false, true] {
        let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
            let test = "full_disk::\
                copy_to_a_full_disk_is_refused_and_resumes_once_space_returns";
            return run_again_where_mounting_is_permitted(test);
        };
        let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let source_dir = tempfile::tempdir().unwrap();
        let mut source = ServedNode::start(&log, source_dir.path()).await;
        let store = source.client().await.create_store(&spec()).await.unwrap();
        is_applied(&store, fill(&store, 0..DOCUMENTS).await).await;
        disk.fill(FILLER_BYTES);
        let data = disk.path().join("data");
        let options = CopyOptions { are_files_moved, ..CopyOptions::default() };
        let target = target(&data, options);
        let mut durable = 0;
        for _ in 0..3 {
            assert_full(&copy(&target, &source.address).await.unwrap_err());
            let import = directory(&data).resume_import("blobs", PartitionId(0)).unwrap().unwrap();
            let now: u64 = import.ranges().iter().map(|range| range.bytes).sum();
            assert!(now >= durable.max(1), "{now} bytes are durable, {durable} were");
            durable = now;
        }
        disk.free();
        let progress = copy(&target, &source.address).await.unwrap();
        let remaining_bytes = progress.bytes - durable;
        assert!(
            progress.bytes_received as f64 <= 1.1 * remaining_bytes as f64,
            "{remaining_bytes} left, {progress:?}"
        );
        source.end().await;
        drop(source);
        let found =
            [source_dir.path(), data.as_path()].map(|data| digests(data, &store.definition()).1);
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0].rows, DOCUMENTS as u64);
    }
}

/// The rows of a frozen shard.
struct Rows<'e>(ExportRows<'e>);

impl PartSource for Rows<'_> {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> Result<PartBlock<Vec<u8>>> {
        let mut block = RowsBlock::default();
        let end = self.0.next(&mut block)?;
        Ok(PartBlock { bytes: block.bytes().to_vec(), end, was_compressed: true })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_copy_on_a_full_disk_becomes_a_shard_later() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else {
        let test = "full_disk::finished_copy_on_a_full_disk_becomes_a_shard_later";
        return run_again_where_mounting_is_permitted(test);
    };
    let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let source_dir = tempfile::tempdir().unwrap();
    let mut source = ServedNode::start(&log, source_dir.path()).await;
    let store = source.client().await.create_store(&spec()).await.unwrap();
    is_applied(&store, fill(&store, 0..1_000).await).await;
    source.end().await;
    drop(source);
    let export = freeze(source_dir.path(), &store.definition(), &source_dir.path().join("frozen"));
    let directory = directory(disk.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    let mut rows = Rows(export.rows(0, None).unwrap());
    while !import.write_part(0, &mut rows).unwrap() {}
    disk.fill(DISK_BYTES);
    assert_full(&directory.take_in(import).unwrap_err());
    let resume = || directory.resume_import("blobs", PartitionId(0)).unwrap().unwrap();
    assert_full(&directory.take_in(resume()).unwrap_err());
    disk.free();
    directory.take_in(resume()).unwrap();
    let found = [source_dir.path(), disk.path()].map(|data| digests(data, &store.definition()).1);
    assert_eq!(found[0], found[1]);
}
