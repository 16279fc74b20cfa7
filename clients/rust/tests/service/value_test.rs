//! Every field type, from Rust's own types to a reader and back.

use std::time::Duration;

use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec, Timestamp, Value, VectorType};
use half::f16;

use crate::world::{World, document};

const SCALARS: [ScalarType; 8] = [
    ScalarType::Bool,
    ScalarType::Int32,
    ScalarType::Int64,
    ScalarType::Float32,
    ScalarType::Float64,
    ScalarType::String,
    ScalarType::Bytes,
    ScalarType::Timestamp,
];

#[tokio::test]
async fn every_value_type_arrives_as_sent() {
    let world = World::start().await;
    let client = world.client().await;
    let mut spec = StoreSpec::documents("types", KeyType::String).partitions(2);
    for scalar in SCALARS {
        spec = spec
            .field(scalar.name(), FieldType::Scalar(scalar))
            .field(format!("{} list", scalar.name()), FieldType::List(scalar));
    }
    spec = spec
        .field("f32", FieldType::Vector(VectorType::F32, 2))
        .field("f16", FieldType::Vector(VectorType::F16, 2))
        .field("i8", FieldType::Vector(VectorType::I8, 2));
    let store = client.create_store(&spec).await.unwrap();
    let time = Timestamp::from_micros(1_234_567);
    let values: Vec<(&str, Value)> = vec![
        ("bool", true.into()),
        ("bool list", vec![true, false].into()),
        ("int32", i32::MIN.into()),
        ("int32 list", vec![1, 2].into()),
        ("int64", i64::MAX.into()),
        ("int64 list", vec![1i64].into()),
        ("float32", 0.5f32.into()),
        ("float32 list", Value::List(ScalarType::Float32, vec![Value::Float32(0.25)])),
        ("float64", 0.1.into()),
        ("float64 list", vec![0.1, f64::INFINITY].into()),
        ("string", "é".into()),
        ("string list", vec!["", "a"].into()),
        ("bytes", b"\xff\x00".into()),
        ("bytes list", vec![vec![1u8], vec![]].into()),
        ("timestamp", time.into()),
        ("timestamp list", vec![time].into()),
        ("f32", vec![0.5f32, -1.5].into()),
        ("f16", vec![f16::from_f32(0.5), f16::NEG_INFINITY].into()),
        ("i8", vec![-128i8, 127].into()),
    ];
    assert_eq!(values.len(), store.definition().fields.len());
    let mut write = store.put("u");
    for (field, value) in &values {
        write = write.set(field, value.clone());
    }
    let outcome = write.ttl(Duration::from_secs(3600)).send().await.unwrap();
    let found = document(&world.reader("types").await, &outcome.token, "u").await.unwrap();
    for (field, value) in &values {
        let id = store.definition().field(field).unwrap().id;
        assert_eq!(found.value(id), Some(value), "{field}");
    }
}
