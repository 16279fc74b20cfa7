//! Strategies for every type that crosses the wire. Generated values are well-formed, but not
//! always meaningful: a change may name any field. Floats are never NaN, so that values compare.

use forebay_core::catalog::ControlRecord;
use forebay_core::change::{
    Change, ClientBatch, Condition, Entry, EntryBody, FieldChange, FieldOp, Source, Verb,
};
use forebay_core::clock::Timestamp;
use forebay_core::dead_letter::{DeadLetter, LastLetter};
use forebay_core::error::ErrorContext;
use forebay_core::id::{
    ClientId, DocumentVersion, Epoch, FieldId, LogId, Offset, PartitionCount, PartitionId,
    Position, SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::limits::{PARTITIONS_MAX, TTL_US_MAX};
use forebay_core::schema::{
    Alteration, ColumnIndex, ColumnRules, Definition, FieldSpec, StoreOptions, StoreSpec,
    StreamSpec,
};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
use forebay_core::{Error, ErrorCode};
use forebay_wire::dead_letter::Cursor;
use forebay_wire::token::Token;
use half::f16;
use proptest::collection::{btree_map, vec};
use proptest::num::{f32 as floats32, f64 as floats64};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub const SCALARS: [ScalarType; 8] = [
    ScalarType::Bool,
    ScalarType::Int32,
    ScalarType::Int64,
    ScalarType::Float32,
    ScalarType::Float64,
    ScalarType::String,
    ScalarType::Bytes,
    ScalarType::Timestamp,
];

pub fn scalar_type() -> impl Strategy<Value = ScalarType> {
    select(&SCALARS[..])
}

pub fn field_type() -> impl Strategy<Value = FieldType> {
    let components = select(vec![VectorType::F32, VectorType::F16, VectorType::I8]);
    prop_oneof![
        scalar_type().prop_map(FieldType::Scalar),
        scalar_type().prop_map(FieldType::List),
        (components, 1u16..=40)
            .prop_map(|(component, length)| FieldType::Vector(component, length)),
    ]
}

fn float32() -> impl Strategy<Value = f32> {
    floats32::POSITIVE
        | floats32::NEGATIVE
        | floats32::ZERO
        | floats32::SUBNORMAL
        | floats32::NORMAL
        | floats32::INFINITE
}

fn float64() -> impl Strategy<Value = f64> {
    floats64::POSITIVE
        | floats64::NEGATIVE
        | floats64::ZERO
        | floats64::SUBNORMAL
        | floats64::NORMAL
        | floats64::INFINITE
}

fn float16() -> impl Strategy<Value = f16> {
    any::<u16>().prop_map(f16::from_bits).prop_map(|v| if v.is_nan() { f16::ZERO } else { v })
}

pub fn scalar_value(scalar: ScalarType) -> BoxedStrategy<Value> {
    match scalar {
        ScalarType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ScalarType::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
        ScalarType::Int64 => any::<i64>().prop_map(Value::Int64).boxed(),
        ScalarType::Float32 => float32().prop_map(Value::Float32).boxed(),
        ScalarType::Float64 => float64().prop_map(Value::Float64).boxed(),
        ScalarType::String => any::<String>().prop_map(Value::String).boxed(),
        ScalarType::Bytes => vec(any::<u8>(), 0..64).prop_map(Value::Bytes).boxed(),
        ScalarType::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
    }
}

pub fn value_of(field_type: FieldType) -> BoxedStrategy<Value> {
    match field_type {
        FieldType::Scalar(scalar) => scalar_value(scalar),
        FieldType::List(scalar) => vec(scalar_value(scalar), 0..6)
            .prop_map(move |items| Value::List(scalar, items))
            .boxed(),
        FieldType::Vector(component, length) => {
            let length = usize::from(length);
            match component {
                VectorType::F32 => vec(float32(), length).prop_map(Value::VectorF32).boxed(),
                VectorType::F16 => vec(float16(), length).prop_map(Value::VectorF16).boxed(),
                VectorType::I8 => vec(any::<i8>(), length).prop_map(Value::VectorI8).boxed(),
            }
        }
    }
}

pub fn value() -> impl Strategy<Value = Value> {
    field_type().prop_flat_map(value_of)
}

fn items() -> impl Strategy<Value = Vec<Value>> {
    scalar_type().prop_flat_map(|scalar| vec(scalar_value(scalar), 0..6))
}

fn field_op() -> impl Strategy<Value = FieldOp> {
    prop_oneof![
        option::of(value()).prop_map(FieldOp::Set),
        Just(FieldOp::Remove),
        value().prop_map(FieldOp::Increment),
        value().prop_map(FieldOp::Min),
        value().prop_map(FieldOp::Max),
        (items(), any::<u32>()).prop_map(|(items, bound)| FieldOp::ListAppend { items, bound }),
        (items(), any::<u32>()).prop_map(|(items, bound)| FieldOp::SetAdd { items, bound }),
        items().prop_map(|items| FieldOp::SetRemove { items }),
    ]
}

fn field_change() -> impl Strategy<Value = FieldChange> {
    (any::<u32>(), field_op(), option::of(any::<i64>()))
        .prop_map(|(field, op, ttl_us)| FieldChange { field: FieldId(field), op, ttl_us })
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::IfAbsent),
        any::<u64>().prop_map(|version| Condition::IfVersion(DocumentVersion(version))),
        any::<u32>().prop_map(|field| Condition::IfNewer(FieldId(field))),
    ]
}

pub fn change() -> impl Strategy<Value = Change> {
    (
        1..=u64::MAX,
        vec(any::<u8>(), 0..48),
        select(vec![Verb::Put, Verb::Upsert, Verb::Delete, Verb::Insert]),
        vec(field_change(), 0..5),
        option::of(condition()),
        option::of(any::<i64>()),
    )
        .prop_map(|(sequence, key, verb, fields, condition, ttl_us)| Change {
            sequence: Sequence(sequence),
            key: Key::from_identity_bytes(&key),
            verb,
            fields,
            condition,
            ttl_us,
        })
}

pub fn client_batch() -> impl Strategy<Value = ClientBatch> {
    (any::<u128>(), vec(change(), 0..4))
        .prop_map(|(client, changes)| ClientBatch { client: ClientId(client), changes })
}

pub fn position() -> impl Strategy<Value = Position> {
    (any::<u32>(), any::<u64>(), any::<u16>()).prop_map(|(epoch, offset, index_in_entry)| {
        Position { epoch: Epoch(epoch), offset: Offset(offset), index_in_entry }
    })
}

pub fn source() -> impl Strategy<Value = Source> {
    (any::<u32>(), position(), option::of(position()), any::<i64>(), any::<bool>()).prop_map(
        |(partition, position, previous, micros, is_forwarded)| Source {
            partition: PartitionId(partition),
            position,
            previous,
            append_time: Timestamp::from_micros(micros),
            is_forwarded,
        },
    )
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Zäß漢_][a-z0-9 .-]{0,10}"
}

fn ttl_us() -> impl Strategy<Value = Option<i64>> {
    option::of(1..=TTL_US_MAX)
}

pub fn store_options() -> impl Strategy<Value = StoreOptions> {
    (ttl_us(), any::<bool>(), 1..=u32::MAX, option::of(0..=TTL_US_MAX)).prop_map(
        |(ttl_us, versioned, heartbeat_ms, log_retention_us)| StoreOptions {
            ttl_us,
            versioned,
            heartbeat_ms,
            log_retention_us,
            log_retention_bytes: None,
        },
    )
}

fn column_index() -> impl Strategy<Value = ColumnIndex> {
    prop::sample::select(vec![ColumnIndex::Exact, ColumnIndex::Range])
}

pub fn field_spec() -> impl Strategy<Value = FieldSpec> {
    (name(), field_type(), ttl_us())
        .prop_flat_map(|(name, ty, ttl)| {
            (Just(name), Just(ty), option::of(value_of(ty)), Just(ttl))
        })
        .prop_map(|(name, field_type, default, ttl_us)| FieldSpec {
            name,
            field_type,
            default,
            ttl_us,
            rules: ColumnRules::default(),
        })
}

/// Returns a stream's column that has a default, or is required, or allows only its default.
fn column_spec() -> impl Strategy<Value = FieldSpec> {
    let rules = (any::<bool>(), any::<bool>(), option::of(column_index()));
    (field_spec(), rules).prop_map(|(field, (required, is_enumeration, index))| {
        let is_scalar = matches!(field.field_type, FieldType::Scalar(_));
        // NaN equals nothing, so it cannot be an allowed value.
        let enumerated_value =
            field.default.clone().filter(|it| is_enumeration && is_scalar && !it.is_nan());
        let required = required && field.default.is_none();
        let allowed = enumerated_value.into_iter().collect();
        let rules = ColumnRules { required, allowed, index: index.filter(|_| is_scalar) };
        FieldSpec { ttl_us: None, rules, ..field }
    })
}

pub fn rules() -> impl Strategy<Value = ColumnRules> {
    column_spec().prop_map(|column| column.rules)
}

fn stream_spec() -> impl Strategy<Value = StoreSpec> {
    let columns = btree_map(name(), column_spec(), 0..6).prop_map(|columns| {
        let named_columns = columns.into_iter().map(|(name, column)| FieldSpec { name, ..column });
        named_columns.collect::<Vec<_>>()
    });
    let shape = (name(), key_type(), 1..=PARTITIONS_MAX, store_options());
    let log_retention_bytes = option::of(1..=u64::MAX);
    (shape, columns, log_retention_bytes).prop_map(
        |((name, key_type, partitions, options), fields, bytes)| {
            let is_time = |field: &&FieldSpec| field.field_type == FieldType::TIMESTAMP;
            let event_time = fields.iter().find(is_time).map(|field| field.name.clone());
            let options = StoreOptions {
                ttl_us: None,
                versioned: false,
                log_retention_bytes: bytes,
                ..options
            };
            let stream = Some(StreamSpec { event_time });
            StoreSpec {
                fields,
                options,
                stream,
                ..StoreSpec::stream(name, key_type).partitions(partitions)
            }
        },
    )
}

fn key_type() -> impl Strategy<Value = KeyType> {
    select(KeyType::ALL.to_vec())
}

/// Returns specifications that define a store.
pub fn store_spec() -> impl Strategy<Value = StoreSpec> {
    prop_oneof![3 => documents_spec(), 1 => stream_spec()]
}

/// Returns a specification with distinct names and the partition key among the fields.
fn documents_spec() -> impl Strategy<Value = StoreSpec> {
    let fields = btree_map(name(), field_spec(), 0..6).prop_map(|fields| {
        let named_fields = fields.into_iter().map(|(name, field)| FieldSpec { name, ..field });
        named_fields.collect::<Vec<_>>()
    });
    let shape = (name(), key_type(), 1..=PARTITIONS_MAX, store_options(), any::<bool>());
    (shape, fields, any::<bool>()).prop_map(
        |((name, key_type, partitions, options, key_value), fields, partitioned)| {
            if key_value {
                return StoreSpec {
                    options,
                    ..StoreSpec::key_value(name, key_type).partitions(partitions)
                };
            }
            let can_partition = |field: &&FieldSpec| {
                use ScalarType::{Bytes, Int64, String};
                matches!(field.field_type, FieldType::Scalar(String | Bytes | Int64))
            };
            let partition_key = fields.iter().find(can_partition).filter(|_| partitioned);
            let partition_key = partition_key.map(|field| field.name.clone());
            let spec = StoreSpec::documents(name, key_type).partitions(partitions);
            StoreSpec { partition_key, fields, options, ..spec }
        },
    )
}

pub fn alteration() -> impl Strategy<Value = Alteration> {
    prop_oneof![
        field_spec().prop_map(Alteration::AddField),
        name().prop_map(Alteration::DropField),
        "[a-c]{0,1}".prop_map(Alteration::DropFieldsByPrefix),
        (name(), name()).prop_map(|(from, to)| Alteration::RenameField { from, to }),
        (name(), field_type()).prop_map(|(name, to)| Alteration::WidenField { name, to }),
        (name(), rules()).prop_map(|(name, rules)| Alteration::SetRules { name, rules }),
        Just(Alteration::DropAll),
        store_options().prop_map(Alteration::SetOptions),
    ]
}

/// Returns a definition with a history: fields are dropped, renamed and widened. Alterations that
/// the definition refuses are left out.
pub fn definition() -> impl Strategy<Value = Definition> {
    let alterations = vec((alteration(), any::<prop::sample::Index>()), 0..6);
    let pushes = vec(any::<u64>(), 0..3);
    let repartition = option::of((any::<u64>(), 1..9_u32, 0..4_usize));
    let inputs = (
        1..=u64::MAX,
        store_spec(),
        alterations,
        pushes,
        any::<prop::sample::Index>(),
        repartition,
    );
    inputs.prop_map(|(store, spec, alterations, pushes, live, repartition)| {
        let mut definition = spec.define(StoreId(store)).expect("a spec that can be defined");
        for (mut alteration, place) in alterations {
            aim(&mut alteration, &definition, place);
            definition = definition.altered(&[alteration]).unwrap_or(definition);
        }
        for push in pushes {
            let starts = definition.partitions.partitions();
            let starts = starts.map(|partition| Offset(push ^ u64::from(partition.0))).collect();
            definition = definition.with_version(StoreId(push), starts).unwrap_or(definition);
        }
        let live = live.get(definition.versions.all()).number;
        let definition = definition.with_live(live).unwrap_or(definition);
        match repartition {
            Some((storage_id, partitions, steps)) => {
                repartitioned(definition, storage_id, partitions, steps)
            }
            None => definition,
        }
    })
}

/// Returns a definition after this many steps of a repartition.
fn repartitioned(
    definition: Definition,
    storage_id: u64,
    partitions: u32,
    steps: usize,
) -> Definition {
    let starts = definition.partitions.partitions().map(|id| Offset(storage_id ^ u64::from(id.0)));
    let (storage_id, partitions) = (StoreId(storage_id), PartitionCount(partitions));
    let number = definition.versions.next();
    let mut on_its_way =
        definition.with_repartitioned_version(storage_id, partitions, starts.collect());
    for step in 0..steps {
        on_its_way = on_its_way.and_then(|before| match step {
            0 => before.with_writes_to(number),
            1 => before.with_live(number),
            _ => before.with_forwarding_ended(number),
        });
    }
    on_its_way.unwrap_or(definition)
}

/// Points an alteration at a field of the definition.
fn aim(alteration: &mut Alteration, definition: &Definition, place: prop::sample::Index) {
    if definition.fields.is_empty() {
        return;
    }
    let field = place.get(&definition.fields);
    match alteration {
        Alteration::DropField(name) | Alteration::SetRules { name, .. } => {
            name.clone_from(&field.name);
        }
        Alteration::RenameField { from, .. } => from.clone_from(&field.name),
        Alteration::WidenField { name, to } => {
            name.clone_from(&field.name);
            *to = FieldType::FLOAT64;
        }
        _ => {}
    }
}

pub fn control_record() -> impl Strategy<Value = ControlRecord> {
    prop_oneof![
        definition().prop_map(|definition| ControlRecord::Define(Box::new(definition))),
        any::<u64>().prop_map(|store| ControlRecord::Delete(StoreId(store))),
    ]
}

pub fn entry_body() -> impl Strategy<Value = EntryBody> {
    prop_oneof![
        1 => Just(EntryBody::LogHeader),
        4 => vec(client_batch(), 0..4).prop_map(EntryBody::Changes),
        1 => Just(EntryBody::Definition),
        1 => Just(EntryBody::Heartbeat),
        1 => Just(EntryBody::Barrier),
        1 => control_record().prop_map(EntryBody::Control),
        1 => vec(dead_letter(), 0..4).prop_map(EntryBody::DeadLetters),
    ]
}

pub fn dead_letter() -> impl Strategy<Value = DeadLetter> {
    let place = (any::<u64>(), any::<u32>(), any::<u64>(), any::<i64>());
    (place, error(), vec(any::<u8>(), 0..40), 0u64..9).prop_map(
        |((home_log, epoch, offset, append_time), reason, entry, missing_bytes)| DeadLetter {
            home_log: LogId(home_log),
            epoch: Epoch(epoch),
            offset: Offset(offset),
            append_time: Timestamp::from_micros(append_time),
            reason,
            entry_bytes: entry.len() as u64 + missing_bytes,
            entry,
        },
    )
}

pub fn cursor() -> impl Strategy<Value = Cursor> {
    let last = (any::<u64>(), any::<u64>())
        .prop_map(|(log, offset)| LastLetter { home_log: LogId(log), offset: Offset(offset) });
    (any::<u64>(), any::<u64>(), option::of(last)).prop_map(|(log_id, offset, last)| Cursor {
        log_id: LogId(log_id),
        offset: Offset(offset),
        last,
    })
}

pub fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), any::<u32>(), any::<u32>(), option::of(source()), entry_body()).prop_map(
        |(log_id, epoch, schema_version, source, body)| Entry {
            log_id: LogId(log_id),
            epoch: Epoch(epoch),
            schema_version: SchemaVersion(schema_version),
            source,
            body,
        },
    )
}

pub fn token() -> impl Strategy<Value = Token> {
    let partition = (0..PARTITIONS_MAX).prop_map(PartitionId);
    let place = (any::<u64>().prop_map(LogId), position());
    (any::<u64>(), btree_map(partition, place, 0..20))
        .prop_map(|(store, positions)| Token { store: StoreId(store), positions })
}

pub fn error() -> impl Strategy<Value = Error> {
    let context = (
        option::of(name()),
        option::of(any::<u32>()),
        option::of(name()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    )
        .prop_map(|(store, partition, field, key_digest, limit, actual)| ErrorContext {
            store,
            partition: partition.map(PartitionId),
            field,
            key_digest,
            limit,
            actual,
        });
    (select(&ErrorCode::ALL[..]), any::<String>(), context)
        .prop_map(|(code, message, context)| Error::new(code, message).with_context(context))
}
