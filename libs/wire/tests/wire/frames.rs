//! Hand-made frames with a valid checksum, as a newer build or a foreign producer of the topic may
//! send them.

use bytes::Bytes;
use forebay_wire::v1;
use prost::Message;

/// Creates a frame of format version 1 around these bytes.
pub fn seal(body: &[u8]) -> Vec<u8> {
    seal_as(1, 0, body)
}

/// Creates a frame with this format version and these flags.
pub fn seal_as(format_version: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = b"FBEN".to_vec();
    frame.extend_from_slice(&format_version.to_le_bytes());
    frame.extend_from_slice(&flags.to_le_bytes());
    frame.extend_from_slice(&0x0123_4567_89ab_cdefu64.to_le_bytes());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&frame), body);
    frame.extend_from_slice(&checksum.to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Creates a frame around this message.
pub fn sealed_entry(body: Option<v1::entry::Body>) -> Vec<u8> {
    seal(&v1::Entry { epoch: 1, schema_version: 1, source: None, body }.encode_to_vec())
}

/// Creates a frame around one change.
pub fn sealed_change(change: v1::Change) -> Vec<u8> {
    let batch = v1::ClientBatch { client_id: Bytes::from_static(&[7; 16]), changes: vec![change] };
    sealed_entry(Some(v1::entry::Body::Changes(v1::entry::Changes { batches: vec![batch] })))
}

/// Creates a valid change, which tests make invalid.
pub fn good_change() -> v1::Change {
    v1::Change {
        sequence: 1,
        key: Bytes::from_static(b"user-1"),
        verb: v1::Verb::Upsert.into(),
        fields: vec![field_change(v1::field_change::Op::Set(int32(41)))],
        condition: None,
        ttl_us: None,
    }
}

/// Creates an operation on field 1.
pub fn field_change(op: v1::field_change::Op) -> v1::FieldChange {
    v1::FieldChange { field: 1, op: Some(op), ttl_us: None }
}

/// Creates an int32 value.
pub fn int32(value: i32) -> v1::Value {
    v1::Value { kind: Some(v1::value::Kind::Int32Value(value)) }
}
