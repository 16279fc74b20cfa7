//! Stored form of an event: its time, its append time, its key and its columns. Bytes:
//! `proto/spec/events.md`. The decoder accepts any bytes without panicking.

use forebay_core::change::{Change, FieldOp};
use forebay_core::clock::Timestamp;
use forebay_core::coerce::coerce_value;
use forebay_core::layout::Layout;
use forebay_core::row::Document;
use forebay_core::{Error, Result};

/// Bytes before the key.
const HEAD_BYTES: usize = 8 + 8 + 8 + 4;

/// The part of an event before its key and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventHead {
    /// Event time.
    pub(super) time: Timestamp,
    /// Append time in the log.
    pub(super) append_time: Timestamp,
    /// Total bytes of all events stored before this one, including deleted ones.
    pub(super) bytes_before: u64,
}

/// An event, decoded in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredEvent<'r> {
    pub(super) head: EventHead,
    /// Identity bytes of the key.
    pub(super) key: &'r [u8],
    /// The columns, in the layout that the row names.
    pub(super) row: &'r [u8],
}

impl<'r> StoredEvent<'r> {
    /// # Errors
    /// `Corrupt` for bytes that are not an event.
    pub(super) fn decode(bytes: &'r [u8]) -> Result<Self> {
        let damaged = || Error::corrupt("the stored bytes are not an event");
        let (time, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (append_time, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (bytes_before, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (key_bytes, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let key_bytes = u32::from_le_bytes(*key_bytes) as usize;
        let (key, row) = rest.split_at_checked(key_bytes).ok_or_else(damaged)?;
        let head = EventHead {
            time: Timestamp::from_micros(i64::from_le_bytes(*time)),
            append_time: Timestamp::from_micros(i64::from_le_bytes(*append_time)),
            bytes_before: u64::from_le_bytes(*bytes_before),
        };
        Ok(Self { head, key, row })
    }
}

/// Encodes an event in this layout; columns that the layout does not have are omitted.
///
/// # Errors
/// `LimitExceeded` for a row that is too large; `InvalidArgument` for a value that its column does
/// not hold, which no fold admits.
pub(super) fn encode(head: EventHead, event: &Change, layout: &Layout) -> Result<Vec<u8>> {
    let mut columns = Document::new(None, None);
    for change in &event.fields {
        let FieldOp::Set(value) = &change.op else { continue };
        let Some(slot) = layout.slot(change.field) else { continue };
        let value = value.clone().map(|value| coerce_value(value, slot.field_type)).transpose()?;
        columns.set(change.field, value, None);
    }
    let (row, key) = (columns.encode(layout)?, event.key.as_bytes());
    let mut bytes = Vec::with_capacity(HEAD_BYTES + key.len() + row.len());
    bytes.extend_from_slice(&head.time.as_micros().to_le_bytes());
    bytes.extend_from_slice(&head.append_time.as_micros().to_le_bytes());
    bytes.extend_from_slice(&head.bytes_before.to_le_bytes());
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&row);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::change::{FieldChange, Verb};
    use forebay_core::id::{FieldId, Sequence, StoreId};
    use forebay_core::key::{Key, KeyType};
    use forebay_core::schema::StoreSpec;
    use forebay_core::value::{FieldType, Value};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_an_event_or_refused(bytes: Vec<u8>, key_bytes in 0_u32..64) {
            drop(StoredEvent::decode(&bytes));
            let head = [0; HEAD_BYTES - 4];
            let bytes = [&head[..], &key_bytes.to_le_bytes(), &bytes].concat();
            if let Ok(event) = StoredEvent::decode(&bytes) {
                prop_assert_eq!(event.key.len(), key_bytes as usize);
                prop_assert_eq!(HEAD_BYTES + event.key.len() + event.row.len(), bytes.len());
            }
        }
    }

    #[test]
    fn stored_event_round_trips_and_other_bytes_are_refused() {
        let spec = StoreSpec::stream("orders", KeyType::String).partitions(1);
        let spec = spec.field("n", FieldType::INT64);
        let layout = Layout::of(&spec.define(StoreId(1)).unwrap());
        let set = |field, value| FieldChange {
            field: FieldId(field),
            op: FieldOp::Set(Some(value)),
            ttl_us: None,
        };
        let event = Change {
            sequence: Sequence(1),
            key: Key::plain(b"ada").unwrap(),
            verb: Verb::Insert,
            condition: None,
            ttl_us: None,
            // The event has an older client's narrower value, and a column that was dropped.
            fields: vec![set(1, Value::Int32(7)), set(2, Value::Bool(true))],
        };
        let [time, append_time] = [-5, 6].map(Timestamp::from_micros);
        let head = EventHead { time, append_time, bytes_before: 9 };
        let bytes = encode(head, &event, &layout).unwrap();
        let read = StoredEvent::decode(&bytes).unwrap();
        assert_eq!((read.head, read.key), (head, &b"ada"[..]));
        let columns = Document::decode(read.row, &layout).unwrap();
        assert_eq!(columns.value(FieldId(1)), Some(&Value::Int64(7)));
        for end in 0..HEAD_BYTES + 3 {
            let error = StoredEvent::decode(&bytes[..end]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Corrupt, "{end}");
        }
    }
}
