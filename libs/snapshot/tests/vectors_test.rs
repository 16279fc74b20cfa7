//! The golden vectors of snapshots and backups. `UPDATE_VECTORS=1` rewrites them.

use forebay_core::ErrorCode;
use forebay_core::clock::Timestamp;
use forebay_core::id::{
    Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
    StoreId,
};
use forebay_core::key::KeyType;
use forebay_core::replica_state::Progress;
use forebay_core::schema::StoreSpec;
use forebay_core::value::FieldType;
use forebay_snapshot::{
    Backup, BackupName, BaseLayer, ChunkId, DeltaBlocks, DeltaLayer, KeptRecord, LogBlocks,
    LogSegment, Manifest, PartitionBackup, decode_chunk, delta_rows, encode_chunk, kept_records,
};
use forebay_testkit::vectors::{check, read};
use serde_json::{Value, json};

const COMMAND: &str = "cargo test --workspace --test vectors_test";

fn progress(offset: u64) -> Progress {
    Progress {
        position: Position { epoch: Epoch(1), offset: Offset(offset), index_in_entry: 2 },
        offset_applied: Offset(offset + 1),
        partition_time: Timestamp::from_micros(-5),
        schema_version: SchemaVersion(1),
    }
}

fn manifest() -> Manifest {
    let at = PartitionRef { store: StoreId(0x8000_0000_0000_0007), partition: PartitionId(3) };
    let chunk = |text: &[u8]| ChunkId::of(text, 0xabcd);
    let number = FieldType::INT64;
    let spec = StoreSpec::documents("users", KeyType::String).partitions(4).field("age", number);
    Manifest {
        id: 0xabcd,
        at,
        partitions: PartitionCount(4),
        store: "users".to_owned(),
        log_id: LogId(0xfeed),
        progress: progress(20),
        definitions: vec![spec.define(at.store).unwrap()],
        base: BaseLayer {
            progress: progress(10),
            documents: 9,
            chunks: vec![chunk(b"image"), chunk(b"end")],
        },
        deltas: vec![DeltaLayer {
            progress: progress(20),
            written: 1,
            deleted: 2,
            rows: vec![chunk(b"rows")],
            state: vec![chunk(b"state")],
        }],
    }
}

/// Returns a chunk with the codec that bytes of this kind get. The output of a compressor may vary,
/// so the test compares only uncompressed chunks with the encoder's output.
fn chunk(name: &str, bytes: &[u8], object: &[u8]) -> Value {
    let id = ChunkId::of(bytes, 1);
    json!({
        "name": name,
        "bytes_hex": hex::encode(bytes),
        "hash_hex": id.hash.to_string(),
        "object_hex": hex::encode(object),
    })
}

fn delta(name: &str, rows: &[(&[u8], Option<&[u8]>)]) -> Value {
    let mut blocks = DeltaBlocks::default();
    rows.iter().for_each(|(key, row)| assert!(blocks.push(key, *row).is_none()));
    let row = |(key, row): &(&[u8], Option<&[u8]>)| {
        let (key, row) = (hex::encode(key), row.map(hex::encode));
        json!({"key_hex": key, "row_hex": row})
    };
    json!({
        "name": name,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "chunk_hex": hex::encode(blocks.take().unwrap_or_default()),
    })
}

fn vectors() -> Value {
    // A frame of Zstandard with the raw bytes in it is readable by every decoder.
    let raw = b"\x28\xb5\x2f\xfd\x20\x08\x41\x00\x00snapshot";
    let frame = [&b"FBCH\x01\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00"[..], raw].concat();
    json!({
        "spec": "proto/spec/snapshot.md",
        "description": "A manifest with its name, chunks, and rows of deltas.",
        "manifests": [{
            "name": manifest().name().to_string(),
            "object_hex": hex::encode(manifest().encode().unwrap()),
        }],
        "chunks": [
            chunk("as it is", b"snapshot", &encode_chunk(b"snapshot").unwrap()),
            chunk("as a frame of Zstandard", b"snapshot", &frame),
        ],
        "deltas": [
            delta("no rows", &[]),
            delta("an empty key, an empty row and a deletion", &[
                (b"", Some(b"")),
                (b"a", None),
                (b"b", Some(b"row")),
            ]),
        ],
    })
}

#[test]
fn snapshots_match_the_golden_vectors() {
    check("snapshot.json", &vectors(), COMMAND);
    let file: Value = read("snapshot.json");
    let text = |value: &Value, name: &str| hex::decode(value[name].as_str().unwrap()).unwrap();
    for vector in file["manifests"].as_array().unwrap() {
        let found = Manifest::decode(&text(vector, "object_hex")).unwrap();
        assert_eq!(found, manifest());
        assert_eq!(vector["name"], found.name().to_string());
    }
    for vector in file["chunks"].as_array().unwrap() {
        let bytes = text(vector, "bytes_hex");
        let id = ChunkId::of(&bytes, 1);
        assert_eq!(vector["hash_hex"], id.hash.to_string());
        assert_eq!(decode_chunk(&id, &text(vector, "object_hex").into()).unwrap(), bytes);
    }
    for vector in file["deltas"].as_array().unwrap() {
        let chunk = text(vector, "chunk_hex");
        let rows: Vec<_> = delta_rows(&chunk).map(Result::unwrap).collect();
        let expected_rows = vector["rows"].as_array().unwrap();
        assert_eq!(rows.len(), expected_rows.len());
        for ((key, row), expected_row) in rows.iter().zip(expected_rows) {
            assert_eq!(*key, text(expected_row, "key_hex"));
            let expected = expected_row["row_hex"].as_str().map(|hex| hex::decode(hex).unwrap());
            assert_eq!(row.map(<[u8]>::to_vec), expected);
        }
    }
}

fn backup(before: Option<BackupName>) -> Backup {
    let Manifest { at, definitions, .. } = manifest();
    let partition = |log: Vec<LogSegment>| PartitionBackup {
        snapshot: manifest().name(),
        progress: manifest().progress,
        log,
    };
    let segment = |from: u64, to: u64| LogSegment {
        offsets: Offset(from)..Offset(to),
        chunk: ChunkId::of(&from.to_le_bytes(), 0xbac0),
    };
    let mut partitions = vec![partition(Vec::new()); 3];
    partitions.push(partition(vec![segment(11, 18), segment(18, 21)]));
    let taken_at = Timestamp::from_micros(1_750_000_000_000_000);
    let name = BackupName { taken_at, id: 0xbac0 };
    Backup { name, before, store: at.store, definitions, partitions }
}

const RECORDS: [(u64, i64, &[u8]); 3] = [(11, -5, b"entry"), (12, 7, b""), (20, 7, b"last")];

fn record((offset, time, entry): (u64, i64, &'static [u8])) -> KeptRecord<'static> {
    let append_time = Timestamp::from_micros(time);
    KeptRecord { offset: Offset(offset), append_time, entry }
}

#[test]
fn backups_match_the_golden_vectors() {
    let before = BackupName { taken_at: Timestamp::from_micros(1_749_999_999_000_000), id: 0xbabe };
    let backups = [backup(None), backup(Some(before))];
    let mut blocks = LogBlocks::default();
    RECORDS.map(record).iter().for_each(|record| assert!(blocks.push(*record).is_none()));
    let records = RECORDS.map(|(offset, time, entry)| {
        json!({"offset": offset, "append_time_us": time, "entry_hex": hex::encode(entry)})
    });
    let generated = json!({
        "spec": "proto/spec/backup.md",
        "description": "Backups with their names, and records of a log.",
        "backups": backups.each_ref().map(|backup| json!({
            "name": backup.name.to_string(),
            "before": backup.before.map(|before| before.to_string()),
            "object_hex": hex::encode(backup.encode().unwrap()),
        })),
        "logs": [{
            "name": "an empty entry and a gap",
            "records": records,
            "chunk_hex": hex::encode(blocks.take().unwrap()),
        }],
    });
    check("backup.json", &generated, COMMAND);
    let file: Value = read("backup.json");
    let text = |value: &Value, name: &str| hex::decode(value[name].as_str().unwrap()).unwrap();
    for (vector, backup) in file["backups"].as_array().unwrap().iter().zip(backups) {
        assert_eq!(BackupName::parse(vector["name"].as_str().unwrap()), Some(backup.name));
        assert_eq!(vector["before"].as_str().and_then(BackupName::parse), backup.before);
        assert_eq!(Backup::decode(&text(vector, "object_hex")).unwrap(), backup);
    }
    let mut after = backup(None);
    after.before = Some(after.name);
    let error = Backup::decode(&after.encode().unwrap()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "the one before it is itself");
    let chunk = text(&file["logs"][0], "chunk_hex");
    let found: Vec<_> = kept_records(&chunk).map(Result::unwrap).collect();
    assert_eq!(found, RECORDS.map(record));
}
