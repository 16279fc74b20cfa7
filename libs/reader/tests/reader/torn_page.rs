//! Proves that a reader repairs a torn page of its checkpoint, without the log, and counts it in
//! its metrics; and that with more damage the reader serves no damaged data and reads the log from
//! its start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::id::PartitionId;
use forebay_index::SharedCopyDirectory;
use forebay_log::disk::{Disk, RealDisk, SimDisk};
use forebay_reader::{CheckpointCounts, CheckpointOptions, Phase, Reader, ReaderParts};

use crate::world::checkpoints::{counts, status, wait_until};
use crate::world::{Rim, World, age};

const LONG: Duration = Duration::from_secs(60);
const KEYS: i64 = 2_000;
const BLOCK_BYTES: usize = 8 * 1024;
const PAGE_BYTES: usize = 4 * 1024;
/// Offset of the number of blocks in an image, and of the number of parity blocks among them.
const BLOCKS_AT: usize = 112;
const PARITIES_AT: usize = 144;

/// The way in which a reader uses its checkpoint.
#[derive(Clone, Copy, Debug)]
enum CheckpointAccess {
    /// Reads it from a simulated disk.
    Read,
    /// Maps it, without sharing.
    Mapped,
    /// Copies it to files that it shares.
    Shared,
}

/// A store, and readers of it, one at a time.
struct Readers {
    access: CheckpointAccess,
    rim: Arc<Rim>,
    world: World,
    dir: tempfile::TempDir,
    sim: SimDisk,
}

impl Readers {
    /// Returns a store with documents; a reader has applied all of them and closed.
    async fn new_closed(access: CheckpointAccess) -> Self {
        let rim = Rim::new();
        let (world, dir) = (World::over(rim.clone(), 1).await, tempfile::tempdir().unwrap());
        let readers = Self { access, rim, world, dir, sim: crate::world::checkpoints::disk() };
        let mut last = readers.world.put("key-0", 0).await;
        for n in 1..KEYS {
            last = readers.world.put(&format!("key-{n}"), n).await;
        }
        let reader = readers.open().await;
        reader.await_ready(LONG).await.unwrap();
        reader.await_token(&last, LONG).await.unwrap();
        readers.close(reader).await;
        readers
    }

    async fn open(&self) -> Reader {
        let checkpoint = CheckpointOptions::new(self.dir.path())
            .is_shared(matches!(self.access, CheckpointAccess::Shared))
            .memory_dir(None)
            .interval(Duration::from_millis(50));
        let disk: Arc<dyn Disk> = match self.access {
            CheckpointAccess::Read => Arc::new(self.sim.clone()),
            CheckpointAccess::Mapped | CheckpointAccess::Shared => Arc::new(RealDisk),
        };
        let options = self.world.options().checkpoint(checkpoint);
        let parts = ReaderParts { disk: Some(disk), ..self.world.parts() };
        Reader::open(options, parts).await.unwrap()
    }

    /// Closes a reader, with its last checkpoint; removes a shared copy, as a restart of the
    /// machine does.
    async fn close(&self, reader: Reader) {
        reader.close(LONG).await.unwrap();
        drop(reader);
        let dir = SharedCopyDirectory { dir: self.dir.path().to_owned(), memory_dir: None };
        dir.remove(self.world.definition.store, [PartitionId(0)]);
    }

    /// Returns the path of the only checkpoint.
    fn file(&self) -> PathBuf {
        let files = match self.access {
            CheckpointAccess::Read => self.sim.files(self.dir.path()).unwrap(),
            CheckpointAccess::Mapped | CheckpointAccess::Shared => {
                let names = std::fs::read_dir(self.dir.path()).unwrap();
                names.map(|name| name.unwrap().path()).collect()
            }
        };
        let is_checkpoint =
            |path: &PathBuf| path.extension().is_some_and(|end| end == "checkpoint");
        let mut files: Vec<_> = files.into_iter().filter(is_checkpoint).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }

    fn bytes(&self, path: &Path) -> Vec<u8> {
        match self.access {
            CheckpointAccess::Read => self.sim.bytes(path).unwrap(),
            CheckpointAccess::Mapped | CheckpointAccess::Shared => std::fs::read(path).unwrap(),
        }
    }

    /// Tears a page of each of these blocks of the checkpoint.
    fn tear(&self, blocks: &[usize]) {
        let path = self.file();
        let mut bytes = self.bytes(&path);
        for block in blocks {
            let offset = (1 + block) * BLOCK_BYTES + block % 2 * PAGE_BYTES;
            bytes[offset..offset + PAGE_BYTES].fill(0x5a);
        }
        match self.access {
            CheckpointAccess::Read => self.sim.damage(&path, |file| *file = bytes).unwrap(),
            CheckpointAccess::Mapped | CheckpointAccess::Shared => {
                std::fs::write(&path, bytes).unwrap()
            }
        }
    }
}

fn number(bytes: &[u8], offset: usize) -> usize {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap()) as usize
}

/// Checks the values of all keys in order; returns an error if one cannot be read.
fn read_all(reader: &Reader) -> Result<(), ErrorCode> {
    let mut read = Ok(());
    for n in 0..KEYS {
        match age(reader, &format!("key-{n}")) {
            Ok(found) => assert_eq!(found, Some(n), "what was served of key-{n}"),
            Err(error) => read = Err(error.code()),
        }
    }
    read
}

async fn torn_pages_are_mended(access: CheckpointAccess) {
    let readers = Readers::new_closed(access).await;
    let bytes = readers.bytes(&readers.file());
    let (blocks, parities) = (number(&bytes, BLOCKS_AT), number(&bytes, PARITIES_AT));
    assert!(blocks > 10 && parities > 0, "{blocks} and {parities} blocks");
    for block in [0, blocks / 2, blocks - 1] {
        readers.tear(&[block]);
        // The log is off, so no replica can be rebuilt from it.
        readers.rim.is_off.store(true, Ordering::SeqCst);
        let reader = readers.open().await;
        wait_until(&reader, |status| status.phase == Phase::Serving).await;
        assert_eq!(read_all(&reader), Ok(()), "{access:?}, block {block}");
        wait_until(&reader, |status| status.counts.checkpoints.blocks_repaired > 0).await;
        assert_eq!(read_all(&reader), Ok(()));
        readers.rim.is_off.store(false, Ordering::SeqCst);
        // The damaged file is replaced, although nothing was written.
        wait_until(&reader, |status| status.counts.checkpoints.written > 0).await;
        let found = counts(&reader);
        let (restored, checkpoints_written, blocks_repaired) = (1, found.written, 1);
        let repaired = CheckpointCounts {
            restored,
            written: checkpoints_written,
            blocks_repaired,
            ..Default::default()
        };
        assert_eq!(found, repaired, "{access:?}, block {block}");
        let counts = status(&reader).counts;
        assert_eq!((counts.rebuilds, counts.records_applied), (0, 0), "the log was not needed");
        assert_eq!(reader.metrics().counts.checkpoints.blocks_repaired, 1);
        readers.close(reader).await;

        let reader = readers.open().await;
        reader.await_ready(LONG).await.unwrap();
        assert_eq!(read_all(&reader), Ok(()));
        assert_eq!(
            crate::world::checkpoints::counts(&reader).blocks_repaired,
            0,
            "of the file that was replaced"
        );
        readers.close(reader).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_page_of_a_read_checkpoint_is_repaired_without_the_log() {
    torn_pages_are_mended(CheckpointAccess::Read).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_page_of_a_mapped_checkpoint_is_repaired_without_the_log() {
    torn_pages_are_mended(CheckpointAccess::Mapped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_page_of_a_copied_checkpoint_is_repaired_without_the_log() {
    torn_pages_are_mended(CheckpointAccess::Shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn irreparable_damage_is_never_served_and_the_log_is_replayed_from_its_start() {
    for access in [CheckpointAccess::Read, CheckpointAccess::Mapped, CheckpointAccess::Shared] {
        let readers = Readers::new_closed(access).await;
        let bytes = readers.bytes(&readers.file());
        let (blocks, parities) = (number(&bytes, BLOCKS_AT), number(&bytes, PARITIES_AT));
        // The two blocks have one parity block, and the second one is certainly read.
        readers.tear(&[blocks - 1 - parities, blocks - 1]);
        let reader = readers.open().await;
        wait_until(&reader, |status| {
            read_all(&reader).is_ok()
                && status.phase == Phase::Serving
                && status.counts.records_applied > 0
        })
        .await;
        let found = counts(&reader);
        assert_eq!((found.damaged, found.blocks_repaired), (1, 0), "{access:?}");
        // A replica that serves before it is copied is rebuilt next to the serving one.
        let rebuilds = u64::from(!matches!(access, CheckpointAccess::Shared));
        assert_eq!(status(&reader).counts.rebuilds, rebuilds, "{access:?}");
        readers.close(reader).await;
    }
}
