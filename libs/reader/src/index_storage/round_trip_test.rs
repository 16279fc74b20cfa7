//! Proves that a replica that is written to a checkpoint and read back is unchanged: state, rows
//! and positions.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use forebay_core::ErrorCode;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{
    Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Source, Verb,
};
use forebay_core::clock::Timestamp;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::fold::Record;
use forebay_core::id::{
    ClientId, Epoch, FieldId, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position,
    SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::schema::StoreSpec;
use forebay_core::value::{FieldType, Value};
use forebay_index::Index;
use forebay_log::Bounds;
use forebay_log::disk::{Disk, SimDisk};
use forebay_replica::{PartitionReplica, open_checkpoint, write_checkpoint};
use forebay_snapshot::ImageState;

use super::IndexWriter;

const AT: PartitionRef = PartitionRef { store: StoreId(42), partition: PartitionId(0) };
const COUNT: PartitionCount = PartitionCount(1);

fn index() -> Index {
    let number = FieldType::INT64;
    let spec = StoreSpec::documents("users", KeyType::String).partitions(1).field("age", number);
    let definition = spec.define(AT.store).unwrap();
    Index::new([SchemaAt::of(definition)], [AT.partition], 5).unwrap()
}

fn replica(index: &Index) -> PartitionReplica {
    PartitionReplica::first(AT, COUNT, Box::new(IndexWriter(index.writer(AT.partition).unwrap())))
}

/// Returns one record: a client chosen by the entropy puts or deletes a document. Record 0 is the
/// log header entry.
fn record(number: u64, entropy: &SeededEntropy) -> Record {
    let random = entropy.next_u64().unwrap();
    let set = FieldOp::Set(Some(Value::Int64(random as i64)));
    let is_delete = random.is_multiple_of(11);
    let field = FieldChange { field: FieldId(1), op: set, ttl_us: None };
    let change = Change {
        sequence: Sequence(1 + random % 3_000),
        key: Key::plain(format!("key-{:0100}", random % 9_000).as_bytes()).unwrap(),
        verb: if is_delete { Verb::Delete } else { Verb::Put },
        fields: if is_delete { Vec::new() } else { vec![field] },
        condition: None,
        ttl_us: (!is_delete && random.is_multiple_of(5)).then_some(60_000_000),
    };
    let client = ClientId(u128::from(random % 2_500) << 70 | 3);
    let position = Position { epoch: Epoch(2), offset: Offset(number), index_in_entry: 7 };
    let source = Source {
        partition: PartitionId(number as u32),
        position,
        previous: None,
        append_time: Timestamp::from_micros(5_000 + number as i64 * 1_000),
        is_forwarded: false,
    };
    let entry = Entry {
        log_id: LogId(0xfeed),
        epoch: Epoch(1),
        schema_version: SchemaVersion(1),
        source: (number > 0 && random.is_multiple_of(4)).then_some(source),
        body: match number {
            0 => EntryBody::LogHeader,
            _ => EntryBody::Changes(vec![ClientBatch { client, changes: vec![change] }]),
        },
    };
    let append_time = Timestamp::from_micros(number as i64 * 1_000);
    Record { offset: Offset(number), append_time, entry: Ok(entry) }
}

fn rows(replica: &PartitionReplica) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        Ok(())
    };
    replica.writer().visit_rows(&mut visit).unwrap();
    rows.sort();
    rows
}

fn apply(replica: &mut PartitionReplica, index: &Index, records: std::ops::Range<u64>) {
    for number in records {
        let record = record(number, &SeededEntropy::new(number));
        let step = replica.apply(record, index.schemas(), |_| ()).unwrap();
        assert_eq!(step.skipped, None);
    }
    replica.write_buffered().unwrap();
}

/// Writes the replica to a file, and reads the file into a new replica over this index.
fn written_and_read(replica: &PartitionReplica, index: &Index) -> (PartitionReplica, ImageState) {
    let disk = SimDisk::new(Arc::new(SeededEntropy::new(1)));
    let path = Path::new("checkpoint");
    let head = replica.checkpoint_head(Some(-7)).unwrap();
    let file = disk.create(path).unwrap();
    let bytes = write_checkpoint(&*file, &head, replica.writer(), &|| false).unwrap();
    assert_eq!(disk.bytes(path).unwrap().len() as u64, bytes);
    let (image, found) = open_checkpoint(disk.open(path).unwrap()).unwrap();
    image.verify().unwrap();
    assert_eq!((found.clock_error_us, found.opened), (Some(-7), head.opened));
    assert_eq!(found.append_time, head.append_time);
    let mut read = self::replica(index);
    read.restore(found, &image).unwrap();
    (read, head)
}

#[test]
fn restored_checkpoint_equals_its_replica_and_continues_alike() {
    let (index, other_index) = (index(), index());
    let mut replica = replica(&index);
    let bounds = Bounds { start: Offset(0), end: Offset(9_999), server_time: None };
    replica.open(bounds).unwrap();
    assert!(replica.checkpoint_head(None).is_none(), "nothing is worth a checkpoint yet");
    apply(&mut replica, &index, 0..6_000);
    let (mut read, head) = written_and_read(&replica, &other_index);
    assert!(head.state.dedup.windows().len() > 2_000, "many windows");
    assert!(head.state.sources.len() > 1_000);
    assert!(rows(&replica).len() > 2_500, "many groups of rows");
    assert_eq!(read.state(), replica.state());
    assert_eq!(rows(&read), rows(&replica));
    assert_eq!(read.checkpoint_head(Some(-7)), Some(head));

    apply(&mut replica, &index, 6_000..9_000);
    apply(&mut read, &other_index, 6_000..9_000);
    assert_eq!(read.state(), replica.state());
    assert_eq!(rows(&read), rows(&replica));
}

#[test]
fn rebuilding_copy_is_not_checkpointed() {
    let index = index();
    let mut replica = replica(&index);
    let bounds = Bounds { start: Offset(0), end: Offset(3), server_time: None };
    replica.open(bounds).unwrap();
    apply(&mut replica, &index, 0..3);
    assert!(replica.checkpoint_head(None).is_some());
    replica.start_over(forebay_core::Error::token_lost("a test")).unwrap();
    replica.open(bounds).unwrap();
    apply(&mut replica, &index, 0..2);
    assert!(replica.checkpoint_head(None).is_none());
    replica.serve();
    assert!(replica.checkpoint_head(None).is_some());
}

#[test]
fn late_checkpoint_is_abandoned_midway() {
    let index = index();
    let mut replica = replica(&index);
    replica.open(Bounds { start: Offset(0), end: Offset(0), server_time: None }).unwrap();
    apply(&mut replica, &index, 0..9_000);
    let head = replica.checkpoint_head(None).unwrap();
    let disk = SimDisk::new(Arc::new(SeededEntropy::new(1)));
    let path = Path::new("checkpoint");
    let looks = Cell::new(0);
    let is_late = || looks.replace(looks.get() + 1) == 1;
    let error = write_checkpoint(&*disk.create(path).unwrap(), &head, replica.writer(), &is_late);
    assert_eq!(error.unwrap_err().code(), ErrorCode::DeadlineExceeded);
    let written_bytes = disk.bytes(path).unwrap().len() as u64;
    let whole_path = Path::new("whole");
    let file = disk.create(whole_path).unwrap();
    let whole_bytes = write_checkpoint(&*file, &head, replica.writer(), &|| false).unwrap();
    assert!(written_bytes > 0 && written_bytes < whole_bytes, "{written_bytes} of {whole_bytes}");
    let unfinished = open_checkpoint(disk.open(path).unwrap());
    assert_eq!(unfinished.unwrap_err().code(), ErrorCode::Corrupt);
}
