//! Definitions and their alterations: refused alterations, and invariants of any history.

use std::collections::BTreeMap;

use forebay_core::ErrorCode;
use forebay_core::catalog::{Catalog, ControlEffect, ControlRecord};
use forebay_core::id::{FieldId, PartitionCount, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::layout::Layout;
use forebay_core::limits::{ALIASES_MAX, FIELD_ID_MAX, FIELDS_MAX, SCHEMA_VERSION_MAX};
use forebay_core::row::Document;
use forebay_core::schema::{Alteration, Definition, FieldSpec, StoreOptions, StoreSpec};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_testkit::random::SeededRng;

const INT32: FieldType = FieldType::INT32;
const INT64: FieldType = FieldType::INT64;
const TEXT: FieldType = FieldType::STRING;

fn users() -> Definition {
    let spec = StoreSpec::documents("users", KeyType::String).partitions(4).field("age", INT32);
    spec.field("name", TEXT).define(StoreId(1)).unwrap()
}

fn refusal_code(definition: &Definition, alteration: Alteration) -> ErrorCode {
    definition.altered(&[alteration]).unwrap_err().code()
}

fn rename(from: &str, to: &str) -> Alteration {
    Alteration::RenameField { from: from.to_owned(), to: to.to_owned() }
}

fn add(name: &str) -> Alteration {
    Alteration::AddField(FieldSpec::new(name, INT32))
}

fn drop_field(name: &str) -> Alteration {
    Alteration::DropField(name.to_owned())
}

#[test]
fn specification_without_a_count_has_eight_partitions() {
    let specs = [
        StoreSpec::documents("users", KeyType::String),
        StoreSpec::key_value("blobs", KeyType::String),
        StoreSpec::stream("orders", KeyType::String),
    ];
    for spec in specs {
        assert_eq!(spec.define(StoreId(1)).unwrap().partitions, PartitionCount(8));
        let definition = spec.partitions(1).define(StoreId(1)).unwrap();
        assert_eq!(definition.partitions, PartitionCount(1));
    }
}

/// Proves for any history of alterations: ids are never used again, types only widen, each version
/// follows the one before, and a row of any version keeps the values of the fields that remain.
#[test]
fn schema_invariants_hold_for_any_history() {
    let mut accepted = 0;
    for seed in 0..400 {
        let dice = &mut SeededRng::new(seed);
        let first = dice.definition(6);
        let mut catalog = Catalog::default();
        let mut versions = vec![first];
        let define = |catalog: &mut Catalog, definition: &Definition| {
            catalog.apply(ControlRecord::Define(Box::new(definition.clone())))
        };
        assert_eq!(define(&mut catalog, &versions[0]), ControlEffect::Applied);
        let mut types_ever: BTreeMap<FieldId, FieldType> = BTreeMap::new();
        for _ in 0..25 {
            let last = versions.last().unwrap();
            types_ever.extend(last.fields.iter().map(|field| (field.id, field.field_type)));
            let Ok(next) = last.altered(&[dice.alteration(last)]) else { continue };
            accepted += 1;
            assert_eq!(next.check(), Ok(()), "seed {seed}");
            assert_eq!(next.check_follows(last), Ok(()), "seed {seed}");
            for field in &next.fields {
                assert!(!next.retired.contains(&field.id), "seed {seed}");
                match types_ever.get(&field.id) {
                    Some(before) if *before == field.field_type => {}
                    Some(before) => assert!(before.widens_to(field.field_type), "seed {seed}"),
                    None => assert!(field.id >= last.next_field_id, "seed {seed}"),
                }
                for name in std::iter::once(&field.name).chain(&field.aliases) {
                    assert_eq!(next.field(name).unwrap().id, field.id, "seed {seed}");
                }
            }
            let dropped_fields =
                last.fields.iter().filter(|field| next.field_by_id(field.id).is_none());
            assert!(
                dropped_fields.clone().all(|field| next.retired.contains(&field.id)),
                "seed {seed}"
            );
            assert_eq!(define(&mut catalog, &next), ControlEffect::Applied, "seed {seed}");
            assert_eq!(define(&mut catalog, &next), ControlEffect::Superseded, "seed {seed}");
            versions.push(next);
        }
        check_old_rows(dice, &versions, seed);
    }
    assert!(accepted > 2_000, "only {accepted} alterations were accepted");
}

/// Re-encodes a row of an old version at the newest version and checks it: remaining fields keep
/// their values (as the wider type), dropped fields have no slot, later fields are absent.
fn check_old_rows(dice: &mut SeededRng, versions: &[Definition], seed: u64) {
    let newest = versions.last().unwrap();
    let layout = Layout::of(newest);
    for old in versions {
        let old_layout = Layout::of(old);
        let document = dice.document(old);
        let row = document.encode(&old_layout).unwrap();
        let read = Document::decode(&row, &old_layout).unwrap();
        let reencoded = Document::decode(&read.encode(&layout).unwrap(), &layout).unwrap();
        for cell in reencoded.cells() {
            assert!(old.field_by_id(cell.field).is_some(), "seed {seed}");
        }
        for field in &old.fields {
            assert_eq!(
                layout.slot(field.id).is_some(),
                newest.field_by_id(field.id).is_some(),
                "seed {seed}"
            );
            let Some(now) = newest.field_by_id(field.id) else { continue };
            let expected =
                read.value(field.id).map(|value| value.clone().widened_to(now.field_type));
            let found = reencoded.value(field.id).cloned();
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "seed {seed}");
        }
    }
}

#[test]
fn renamed_field_answers_to_both_names_until_it_is_dropped() {
    let renamed_users = users().altered(&[rename("age", "years")]).unwrap();
    let id = users().field("age").unwrap().id;
    assert_eq!(renamed_users.field("age").unwrap().id, id);
    assert_eq!(renamed_users.field("years").unwrap().id, id);
    assert_eq!(refusal_code(&renamed_users, add("age")), ErrorCode::InvalidArgument);
    assert_eq!(refusal_code(&renamed_users, rename("name", "age")), ErrorCode::InvalidArgument);
    let renamed_back = renamed_users.altered(&[rename("age", "age")]).unwrap();
    assert_eq!(renamed_back.field("age").unwrap().aliases, ["years"]);
    let dropped_and_added = renamed_users.altered(&[drop_field("age"), add("age")]).unwrap();
    assert_eq!(dropped_and_added.field("age").unwrap().id, FieldId(3));
    assert_eq!(dropped_and_added.field("years"), None);
}

#[test]
fn only_lossless_widenings_are_accepted() {
    let widen = |to| Alteration::WidenField { name: "age".to_owned(), to };
    assert_eq!(users().altered(&[widen(INT64)]).unwrap().field("age").unwrap().field_type, INT64);
    for to in [INT32, TEXT, FieldType::FLOAT32, FieldType::List(ScalarType::Int64)] {
        assert_eq!(refusal_code(&users(), widen(to)), ErrorCode::InvalidArgument, "{to}");
    }
    let alteration = Alteration::WidenField { name: "none".to_owned(), to: INT64 };
    assert_eq!(refusal_code(&users(), alteration), ErrorCode::NotFound);
}

#[test]
fn widened_field_widens_its_default() {
    let mut field = FieldSpec::new("level", INT32);
    field.default = Some(Value::Int32(7));
    let widen = Alteration::WidenField { name: "level".to_owned(), to: INT64 };
    let next = users().altered(&[Alteration::AddField(field), widen]).unwrap();
    assert_eq!(next.field("level").unwrap().default, Some(Value::Int64(7)));
}

#[test]
fn alterations_apply_atomically() {
    let error = users().altered(&[add("city"), add("city")]).unwrap_err();
    assert_eq!(error.context().field.as_deref(), Some("city"));
    let prefix = Alteration::DropFieldsByPrefix("a".to_owned());
    let next = users().altered(&[add("area"), prefix]).unwrap();
    assert_eq!(next.fields.len(), 1);
    assert_eq!(next.retired.into_iter().collect::<Vec<_>>(), [FieldId(1), FieldId(3)]);
}

#[test]
fn partition_key_is_a_plain_field_that_cannot_be_dropped() {
    let mut spec = StoreSpec::documents("carts", KeyType::String).partitions(4).field("user", TEXT);
    spec.partition_key = Some("user".to_owned());
    let definition = spec.define(StoreId(1)).unwrap();
    assert_eq!(refusal_code(&definition, drop_field("user")), ErrorCode::InvalidArgument);
    let prefix = Alteration::DropFieldsByPrefix(String::new());
    assert_eq!(refusal_code(&definition, prefix), ErrorCode::InvalidArgument);
    spec.partition_key = Some("nobody".to_owned());
    assert_eq!(spec.define(StoreId(1)).unwrap_err().code(), ErrorCode::InvalidArgument);
    spec.partition_key = Some("score".to_owned());
    let spec = spec.field("score", FieldType::FLOAT64);
    assert_eq!(spec.define(StoreId(1)).unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[test]
fn key_value_store_cannot_add_or_drop_fields() {
    let definition =
        StoreSpec::key_value("kv", KeyType::Bytes).partitions(1).define(StoreId(1)).unwrap();
    assert_eq!(refusal_code(&definition, add("more")), ErrorCode::InvalidArgument);
    assert!(definition.altered(&[Alteration::DropAll]).is_ok());
    let mut spec = StoreSpec::documents("kv", KeyType::Bytes).partitions(1);
    spec.key_value = true;
    assert_eq!(spec.define(StoreId(1)).unwrap(), definition);
    let other = spec.field("value", TEXT).define(StoreId(1)).unwrap_err();
    assert_eq!(other.code(), ErrorCode::InvalidArgument);
}

/// Proves that each broken definition that a decoder may produce is refused without a panic.
#[test]
fn broken_definitions_are_refused() {
    let edits: &[fn(&mut Definition)] = &[
        |it| it.store = StoreId(0),
        |it| it.name = String::new(),
        |it| it.name = "n".repeat(256),
        |it| it.name = "new\nline".to_owned(),
        |it| it.version = SchemaVersion(0),
        |it| it.version = SchemaVersion(SCHEMA_VERSION_MAX + 1),
        |it| it.partitions = PartitionCount(0),
        |it| it.partitions = PartitionCount(4_097),
        |it| it.fields[1].id = FieldId(1),
        |it| it.fields[0].id = FieldId(0),
        |it| it.fields[1].id = FieldId(3),
        |it| it.fields[1].name = "age".to_owned(),
        |it| it.fields[1].aliases = vec!["age".to_owned()],
        |it| it.fields[1].aliases = (0..=ALIASES_MAX).map(|n| format!("a{n}")).collect(),
        |it| it.fields[1].ttl_us = Some(0),
        |it| it.fields[1].ttl_us = Some(i64::MAX),
        |it| it.fields[1].default = Some(Value::Int32(1)),
        |it| it.fields[1].field_type = FieldType::Vector(VectorType::F32, 0),
        |it| it.retired = [FieldId(2)].into(),
        |it| it.retired = [FieldId(9)].into(),
        |it| it.next_field_id = FieldId(2),
        |it| it.next_field_id = FieldId(u32::MAX),
        |it| it.partition_key = Some(FieldId(9)),
        |it| it.partition_key = Some(FieldId(1)),
        |it| it.options.ttl_us = Some(-1),
        |it| it.options.heartbeat_ms = 0,
        |it| it.key_value = true,
    ];
    assert_eq!(users().check(), Ok(()));
    for (number, breaks) in edits.iter().enumerate() {
        let mut definition = users();
        breaks(&mut definition);
        assert!(definition.check().is_err(), "broken definition {number} was taken");
        let mut catalog = Catalog::default();
        let record = ControlRecord::Define(Box::new(definition));
        assert_eq!(catalog.apply(record), ControlEffect::Superseded);
    }
}

#[test]
fn invalid_successor_definitions_are_refused() {
    let previous = users().altered(&[drop_field("name")]).unwrap();
    let next = previous.altered(&[add("city")]).unwrap();
    let edits: &[fn(&mut Definition)] = &[
        |it| it.name = "people".to_owned(),
        |it| it.key_type = KeyType::Bytes,
        |it| it.partitions = PartitionCount(8),
        |it| it.partition_key = Some(FieldId(3)),
        |it| it.version = SchemaVersion(4),
        |it| it.retired.clear(),
        |it| it.next_field_id = FieldId(2),
        |it| it.fields[0].field_type = TEXT,
        |it| drop(it.fields.remove(0)),
        |it| it.fields[1].id = FieldId(2),
    ];
    assert_eq!(next.check_follows(&previous), Ok(()));
    for (number, breaks) in edits.iter().enumerate() {
        let mut definition = next.clone();
        breaks(&mut definition);
        assert!(definition.check_follows(&previous).is_err(), "definition {number} was taken");
    }
    let dropped_all = previous.altered(&[Alteration::DropAll]).unwrap();
    let mut taken_back = dropped_all.altered(&[add("city")]).unwrap();
    taken_back.drop_all_count = 0;
    assert!(taken_back.check_follows(&dropped_all).is_err());
}

#[test]
fn schema_limits_are_enforced() {
    let mut full = users();
    full.version = SchemaVersion(SCHEMA_VERSION_MAX);
    let options = Alteration::SetOptions(StoreOptions::default());
    assert_eq!(refusal_code(&full, options), ErrorCode::LimitExceeded);
    let mut full = users();
    full.next_field_id = FieldId(FIELD_ID_MAX + 1);
    assert_eq!(refusal_code(&full, add("one-more")), ErrorCode::LimitExceeded);
    let mut full = users();
    full.drop_all_count = u32::MAX;
    assert_eq!(refusal_code(&full, Alteration::DropAll), ErrorCode::LimitExceeded);
    let alterations: Vec<_> = (0..FIELDS_MAX).map(|n| add(&format!("f{n}"))).collect();
    assert_eq!(users().altered(&alterations).unwrap_err().code(), ErrorCode::LimitExceeded);
    assert!(users().altered(&alterations[2..]).is_ok());
    let mut wide = FieldSpec::new("wide", FieldType::Vector(VectorType::F32, 65_535));
    let wides: Vec<_> = (0..200)
        .map(|n| {
            wide.name = format!("wide{n}");
            Alteration::AddField(wide.clone())
        })
        .collect();
    assert_eq!(users().altered(&wides).unwrap_err().code(), ErrorCode::LimitExceeded);
}
