//! Checks of a change against its definition; each refusal names the error.

use crate::fixture::*;
use forebay_core::ErrorCode;
use forebay_core::change::{Change, Condition, FieldOp};
use forebay_core::id::{DocumentVersion, FieldId};
use forebay_core::key::{Key, KeyType};
use forebay_core::limits::{KEY_BYTES_MAX, LIST_COMPONENTS_MAX, TTL_US_MAX};
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value};

const COUNT: FieldId = FieldId(1);
const NAME: FieldId = FieldId(2);
const TAGS: FieldId = FieldId(3);

fn definition(key_type: KeyType) -> Definition {
    let spec = StoreSpec::documents("users", key_type)
        .partitions(1)
        .field("count", FieldType::INT32)
        .field("name", FieldType::STRING)
        .field("tags", FieldType::List(ScalarType::Int32));
    spec.define(STORE).unwrap()
}

fn refusal(change: &Change) -> Option<ErrorCode> {
    change.check(&definition(KeyType::Bytes)).err().map(|error| error.code())
}

fn field_refusal(field: FieldId, operation: FieldOp) -> Option<ErrorCode> {
    refusal(&upsert(1, b"k", vec![op(field, operation)]))
}

#[test]
fn operations_fit_their_types() {
    let (invalid, limit) = (Some(ErrorCode::InvalidArgument), Some(ErrorCode::LimitExceeded));
    let int = || Value::Int32(1);
    let text = || Value::String("x".to_owned());
    assert_eq!(field_refusal(COUNT, FieldOp::Set(None)), None);
    assert_eq!(field_refusal(COUNT, FieldOp::Remove), None);
    assert_eq!(field_refusal(COUNT, FieldOp::Set(Some(int()))), None);
    assert_eq!(field_refusal(COUNT, FieldOp::Set(Some(Value::Int64(1)))), invalid);
    assert_eq!(field_refusal(COUNT, FieldOp::Increment(int())), None);
    assert_eq!(field_refusal(NAME, FieldOp::Increment(text())), invalid);
    assert_eq!(field_refusal(NAME, FieldOp::Max(text())), None);
    assert_eq!(field_refusal(TAGS, FieldOp::Min(Value::List(ScalarType::Int32, vec![]))), invalid);
    let append = |items, bound| FieldOp::ListAppend { items, bound };
    assert_eq!(field_refusal(TAGS, append(vec![int()], 1)), None);
    assert_eq!(field_refusal(TAGS, append(vec![text()], 1)), invalid);
    assert_eq!(field_refusal(COUNT, append(vec![int()], 1)), invalid);
    assert_eq!(field_refusal(TAGS, append(vec![], 0)), limit);
    assert_eq!(field_refusal(TAGS, append(vec![], LIST_COMPONENTS_MAX as u32 + 1)), limit);
    let items = vec![int(); LIST_COMPONENTS_MAX + 1];
    assert_eq!(field_refusal(TAGS, FieldOp::SetRemove { items }), limit);
    assert_eq!(field_refusal(FieldId(9), FieldOp::Set(None)), invalid);
}

#[test]
fn verbs_and_fields_fit_together() {
    let invalid = Some(ErrorCode::InvalidArgument);
    let removal = || vec![op(COUNT, FieldOp::Remove)];
    assert_eq!(refusal(&put(1, b"k", removal())), invalid);
    assert_eq!(refusal(&change(1, b"k", forebay_core::change::Verb::Delete, removal())), invalid);
    let changes = vec![set(NAME, Value::String(String::new())), op(COUNT, FieldOp::Remove)];
    assert_eq!(refusal(&upsert(1, b"k", changes.clone())), None);
    assert_eq!(refusal(&upsert(1, b"k", [changes, removal()].concat())), invalid);
}

#[test]
fn times_to_live_are_bounded() {
    for (ttl_us, code) in [
        (1, None),
        (TTL_US_MAX, None),
        (0, Some(ErrorCode::InvalidArgument)),
        (i64::MIN, Some(ErrorCode::InvalidArgument)),
        (TTL_US_MAX + 1, Some(ErrorCode::LimitExceeded)),
    ] {
        assert_eq!(refusal(&with_ttl(ttl_us, upsert(1, b"k", vec![]))), code);
        let field = op_for(ttl_us, COUNT, FieldOp::Set(None));
        assert_eq!(refusal(&upsert(1, b"k", vec![field])), code);
    }
}

#[test]
fn conditions_require_their_operands() {
    let invalid = Some(ErrorCode::InvalidArgument);
    let versioned = Condition::IfVersion(DocumentVersion(1));
    assert_eq!(refusal(&when(versioned, delete(1, b"k"))), invalid);
    let newer = |field, fields| refusal(&when(Condition::IfNewer(field), upsert(1, b"k", fields)));
    assert_eq!(newer(COUNT, vec![set(COUNT, Value::Int32(1))]), None);
    assert_eq!(newer(COUNT, vec![]), invalid);
    assert_eq!(newer(COUNT, vec![op(COUNT, FieldOp::Set(None))]), invalid);
    assert_eq!(newer(COUNT, vec![op(COUNT, FieldOp::Increment(Value::Int32(1)))]), invalid);
    let list = Value::List(ScalarType::Int32, vec![]);
    assert_eq!(newer(TAGS, vec![set(TAGS, list)]), invalid);
}

#[test]
fn keys_fit_their_type_and_length() {
    let code = |key_type, key: &[u8]| {
        let result = upsert(1, key, vec![]).check(&definition(key_type));
        result.err().map(|error| error.code())
    };
    let invalid = Some(ErrorCode::InvalidArgument);
    assert_eq!(code(KeyType::String, b""), None);
    assert_eq!(code(KeyType::String, b"\xff"), invalid);
    assert_eq!(code(KeyType::Bytes, b"\xff"), None);
    assert_eq!(code(KeyType::Int64, &7i64.to_le_bytes()), None);
    assert_eq!(code(KeyType::Int64, b"seven"), invalid);
    assert_eq!(code(KeyType::Bytes, &vec![0; KEY_BYTES_MAX]), None);
    let limit = Some(ErrorCode::LimitExceeded);
    assert_eq!(code(KeyType::Bytes, &vec![0; KEY_BYTES_MAX + 1]), limit);
}

#[test]
fn partition_key_belongs_only_in_the_key() {
    let mut spec = StoreSpec::documents("carts", KeyType::Int64)
        .partitions(1)
        .field("user", FieldType::STRING);
    spec.partition_key = Some("user".to_owned());
    let definition = spec.define(STORE).unwrap();
    let check = |partition_key: &[u8], primary: &[u8], fields| {
        let key = Key::partitioned(partition_key, primary).unwrap();
        let result = upsert(1, key.as_bytes(), fields).check(&definition);
        result.err().map(|error| error.code())
    };
    let primary = 7i64.to_le_bytes();
    let invalid = Some(ErrorCode::InvalidArgument);
    assert_eq!(check(b"me", &primary, vec![]), None);
    assert_eq!(check(b"\xff", &primary, vec![]), invalid);
    assert_eq!(check(b"me", b"7", vec![]), invalid);
    assert_eq!(
        check(b"me", &primary, vec![set(FieldId(1), Value::String("me".to_owned()))]),
        invalid
    );
    assert!(upsert(1, &primary[..3], vec![]).check(&definition).is_err());
}

/// Proves that a late writer may still name a field that its schema retired.
#[test]
fn retired_fields_are_accepted() {
    let definition = definition(KeyType::Bytes);
    let next = definition.altered(&[Alteration::DropField("count".to_owned())]).unwrap();
    let late = upsert(1, b"k", vec![set(COUNT, Value::Bool(true))]);
    assert_eq!(late.check(&next), Ok(()));
    let newer = when(Condition::IfNewer(COUNT), late);
    assert_eq!(newer.check(&next), Ok(()));
}
