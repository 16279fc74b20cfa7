//! Columns of files as fields of a store: all types that fit, types that do not, keys, and refused
//! columns.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, DictionaryArray,
    FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeStringArray, ListArray, NullArray, StringArray, StringViewArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt64Array,
};
use arrow::datatypes::{Float64Type, Int8Type, Int32Type, Int64Type};
use forebay_core::ErrorCode;
use forebay_core::id::StoreId;
use forebay_core::key::KeyType;
use forebay_core::schema::{FieldSpec, StoreSpec};
use forebay_core::value::Value;
use half::f16;

use super::*;

fn store(key_type: KeyType, field_type: FieldType) -> Definition {
    let spec = StoreSpec::documents("things", key_type).partitions(4).field("it", field_type);
    spec.define(StoreId(1)).unwrap()
}

fn names() -> ColumnNames {
    ColumnNames { key: "id".to_owned(), ignored: BTreeSet::new() }
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let columns = columns.iter().map(|(name, cells)| (*name, Arc::clone(cells), true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Reads the rows of a batch, or returns the error.
fn read(definition: &Definition, batch: &RecordBatch) -> Result<Vec<ReadRow>, (usize, Error)> {
    let columns = Columns::of(&batch.schema(), definition, &names()).map_err(|error| (0, error))?;
    let mut rows = Vec::new();
    columns.rows(batch, 0, |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// Reads a column of these cells as a field of this type.
fn values(field_type: FieldType, cells: ArrayRef) -> Result<Vec<Option<Value>>, (usize, Error)> {
    let ids: Int64Array = (0..cells.len() as i64).map(Some).collect();
    let batch = batch(&[("id", Arc::new(ids)), ("it", cells)]);
    let value = |row: ReadRow| match row.change.fields.into_iter().next()?.op {
        FieldOp::Set(value) => value,
        other => panic!("{other:?}"),
    };
    Ok(read(&store(KeyType::Int64, field_type), &batch)?.into_iter().map(value).collect())
}

fn lists<T: arrow::datatypes::ArrowPrimitiveType>(lists: Vec<Vec<T::Native>>) -> ArrayRef {
    let lists = lists.into_iter().map(|list| Some(list.into_iter().map(Some)));
    Arc::new(ListArray::from_iter_primitive::<T, _, _>(lists))
}

/// Asserts that each of these columns has this value.
fn assert_values<const N: usize>(cases: [(FieldType, ArrayRef, Value); N]) {
    for (field_type, cells, value) in cases {
        let words = format!("{} as {field_type}", cells.data_type());
        let found = values(field_type, cells).unwrap_or_else(|error| panic!("{words}: {error:?}"));
        assert_eq!(found.first(), Some(&Some(value)), "{words}");
    }
}

#[test]
fn columns_of_fitting_types_have_the_values_of_their_field() {
    let scalar = FieldType::Scalar;
    let text = |text: &str| Value::String(text.to_owned());
    let words: DictionaryArray<Int32Type> = ["b", "a"].into_iter().collect();
    assert_values([
        (scalar(ScalarType::Bool), Arc::new(BooleanArray::from(vec![true])), Value::Bool(true)),
        (scalar(ScalarType::Int32), Arc::new(Int64Array::from(vec![-7])), Value::Int32(-7)),
        (scalar(ScalarType::Int64), Arc::new(UInt64Array::from(vec![7])), Value::Int64(7)),
        (scalar(ScalarType::Int64), Arc::new(Int8Array::from(vec![-7])), Value::Int64(-7)),
        (scalar(ScalarType::Float32), Arc::new(Int16Array::from(vec![7])), Value::Float32(7.0)),
        (scalar(ScalarType::Float32), Arc::new(Float64Array::from(vec![0.1])), Value::Float32(0.1)),
        (scalar(ScalarType::Float64), Arc::new(Int32Array::from(vec![7])), Value::Float64(7.0)),
        (
            scalar(ScalarType::Float64),
            Arc::new(Float16Array::from(vec![f16::from_f32(0.5)])),
            Value::Float64(0.5),
        ),
        (scalar(ScalarType::String), Arc::new(LargeStringArray::from(vec!["é"])), text("é")),
        (scalar(ScalarType::String), Arc::new(StringViewArray::from(vec!["a"])), text("a")),
        (scalar(ScalarType::String), Arc::new(words), text("b")),
        (
            scalar(ScalarType::Bytes),
            Arc::new(BinaryViewArray::from(vec![&b"\xff"[..]])),
            Value::Bytes(vec![0xff]),
        ),
        (
            scalar(ScalarType::Bytes),
            Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab"].into_iter()).unwrap()),
            Value::Bytes(b"ab".to_vec()),
        ),
        (
            scalar(ScalarType::Bytes),
            Arc::new(StringArray::from(vec!["a"])),
            Value::Bytes(b"a".to_vec()),
        ),
    ]);
    let null_values = values(scalar(ScalarType::Int32), Arc::new(NullArray::new(2))).unwrap();
    assert_eq!(null_values, [None, None]);
    let int_values =
        values(scalar(ScalarType::Int32), Arc::new(Int32Array::from(vec![None, Some(1)])));
    assert_eq!(int_values.unwrap(), [None, Some(Value::Int32(1))]);
}

#[test]
fn times_lists_and_vectors_fit_their_fields() {
    let timestamp = FieldType::TIMESTAMP;
    let day_us = 86_400_000_000;
    let seconds = TimestampSecondArray::from(vec![7]).with_timezone("+02:00");
    assert_values([
        (timestamp, Arc::new(TimestampNanosecondArray::from(vec![7_999])), Value::Timestamp(7)),
        (timestamp, Arc::new(seconds), Value::Timestamp(7_000_000)),
        (timestamp, Arc::new(Date32Array::from(vec![2])), Value::Timestamp(2 * day_us)),
        (
            FieldType::List(ScalarType::Int32),
            lists::<Int64Type>(vec![vec![1, 2]]),
            Value::List(ScalarType::Int32, vec![Value::Int32(1), Value::Int32(2)]),
        ),
        (
            FieldType::Vector(VectorType::F16, 2),
            lists::<Float64Type>(vec![vec![0.5, 2.0]]),
            Value::VectorF16(vec![f16::from_f32(0.5), f16::from_f32(2.0)]),
        ),
        (
            FieldType::Vector(VectorType::I8, 2),
            lists::<Int8Type>(vec![vec![1, -2]]),
            Value::VectorI8(vec![1, -2]),
        ),
    ]);
}

#[test]
fn misfitting_value_is_refused_with_the_field_name() {
    let scalar = FieldType::Scalar;
    let holed = vec![Some(vec![Some(1), None])];
    let cases: [(FieldType, ArrayRef); 11] = [
        (scalar(ScalarType::Bool), Arc::new(Int8Array::from(vec![1]))),
        (scalar(ScalarType::Int32), Arc::new(Float64Array::from(vec![1.0]))),
        (scalar(ScalarType::Int32), Arc::new(Int64Array::from(vec![1 << 40]))),
        (scalar(ScalarType::Float64), Arc::new(Int64Array::from(vec![1]))),
        (scalar(ScalarType::Float32), Arc::new(Int32Array::from(vec![1]))),
        (scalar(ScalarType::String), Arc::new(Int64Array::from(vec![1]))),
        (scalar(ScalarType::Timestamp), Arc::new(Int64Array::from(vec![1]))),
        (
            FieldType::List(ScalarType::Int64),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(holed)),
        ),
        (FieldType::Vector(VectorType::F32, 3), lists::<Float64Type>(vec![vec![1.0, 2.0]])),
        (FieldType::Vector(VectorType::I8, 1), lists::<Int64Type>(vec![vec![300]])),
        (FieldType::Vector(VectorType::F32, 1), Arc::new(Float32Array::from(vec![1.0]))),
    ];
    for (field_type, cells) in cases {
        let words = format!("{} as {field_type}", cells.data_type());
        let (_, error) = values(field_type, cells).expect_err(&words);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{words}: {error}");
        assert_eq!(error.context().field.as_deref(), Some("it"), "{words}: {error}");
    }
}

#[test]
fn key_column_is_found_by_name_and_required_in_every_row() {
    let ints = store(KeyType::Int64, FieldType::INT32);
    let ids: ArrayRef = Arc::new(UInt8Array::from(vec![7, 8]));
    let rows = read(&ints, &batch(&[("id", ids)])).unwrap();
    assert_eq!(rows[1].change.key, Key::plain(&8_i64.to_le_bytes()).unwrap());
    assert_eq!(rows[1].partition, partition_of(&8_i64.to_le_bytes(), ints.partitions));
    assert_eq!((rows[0].change.sequence, rows[1].change.sequence), (Sequence(1), Sequence(2)));

    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
    let (row, error) = read(&ints, &batch(&[("id", ids.clone())])).err().unwrap();
    assert_eq!((row, error.code()), (1, ErrorCode::InvalidArgument), "{error}");
    let (_, error) = read(&ints, &batch(&[("it", ids)])).err().unwrap();
    assert!(error.to_string().contains("`id`"), "{error}");
    let texts = store(KeyType::String, FieldType::INT32);
    let wrong: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let (_, error) = read(&texts, &batch(&[("id", wrong)])).err().unwrap();
    assert_eq!(error.context().field.as_deref(), Some("id"), "{error}");
}

#[test]
fn declared_partition_key_is_a_required_column() {
    let mut spec = StoreSpec::documents("carts", KeyType::String).partitions(4);
    spec.fields.push(FieldSpec::new("tenant", FieldType::INT64));
    spec.fields.push(FieldSpec::new("it", FieldType::INT32));
    spec.partition_key = Some("tenant".to_owned());
    let carts = spec.define(StoreId(1)).unwrap();
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let tenants: ArrayRef = Arc::new(Int32Array::from(vec![9]));
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let all = batch(&[("it", values.clone()), ("tenant", tenants), ("id", ids.clone())]);
    let rows = read(&carts, &all).unwrap();
    assert_eq!(rows[0].change.key, Key::partitioned(&9_i64.to_le_bytes(), b"a").unwrap());
    assert_eq!(rows[0].partition, partition_of(&9_i64.to_le_bytes(), carts.partitions));
    assert_eq!(rows[0].change.fields.len(), 1, "the key holds it already");
    let (_, error) = read(&carts, &batch(&[("it", values), ("id", ids)])).err().unwrap();
    assert!(error.to_string().contains("`tenant`"), "{error}");
}

#[test]
fn columns_match_old_and_new_names_and_each_field_once() {
    let mut definition = store(KeyType::Int64, FieldType::INT32);
    definition.fields[0].aliases.push("that".to_owned());
    let column = |number: i32| Arc::new(Int32Array::from(vec![number])) as ArrayRef;
    let rows = read(&definition, &batch(&[("id", column(1)), ("that", column(2))])).unwrap();
    assert_eq!(rows[0].change.fields[0].op, FieldOp::Set(Some(Value::Int32(2))));
    let duplicate_batch = batch(&[("id", column(1)), ("that", column(2)), ("it", column(3))]);
    assert!(
        read(&definition, &duplicate_batch).err().unwrap().1.to_string().contains("two columns")
    );
    let other_batch = batch(&[("id", column(1)), ("more", column(2))]);
    let (_, error) = read(&definition, &other_batch).err().unwrap();
    assert!(error.to_string().contains("only: it"), "{error}");
    let ignoring = ColumnNames { ignored: BTreeSet::from(["more".to_owned()]), ..names() };
    let columns = Columns::of(&other_batch.schema(), &definition, &ignoring).unwrap();
    assert_eq!(columns.places().collect::<Vec<_>>(), [0]);
}
