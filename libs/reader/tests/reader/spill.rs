//! Proves that a reader with less memory than its documents need spills them if it may.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_log::disk::RealDisk;
use forebay_reader::{CheckpointOptions, Reader, ReaderParts};

use crate::world::{World, age};

/// Memory for the index of the documents, but not for the documents.
const MEMORY_LIMIT: u64 = 512 * 1024;
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn spilling_reader_applies_everything_and_resumes_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(1).await;
    let options = |spill_limit| {
        world
            .options()
            .memory_limit(MEMORY_LIMIT)
            .checkpoint(CheckpointOptions::new(dir.path()).memory_dir(None))
            .spill_limit(spill_limit)
    };
    let parts = || ReaderParts { disk: Some(Arc::new(RealDisk)), ..world.parts() };
    let nowhere = options(1).checkpoint(None);
    let error = Reader::open(nowhere, parts()).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    let mut last = world.put("key-0", 0).await;
    for n in 1..20_000 {
        last = world.put(&format!("key-{n}"), n).await;
    }
    for turn in 0..2 {
        let reader = Reader::open(options(64 << 20), parts()).await.unwrap();
        reader.await_ready(LONG).await.unwrap();
        reader.await_token(&last, LONG).await.unwrap();
        for n in 0..20_000 {
            assert_eq!(age(&reader, &format!("key-{n}")).unwrap(), Some(n), "turn {turn}");
        }
        // A copy counts at its owner, and the second reader answers before it owns this copy.
        let memory_use = async {
            while reader.metrics().memory.used == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, memory_use).await.unwrap();
        let memory = reader.metrics().memory;
        assert!(memory.used <= MEMORY_LIMIT && memory.spilled > 0, "{memory:?}");
        assert_eq!(memory.spill_limit, 64 << 20);
        assert!(reader.read_in_memory(|view| view.get_document("key-0")).is_err());
        reader.begin_close();
    }
}
