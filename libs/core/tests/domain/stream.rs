//! Streams: valid definitions, valid events, and the proof that no store is both a stream and a
//! document store.

use forebay_core::change::{Change, Condition, FieldChange, FieldOp, Verb};
use forebay_core::id::{FieldId, Sequence, StoreId};
use forebay_core::key::{Key, KeyType};
use forebay_core::limits::{ALLOWED_VALUES_MAX, STREAM_INDEXES_MAX};
use forebay_core::schema::{
    Alteration, ColumnIndex, ColumnRules, Definition, FieldSpec, StoreOptions, StoreSpec,
    StreamSpec,
};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{ErrorCode, Result};

const TEXT: FieldType = FieldType::STRING;
const INT64: FieldType = FieldType::INT64;
const TIME: FieldType = FieldType::TIMESTAMP;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn column(name: &str, field_type: FieldType, required: bool, allowed: &[Value]) -> FieldSpec {
    let rules = ColumnRules { required, allowed: allowed.to_vec(), ..ColumnRules::default() };
    FieldSpec { rules, ..FieldSpec::new(name, field_type) }
}

/// Returns a stream with event time `at`, required `city`, `device` (one of two values, the first
/// by default) and `price` without rules.
fn spec() -> StoreSpec {
    let devices = [text("phone"), text("desktop")];
    let device =
        FieldSpec { default: Some(devices[0].clone()), ..column("device", TEXT, false, &devices) };
    let mut spec = StoreSpec::stream("orders", KeyType::String).partitions(4);
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec.fields = vec![
        FieldSpec::new("at", TIME),
        column("city", TEXT, true, &[]),
        device,
        FieldSpec::new("price", INT64),
    ];
    spec
}

fn orders() -> Definition {
    spec().define(StoreId(1)).unwrap()
}

fn event(columns: &[(u32, Option<Value>)]) -> Change {
    let set = |(id, value): &(u32, Option<Value>)| FieldChange {
        field: FieldId(*id),
        op: FieldOp::Set(value.clone()),
        ttl_us: None,
    };
    Change {
        sequence: Sequence(1),
        key: Key::plain(b"user-1").unwrap(),
        verb: Verb::Insert,
        fields: columns.iter().map(set).collect(),
        condition: None,
        ttl_us: None,
    }
}

fn code<T>(result: Result<T>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

const INVALID: Option<ErrorCode> = Some(ErrorCode::InvalidArgument);

#[test]
fn stream_refuses_document_options() {
    let refusal = |change: &dyn Fn(&mut StoreSpec)| {
        let mut changed_spec = spec();
        change(&mut changed_spec);
        code(changed_spec.define(StoreId(1)))
    };
    assert_eq!(refusal(&|_| {}), None);
    assert_eq!(refusal(&|spec| spec.partition_key = Some("city".to_owned())), INVALID);
    assert_eq!(refusal(&|spec| spec.key_value = true), INVALID);
    assert_eq!(refusal(&|spec| spec.options.versioned = true), INVALID);
    assert_eq!(refusal(&|spec| spec.options.ttl_us = Some(1)), INVALID);
    assert_eq!(refusal(&|spec| spec.fields[3].ttl_us = Some(1)), INVALID);
    let event_time = |name: &str| Some(StreamSpec { event_time: Some(name.to_owned()) });
    assert_eq!(refusal(&|spec| spec.stream = event_time("price")), INVALID, "it is no timestamp");
    assert_eq!(refusal(&|spec| spec.stream = event_time("when")), INVALID, "there is no such one");
    assert_eq!(refusal(&|spec| spec.stream = Some(StreamSpec::default())), None);
    assert_eq!(refusal(&|spec| spec.stream = None), INVALID, "documents have no rules");
}

#[test]
fn column_rules_must_be_satisfiable_and_of_the_column_type() {
    let refusal = |field: FieldSpec| {
        let mut changed_spec = spec();
        changed_spec.fields.push(field);
        code(changed_spec.define(StoreId(1)))
    };
    let one_value = [Value::Int64(1)];
    assert_eq!(refusal(column("x", INT64, true, &one_value)), None);
    assert_eq!(refusal(column("x", INT64, false, &[text("a")])), INVALID, "of another type");
    let list = FieldType::List(ScalarType::Int64);
    assert_eq!(refusal(column("x", list, false, &one_value)), INVALID, "only scalars");
    let with_default =
        |default: i64, column| FieldSpec { default: Some(Value::Int64(default)), ..column };
    assert_eq!(
        refusal(with_default(1, column("x", INT64, true, &[]))),
        INVALID,
        "a default, or required"
    );
    assert_eq!(refusal(with_default(1, column("x", INT64, false, &one_value))), None);
    assert_eq!(
        refusal(with_default(2, column("x", INT64, false, &one_value))),
        INVALID,
        "not allowed itself"
    );
    let many_values: Vec<_> = (0..=ALLOWED_VALUES_MAX as i64).map(Value::Int64).collect();
    let limit = Some(ErrorCode::LimitExceeded);
    assert_eq!(refusal(column("x", INT64, false, &many_values)), limit);
    assert_eq!(refusal(column("x", INT64, false, &many_values[1..])), None);
}

#[test]
fn stream_adds_columns_and_retains_its_event_time() {
    let first = orders();
    let alter = |alteration| first.altered(&[alteration]);
    let event_time = |name: &str| Alteration::DropField(name.to_owned());
    assert_eq!(code(alter(event_time("at"))), INVALID);
    assert_eq!(code(alter(Alteration::DropFieldsByPrefix(String::new()))), INVALID);
    assert_eq!(code(alter(Alteration::DropAll)), INVALID);
    let versioned = StoreOptions { versioned: true, ..StoreOptions::default() };
    assert_eq!(code(alter(Alteration::SetOptions(versioned))), INVALID);
    let add_section = Alteration::AddField(column("section", TEXT, true, &[]));
    let rename = Alteration::RenameField { from: "at".to_owned(), to: "when".to_owned() };
    let allowed = vec![Value::Int64(5)];
    let rules = ColumnRules { required: true, allowed, ..ColumnRules::default() };
    let set = Alteration::SetRules { name: "price".to_owned(), rules };
    let widen = Alteration::WidenField { name: "price".to_owned(), to: FieldType::FLOAT64 };
    let next = first.altered(&[add_section, rename, set]).unwrap();
    next.check_follows(&first).unwrap();
    assert_eq!(next.event_time().map(|column| column.id), Some(FieldId(1)));
    assert!(next.field("section").unwrap().rules.required);
    let as_documents = Definition { stream: None, ..next.clone() };
    assert_eq!(code(as_documents.check_follows(&first)), INVALID, "a store stays what it is");
    // Only 32-bit integers widen to float64.
    assert_eq!(code(next.altered(&[widen])), INVALID);
    assert_eq!(
        code(alter(Alteration::SetRules {
            name: "none".to_owned(),
            rules: ColumnRules::default()
        })),
        Some(ErrorCode::NotFound)
    );
}

#[test]
fn stream_accepts_scalar_indexes_and_byte_retention() {
    let set_index = |name: &str, index| {
        let rules = ColumnRules { index: Some(index), ..ColumnRules::default() };
        Alteration::SetRules { name: name.to_owned(), rules }
    };
    let first = orders();
    let next = first.altered(&[
        set_index("city", ColumnIndex::Exact),
        set_index("price", ColumnIndex::Range),
        Alteration::SetOptions(StoreOptions {
            log_retention_bytes: Some(1),
            ..first.options.clone()
        }),
    ]);
    let next = next.unwrap();
    let index = |name: &str| next.field(name).unwrap().rules.index;
    assert_eq!(index("city"), Some(ColumnIndex::Exact));
    assert_eq!(index("price"), Some(ColumnIndex::Range));
    assert!(!next.field("price").unwrap().rules.is_empty());

    let options = StoreOptions { log_retention_bytes: Some(0), ..StoreOptions::default() };
    assert_eq!(code(first.altered(&[Alteration::SetOptions(options)])), INVALID);
    let mut lists = spec();
    lists.fields.push(FieldSpec::new("tags", FieldType::List(ScalarType::String)));
    let lists = lists.define(StoreId(1)).unwrap();
    assert_eq!(code(lists.altered(&[set_index("tags", ColumnIndex::Exact)])), INVALID);
    let mut indexed_spec = spec();
    indexed_spec.fields = (0..=STREAM_INDEXES_MAX)
        .map(|number| {
            let rules = ColumnRules { index: Some(ColumnIndex::Exact), ..ColumnRules::default() };
            FieldSpec { rules, ..FieldSpec::new(format!("c{number}"), INT64) }
        })
        .collect();
    indexed_spec.stream = Some(StreamSpec::default());
    assert_eq!(code(indexed_spec.define(StoreId(1))), Some(ErrorCode::LimitExceeded));

    let mut documents = StoreSpec::documents("users", KeyType::String).partitions(1);
    documents.options.log_retention_bytes = Some(1 << 30);
    assert_eq!(code(documents.define(StoreId(1))), INVALID, "only a stream's events");
}

#[test]
fn allowed_values_widen_with_their_column() {
    let mut spec = spec();
    let int32 = FieldType::INT32;
    spec.fields.push(column("rank", int32, false, &[Value::Int32(1)]));
    let widen = Alteration::WidenField { name: "rank".to_owned(), to: INT64 };
    let next = spec.define(StoreId(1)).unwrap().altered(&[widen]).unwrap();
    assert_eq!(next.field("rank").unwrap().rules.allowed, [Value::Int64(1)]);
}

#[test]
fn event_may_only_set_columns() {
    let stream = orders();
    let good = event(&[(1, Some(Value::Timestamp(7))), (2, Some(text("Rome"))), (4, None)]);
    good.check(&stream).unwrap();
    let refusal = |change: &dyn Fn(&mut Change)| {
        let mut changed_event = good.clone();
        change(&mut changed_event);
        code(changed_event.check(&stream))
    };
    for verb in [Verb::Put, Verb::Upsert, Verb::Delete] {
        assert_eq!(refusal(&|event| event.verb = verb), INVALID, "{verb:?}");
    }
    assert_eq!(refusal(&|event| event.ttl_us = Some(1)), INVALID);
    assert_eq!(refusal(&|event| event.fields[0].ttl_us = Some(1)), INVALID);
    assert_eq!(refusal(&|event| event.condition = Some(Condition::IfAbsent)), INVALID);
    assert_eq!(refusal(&|event| event.fields[2].op = FieldOp::Remove), INVALID);
    let increment = FieldOp::Increment(Value::Int64(1));
    assert_eq!(refusal(&|event| event.fields[2].op = increment.clone()), INVALID);
    assert_eq!(refusal(&|event| event.fields[1].op = FieldOp::Set(Some(Value::Int64(1)))), INVALID);
    let documents = StoreSpec::documents("users", KeyType::String).partitions(4).field("at", TIME);
    let documents = documents.define(StoreId(2)).unwrap();
    assert_eq!(code(event(&[]).check(&documents)), INVALID, "documents are not inserted");
}

#[test]
fn rules_refuse_events_and_name_the_column() {
    let stream = orders();
    let refused_column = |columns: &[(u32, Option<Value>)]| {
        let error = event(columns).check_rules(&stream, &stream).err()?;
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        error.context().field.clone()
    };
    let city = (2, Some(text("Rome")));
    assert_eq!(refused_column(std::slice::from_ref(&city)), None);
    assert_eq!(refused_column(&[]).as_deref(), Some("city"));
    assert_eq!(refused_column(&[(2, None)]).as_deref(), Some("city"), "null is no value");
    assert_eq!(refused_column(&[(2, Some(text("")))]), None, "an empty text is one");
    assert_eq!(refused_column(&[city.clone(), (3, Some(text("tv")))]).as_deref(), Some("device"));
    assert_eq!(refused_column(&[city.clone(), (3, Some(text("desktop")))]), None);
    assert_eq!(refused_column(&[city, (3, None)]), None, "what may be missing may be null");
}

#[test]
fn default_replaces_an_absent_value_but_not_null() {
    let stream = orders();
    let device = |columns: &[(u32, Option<Value>)]| {
        let mut event = event(columns);
        event.fill_in(&stream);
        let change = event.fields.into_iter().find(|change| change.field == FieldId(3));
        change.map(|change| change.op)
    };
    assert_eq!(device(&[]), Some(FieldOp::Set(Some(text("phone")))));
    assert_eq!(device(&[(3, None)]), Some(FieldOp::Set(None)));
    assert_eq!(device(&[(3, Some(text("desktop")))]), Some(FieldOp::Set(Some(text("desktop")))));
    let mut upsert = Change { verb: Verb::Upsert, ..event(&[]) };
    upsert.fill_in(&stream);
    assert!(upsert.fields.is_empty(), "only events are filled in");
}

/// Proves that a program with an older definition can insert although a newer definition requires a
/// column that it does not know.
#[test]
fn older_writer_may_omit_a_newer_required_column() {
    let first = orders();
    let section = Alteration::AddField(column("section", TEXT, true, &[]));
    let next = first.altered(&[section]).unwrap();
    let made_with_first = event(&[(2, Some(text("Rome")))]);
    made_with_first.check_rules(&next, &first).unwrap();
    let error = made_with_first.check_rules(&next, &next).unwrap_err();
    assert_eq!(error.context().field.as_deref(), Some("section"));
}

#[test]
fn stream_is_refused_as_a_document_store() {
    let error = orders().check_is_of_documents().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(error.context().store.as_deref(), Some("orders"));
}
