//! Golden vectors of partitioning and rows: their generator, and the check that this build agrees
//! with the files. `UPDATE_VECTORS=1` rewrites the files.

use forebay_core::clock::Timestamp;
use forebay_core::id::{DocumentVersion, FieldId, PartitionCount, StoreId};
use forebay_core::key::{Key, KeyType, KeyValue};
use forebay_core::layout::Layout;
use forebay_core::partition::{partition_of, xxh3_64};
use forebay_core::row::Document;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_testkit::model::ModelDocument;
use forebay_testkit::random::SCALAR_TYPES;
use forebay_testkit::vectors::{
    DefinitionVector, DocumentVector, IdentityVector, KeyVector, PartitioningVectors,
    RefusedVector, RowVector, RowVectors, check, read,
};
use half::f16;

const COMMAND: &str = "cargo test --workspace --test domain vectors";
const COUNTS: [u32; 5] = [1, 7, 8, 64, 4_096];

fn partitions(bytes: &[u8], counts: &[u32]) -> Vec<u32> {
    let count = |count: &u32| PartitionCount::new(*count).unwrap();
    counts.iter().map(|it| partition_of(bytes, count(it)).0).collect()
}

fn hash_hex(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

fn key_vector(name: &str, key: KeyValue<'_>, repeat: usize) -> KeyVector {
    let value = match key {
        KeyValue::String(text) => Some(text.repeat(repeat)).filter(|text| text.len() < 100),
        KeyValue::Int64(number) => Some(number.to_string()),
        KeyValue::Bytes(_) => None,
    };
    key.with_bytes(|key_bytes| {
        let bytes = key_bytes.repeat(repeat);
        KeyVector {
            name: name.to_owned(),
            key_type: key.key_type().name().to_owned(),
            value,
            key_hex: hex::encode(key_bytes),
            repeat,
            hash_hex: hash_hex(&bytes),
            partitions: partitions(&bytes, &COUNTS),
        }
    })
}

fn keys() -> Vec<KeyVector> {
    let text = |name, text: &str| key_vector(name, text.into(), 1);
    let number = |number: i64| key_vector(&format!("int64 {number}"), number.into(), 1);
    let mut keys = vec![
        text("empty string", ""),
        text("one letter", "a"),
        text("ascii", "user-1"),
        text("umlauts", "grüße"),
        text("beyond the basic plane", "🐌"),
        text("a zero character", "a\0b"),
        text("composed e with acute", "\u{e9}"),
        text("decomposed e with acute", "e\u{301}"),
        key_vector("empty bytes", (&[0u8; 0]).into(), 1),
        key_vector("one zero byte", (&[0u8]).into(), 1),
        key_vector("not UTF-8", (&[0xffu8, 0xfe, 0x80]).into(), 1),
        key_vector("a lone surrogate", (&[0xedu8, 0xa0, 0x80]).into(), 1),
        key_vector("64 KiB of one byte", (&[0x5au8]).into(), 65_536),
        key_vector(
            "64 KiB of 256 bytes",
            (&std::array::from_fn::<u8, 256, _>(|n| n as u8)).into(),
            256,
        ),
        key_vector("64 KiB string", "forebay ".into(), 8_192),
    ];
    let numbers = [0, 1, -1, 42, 4_294_967_296, i64::MAX, i64::MIN];
    keys.extend(numbers.map(number));
    // Lengths at which the hash switches its algorithm.
    for length in [3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 256, 1_024, 1_025] {
        keys.push(key_vector(&format!("{length} bytes"), (&[0xa5u8]).into(), length));
    }
    keys
}

fn identities() -> Vec<IdentityVector> {
    let (low, high) = (i64::MIN.to_le_bytes(), i64::MAX.to_le_bytes());
    let cases: [(&str, &[u8], &[u8]); 6] = [
        ("two strings", b"tenant-1", b"user-1"),
        ("both empty", b"", b""),
        ("empty partition key", b"", b"user-1"),
        ("the same letters, cut elsewhere", b"tenant-", b"1user-1"),
        ("two int64", &low, &high),
        ("not UTF-8", b"\xff\xfe", b"\x80"),
    ];
    let vector = |(name, partition_key, primary): (&str, &[u8], &[u8])| IdentityVector {
        name: name.to_owned(),
        partition_key_hex: hex::encode(partition_key),
        primary_key_hex: hex::encode(primary),
        identity_hex: hex::encode(Key::partitioned(partition_key, primary).unwrap().as_bytes()),
        hash_hex: hash_hex(partition_key),
        partitions: partitions(partition_key, &COUNTS),
    };
    cases.map(vector).into()
}

fn partitioning() -> PartitioningVectors {
    PartitioningVectors {
        spec: "proto/spec/partitioning.md".to_owned(),
        description: "Keys as bytes (key_hex, repeated `repeat` times), the xxh3_64 of those \
            bytes, and the partition at each of `counts`. When the file was made, every hash and \
            partition in it was compared with the PyPI package xxhash 4.1.0, another \
            implementation."
            .to_owned(),
        counts: COUNTS.into(),
        keys: keys(),
        identities: identities(),
    }
}

#[test]
fn partitioning_matches_the_golden_vectors() {
    check("partitioning.json", &partitioning(), COMMAND);
    let vectors: PartitioningVectors = read("partitioning.json");
    for key in &vectors.keys {
        let bytes = hex::decode(&key.key_hex).unwrap().repeat(key.repeat);
        assert_eq!(hash_hex(&bytes), key.hash_hex, "{}", key.name);
        assert_eq!(partitions(&bytes, &vectors.counts), key.partitions, "{}", key.name);
        assert_eq!(Key::plain(&bytes).unwrap().as_bytes(), bytes, "{}", key.name);
    }
    for vector in &vectors.identities {
        let (partition_key, primary) = (
            hex::decode(&vector.partition_key_hex).unwrap(),
            hex::decode(&vector.primary_key_hex).unwrap(),
        );
        let identity = hex::decode(&vector.identity_hex).unwrap();
        let key_parts = Key::split(&identity, true).unwrap();
        assert_eq!(key_parts, (Some(&partition_key[..]), &primary[..]), "{}", vector.name);
        assert_eq!(
            partitions(&partition_key, &vectors.counts),
            vector.partitions,
            "{}",
            vector.name
        );
    }
}

/// Returns a definition with one field of every type; each scalar also as a list.
fn every_type() -> Definition {
    let mut spec = StoreSpec::documents("every-type", KeyType::Bytes).partitions(1);
    for scalar in SCALAR_TYPES {
        spec = spec.field(scalar.name(), FieldType::Scalar(scalar));
        spec = spec.field(format!("{}s", scalar.name()), FieldType::List(scalar));
    }
    let vectors = [VectorType::F32, VectorType::F16, VectorType::I8];
    for (name, component) in ["f32", "f16", "i8"].into_iter().zip(vectors) {
        spec = spec.field(name, FieldType::Vector(component, 3));
    }
    spec.define(StoreId(1)).unwrap()
}

fn text_and_count() -> Definition {
    StoreSpec::documents("text-and-count", KeyType::Bytes)
        .partitions(1)
        .field("text", FieldType::STRING)
        .field("count", FieldType::INT32)
        .define(StoreId(1))
        .unwrap()
}

fn definitions() -> Vec<(&'static str, Definition)> {
    let alterations = [
        Alteration::DropField("text".to_owned()),
        Alteration::WidenField { name: "count".to_owned(), to: FieldType::INT64 },
        Alteration::AddField(FieldSpec::new("tags", FieldType::List(ScalarType::String))),
    ];
    let altered_definition = text_and_count().altered(&alterations).unwrap();
    let numbers = StoreSpec::documents("numbers", KeyType::Bytes)
        .partitions(1)
        .field("a", FieldType::INT32)
        .field("b", FieldType::FLOAT64);
    let mut late = text_and_count();
    late.version.0 = 65_535;
    vec![
        (
            "no-fields",
            StoreSpec::documents("none", KeyType::Bytes).partitions(1).define(StoreId(1)).unwrap(),
        ),
        (
            "key-value",
            StoreSpec::key_value("kv", KeyType::Bytes).partitions(1).define(StoreId(1)).unwrap(),
        ),
        ("numbers", numbers.define(StoreId(1)).unwrap()),
        ("text-and-count", text_and_count()),
        ("text-and-count-altered", altered_definition),
        ("last-version", late),
        ("every-type", every_type()),
    ]
}

fn document(cells: &[(u32, Option<Value>)]) -> Document {
    let mut document = Document::default();
    for (field, value) in cells {
        document.set(FieldId(*field), value.clone(), None);
    }
    document
}

fn at(micros: i64) -> Option<Timestamp> {
    Some(Timestamp::from_micros(micros))
}

fn full() -> Document {
    let string = |text: &str| Value::String(text.to_owned());
    let list = |scalar, items: &[Value]| Value::List(scalar, items.to_vec());
    let values = [
        Value::Bool(true),
        list(ScalarType::Bool, &[Value::Bool(false), Value::Bool(true)]),
        Value::Int32(i32::MIN),
        list(ScalarType::Int32, &[Value::Int32(1), Value::Int32(-1)]),
        Value::Int64(i64::MAX),
        list(ScalarType::Int64, &[Value::Int64(i64::MIN)]),
        Value::Float32(1.5),
        list(ScalarType::Float32, &[Value::Float32(-0.0), Value::Float32(f32::INFINITY)]),
        Value::Float64(f64::from_bits(0x7ff8_0000_0000_0001)),
        list(ScalarType::Float64, &[Value::Float64(0.1)]),
        string("grüße"),
        list(ScalarType::String, &[string(""), string("snail")]),
        Value::Bytes(vec![0xff, 0, 0xfe]),
        list(ScalarType::Bytes, &[Value::Bytes(vec![]), Value::Bytes(vec![0])]),
        Value::Timestamp(1_700_000_000_000_000),
        list(ScalarType::Timestamp, &[Value::Timestamp(0), Value::Timestamp(-1)]),
        Value::VectorF32(vec![1.0, -2.0, f32::NAN]),
        Value::VectorF16([1.0, -2.0, 65_504.0].map(f16::from_f32).into()),
        Value::VectorI8(vec![127, 0, -128]),
    ];
    let cells: Vec<_> = (1..).zip(values.map(Some)).collect();
    document(&cells)
}

fn empties() -> Document {
    let empty = |field| {
        let definition = every_type();
        Some(match definition.field_by_id(FieldId(field)).unwrap().field_type {
            FieldType::List(scalar) => Value::List(scalar, vec![]),
            FieldType::STRING => Value::String(String::new()),
            _ => Value::Bytes(vec![]),
        })
    };
    let tail = [2, 4, 6, 8, 10, 11, 12, 13, 14, 16];
    document(&tail.map(|field| (field, empty(field))))
}

fn rows() -> Vec<(&'static str, &'static str, Document)> {
    let text = |text: &str| Some(Value::String(text.to_owned()));
    let count = |count| Some(Value::Int32(count));
    let mut expiring = document(&[(1, text("x")), (2, count(7))]);
    expiring.expires_at = at(1_700_000_000_000_000);
    let mut versioned = expiring.clone();
    versioned.version = Some(DocumentVersion(0x0102_0304_0506_0708));
    let mut all = versioned.clone();
    all.set(FieldId(1), text("x"), at(-1));
    all.set(FieldId(2), count(7), at(i64::MAX));
    let mut null_expires = document(&[(1, text("x"))]);
    null_expires.set(FieldId(2), None, at(5));
    let nulls: Vec<_> = (1..=19).map(|field| (field, None)).collect();
    let bytes = |bytes: &[u8]| Some(Value::Bytes(bytes.to_vec()));
    let tags = Value::List(ScalarType::String, vec![Value::String("new".to_owned())]);
    vec![
        ("a document without fields", "no-fields", Document::default()),
        ("a value", "key-value", document(&[(1, bytes(b"value"))])),
        ("an empty value", "key-value", document(&[(1, bytes(b""))])),
        (
            "fixed fields only",
            "numbers",
            document(&[(1, count(-2)), (2, Some(Value::Float64(0.5)))]),
        ),
        ("all absent", "text-and-count", Document::default()),
        ("null beside a value", "text-and-count", document(&[(1, None), (2, count(1))])),
        ("an empty string is a value", "text-and-count", document(&[(1, text(""))])),
        ("the document expires", "text-and-count", expiring),
        ("it expires and has a version", "text-and-count", versioned),
        ("every footer", "text-and-count", all),
        ("a null that expires", "text-and-count", null_expires),
        (
            "after a drop, a widening and an addition",
            "text-and-count-altered",
            document(&[(2, Some(Value::Int64(-3))), (3, Some(tags))]),
        ),
        ("the last schema version", "last-version", document(&[(2, count(1))])),
        ("every type", "every-type", full()),
        ("every type, null", "every-type", document(&nulls)),
        ("every type, absent", "every-type", Document::default()),
        ("empty strings, bytes and lists", "every-type", empties()),
    ]
}

fn refused_rows() -> Vec<(&'static str, &'static str, Vec<u8>, &'static str)> {
    let sound = [1, 0, 0, 0b0101, 7, 0, 0, 0, b'x'];
    let sound_with = |at: usize, byte: u8| {
        let mut bytes = sound;
        bytes[at] = byte;
        bytes.to_vec()
    };
    let two_tails = [1, 0, 0, 0, 0, 0, 0, 0, 0];
    let definition_name = "text-and-count";
    vec![
        ("no bytes", "no-fields", vec![], "Corrupt"),
        ("shorter than its header", "no-fields", vec![1, 0], "Corrupt"),
        ("shorter than its fixed fields", definition_name, sound[..7].to_vec(), "Corrupt"),
        ("another schema version", definition_name, sound_with(0, 2), "Corrupt"),
        ("a flag of a newer format", definition_name, sound_with(2, 8), "UpgradeNeeded"),
        ("state 3", definition_name, sound_with(3, 0b0111), "Corrupt"),
        ("a string that is not UTF-8", definition_name, sound_with(8, 0xff), "Corrupt"),
        ("no room for the expiry", definition_name, sound_with(2, 1), "Corrupt"),
        ("no room for the version", definition_name, sound_with(2, 2), "Corrupt"),
        ("no room for the field expiries", definition_name, sound_with(2, 4), "Corrupt"),
        ("a tail where there is none", "no-fields", vec![1, 0, 0, 0], "Corrupt"),
        ("a bool of 2", "flag", vec![1, 0, 0, 1, 2], "Corrupt"),
        (
            "an end beyond the tail",
            "two-texts",
            [&[1, 0, 0, 0, 9, 0, 0, 0][..], b"xy"].concat(),
            "Corrupt",
        ),
        (
            "ends that fall",
            "three-texts",
            [&[1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0][..], b"xy"].concat(),
            "Corrupt",
        ),
        ("shorter than its ends", "three-texts", two_tails.to_vec(), "Corrupt"),
        (
            "a list that ends inside a component",
            "list",
            [&[1, 0, 0, 1][..], b"\x05\0\0\0xy"].concat(),
            "Corrupt",
        ),
        ("a list that ends inside a length", "list", vec![1, 0, 0, 1, 0, 0], "Corrupt"),
    ]
}

fn refused_definitions() -> Vec<(&'static str, Definition)> {
    let definition_of = |types: &[FieldType]| {
        let mut spec = StoreSpec::documents("store", KeyType::Bytes).partitions(1);
        for (number, field_type) in types.iter().enumerate() {
            spec = spec.field(format!("f{number}"), *field_type);
        }
        spec.define(StoreId(1)).unwrap()
    };
    let text = FieldType::STRING;
    vec![
        ("flag", definition_of(&[FieldType::BOOL])),
        ("two-texts", definition_of(&[text; 2])),
        ("three-texts", definition_of(&[text; 3])),
        ("list", definition_of(&[FieldType::List(ScalarType::String)])),
    ]
}

fn row_vectors() -> RowVectors {
    let definitions = [definitions(), refused_definitions()].concat();
    let layout = |name: &str| {
        let (_, definition) = definitions.iter().find(|(other, _)| *other == name).unwrap();
        Layout::of(definition)
    };
    let row = |(name, definition, document): (&str, &str, Document)| RowVector {
        name: name.to_owned(),
        definition: definition.to_owned(),
        document: DocumentVector::of(&document),
        row_hex: hex::encode(document.encode(&layout(definition)).unwrap()),
    };
    let refusal = |(name, definition, bytes, code): (&str, &str, Vec<u8>, &str)| RefusedVector {
        name: name.to_owned(),
        definition: definition.to_owned(),
        row_hex: hex::encode(&bytes),
        code: code.to_owned(),
    };
    RowVectors {
        spec: "proto/spec/row.md".to_owned(),
        description: "Documents with their definitions, and the only bytes that they encode to \
            and that decode to them; then bytes that every reader refuses, with the error code. A \
            field that a document does not list is absent, a value of null is null."
            .to_owned(),
        definitions: definitions.iter().map(|(name, it)| DefinitionVector::of(name, it)).collect(),
        rows: rows().into_iter().map(row).collect(),
        refused: refused_rows().into_iter().map(refusal).collect(),
    }
}

#[test]
fn rows_match_the_golden_vectors() {
    check("row.json", &row_vectors(), COMMAND);
    let vectors: RowVectors = read("row.json");
    let layout = |name: &str| {
        let definition = vectors.definitions.iter().find(|definition| definition.name == name);
        Layout::of(&definition.unwrap_or_else(|| panic!("no definition {name}")).definition())
    };
    for row in &vectors.rows {
        let (layout, document, bytes) =
            (layout(&row.definition), row.document.document(), hex::decode(&row.row_hex).unwrap());
        assert_eq!(hex::encode(document.encode(&layout).unwrap()), row.row_hex, "{}", row.name);
        let decoded = Document::decode(&bytes, &layout).unwrap();
        assert_eq!(ModelDocument::from(&decoded), ModelDocument::from(&document), "{}", row.name);
    }
    for refused_row in &vectors.refused {
        let error = Document::decode(
            &hex::decode(&refused_row.row_hex).unwrap(),
            &layout(&refused_row.definition),
        );
        assert_eq!(error.unwrap_err().code().name(), refused_row.code, "{}", refused_row.name);
    }
}

/// Proves that the vectors cover each type and presence of the format.
#[test]
fn golden_row_vectors_cover_every_type() {
    let vectors: RowVectors = read("row.json");
    let definition = every_type();
    let documents: Vec<_> = vectors
        .rows
        .iter()
        .filter(|row| row.definition == "every-type")
        .map(|row| row.document.document())
        .collect();
    for field in &definition.fields {
        let cell = |document: &Document| document.cell(field.id).cloned();
        assert!(documents.iter().any(|it| it.value(field.id).is_some()), "{}", field.name);
        let null = |it: &Document| cell(it).is_some_and(|cell| cell.value.is_none());
        assert!(documents.iter().any(null), "{}", field.name);
        assert!(documents.iter().any(|it| cell(it).is_none()), "{}", field.name);
    }
}
