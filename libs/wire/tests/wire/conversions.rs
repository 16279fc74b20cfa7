//! Proves that domain values survive a round trip through their messages, and that invalid messages
//! are refused with the right code.

use std::fmt::Debug;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::catalog::{Catalog, ControlEffect, ControlRecord};
use forebay_core::change::{ClientBatch, Condition, Source};
use forebay_core::id::{DocumentVersion, Offset, PartitionCount, Position, StoreId};
use forebay_core::limits::{LIST_COMPONENTS_MAX, ROW_BYTES_MAX};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::schema::{Alteration, Definition, StoreOptions, StoreSpec};
use forebay_core::value::{FieldType, Value, VectorType};
use forebay_core::versions::VersionNumber;
use forebay_wire::outcome::{ChangeOutcome, ChangeResult};
use forebay_wire::v1;
use forebay_wire::value::{nullable_value, nullable_value_message};
use proptest::prelude::*;
use prost::Message;

use crate::frames;
use crate::strategies;

/// Converts to a message and its bytes, and back.
fn round_trip<Domain, Wire>(domain: &Domain) -> Domain
where
    Wire: Message + Default + TryInto<Domain, Error: Debug> + for<'a> From<&'a Domain>,
{
    let bytes = Wire::from(domain).encode_to_vec();
    Wire::decode(bytes.as_slice()).unwrap().try_into().unwrap()
}

proptest! {
    #[test]
    fn field_types_round_trip(field_type in strategies::field_type()) {
        prop_assert_eq!(FieldType::try_from(v1::FieldType::from(field_type)), Ok(field_type));
    }

    #[test]
    fn values_round_trip(value in strategies::value()) {
        prop_assert_eq!(round_trip::<Value, v1::Value>(&value), value);
    }

    #[test]
    fn specs_round_trip(spec in strategies::store_spec()) {
        prop_assert_eq!(round_trip::<StoreSpec, v1::StoreSpec>(&spec), spec);
    }

    #[test]
    fn definitions_round_trip(definition in strategies::definition()) {
        prop_assert_eq!(round_trip::<Definition, v1::Definition>(&definition), definition);
    }

    #[test]
    fn alterations_round_trip(alteration in strategies::alteration()) {
        prop_assert_eq!(round_trip::<Alteration, v1::Alteration>(&alteration), alteration);
    }

    #[test]
    fn batches_round_trip(batch in strategies::client_batch()) {
        prop_assert_eq!(round_trip::<ClientBatch, v1::ClientBatch>(&batch), batch);
    }

    #[test]
    fn sources_round_trip(source in strategies::source()) {
        prop_assert_eq!(Source::try_from(v1::Source::from(source)), Ok(source));
    }

    #[test]
    fn errors_round_trip(error in strategies::error()) {
        prop_assert_eq!(forebay_core::Error::from(v1::Error::from(&error)), error);
    }

    #[test]
    fn results_round_trip(
        position in strategies::position(),
        error in strategies::error(),
        version in any::<Option<u64>>(),
    ) {
        let version = version.map(DocumentVersion);
        for result in [
            ChangeResult::appended(position),
            ChangeResult::conditional(position, ConditionOutcome::Applied),
            ChangeResult::conditional(position, ConditionOutcome::ConditionFailed(version)),
            ChangeResult::conditional(position, ConditionOutcome::TooLarge),
            ChangeResult::failed(error),
        ] {
            prop_assert_eq!(round_trip::<ChangeResult, v1::ChangeResult>(&result), result);
        }
    }

    /// Proves that any valid protobuf bytes are converted or refused without a panic.
    #[test]
    fn any_message_is_converted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(wire) = v1::Value::decode(bytes.as_slice()) {
            let _ = nullable_value(wire);
        }
        if let Ok(wire) = v1::Definition::decode(bytes.as_slice()) {
            let _ = Definition::try_from(wire);
        }
        if let Ok(wire) = v1::StoreSpec::decode(bytes.as_slice()) {
            let _ = StoreSpec::try_from(wire);
        }
        if let Ok(wire) = v1::ChangeResult::decode(bytes.as_slice()) {
            let _ = ChangeResult::try_from(wire);
        }
    }
}

fn code_of<Domain: Debug>(result: forebay_core::Result<Domain>) -> ErrorCode {
    result.unwrap_err().code()
}

#[test]
fn null_is_valid_only_as_the_value_of_a_set() {
    let null = nullable_value_message(None);
    assert_eq!(nullable_value(null.clone()), Ok(None));
    assert_eq!(code_of(Value::try_from(null)), ErrorCode::InvalidArgument);
    let empty = nullable_value_message(Some(&Value::Bytes(Vec::new())));
    assert_eq!(nullable_value(empty), Ok(Some(Value::Bytes(Vec::new()))));
}

#[test]
fn nan_preserves_its_bits() {
    let bits = 0x7ff8_dead_beef_0001;
    let value = round_trip::<Value, v1::Value>(&Value::Float64(f64::from_bits(bits)));
    assert!(matches!(value, Value::Float64(v) if v.to_bits() == bits));
    let value =
        round_trip::<Value, v1::Value>(&Value::VectorF32(vec![f32::from_bits(0x7fc0_1234)]));
    assert!(matches!(value, Value::VectorF32(v) if v[0].to_bits() == 0x7fc0_1234));
}

#[test]
fn enum_numbers_are_unset_known_or_newer() {
    let scalar = |number| {
        FieldType::try_from(v1::FieldType { kind: Some(v1::field_type::Kind::Scalar(number)) })
    };
    assert_eq!(code_of(scalar(0)), ErrorCode::InvalidArgument);
    for scalar_type in strategies::SCALARS {
        let number = v1::ScalarType::from(scalar_type).into();
        assert_eq!(scalar(number), Ok(FieldType::Scalar(scalar_type)));
    }
    for newer in [9, 1_000, -1, i32::MIN] {
        assert_eq!(code_of(scalar(newer)), ErrorCode::UpgradeNeeded);
    }
    assert_eq!(
        code_of(FieldType::try_from(v1::FieldType { kind: None })),
        ErrorCode::UpgradeNeeded
    );
}

fn list(scalar: v1::ScalarType, items: Vec<u8>) -> v1::Value {
    let list = v1::List { r#type: scalar.into(), items: items.into() };
    v1::Value { kind: Some(v1::value::Kind::ListValue(list)) }
}

#[test]
fn broken_components_are_an_invalid_argument() {
    let odd = list(v1::ScalarType::Int32, vec![1, 2, 3]);
    assert_eq!(code_of(nullable_value(odd)), ErrorCode::InvalidArgument);
    let past_the_end = list(v1::ScalarType::String, vec![9, 0, 0, 0, b'a']);
    assert_eq!(code_of(nullable_value(past_the_end)), ErrorCode::InvalidArgument);
    let vector = v1::Vector {
        component: v1::VectorComponent::F32.into(),
        items: Bytes::from_static(&[0; 7]),
    };
    let vector = v1::Value { kind: Some(v1::value::Kind::VectorValue(vector)) };
    assert_eq!(code_of(nullable_value(vector)), ErrorCode::InvalidArgument);
}

#[test]
fn components_are_counted_before_decoding() {
    for (scalar, bytes) in [(v1::ScalarType::Bool, 1), (v1::ScalarType::String, 4)] {
        let largest_list = list(scalar, vec![0; bytes * LIST_COMPONENTS_MAX]);
        assert!(nullable_value(largest_list).is_ok());
        let error = nullable_value(list(scalar, vec![0; bytes * (LIST_COMPONENTS_MAX + 1)]));
        let error = error.unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitExceeded);
        assert_eq!(error.context().actual, Some(LIST_COMPONENTS_MAX as u64 + 1));
    }
    let long = v1::VectorType { component: v1::VectorComponent::I8.into(), length: 65_536 };
    let long = v1::FieldType { kind: Some(v1::field_type::Kind::Vector(long)) };
    assert_eq!(code_of(FieldType::try_from(long)), ErrorCode::LimitExceeded);
}

#[test]
fn longest_vector_round_trips() {
    let vector = Value::VectorI8(vec![-1; 65_535]);
    assert_eq!(round_trip::<Value, v1::Value>(&vector), vector);
    assert_eq!(vector.field_type(), Some(FieldType::Vector(VectorType::I8, 65_535)));
}

#[test]
fn key_value_store_may_omit_its_field_and_has_no_other() {
    let spec = StoreSpec::key_value("pairs", forebay_core::key::KeyType::Bytes).partitions(4);
    let mut wire = v1::StoreSpec::from(&spec);
    wire.fields.clear();
    assert_eq!(StoreSpec::try_from(wire.clone()), Ok(spec.clone()));
    let other = spec.field("more", FieldType::BOOL);
    wire.fields = v1::StoreSpec::from(&other).fields;
    let error = StoreSpec::try_from(wire).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(error.context().store.as_deref(), Some("pairs"));
}

#[test]
fn heartbeat_of_0_is_the_default() {
    let wire = v1::StoreOptions { versioned: true, ..v1::StoreOptions::default() };
    assert_eq!(StoreOptions::from(wire), StoreOptions { versioned: true, ..Default::default() });
}

#[test]
fn decoded_definition_is_checked() {
    let spec = StoreSpec::documents("users", forebay_core::key::KeyType::String)
        .partitions(4)
        .field("age", FieldType::INT32);
    let good = v1::Definition::from(&spec.define(StoreId(1)).unwrap());
    assert!(Definition::try_from(good.clone()).is_ok());
    type Break = fn(&mut v1::Definition);
    let breaks: [(&str, Break); 7] = [
        ("no partitions", |d| d.partitions = 0),
        ("no version", |d| d.version = 0),
        ("no name", |d| d.name.clear()),
        ("an id from the future", |d| d.next_field_id = 1),
        ("a field twice", |d| d.fields.push(d.fields[0].clone())),
        ("no options", |d| d.options = None),
        ("no live version", |d| d.versions = Some(v1::StoreVersions::default())),
    ];
    for (name, break_it) in breaks {
        let mut wire = good.clone();
        break_it(&mut wire);
        let code = code_of(Definition::try_from(wire));
        assert!(matches!(code, ErrorCode::InvalidArgument | ErrorCode::LimitExceeded), "{name}");
    }
    let mut newer = good;
    newer.fields[0].r#type = Some(v1::FieldType { kind: None });
    let error = Definition::try_from(newer).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UpgradeNeeded);
    assert_eq!(error.context().field.as_deref(), Some("age"));
}

#[test]
fn definitions_of_document_versions_round_trip() {
    let first = StoreSpec::documents("users", forebay_core::key::KeyType::String).partitions(4);
    let first = first.define(StoreId(1)).unwrap();
    let two_versions = first.with_version(StoreId(8), vec![Offset(3); 4]).unwrap();
    let live = two_versions.with_live(VersionNumber(2)).unwrap();
    let repartitioned =
        live.with_repartitioned_version(StoreId(9), PartitionCount(6), vec![Offset(5); 4]).unwrap();
    let mut catalog = Catalog::default();
    for definition in [first, two_versions, live, repartitioned] {
        let record = ControlRecord::Define(Box::new(definition));
        assert_eq!(catalog.apply(record), ControlEffect::Applied);
        for id in [1, 8, 9] {
            for schema in catalog.definitions(StoreId(id)) {
                let schema_definition = &*schema.definition;
                assert_eq!(
                    round_trip::<Definition, v1::Definition>(schema_definition),
                    *schema_definition
                );
            }
        }
    }
}

#[test]
fn refused_change_names_its_key_by_digest_only() {
    let mut wire = frames::good_change();
    let digest = forebay_core::partition::xxh3_64(&wire.key);
    wire.sequence = 0;
    let error = forebay_core::change::Change::try_from(wire).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(error.context().key_digest, Some(digest));
    assert!(!error.to_string().contains("user-1"));
}

#[test]
fn out_of_range_positions_and_unset_conditions_are_refused() {
    let wire = v1::Position { epoch: 1, offset: 2, index_in_entry: 65_536 };
    assert_eq!(code_of(Position::try_from(wire)), ErrorCode::InvalidArgument);
    let condition = v1::Condition { kind: None };
    assert_eq!(code_of(Condition::try_from(condition)), ErrorCode::UpgradeNeeded);
}

#[test]
fn condition_outcomes_round_trip_through_a_result() {
    let position = Position::default();
    let version = Some(DocumentVersion(9));
    for condition in [
        ConditionOutcome::Applied,
        ConditionOutcome::ConditionFailed(None),
        ConditionOutcome::ConditionFailed(version),
        ConditionOutcome::TooLarge,
    ] {
        let result = ChangeResult::conditional(position, condition);
        let wire = v1::ChangeResult::from(&result);
        assert_eq!(ChangeResult::try_from(wire).unwrap().condition_outcome(), Some(condition));
    }
    assert_eq!(ChangeResult::appended(position).condition_outcome(), None);
    let error = forebay_core::Error::limit_exceeded("shorten the key", 1, 2);
    assert_eq!(ChangeResult::failed(error).condition_outcome(), None);
    let ChangeOutcome::Failed(error) =
        ChangeResult::conditional(position, ConditionOutcome::TooLarge).outcome
    else {
        panic!("a document that is too large is a failure");
    };
    assert_eq!(error.context().limit, Some(ROW_BYTES_MAX as u64));
}

#[test]
fn result_of_an_appended_change_needs_its_position() {
    let kind = v1::change_result::Kind::Applied(v1::change_result::Applied {});
    let wire = v1::ChangeResult { position: None, kind: Some(kind) };
    assert_eq!(code_of(ChangeResult::try_from(wire)), ErrorCode::InvalidArgument);
    let newer = v1::ChangeResult { position: Some(v1::Position::default()), kind: None };
    assert_eq!(code_of(ChangeResult::try_from(newer)), ErrorCode::UpgradeNeeded);
}
