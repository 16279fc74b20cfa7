//! Values of every type convert to Arrow columns, and back from Arrow's own arrays.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float32Type, Int8Type, Int64Type, TimestampMicrosecondType};
use forebay_arrow::{arrow_type, column};
use forebay_core::value::{FieldType, ScalarType, Value, VectorType};

#[test]
fn column_has_its_declared_type_and_its_nulls() {
    let scalars = [
        (ScalarType::Bool, Value::Bool(true)),
        (ScalarType::Int32, Value::Int32(-7)),
        (ScalarType::Int64, Value::Int64(1 << 40)),
        (ScalarType::Float32, Value::Float32(0.5)),
        (ScalarType::Float64, Value::Float64(-0.25)),
        (ScalarType::String, Value::String("é".to_owned())),
        (ScalarType::Bytes, Value::Bytes(vec![0, 255])),
        (ScalarType::Timestamp, Value::Timestamp(-1)),
    ];
    for (scalar, value) in scalars {
        for (field_type, value) in [
            (FieldType::Scalar(scalar), value.clone()),
            (FieldType::List(scalar), Value::List(scalar, vec![value.clone(), value])),
        ] {
            let array = column(field_type, vec![None, Some(value), None]).unwrap();
            assert_eq!(array.data_type(), &arrow_type(field_type));
            assert_eq!((array.len(), array.null_count()), (3, 2), "{field_type}");
        }
    }
    let vectors = [
        (VectorType::F32, Value::VectorF32(vec![1.0, 2.0])),
        (VectorType::F16, Value::VectorF16(vec![half::f16::ONE; 2])),
        (VectorType::I8, Value::VectorI8(vec![-1, 2])),
    ];
    for (component, value) in vectors {
        let field_type = FieldType::Vector(component, 2);
        let array = column(field_type, vec![None, Some(value)]).unwrap();
        assert_eq!(array.data_type(), &arrow_type(field_type));
        assert_eq!((array.len(), array.null_count()), (2, 1), "{field_type}");
        assert!(column(field_type, vec![Some(Value::VectorF32(vec![1.0]))]).is_err());
    }
}

#[test]
fn columns_preserve_their_values() {
    let int64 = FieldType::INT64;
    let array = column(int64, vec![Some(Value::Int64(3)), None]).unwrap();
    assert_eq!(array.as_primitive::<Int64Type>().value(0), 3);
    let timestamp = FieldType::TIMESTAMP;
    let array = column(timestamp, vec![Some(Value::Timestamp(9))]).unwrap();
    assert_eq!(array.as_primitive::<TimestampMicrosecondType>().value(0), 9);
    let list = |items: &[i64]| {
        let items = items.iter().map(|item| Value::Int64(*item)).collect();
        Some(Value::List(ScalarType::Int64, items))
    };
    let lists = vec![list(&[1, 2]), None, list(&[]), list(&[3])];
    let array = column(FieldType::List(ScalarType::Int64), lists).unwrap();
    let lists = array.as_list::<i32>();
    let items = |row: usize| lists.value(row).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!((items(0), items(2), items(3)), (vec![1, 2], vec![], vec![3]));
    assert!(lists.is_null(1));
    let vectors = vec![None, Some(Value::VectorI8(vec![4, -5]))];
    let array = column(FieldType::Vector(VectorType::I8, 2), vectors).unwrap();
    let row = array.as_fixed_size_list().value(1);
    assert_eq!(row.as_primitive::<Int8Type>().values(), &[4, -5]);
    let vectors = vec![Some(Value::VectorF32(vec![0.5]))];
    let array = column(FieldType::Vector(VectorType::F32, 1), vectors).unwrap();
    let row = array.as_fixed_size_list().value(0);
    assert_eq!(row.as_primitive::<Float32Type>().values(), &[0.5]);
}
