//! The row codec over random definitions, documents and bytes. `vectors.rs` pins the bytes.

use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, Position, StoreId};
use forebay_core::key::KeyType;
use forebay_core::layout::Layout;
use forebay_core::limits::{LIST_COMPONENTS_MAX, ROW_BYTES_MAX, VALUE_BYTES_MAX};
use forebay_core::row::{Document, Presence, Row, decode_value, encode_value, set_row_version};
use forebay_core::schema::{Definition, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, ErrorCode};
use forebay_testkit::model::ModelDocument;
use forebay_testkit::random::SeededRng;

const SEEDS: u64 = 1_500;

/// Returns whether two documents are equal, with NaNs compared by their bits.
fn is_same(document: &Document, other: &Document) -> bool {
    ModelDocument::from(document) == ModelDocument::from(other)
}

#[test]
fn documents_round_trip_through_rows() {
    for seed in 0..SEEDS {
        let dice = &mut SeededRng::new(seed);
        let definition = dice.definition(24);
        let layout = Layout::of(&definition);
        let document = dice.document(&definition);
        let bytes = document.encode(&layout).unwrap();
        let decoded = Document::decode(&bytes, &layout).unwrap();
        assert!(is_same(&document, &decoded), "seed {seed}: {document:?} became {decoded:?}");
        assert_eq!(decoded.encode(&layout).unwrap(), bytes, "seed {seed}");
    }
}

#[test]
fn rows_answer_in_place_like_their_document() {
    for seed in 0..SEEDS {
        let dice = &mut SeededRng::new(seed);
        let definition = dice.definition(24);
        let layout = Layout::of(&definition);
        let document = dice.document(&definition);
        let bytes = document.encode(&layout).unwrap();
        let row = Row::new(&bytes, &layout).unwrap();
        assert_eq!(row.expires_at(), document.expires_at, "seed {seed}");
        assert_eq!(row.version(), document.version, "seed {seed}");
        let now = Timestamp::from_micros(2);
        for slot in layout.slots() {
            let cell = document.cell(slot.field);
            let presence = match cell.map(|cell| &cell.value) {
                None => Presence::Absent,
                Some(None) => Presence::Null,
                Some(Some(_)) => Presence::Value,
            };
            assert_eq!(row.presence(slot).unwrap(), presence, "seed {seed}");
            let expires_at = cell.and_then(|cell| cell.expires_at);
            assert_eq!(row.field_expires_at(slot.field), expires_at, "seed {seed}");
            let has_ended = [document.expires_at, expires_at].iter().flatten().any(|at| *at <= now);
            let now_presence = if has_ended { Presence::Absent } else { presence };
            assert_eq!(row.presence_at(slot, now).unwrap(), now_presence, "seed {seed}");
            let mut expected = Vec::new();
            if let Some(value) = document.value(slot.field) {
                encode_value(value, &mut expected);
                assert_eq!(row.bytes(slot).unwrap(), expected, "seed {seed}");
            }
        }
        assert_eq!(row.field_expires_at(FieldId(60_000)), None);
    }
}

#[test]
fn set_row_version_replaces_only_an_existing_version() {
    for seed in 0..SEEDS {
        let dice = &mut SeededRng::new(seed);
        let definition = dice.definition(24);
        let layout = Layout::of(&definition);
        let mut document = dice.document(&definition);
        let mut bytes = document.encode(&layout).unwrap();
        let version = Position { index_in_entry: 3, ..Position::default() }.document_version();
        set_row_version(&mut bytes, version);
        document.version = document.version.map(|_| version);
        assert_eq!(bytes, document.encode(&layout).unwrap(), "seed {seed}");
        for length in 0..bytes.len() {
            set_row_version(&mut bytes[..length], version);
        }
    }
}

/// Reads everything that a row offers, whatever its bytes.
fn read_all(bytes: &[u8], layout: &Layout) -> Result<(), Error> {
    let row = Row::new(bytes, layout)?;
    let row_range = bytes.as_ptr_range();
    let _ = (row.expires_at(), row.version());
    for slot in layout.slots() {
        row.field_expires_at(slot.field);
        let _ = row.presence_at(slot, Timestamp::from_micros(5));
        let value = row.bytes(slot)?.as_ptr_range();
        assert!(value.start >= row_range.start && value.end <= row_range.end);
    }
    Document::decode(bytes, layout).map(|_| ())
}

fn check_refusal(result: Result<(), Error>, seed: u64) {
    if let Err(error) = result {
        let codes = [ErrorCode::Corrupt, ErrorCode::UpgradeNeeded, ErrorCode::LimitExceeded];
        assert!(codes.contains(&error.code()), "seed {seed}: {error}");
    }
}

#[test]
fn mutated_rows_never_panic() {
    for seed in 0..SEEDS {
        let dice = &mut SeededRng::new(seed);
        let definition = dice.definition(12);
        let layout = Layout::of(&definition);
        let sound = dice.document(&definition).encode(&layout).unwrap();
        for _ in 0..20 {
            let mut bytes = sound.clone();
            for _ in 0..1 + dice.below(3) {
                match dice.below(3) {
                    0 => bytes.truncate(dice.below(bytes.len() + 1)),
                    1 => bytes.extend(dice.bytes(24)),
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = dice.below(bytes.len());
                        let bit = 1 << dice.below(8);
                        bytes[at] = *dice.pick(&[0, 0xff, bytes[at] ^ bit]);
                    }
                }
            }
            check_refusal(read_all(&bytes, &layout), seed);
        }
    }
}

#[test]
fn arbitrary_bytes_after_a_valid_version_never_panic() {
    for seed in 0..SEEDS {
        let dice = &mut SeededRng::new(seed);
        let layout = Layout::of(&dice.definition(12));
        for _ in 0..20 {
            let mut bytes = vec![1, 0, dice.below(9) as u8];
            bytes.extend(dice.bytes(layout.tail_at() + 64));
            check_refusal(read_all(&bytes, &layout), seed);
        }
    }
}

#[test]
fn truncated_row_is_refused_or_decodes_to_another_row() {
    let dice = &mut SeededRng::new(7);
    let definition = dice.definition(24);
    let layout = Layout::of(&definition);
    let bytes = dice.document(&definition).encode(&layout).unwrap();
    for length in 0..bytes.len() {
        check_refusal(read_all(&bytes[..length], &layout), 7);
    }
    assert_eq!(read_all(&bytes[..2], &layout).unwrap_err().code(), ErrorCode::Corrupt);
}

fn definition_of(types: &[FieldType]) -> Definition {
    let mut spec = StoreSpec::documents("store", KeyType::Bytes).partitions(1);
    for (number, field_type) in types.iter().enumerate() {
        spec = spec.field(format!("f{number}"), *field_type);
    }
    spec.define(StoreId(1)).unwrap()
}

#[test]
fn row_without_fields_is_its_header() {
    let layout = Layout::of(&definition_of(&[]));
    let bytes = Document::default().encode(&layout).unwrap();
    assert_eq!(bytes, [1, 0, 0]);
    assert!(is_same(&Document::decode(&bytes, &layout).unwrap(), &Document::default()));
    assert_eq!(Row::new(&[1, 0, 0, 9], &layout).unwrap_err().code(), ErrorCode::Corrupt);
}

#[test]
fn row_of_another_version_is_corrupt_and_of_a_newer_format_needs_an_upgrade() {
    let layout = Layout::of(&definition_of(&[]));
    let code = |bytes: &[u8]| Row::new(bytes, &layout).unwrap_err().code();
    assert_eq!(code(&[2, 0, 0]), ErrorCode::Corrupt);
    assert_eq!(code(&[1, 0, 8]), ErrorCode::UpgradeNeeded);
}

/// Proves that every count of field expiries that exceeds the bytes is refused, up to the largest
/// count.
#[test]
fn false_counts_of_field_expiries_are_corrupt() {
    let layout = Layout::of(&definition_of(&[FieldType::BYTES]));
    for count in [1u16, 2, 1_000, u16::MAX] {
        let mut bytes = vec![1, 0, 4, 1, b'x'];
        bytes.extend(count.to_le_bytes());
        assert_eq!(Row::new(&bytes, &layout).unwrap_err().code(), ErrorCode::Corrupt);
    }
    let row = [1, 0, 4, 1, b'x', 0, 0];
    assert_eq!(Row::new(&row, &layout).unwrap().field_expires_at(FieldId(1)), None);
}

#[test]
fn slot_of_another_layout_is_an_error_without_a_panic() {
    let text = FieldType::STRING;
    let wide = Layout::of(&definition_of(&[text; 40]));
    let narrow = Layout::of(&definition_of(&[text]));
    let bytes = Document::default().encode(&narrow).unwrap();
    let row = Row::new(&bytes, &narrow).unwrap();
    for slot in &wide.slots()[4..] {
        assert_eq!(row.presence(slot).unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(row.bytes(slot).unwrap_err().code(), ErrorCode::Internal);
    }
}

#[test]
fn values_and_rows_over_their_limits_are_refused() {
    let bytes = FieldType::BYTES;
    let layout = Layout::of(&definition_of(&[bytes; 5]));
    let encode = |fields: u32, length: usize| {
        let mut document = Document::default();
        for id in 1..=fields {
            document.set(FieldId(id), Some(Value::Bytes(vec![1; length])), None);
        }
        document.encode(&layout)
    };
    assert_eq!(encode(1, VALUE_BYTES_MAX).unwrap().len(), layout.tail_at() + VALUE_BYTES_MAX);
    let context = encode(1, VALUE_BYTES_MAX + 1).unwrap_err().context().clone();
    assert_eq!(context.limit, Some(VALUE_BYTES_MAX as u64));
    let context = encode(5, VALUE_BYTES_MAX).unwrap_err().context().clone();
    assert_eq!(context.limit, Some(ROW_BYTES_MAX as u64));
}

#[test]
fn lists_of_too_many_components_are_refused() {
    let list = FieldType::List(ScalarType::Bool);
    assert!(decode_value(&vec![1; LIST_COMPONENTS_MAX], list).is_ok());
    let error = decode_value(&vec![1; LIST_COMPONENTS_MAX + 1], list).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
}

#[test]
fn values_of_another_type_are_refused() {
    let layout = Layout::of(&definition_of(&[FieldType::INT32]));
    let mut document = Document::default();
    document.set(FieldId(1), Some(Value::Int64(1)), None);
    assert_eq!(document.encode(&layout).unwrap_err().code(), ErrorCode::InvalidArgument);
}
