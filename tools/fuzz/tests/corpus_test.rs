//! Proves that the checked-in corpus is generated from the golden vectors (`UPDATE_VECTORS=1`
//! writes it again), and that every input in it passes without a fuzzer.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use forebay_core::Error;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, Condition, FieldChange, FieldOp, Source, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::id::{
    ClientId, Epoch, FieldId, Offset, PartitionId, Position, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::schema::{Alteration, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_fuzz::{
    LAYOUT_NAMES, MESSAGES, MODE_OF_ROW, TARGETS, mode_of_key, sound_checkpoint, sound_segment,
    tile_aggregates,
};
use forebay_testkit::{tree, vectors};
use forebay_wire::v1;
use forebay_wire::value::nullable_value_message;
use prost::Message;
use serde_json::Value as Json;

type Inputs = BTreeMap<String, Vec<u8>>;

fn corpus(target: &str) -> PathBuf {
    tree::find("tools/fuzz/corpus").unwrap().join(target)
}

fn bytes_of(hex: &Json) -> Vec<u8> {
    hex::decode(hex.as_str().unwrap()).unwrap()
}

fn input(mode: usize, bytes: &[u8]) -> Vec<u8> {
    [&[mode as u8], bytes].concat()
}

fn file_name(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

fn rows() -> Inputs {
    let vectors_file: Json = vectors::read("row.json");
    let mut inputs = Inputs::new();
    for list in ["rows", "refused"] {
        for row in vectors_file[list].as_array().unwrap() {
            let is_of = |layout: &str| row["definition"] == *layout;
            let Some(mode) = LAYOUT_NAMES.iter().position(|layout| is_of(layout)) else { continue };
            let name = file_name(row["name"].as_str().unwrap());
            inputs.insert(name, input(mode, &bytes_of(&row["row_hex"])));
        }
    }
    inputs
}

fn entries() -> Inputs {
    let mut inputs = Inputs::new();
    for entry in vectors::read::<Json>("entry.json")["entries"].as_array().unwrap() {
        let name = file_name(entry["name"].as_str().unwrap());
        let frame = bytes_of(&entry["frame"]);
        inputs.insert(format!("{name}-body"), input(1, &frame[24..]));
        inputs.insert(name, input(0, &frame));
    }
    inputs
}

fn tokens() -> Inputs {
    let mut inputs = Inputs::new();
    for (number, token) in
        vectors::read::<Json>("token.json")["tokens"].as_array().unwrap().iter().enumerate()
    {
        let token = bytes_of(&token["token"]);
        inputs.insert(format!("token-{number}-unsealed"), input(1, &token[..token.len() - 4]));
        inputs.insert(format!("token-{number}"), input(0, &token));
    }
    inputs
}

fn segments() -> Inputs {
    let sound = sound_segment();
    let inputs = [
        ("sound", input(0, &sound)),
        ("empty", input(0, &[])),
        ("torn", input(0, &sound[..sound.len() - 5])),
        ("twice", input(1, &sound)),
        ("garbage-behind", input(1, &[0x5a; 48])),
        ("edited-magic", input(2, &[0, 0, b'X'])),
        ("edited-length", input(2, &[40, 0, 0xff, 41, 0, 0xff])),
        ("edited-entry", input(2, &[80, 0, 0])),
    ];
    inputs.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn journals() -> Inputs {
    // Offsets of an edit: the first half's header, its records, then the second half's.
    let second = 1_024_u16.to_le_bytes();
    let later_offset = |offset: u16| (1_024 + 28 + offset).to_le_bytes();
    let inputs = [
        ("sound", input(1, &[])),
        ("empty", input(0, &[])),
        ("edited-header", input(1, &[5, 0, 9])),
        ("edited-both-headers", input(1, &[5, 0, 9, second[0], second[1], 9])),
        ("edited-record", input(1, &[60, 0, 9])),
        ("edited-record-of-the-second", input(1, &[later_offset(30)[0], later_offset(30)[1], 9])),
        ("forged-version", input(2, &[4, 0, 9])),
        ("forged-length", input(2, &[8, 0, 9])),
        ("forged-first", input(2, &[16, 0, 0, 1, 4, 0])),
        ("forged-store", input(2, &[44, 0, 9])),
        ("forged-place", input(2, &[70, 0, 9])),
        ("forged-piece-length", input(2, &[72, 0, 0xff])),
        ("forged-bytes", input(2, &[90, 0, 9])),
    ];
    inputs.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn checkpoints() -> Inputs {
    let sound = sound_checkpoint();
    // The first block of the file is its header, the second the only group, the third the open
    // segment.
    let [group, segment] = [8_192_u16, 16_384].map(u16::to_le_bytes);
    let slot = sound[8_192..16_384].as_chunks::<8>().0.iter().position(|slot| *slot != [0; 8]);
    let slot = (8_192 + 8 * slot.unwrap() as u16).to_le_bytes();
    let end = (sound.len() as u16 + 5).to_le_bytes();
    let inputs = [
        ("sound", input(0, &sound)),
        ("empty", input(0, &[])),
        ("torn", input(2, &[end[0], end[1], 0])),
        ("edited-version", input(2, &[4, 0, 9])),
        ("edited-group", input(2, &[group[0], group[1], 9])),
        ("edited-record", input(2, &[segment[0], segment[1], 9])),
        ("edited-twice", input(2, &[group[0], group[1], 9, segment[0], segment[1], 9])),
        ("flipped", input(130, &[])),
        ("forged-flipped", input(131, &[segment[0], segment[1], 0x7f])),
        ("forged-parities", input(131, &[144, 0, 2])),
        ("forged-without-parity", input(131, &[144, 0, 0])),
        ("forged-offset", input(3, &[40, 0, 0xff, 47, 0, 0x7f])),
        ("forged-schema-version", input(3, &[56, 0, 9])),
        ("forged-blocks", input(3, &[112, 0, 9])),
        ("forged-root", input(3, &[111, 0, 0xfc])),
        ("forged-slot", input(3, &[slot[0] + 4, slot[1], 7])),
        ("forged-record-key", input(3, &[segment[0], segment[1], 0x7f])),
        ("forged-record-lengths", input(3, &[segment[0], segment[1], 0xff])),
    ];
    inputs.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn keys() -> Inputs {
    let partitioned = Key::partitioned(b"tenant", b"user").unwrap();
    let inputs = [
        ("plain", input(0, b"user")),
        ("partitioned", input(0, partitioned.as_bytes())),
        ("short", input(0, &[9, 0, 0, 0, b'x'])),
        ("no-bytes", input(0, &[])),
        ("packed", input(1, b"\x03\x01\x00\x01\x00\x04\x00abcd")),
        ("packed-out-of-order", input(1, b"\x02\x03\x00\x01\x00abcd")),
        ("packed-beyond", input(1, b"\x01\x09\x00abcd")),
        ("packed-inside-a-letter", input(1, "\x02\x01\x00\x02\x00\u{e9}".as_bytes())),
    ];
    inputs.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn messages() -> Inputs {
    let spec = StoreSpec::documents("users", KeyType::String)
        .partitions(4)
        .field("tenant", FieldType::STRING)
        .field("taste", FieldType::Vector(VectorType::F16, 2));
    let spec = StoreSpec { partition_key: Some("tenant".to_owned()), ..spec };
    let definition = spec.define(StoreId(5)).unwrap();
    let set = FieldOp::Set(Some(Value::Int64(-1)));
    let field_change = FieldChange { field: FieldId(1), op: set, ttl_us: Some(9) };
    let change = Change {
        sequence: Sequence(3),
        key: Key::plain(b"k").unwrap(),
        verb: Verb::Upsert,
        fields: vec![field_change.clone()],
        condition: Some(Condition::IfAbsent),
        ttl_us: None,
    };
    let batch = ClientBatch { client: ClientId(1 << 90), changes: vec![change.clone()] };
    let position = Position { epoch: Epoch(1), offset: Offset(2), index_in_entry: 3 };
    let error = Error::limit_exceeded("too long; shorten it", 5, 6).with_store("users");
    let value = v1::Value::from(&Value::VectorF32(vec![f32::NAN, 0.5]));
    let alteration = Alteration::DropFieldsByPrefix("old_".to_owned());
    let source = Source {
        partition: PartitionId(1),
        position,
        previous: Some(position),
        append_time: Timestamp::from_micros(-1),
        is_forwarded: true,
    };
    let record = ControlRecord::Define(Box::new(definition.clone()));
    let by_name = [
        ("value", value.encode_to_vec()),
        ("nullable-value", nullable_value_message(None).encode_to_vec()),
        ("field-type", v1::FieldType::from(FieldType::List(ScalarType::Bool)).encode_to_vec()),
        ("store-spec", v1::StoreSpec::from(&spec).encode_to_vec()),
        ("definition", v1::Definition::from(&definition).encode_to_vec()),
        ("alteration", v1::Alteration::from(&alteration).encode_to_vec()),
        ("field-change", v1::FieldChange::from(&field_change).encode_to_vec()),
        ("change", v1::Change::from(&change).encode_to_vec()),
        ("client-batch", v1::ClientBatch::from(&batch).encode_to_vec()),
        ("position", v1::Position::from(position).encode_to_vec()),
        ("source", v1::Source::from(source).encode_to_vec()),
        ("control-record", v1::ControlRecord::from(&record).encode_to_vec()),
        ("details", v1::Error::from(&error).encode_to_vec()),
    ];
    let numbered = |(name, bytes): (&str, Vec<u8>)| {
        let mode = MESSAGES.iter().position(|(message, _)| *message == name).unwrap();
        (name.to_owned(), input(mode, &bytes))
    };
    by_name.into_iter().map(numbered).collect()
}

fn shards() -> Inputs {
    let vectors_file: Json = vectors::read("shard.json");
    let mut inputs = Inputs::new();
    for key in vectors_file["keys"].as_array().unwrap() {
        let primary = KeyType::named(key["key_type"].as_str().unwrap()).unwrap();
        let partition = key["partition_key_type"].as_str().and_then(KeyType::named);
        let mode = mode_of_key(primary, partition);
        let name = format!("key-{mode}-{}", file_name(key["name"].as_str().unwrap()));
        inputs.insert(name, input(usize::from(mode), &bytes_of(&key["stored_hex"])));
    }
    for row in vectors_file["state"].as_array().unwrap() {
        let name = format!("row-{}", file_name(row["name"].as_str().unwrap()));
        let (key, row) = (bytes_of(&row["key_hex"]), bytes_of(&row["row_hex"]));
        let bytes = [&[key.len() as u8], &key[..], &row].concat();
        inputs.insert(name, input(usize::from(MODE_OF_ROW), &bytes));
    }
    inputs
}

fn copies() -> Inputs {
    let vectors_file: Json = vectors::read("copy.json");
    let mut inputs = Inputs::new();
    for (mode, list, bytes) in [(0, "blocks", "block_hex"), (1, "records", "record_hex")] {
        for vector in vectors_file[list].as_array().unwrap() {
            let name = file_name(vector["name"].as_str().unwrap());
            inputs.insert(name, input(mode, &bytes_of(&vector[bytes])));
        }
    }
    for name in ["CURRENT", "MANIFEST-000005", "000012.sst"] {
        inputs.insert(file_name(&format!("name of {name}")), input(2, name.as_bytes()));
    }
    inputs
}

fn snapshots() -> Inputs {
    let vectors_file: Json = vectors::read("snapshot.json");
    let mut inputs = Inputs::new();
    for (mode, list, bytes) in
        [(0, "manifests", "object_hex"), (2, "chunks", "object_hex"), (3, "deltas", "chunk_hex")]
    {
        for vector in vectors_file[list].as_array().unwrap() {
            let (name, bytes) =
                (file_name(vector["name"].as_str().unwrap()), bytes_of(&vector[bytes]));
            if mode == 0 {
                // The message is between the frame and the hash.
                let message = &bytes[12..bytes.len() - 32];
                inputs.insert(format!("{name}-message"), input(1, message));
            }
            inputs.insert(name, input(mode, &bytes));
        }
    }
    let vectors_file: Json = vectors::read("backup.json");
    for (mode, list, bytes) in [(4, "backups", "object_hex"), (5, "logs", "chunk_hex")] {
        for vector in vectors_file[list].as_array().unwrap() {
            let name = file_name(vector["name"].as_str().unwrap());
            inputs.insert(name, input(mode, &bytes_of(&vector[bytes])));
        }
    }
    inputs
}

/// Returns the vectors' states of the target's aggregates, and a tile of all of them. For sketches
/// that Java wrote, this function adds the first bytes of a state.
fn tiles() -> Inputs {
    let specs = tile_aggregates().specs();
    let position_of = |vector: &Json| {
        specs.iter().position(|spec| {
            let input = spec.input().map(ScalarType::name);
            vector["kind"] == *vectors::aggregate_name(spec.kind())
                && vector["input"].as_str() == input
        })
    };
    let mut inputs = Inputs::new();
    let mut tile = [&[1][..], &(specs.len() as u16).to_le_bytes()].concat();
    let mut states = vec![Vec::new(); specs.len()];
    let vectors_file: Json = vectors::read("aggregates.json");
    for (number, vector) in vectors_file["states"].as_array().unwrap().iter().enumerate() {
        let Some(spec_number) = position_of(vector) else { continue };
        let state = bytes_of(&vector["state_hex"]);
        let name = format!("state-{number}-{}", vectors::aggregate_name(specs[spec_number].kind()));
        inputs.insert(name, input(spec_number, &state));
        states[spec_number] = state;
    }
    for state in states {
        tile.extend_from_slice(&(state.len() as u32).to_le_bytes());
        tile.extend_from_slice(&state);
    }
    inputs.insert("tile".to_owned(), input(specs.len(), &tile));
    let vectors_file: Json = vectors::read("sketches-java.json");
    for (number, vector) in vectors_file["sketches"].as_array().unwrap().iter().enumerate() {
        let Some(spec_number) = position_of(vector) else { continue };
        let before: &[u8] = match vectors::aggregate_name(specs[spec_number].kind()) {
            "distinct_count" => &[1, 6],
            "quantiles" => &[1, 7, 0, 0],
            _ => &[1, 8],
        };
        let state = [before, &bytes_of(&vector["sketch_hex"])].concat();
        inputs.insert(format!("java-{number}"), input(spec_number, &state));
    }
    inputs
}

fn read_stored(target: &str) -> Inputs {
    let files = fs::read_dir(corpus(target)).into_iter().flatten().flatten();
    let named = |file: fs::DirEntry| {
        (file.file_name().to_string_lossy().into_owned(), fs::read(file.path()).unwrap())
    };
    files.map(named).collect()
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_VECTORS").is_some()
}

#[test]
fn corpus_starts_from_the_vectors() {
    let inputs_by_target = [
        rows(),
        entries(),
        tokens(),
        segments(),
        journals(),
        checkpoints(),
        keys(),
        messages(),
        shards(),
        copies(),
        snapshots(),
        tiles(),
    ];
    assert_eq!(inputs_by_target.len(), TARGETS.len());
    for ((target, _), inputs) in TARGETS.iter().zip(inputs_by_target) {
        assert!(inputs.len() >= 4, "{target} starts from {} inputs", inputs.len());
        if is_update() {
            let folder = corpus(target);
            fs::create_dir_all(&folder).unwrap();
            inputs.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
        }
        let stored = read_stored(target);
        for (name, bytes) in inputs {
            let fix = "run: UPDATE_VECTORS=1 cargo test --workspace --test corpus_test";
            assert!(stored.get(&name) == Some(&bytes), "corpus/{target}/{name} differs; {fix}");
        }
    }
}

/// Proves that every input of the corpus passes, including inputs that once broke a promise, which
/// stay in the corpus under the name of that promise.
#[test]
fn every_corpus_input_passes() {
    for (target, run) in TARGETS {
        let inputs = read_stored(target);
        assert!(is_update() || !inputs.is_empty(), "no corpus for {target}");
        for (name, bytes) in inputs {
            println!("corpus/{target}/{name}");
            run(&bytes);
        }
    }
}

#[test]
#[should_panic(expected = "the canary is found")]
fn fuzzer_canary_can_be_found() {
    forebay_fuzz::canary(b"reed warbler");
}
