//! The simulated store: its definition, and the fields of its documents.

use forebay::schema::Value;
use forebay_core::id::FieldId;
use forebay_core::key::KeyType;
use forebay_core::row::Document;
use forebay_core::schema::{StoreOptions, StoreSpec};
use forebay_core::value::FieldType;
use forebay_core::{Error, Result};
use forebay_reader::Reader;

use super::expected_state::Fields;

/// Name of the simulated store.
pub(crate) const STORE: &str = "simulated";
const REVISION: FieldId = FieldId(1);
const TOTAL: FieldId = FieldId(2);
const NOTE: FieldId = FieldId(3);
/// Name of the field that the administrator adds and drops.
pub(crate) const PASSING: &str = "passing";
pub(crate) const PARTITIONS: u32 = 3;
pub(crate) const HEARTBEAT_MS: u32 = 150;

/// Returns the specification of the simulated store.
pub(crate) fn spec() -> StoreSpec {
    let mut spec = StoreSpec::documents(STORE, KeyType::Int64)
        .partitions(PARTITIONS)
        .field("revision", FieldType::INT64)
        .field("total", FieldType::INT64)
        .field("note", FieldType::STRING);
    let options = StoreOptions { heartbeat_ms: HEARTBEAT_MS, versioned: true, ..spec.options };
    spec.options = options;
    spec
}

/// Decodes the fields of a document.
///
/// # Errors
/// `Internal` for a number of another type.
pub(crate) fn fields(reader: &Reader, document: &Document) -> Result<Fields> {
    let number = |field| match document.value(field) {
        None => Ok(None),
        Some(Value::Int64(number)) => Ok(Some(*number)),
        Some(other) => Err(Error::internal(format!("a number came back as {other:?}"))),
    };
    let note = match document.value(NOTE) {
        Some(Value::String(note)) => Some(note.clone()),
        _ => None,
    };
    // A tail shows a document before it publishes its schema version, so an unknown field may be
    // new.
    let definition = reader.definition();
    let passes = |field: &FieldId| *field > NOTE && !definition.retired.contains(field);
    let passing = document.cells().iter().map(|cell| cell.field).rfind(passes);
    Ok(Fields {
        revision: number(REVISION)?.unwrap_or_default(),
        total: number(TOTAL)?.unwrap_or_default(),
        note,
        passing: passing.map(number).transpose()?.flatten(),
    })
}
