//! Tests of replicas over real shards: when entries are written, and when shards are removed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{LogId, Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::KeyOrder;
use forebay_core::schema::StoreSpec;
use forebay_core::schema_set::SchemaSet;
use forebay_replica::{ReplicaWriter, Storage};
use forebay_shard::{Resources, Shard, ShardDirectory};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{EntryRun, Materializer, ShardFolder, ShardReplicas, WrittenShard};

const AT: PartitionRef = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
const ONE: PartitionCount = PartitionCount(1);
const KEY: &[u8] = b"ada";

/// Documents, one row for each key.
struct DocumentRows;

impl Materializer for DocumentRows {
    type Shared = ();

    const STORES_DOCUMENTS: bool = true;

    fn is_compatible(&self, _shard: &Shard, _schemas: &SchemaSet) -> Result<bool> {
        Ok(true)
    }

    fn write(&self, shard: &mut WrittenShard<Self>, run: &EntryRun<'_>) -> Result<()> {
        shard.write_documents(run)
    }
}

/// The number of entries of the last run; the sizes of all runs are shared.
struct RunLengths {
    is_compatible: AtomicBool,
}

impl Materializer for RunLengths {
    type Shared = Mutex<Vec<usize>>;

    fn is_compatible(&self, _shard: &Shard, _schemas: &SchemaSet) -> Result<bool> {
        Ok(self.is_compatible.load(Ordering::Relaxed))
    }

    fn write(&self, shard: &mut WrittenShard<Self>, run: &EntryRun<'_>) -> Result<()> {
        let length = run.entries.len();
        let row = vec![u8::try_from(length).unwrap()];
        shard.write_run(run, &[], vec![(Key::plain(KEY)?, Some(row))])?;
        shard.shared().lock().push(length);
        Ok(())
    }
}

fn replicas<M: Materializer>(materializer: M, folder: &Path) -> ShardReplicas<M> {
    let definition =
        StoreSpec::documents("users", KeyType::String).partitions(1).define(AT.store).unwrap();
    let order = KeyOrder::of(&definition);
    let schemas = SchemaSet::new([SchemaAt::of(definition)]).unwrap();
    let directory = ShardDirectory::new(folder, Resources::new(64 << 20).unwrap());
    let folder = ShardFolder { directory, order, partitions: ONE };
    ShardReplicas::new(materializer, schemas, folder, Arc::new(Notify::new()))
}

fn run_lengths(folder: &Path) -> ShardReplicas<RunLengths> {
    replicas(RunLengths { is_compatible: AtomicBool::new(true) }, folder)
}

fn state(entries: u64) -> PartitionState {
    let mut state = PartitionState::new(AT, ONE);
    (state.log_id, state.offset_applied) = (Some(LogId(1)), Offset(entries));
    state
}

fn entry(row: &[u8]) -> FoldEffects {
    let write = (Key::plain(KEY).unwrap(), Some(row.to_vec()));
    FoldEffects { writes: vec![write], ..FoldEffects::default() }
}

fn apply(writer: &mut dyn ReplicaWriter, entries: std::ops::RangeInclusive<u64>) {
    for number in entries {
        writer.apply(&mut entry(b"row"), &state(number)).unwrap();
    }
}

fn row(shard: &Shard) -> Option<Vec<u8>> {
    shard.row(KEY).unwrap().map(|row| row.to_vec())
}

#[test]
fn documents_are_written_entry_by_entry() {
    let folder = tempfile::tempdir().unwrap();
    let shards = replicas(DocumentRows, folder.path());
    let mut opened = shards.open(AT).unwrap();
    apply(&mut *opened.writer, 1..=1);
    assert_eq!(row(&shards.shard(AT.partition).unwrap()).unwrap(), b"row");
    assert_eq!(opened.writer.row(KEY).unwrap().unwrap(), &b"row"[..]);
}

#[test]
fn entries_of_one_read_are_written_together() {
    let folder = tempfile::tempdir().unwrap();
    let shards = run_lengths(folder.path());
    let mut opened = shards.open(AT).unwrap();
    apply(&mut *opened.writer, 1..=3);
    assert_eq!(row(&shards.shard(AT.partition).unwrap()), None);
    opened.writer.write_buffered(&state(3)).unwrap();
    opened.writer.write_buffered(&state(3)).unwrap();
    let [(_, lengths)] = &shards.shared()[..] else { panic!("one shard is open") };
    assert_eq!(*lengths.lock(), [3]);
    assert_eq!(row(&shards.shard(AT.partition).unwrap()).unwrap(), [3]);
}

#[test]
fn resumed_shard_has_its_position_and_closed_shards_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let shards = run_lengths(folder.path());
    let mut opened = shards.open(AT).unwrap();
    apply(&mut *opened.writer, 1..=2);
    opened.writer.write_buffered(&state(2)).unwrap();
    drop(opened);
    assert!(shards.shard(AT.partition).is_err());
    let resumed = shards.open(AT).unwrap().resumed.unwrap();
    assert_eq!(resumed.state.offset_applied, Offset(2));
}

#[test]
fn shard_of_another_format_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let shards = run_lengths(folder.path());
    let mut opened = shards.open(AT).unwrap();
    apply(&mut *opened.writer, 1..=1);
    opened.writer.write_buffered(&state(1)).unwrap();
    drop(opened);
    shards.materializer().is_compatible.store(false, Ordering::Relaxed);
    let opened = shards.open(AT).unwrap();
    assert!(opened.resumed.is_none());
    assert_eq!(row(&shards.shard(AT.partition).unwrap()), None);
}

#[test]
fn replaced_shard_is_removed_once_its_readers_have_finished() {
    let folder = tempfile::tempdir().unwrap();
    let shards = replicas(DocumentRows, folder.path());
    let mut opened = shards.open(AT).unwrap();
    apply(&mut *opened.writer, 1..=1);
    let read = shards.shard(AT.partition).unwrap();
    let path = read.path().to_owned();
    opened.writer.start_rebuild().unwrap();
    apply(&mut *opened.writer, 1..=2);
    opened.writer.publish_rebuild().unwrap();
    apply(&mut *opened.writer, 3..=3);
    assert_ne!(shards.shard(AT.partition).unwrap().path(), path);
    assert_eq!(row(&read).unwrap(), b"row");
    drop(read);
    apply(&mut *opened.writer, 4..=4);
    assert!(!path.exists());
}
