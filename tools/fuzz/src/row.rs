//! Rows: any bytes are refused, or are a document with exactly one encoding.

use std::sync::LazyLock;

use forebay_core::ErrorCode;
use forebay_core::clock::Timestamp;
use forebay_core::id::StoreId;
use forebay_core::key::KeyType;
use forebay_core::layout::Layout;
use forebay_core::row::{Document, Row};
use forebay_core::schema::StoreSpec;
use forebay_core::value::{FieldType, ScalarType, VectorType};

/// Names of four definitions of `proto/vectors/row.json`, whose layouts the target uses; all have
/// version 1.
pub const LAYOUT_NAMES: [&str; 4] = ["no-fields", "key-value", "text-and-count", "every-type"];

static LAYOUTS: LazyLock<[Layout; 4]> = LazyLock::new(|| {
    use ScalarType::{Bool, Bytes, Float32, Float64, Int32, Int64, String, Timestamp};
    let mut every_type = vec![];
    for scalar in [Bool, Int32, Int64, Float32, Float64, String, Bytes, Timestamp] {
        every_type.extend([FieldType::Scalar(scalar), FieldType::List(scalar)]);
    }
    let vectors = [VectorType::F32, VectorType::F16, VectorType::I8];
    every_type.extend(vectors.map(|component| FieldType::Vector(component, 3)));
    let text_and_count = vec![FieldType::Scalar(String), FieldType::Scalar(Int32)];
    [vec![], vec![FieldType::Scalar(Bytes)], text_and_count, every_type].map(|types| layout(&types))
});

fn layout(types: &[FieldType]) -> Layout {
    let mut spec = StoreSpec::documents("fuzz", KeyType::Bytes).partitions(1);
    for (number, field_type) in types.iter().enumerate() {
        spec = spec.field(format!("field{number}"), *field_type);
    }
    Layout::of(&spec.define(StoreId(1)).expect("a definition of distinct fields"))
}

/// Decodes the input: layout number u8, then a row, whose version is corrected.
///
/// # Panics
/// Panics if a slice is outside the row, or a document does not round-trip through its own row.
pub fn row_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let layout = &LAYOUTS[usize::from(*mode) % LAYOUTS.len()];
    let mut bytes = rest.to_vec();
    if let Some(version) = bytes.first_chunk_mut::<2>() {
        *version = [1, 0];
    }
    read_in_place(&bytes, layout);
    let document = match Document::decode(&bytes, layout) {
        Ok(document) => document,
        Err(error) => {
            let codes = [ErrorCode::Corrupt, ErrorCode::UpgradeNeeded, ErrorCode::LimitExceeded];
            assert!(codes.contains(&error.code()), "{error}");
            return;
        }
    };
    let one_form = document.encode(layout).expect("a decoded row can be encoded");
    let decoded = Document::decode(&one_form, layout).expect("an encoded row can be decoded");
    assert_eq!(decoded.encode(layout).as_ref(), Ok(&one_form));
    assert!(one_form.len() <= bytes.len(), "the one form is the shortest");
}

fn read_in_place(bytes: &[u8], layout: &Layout) {
    let Ok(row) = Row::new(bytes, layout) else { return };
    let inside = bytes.as_ptr_range();
    for slot in layout.slots() {
        // Any result is fine for such bytes, except a panic.
        let _ =
            (row.presence_at(slot, Timestamp::from_micros(0)), row.field_expires_at(slot.field));
        let value = row.bytes(slot).expect("the ends were checked").as_ptr_range();
        assert!(value.start >= inside.start && value.end <= inside.end);
    }
    let _ = (row.expires_at(), row.version());
}
