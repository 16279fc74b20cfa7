//! Entry frames: round trips, skips, halts, and the proof that no bytes cause a panic.

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::id::{ClientId, FieldId, LogId, Offset, SchemaVersion, Sequence, StoreId};
use forebay_core::key::{Key, KeyType};
use forebay_core::limits::{ENTRY_BYTES_MAX, ENTRY_CHANGES_MAX};
use forebay_core::schema::StoreSpec;
use forebay_core::value::Value;
use forebay_wire::dead_letter::Cursor;
use forebay_wire::entry::{
    ENTRY_HEADER_BYTES, decode_entry, encode_entry, frame_log_id, peek_log_id,
};
use forebay_wire::v1;
use forebay_wire::v1::entry::Body;
use forebay_wire::v1::field_change::{Bounded, Op};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::frames::{field_change, good_change, int32, seal, seal_as, sealed_change, sealed_entry};
use crate::strategies;

fn refusal_of(frame: &[u8]) -> ErrorCode {
    decode_entry(frame).unwrap_err().code()
}

/// Returns whether the decoder returns an entry, a skip or a halt.
fn is_an_answer(frame: &[u8]) -> bool {
    match decode_entry(frame) {
        Ok(_) => true,
        Err(error) => matches!(error.code(), ErrorCode::Corrupt | ErrorCode::UpgradeNeeded),
    }
}

proptest! {
    #[test]
    fn entries_round_trip(entry in strategies::entry()) {
        let frame = encode_entry(&entry).unwrap();
        prop_assert_eq!(frame_log_id(&frame), Ok(entry.log_id));
        let opens = matches!(entry.body, EntryBody::LogHeader).then_some(entry.log_id);
        prop_assert_eq!(peek_log_id(&frame, Offset(0)), opens);
        prop_assert_eq!(peek_log_id(&frame, Offset(1)), Some(entry.log_id));
        prop_assert_eq!(&decode_entry(&frame).unwrap(), &entry);
        prop_assert_eq!(encode_entry(&entry).unwrap(), frame);
    }

    #[test]
    fn cursors_round_trip(cursor in strategies::cursor()) {
        prop_assert_eq!(Cursor::decode(&cursor.encode()).unwrap(), cursor);
    }

    #[test]
    fn arbitrary_bytes_are_a_cursor_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Err(error) = Cursor::decode(&bytes) {
            prop_assert_eq!(error.code(), ErrorCode::InvalidArgument);
        }
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(refusal_of(&bytes), ErrorCode::Corrupt);
        prop_assert!(is_an_answer(&seal(&bytes)));
    }

    /// Proves that one flipped bit anywhere is detected: CRC-32C detects every single flipped bit.
    #[test]
    fn flipped_bit_is_detected(entry in strategies::entry(), at in any::<Index>(), bit in 0u8..8) {
        let mut frame = encode_entry(&entry).unwrap().to_vec();
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        prop_assert_eq!(refusal_of(&frame), ErrorCode::Corrupt);
    }

    #[test]
    fn truncated_or_extended_frame_is_detected(
        entry in strategies::entry(),
        at in any::<Index>(),
        more in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let frame = encode_entry(&entry).unwrap();
        prop_assert_eq!(refusal_of(&frame[..at.index(frame.len())]), ErrorCode::Corrupt);
        let longer_frame = [&frame[..], &more].concat();
        prop_assert_eq!(refusal_of(&longer_frame), ErrorCode::Corrupt);
    }

    /// Tests well-formed frames with wrong content: the body was changed before the frame was
    /// sealed.
    #[test]
    fn changed_body_is_decoded_or_refused(
        entry in strategies::entry(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut body = encode_entry(&entry).unwrap()[ENTRY_HEADER_BYTES..].to_vec();
        for (at, byte) in changes {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        prop_assert!(is_an_answer(&seal(&body)));
    }
}

#[test]
fn newer_header_halts_with_any_body() {
    for body in [&b""[..], b"\xff\xff\xff", b"anything"] {
        assert_eq!(refusal_of(&seal_as(2, 0, body)), ErrorCode::UpgradeNeeded);
        assert_eq!(refusal_of(&seal_as(u16::MAX, 0, body)), ErrorCode::UpgradeNeeded);
        assert_eq!(refusal_of(&seal_as(1, 1 << 15, body)), ErrorCode::UpgradeNeeded);
        assert_eq!(refusal_of(&seal_as(0, 0, body)), ErrorCode::Corrupt);
    }
}

/// Proves that the body of a newer build halts the partition: a known change with one part that
/// this build does not know.
#[test]
fn entry_of_a_newer_build_halts_the_partition() {
    type Break = fn(&mut v1::Change);
    let newer: [(&str, Break); 9] = [
        ("verb", |change| change.verb = 5),
        ("operation", |change| change.fields[0].op = None),
        ("condition", |change| change.condition = Some(v1::Condition { kind: None })),
        ("value", |change| {
            change.fields[0].op = Some(Op::Set(v1::Value { kind: None }));
        }),
        ("value to add", |change| {
            change.fields[0].op = Some(Op::Increment(v1::Value { kind: None }));
        }),
        ("scalar type of a list", |change| {
            change.fields[0].op = Some(Op::SetRemove(v1::List { r#type: 9, items: Bytes::new() }));
        }),
        ("scalar type of a bounded list", |change| {
            let items = Some(v1::List { r#type: -1, items: Bytes::new() });
            change.fields[0].op = Some(Op::ListAppend(Bounded { items, bound: 1 }));
        }),
        ("vector component", |change| {
            let vector = v1::Vector { component: 4, items: Bytes::new() };
            let kind = Some(v1::value::Kind::VectorValue(vector));
            change.fields[0].op = Some(Op::Set(v1::Value { kind }));
        }),
        ("list type", |change| {
            let list = v1::List { r#type: 9, items: Bytes::new() };
            let kind = Some(v1::value::Kind::ListValue(list));
            change.fields[0].op = Some(Op::Set(v1::Value { kind }));
        }),
    ];
    assert!(decode_entry(&sealed_change(good_change())).is_ok());
    for (name, break_it) in newer {
        let mut change = good_change();
        break_it(&mut change);
        assert_eq!(refusal_of(&sealed_change(change)), ErrorCode::UpgradeNeeded, "{name}");
    }
    assert_eq!(refusal_of(&sealed_entry(None)), ErrorCode::UpgradeNeeded);
    let record = v1::ControlRecord { kind: None };
    assert_eq!(refusal_of(&sealed_entry(Some(Body::Control(record)))), ErrorCode::UpgradeNeeded);
    let mut definition = good_definition();
    definition.key_type = 4;
    assert_eq!(refusal_of(&sealed_definition(definition)), ErrorCode::UpgradeNeeded);
}

/// Proves that a `oneof` member with a number that this build does not know decodes as an unset
/// member.
#[test]
fn unknown_oneof_member_decodes_as_unset() {
    let field_15_empty = [0x7a, 0x00];
    assert_eq!(refusal_of(&seal(&field_15_empty)), ErrorCode::UpgradeNeeded);
    let barrier_and_field_15 = [0x42, 0x00, 0x7a, 0x00];
    let entry = decode_entry(&seal(&barrier_and_field_15)).unwrap();
    assert_eq!(entry.body, EntryBody::Barrier);
}

#[test]
fn invalid_entry_is_skipped() {
    type Break = fn(&mut v1::Change);
    let corrupt: [(&str, Break); 8] = [
        ("no verb", |change| change.verb = 0),
        ("no sequence", |change| change.sequence = 0),
        ("a long key", |change| change.key = vec![0; 4 + 2 * 65_536 + 1].into()),
        ("null as an increment", |change| {
            let null = v1::value::Kind::Null(v1::Null {});
            change.fields[0].op = Some(Op::Increment(v1::Value { kind: Some(null) }));
        }),
        ("no list type", |change| {
            change.fields[0].op = Some(Op::SetRemove(v1::List::default()));
        }),
        ("no components", |change| {
            change.fields[0].op = Some(Op::SetAdd(Bounded { items: None, bound: 1 }));
        }),
        ("half a component", |change| {
            let list = v1::List { r#type: 2, items: Bytes::from_static(b"abc") };
            change.fields[0].op = Some(Op::SetRemove(list));
        }),
        ("text that is no text", |change| {
            let list = v1::List { r#type: 6, items: Bytes::from_static(b"\x01\0\0\0\xff") };
            change.fields[0].op = Some(Op::SetRemove(list));
        }),
    ];
    for (name, break_it) in corrupt {
        let mut change = good_change();
        break_it(&mut change);
        assert_eq!(refusal_of(&sealed_change(change)), ErrorCode::Corrupt, "{name}");
    }
    let batch = v1::ClientBatch { client_id: Bytes::from_static(&[1; 15]), changes: Vec::new() };
    let changes = v1::entry::Changes { batches: vec![batch] };
    assert_eq!(refusal_of(&sealed_entry(Some(Body::Changes(changes)))), ErrorCode::Corrupt);
    let mut definition = good_definition();
    definition.partitions = 0;
    assert_eq!(refusal_of(&sealed_definition(definition)), ErrorCode::Corrupt);
    assert_eq!(refusal_of(&seal(b"\x08")), ErrorCode::Corrupt);
}

fn good_definition() -> v1::Definition {
    let spec = StoreSpec::documents("users", KeyType::String).partitions(2);
    v1::Definition::from(&spec.define(StoreId(3)).unwrap())
}

fn sealed_definition(definition: v1::Definition) -> Vec<u8> {
    let kind = Some(v1::control_record::Kind::Define(definition));
    sealed_entry(Some(Body::Control(v1::ControlRecord { kind })))
}

fn entry_of(changes: Vec<Change>) -> Entry {
    let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(1), changes }]);
    Entry::original(LogId(1), SchemaVersion(1), body)
}

fn delete(sequence: u64) -> Change {
    Change {
        sequence: Sequence(sequence),
        key: Key::plain(b"k").unwrap(),
        verb: Verb::Delete,
        fields: Vec::new(),
        condition: None,
        ttl_us: None,
    }
}

#[test]
fn change_count_is_limited_in_both_directions() {
    let changes_max = ENTRY_CHANGES_MAX as u64;
    let entry = entry_of((1..=changes_max).map(delete).collect());
    assert_eq!(decode_entry(&encode_entry(&entry).unwrap()), Ok(entry));
    let error = encode_entry(&entry_of((1..=changes_max + 1).map(delete).collect())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert_eq!(error.context().actual, Some(changes_max + 1));
    let changes = vec![v1::Change { fields: Vec::new(), ..good_change() }; ENTRY_CHANGES_MAX + 1];
    let batch = v1::ClientBatch { client_id: Bytes::from_static(&[7; 16]), changes };
    let changes = v1::entry::Changes { batches: vec![batch] };
    let error = decode_entry(&sealed_entry(Some(Body::Changes(changes)))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt);
    assert_eq!(error.context().limit, Some(changes_max));
}

#[test]
fn body_bytes_are_limited_in_both_directions() {
    let with_value = |bytes: usize| {
        let op = FieldOp::Set(Some(Value::Bytes(vec![7; bytes])));
        let fields = vec![FieldChange { field: FieldId(1), op, ttl_us: None }];
        entry_of(vec![Change { verb: Verb::Upsert, fields, ..delete(1) }])
    };
    let value_bytes = ENTRY_BYTES_MAX - 1_024;
    let body_bytes = encode_entry(&with_value(value_bytes)).unwrap().len() - ENTRY_HEADER_BYTES;
    let overhead = body_bytes - value_bytes;
    let largest = with_value(ENTRY_BYTES_MAX - overhead);
    let frame = encode_entry(&largest).unwrap();
    assert_eq!(frame.len(), ENTRY_HEADER_BYTES + ENTRY_BYTES_MAX);
    assert_eq!(decode_entry(&frame), Ok(largest));
    let error = encode_entry(&with_value(ENTRY_BYTES_MAX - overhead + 1)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitExceeded);
    assert_eq!(error.context().actual, Some(ENTRY_BYTES_MAX as u64 + 1));
    assert_eq!(refusal_of(&seal(&vec![0; ENTRY_BYTES_MAX + 1])), ErrorCode::Corrupt);
}

#[test]
fn encoder_refuses_entries_that_every_replica_would_skip() {
    let error = encode_entry(&entry_of(vec![delete(1), delete(0)])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let spec = StoreSpec::documents("users", KeyType::String).partitions(2);
    let mut definition = spec.define(StoreId(3)).unwrap();
    definition.name.clear();
    let body = EntryBody::Control(ControlRecord::Define(Box::new(definition)));
    let error = encode_entry(&Entry { body, ..entry_of(Vec::new()) }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[test]
fn hand_sealed_change_is_decoded() {
    let mut change = good_change();
    change.fields.push(field_change(Op::Max(int32(3))));
    let entry = decode_entry(&sealed_change(change)).unwrap();
    assert_eq!(entry.log_id, LogId(0x0123_4567_89ab_cdef));
    assert_eq!(entry.change_count(), 1);
}
