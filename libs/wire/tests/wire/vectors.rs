//! Golden vectors of entries and tokens: their generator, and the test that compares the code with
//! them. `UPDATE_VECTORS=1` rewrites the files; review the difference.

use forebay_core::catalog::ControlRecord;
use forebay_core::change::{
    Change, ClientBatch, Condition, Entry, EntryBody, FieldChange, FieldOp, Source, Verb,
};
use forebay_core::clock::Timestamp;
use forebay_core::dead_letter::DeadLetter;
use forebay_core::id::{
    ClientId, DocumentVersion, Epoch, FieldId, LogId, Offset, PartitionId, Position, SchemaVersion,
    Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::schema::{Alteration, StoreSpec, StreamSpec};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::view::{
    AggregateKind, Comparison, FeatureSpec, JoinSpec, MaterializationSpec, NamedWindow, Operand,
    Predicate, ViewSpec, Window,
};
use forebay_core::{Error, ErrorCode};
use forebay_testkit::vectors;
use forebay_wire::entry::{decode_entry, encode_entry};
use forebay_wire::token::Token;
use forebay_wire::v1;
use half::f16;
use serde_json::{Value as Json, json};

use crate::frames::{good_change, seal_as, sealed_change, sealed_entry};

fn bytes_of(hex: &Json) -> Vec<u8> {
    hex::decode(hex.as_str().unwrap()).unwrap()
}

/// Compares with the file, or writes it; returns the file's content.
fn golden(name: &str, document: &Json) -> Json {
    vectors::check(name, document, "cargo test --workspace --test wire vectors");
    vectors::read(name)
}

fn position(offset: u64, index_in_entry: u16) -> Position {
    Position { epoch: Epoch(2), offset: Offset(offset), index_in_entry }
}

fn every_value() -> Vec<Value> {
    vec![
        Value::Bool(true),
        Value::Int32(-41),
        Value::Int64(i64::MIN),
        Value::Float32(1.5),
        Value::Float64(-0.0),
        Value::String("grün".into()),
        Value::Bytes(vec![0, 255]),
        Value::Timestamp(1_700_000_000_000_000),
        Value::List(ScalarType::Bool, vec![Value::Bool(false), Value::Bool(true)]),
        Value::List(ScalarType::String, vec![Value::String(String::new())]),
        Value::List(ScalarType::Int64, Vec::new()),
        Value::VectorF32(vec![0.5, -2.0]),
        Value::VectorF16(vec![f16::from_f32(0.25)]),
        Value::VectorI8(vec![-128, 127]),
    ]
}

fn change(sequence: u64, verb: Verb, ops: Vec<FieldOp>) -> Change {
    let fields = ops.into_iter().enumerate().map(|(place, op)| FieldChange {
        field: FieldId(place as u32 + 1),
        op,
        ttl_us: (place == 1).then_some(60_000_000),
    });
    Change {
        sequence: Sequence(sequence),
        key: Key::plain(b"user-1").unwrap(),
        verb,
        fields: fields.collect(),
        condition: None,
        ttl_us: None,
    }
}

fn every_op() -> Vec<FieldOp> {
    let ids = |ids: &[i64]| ids.iter().copied().map(Value::Int64).collect::<Vec<_>>();
    vec![
        FieldOp::Set(None),
        FieldOp::Remove,
        FieldOp::Increment(Value::Int64(5)),
        FieldOp::Min(Value::Float64(0.5)),
        FieldOp::Max(Value::Timestamp(7)),
        FieldOp::ListAppend { items: ids(&[1, 2]), bound: 100 },
        FieldOp::SetAdd { items: vec![Value::String("a".into())], bound: 3 },
        FieldOp::SetRemove { items: ids(&[]) },
    ]
}

fn changes() -> EntryBody {
    let put_ops = every_value().into_iter().map(|value| FieldOp::Set(Some(value))).collect();
    let conditional = |sequence, condition| Change {
        condition: Some(condition),
        ttl_us: Some(3_600_000_000),
        ..change(sequence, Verb::Upsert, vec![FieldOp::Set(Some(Value::Int64(9)))])
    };
    let partitioned = Key::partitioned(b"tenant", b"user-2").unwrap();
    let batch = ClientBatch {
        client: ClientId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        changes: vec![
            change(1, Verb::Put, put_ops),
            change(2, Verb::Upsert, every_op()),
            Change { key: partitioned, ..change(300, Verb::Delete, Vec::new()) },
        ],
    };
    let other = ClientBatch {
        client: ClientId(1),
        changes: vec![
            conditional(u64::MAX, Condition::IfAbsent),
            conditional(1, Condition::IfVersion(DocumentVersion(7 << 16))),
            conditional(2, Condition::IfNewer(FieldId(1))),
        ],
    };
    EntryBody::Changes(vec![batch, other])
}

fn define() -> EntryBody {
    let mut spec = StoreSpec::documents("users", KeyType::Int64)
        .partitions(8)
        .field("tenant", FieldType::STRING)
        .field("age", FieldType::INT32)
        .field("tags", FieldType::List(ScalarType::String))
        .field("embedding", FieldType::Vector(VectorType::F16, 16));
    spec.partition_key = Some("tenant".into());
    spec.options.ttl_us = Some(86_400_000_000);
    spec.options.versioned = true;
    spec.fields[1].default = Some(Value::Int32(-1));
    spec.fields[2].ttl_us = Some(1_000_000);
    let definition = spec.define(StoreId(0xfeed)).unwrap();
    let (from, to) = ("age".into(), "age_years".into());
    let definition = definition.altered(&[
        Alteration::DropField("embedding".into()),
        Alteration::RenameField { from, to },
        Alteration::DropAll,
    ]);
    EntryBody::Control(ControlRecord::Define(Box::new(definition.unwrap())))
}

/// Returns events: several with one key, and columns that were not given have their defaults.
fn events() -> EntryBody {
    let column =
        |id, value| FieldChange { field: FieldId(id), op: FieldOp::Set(value), ttl_us: None };
    let event = |sequence, rating| Change {
        fields: vec![column(1, Some(Value::Timestamp(7))), column(2, rating)],
        ..change(sequence, Verb::Insert, Vec::new())
    };
    let changes = vec![event(1, Some(Value::Float32(4.5))), event(2, None)];
    EntryBody::Changes(vec![ClientBatch { client: ClientId(1), changes }])
}

/// Returns the definition of a view over the stream of [`define_stream`]: by country and device,
/// over good ratings.
fn define_view() -> EntryBody {
    let EntryBody::Control(ControlRecord::Define(source)) = define_stream() else { unreachable!() };
    let cities = StoreSpec::documents("cities", KeyType::String)
        .partitions(2)
        .field("country", FieldType::STRING)
        .define(StoreId(0xc171e5))
        .unwrap();
    let rating = || "rating".to_owned();
    let feature = |name: &str, kind, input: Option<&str>| FeatureSpec {
        name: name.to_owned(),
        kind,
        input: input.map(str::to_owned),
    };
    let named_window = |name: &str, window| NamedWindow { name: name.to_owned(), window };
    let spec = ViewSpec {
        name: "ratings_by_country".into(),
        source: "ratings".into(),
        filter: Some(Predicate::Compare {
            column: rating(),
            comparison: Comparison::GreaterOrEqual,
            to: Operand::Value(Value::Float32(2.5)),
        }),
        joins: vec![JoinSpec {
            store: "cities".into(),
            key: Some("device".into()),
            columns: vec![("country".into(), "country".into(), Some("none".into()))],
            is_required: false,
        }],
        entity: vec!["country".into(), "device".into()],
        features: vec![
            feature("ratings", AggregateKind::Count, None),
            feature("mean", AggregateKind::Average, Some("rating")),
            feature(
                "spread",
                AggregateKind::ApproxQuantile { q: vec![0.1, 0.9], k: 100 },
                Some("rating"),
            ),
        ],
        windows: vec![
            named_window("1h", Window::Sliding { length_us: 3_600_000_000, slide_us: 60_000_000 }),
            named_window("all", Window::Unbounded),
        ],
        allowed_lateness_us: 300_000_000,
        ..ViewSpec::default()
    };
    let materialization = MaterializationSpec {
        store: "countries".into(),
        interval_us: 250_000,
        expiry_grace_us: 60_000_000,
    };
    let view_definition = spec.define(StoreId(0x1e4), &source, &|_| Ok(cities.clone())).unwrap();
    let countries = materialization.new_store(StoreId(0xc0), &view_definition).unwrap();
    let spec = ViewSpec { materialization: Some(materialization), ..spec };
    let store = |name: &str| Ok(if name == "cities" { &cities } else { &countries }.clone());
    let definition = spec.define(StoreId(0x1e4), &source, &store).unwrap();
    EntryBody::Control(ControlRecord::Define(Box::new(definition)))
}

fn define_stream() -> EntryBody {
    let mut spec = StoreSpec::stream("ratings", KeyType::Int64)
        .partitions(8)
        .field("at", FieldType::TIMESTAMP)
        .field("rating", FieldType::FLOAT32)
        .field("device", FieldType::STRING);
    let devices = ["phone", "desktop"].map(|name| Value::String(name.to_owned()));
    spec.stream = Some(StreamSpec { event_time: Some("at".into()) });
    spec.fields[1].rules.required = true;
    spec.fields[2].default = Some(devices[0].clone());
    spec.fields[2].rules.allowed = devices.to_vec();
    let definition = spec.define(StoreId(0xeed)).unwrap();
    EntryBody::Control(ControlRecord::Define(Box::new(definition)))
}

fn entries() -> Vec<(&'static str, &'static str, Entry)> {
    let entry = |schema_version, source, body| Entry {
        log_id: LogId(0x0123_4567_89ab_cdef),
        epoch: Epoch(2),
        schema_version: SchemaVersion(schema_version),
        source,
        body,
    };
    let first = Source {
        partition: PartitionId(5),
        position: position(41, 0),
        previous: None,
        append_time: Timestamp::from_micros(1_700_000_000_000_001),
        is_forwarded: false,
    };
    let copied_source = Source { previous: Some(position(40, 3)), ..first };
    let delete = EntryBody::Control(ControlRecord::Delete(StoreId(0xfeed)));
    vec![
        ("opening", "opening", entry(0, None, EntryBody::LogHeader)),
        ("changes", "changes", entry(3, None, changes())),
        ("no changes", "changes", entry(3, None, EntryBody::Changes(Vec::new()))),
        ("definition", "definition", entry(3, None, EntryBody::Definition)),
        ("heartbeat", "heartbeat", entry(3, None, EntryBody::Heartbeat)),
        ("barrier", "barrier", entry(3, None, EntryBody::Barrier)),
        ("define a store", "control", entry(0, None, define())),
        ("delete a store", "control", entry(0, None, delete)),
        ("first copied heartbeat", "heartbeat", entry(3, Some(first), EntryBody::Heartbeat)),
        ("copied changes", "changes", entry(3, Some(copied_source), changes())),
        ("dead letters", "dead_letters", entry(0, None, dead_letters())),
        ("events", "changes", entry(1, None, events())),
        ("define a stream", "control", entry(0, None, define_stream())),
        ("define a view", "control", entry(0, None, define_view())),
        ("events of a view", "changes", entry(1, Some(copied_source), events())),
    ]
}

fn dead_letters() -> EntryBody {
    let letter = DeadLetter {
        home_log: LogId(0xa5a5),
        epoch: Epoch(2),
        offset: Offset(41),
        append_time: Timestamp::from_micros(1_700_000_000_000_001),
        reason: Error::corrupt("an entry does not begin with its magic")
            .with_partition(PartitionId(5)),
        entry: b"garbage".to_vec(),
        entry_bytes: 7,
    };
    let cut_letter = DeadLetter { offset: Offset(43), entry_bytes: 30_000_000, ..letter.clone() };
    EntryBody::DeadLetters(vec![letter, cut_letter])
}

fn refused_entries() -> Vec<(&'static str, ErrorCode, Vec<u8>)> {
    let good = sealed_change(good_change());
    let flip = |at: usize| {
        let mut frame = good.clone();
        frame[at] ^= 1;
        frame
    };
    let newer_verb = sealed_change(v1::Change { verb: 5, ..good_change() });
    let no_verb = sealed_change(v1::Change { verb: 0, ..good_change() });
    vec![
        ("nothing", ErrorCode::Corrupt, Vec::new()),
        ("a header cut short", ErrorCode::Corrupt, good[..23].to_vec()),
        ("a body cut short", ErrorCode::Corrupt, good[..good.len() - 1].to_vec()),
        ("one byte more", ErrorCode::Corrupt, [&good[..], &[0]].concat()),
        ("another magic", ErrorCode::Corrupt, flip(0)),
        ("a flipped log id", ErrorCode::Corrupt, flip(8)),
        ("a flipped checksum", ErrorCode::Corrupt, flip(20)),
        ("a flipped body", ErrorCode::Corrupt, flip(24)),
        ("format version 0", ErrorCode::Corrupt, seal_as(0, 0, b"")),
        ("format version 2", ErrorCode::UpgradeNeeded, seal_as(2, 0, b"")),
        ("an unknown flag", ErrorCode::UpgradeNeeded, seal_as(1, 1, b"")),
        ("a body that is no protobuf", ErrorCode::Corrupt, seal_as(1, 0, b"\x08")),
        ("no kind of entry", ErrorCode::UpgradeNeeded, sealed_entry(None)),
        ("a newer verb", ErrorCode::UpgradeNeeded, newer_verb),
        ("no verb", ErrorCode::Corrupt, no_verb),
    ]
}

#[test]
fn entries_match_the_golden_vectors() {
    let entries = entries();
    let entry_vectors = entries.iter().map(|(name, kind, entry)| {
        json!({
            "name": name,
            "kind": kind,
            "log_id": format!("{:016x}", entry.log_id),
            "epoch": entry.epoch.0,
            "schema_version": entry.schema_version.0,
            "changes": entry.change_count(),
            "copied": entry.source.is_some(),
            "frame": hex::encode(encode_entry(entry).unwrap()),
        })
    });
    let refused_vectors = refused_entries();
    let refused_vectors = refused_vectors.iter().map(|(name, code, frame)| {
        let frame = hex::encode(frame);
        json!({ "name": name, "code": code.name(), "frame": frame })
    });
    let document = json!({
        "spec": "proto/spec/entry.md",
        "entries": entry_vectors.collect::<Vec<_>>(),
        "refused": refused_vectors.collect::<Vec<_>>(),
    });
    let golden_vectors = golden("entry.json", &document);
    for (vector, (name, _, entry)) in
        golden_vectors["entries"].as_array().unwrap().iter().zip(&entries)
    {
        assert_eq!(decode_entry(&bytes_of(&vector["frame"])).as_ref(), Ok(entry), "{name}");
    }
    for vector in golden_vectors["refused"].as_array().unwrap() {
        let error = decode_entry(&bytes_of(&vector["frame"])).unwrap_err();
        assert_eq!(error.code().name(), vector["code"], "{}", vector["name"]);
    }
}

#[test]
fn tokens_match_the_golden_vectors() {
    let positions = [
        (PartitionId(0), (LogId(1), position(0, 0))),
        (PartitionId(7), (LogId(0x0123_4567_89ab_cdef), position(1 << 40, 16_383))),
        (PartitionId(4_095), (LogId(u64::MAX), position(u64::MAX, u16::MAX))),
    ];
    let tokens: Vec<Token> = [0, 1, 3]
        .map(|count| Token {
            store: StoreId(0xfeed_0000_0000_0001),
            positions: positions[..count].iter().copied().collect(),
        })
        .into();
    let token_vectors = tokens.iter().map(|token| {
        let positions = token.positions.iter().map(|(partition, (log, position))| {
            json!({
                "partition": partition.0,
                "log_id": format!("{log:016x}"),
                "epoch": position.epoch.0,
                "offset": position.offset.to_string(),
                "place": position.index_in_entry,
            })
        });
        json!({
            "store_id": format!("{:016x}", token.store.0),
            "positions": positions.collect::<Vec<_>>(),
            "token": hex::encode(token.encode()),
        })
    });
    let document =
        json!({ "spec": "proto/spec/token.md", "tokens": token_vectors.collect::<Vec<_>>() });
    let golden_vectors = golden("token.json", &document);
    for (vector, token) in golden_vectors["tokens"].as_array().unwrap().iter().zip(&tokens) {
        assert_eq!(Token::decode(&bytes_of(&vector["token"])).as_ref(), Ok(token));
    }
}
