//! States of aggregates, and tiles of all aggregates.

use std::sync::{Arc, LazyLock};

use forebay_core::clock::Timestamp;
use forebay_core::id::Position;
use forebay_core::value::{ScalarType, Value};
use forebay_core::view::{AggregateKind, AggregateSpec};
use forebay_sketch::{AggregateState, Aggregates, EventOrder, Tile};

/// Every kind of aggregate, each over inputs that its bytes depend on, with the parameters of the
/// vectors.
static AGGREGATES: LazyLock<Aggregates> = LazyLock::new(|| {
    use AggregateKind as Kind;
    let distinct = Kind::ApproxCountDistinct { lg_k: 8, confidence_stddevs: Some(2) };
    let quantiles = Kind::ApproxQuantile { q: vec![0.0, 0.25, 0.5, 0.99, 1.0], k: 50 };
    let top = Kind::TopK { count: 3, lg_counters: 5 };
    let last = Kind::LastN { count: 3 };
    let inputs = [
        (Kind::Count, ScalarType::Int64),
        (Kind::Sum, ScalarType::Int64),
        (Kind::Average, ScalarType::Float64),
        (Kind::StandardDeviation, ScalarType::Float64),
        (Kind::Skewness, ScalarType::Float64),
        (Kind::Kurtosis, ScalarType::Float64),
        (Kind::Min, ScalarType::Float32),
        (Kind::Max, ScalarType::String),
        (Kind::First, ScalarType::Bool),
        (last, ScalarType::String),
        (distinct, ScalarType::Int64),
        (quantiles, ScalarType::Float64),
        (top.clone(), ScalarType::Int32),
        (top, ScalarType::String),
    ];
    let spec = |(kind, input)| AggregateSpec::new(kind, Some(input)).expect("a sound aggregate");
    Aggregates::new(inputs.into_iter().map(spec).collect()).expect("a few aggregates")
});

/// Returns the aggregates of inputs, by their `mode`; the next number after the last is a tile of
/// all aggregates.
pub fn tile_aggregates() -> &'static Aggregates {
    &AGGREGATES
}

/// Decodes the input: mode u8, modulo the number of aggregates plus one, then the bytes of that
/// aggregate's state, or of a tile.
///
/// # Panics
/// Panics if decoded data does not encode to its own bytes, or cannot be updated.
pub fn tile_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let specs = AGGREGATES.specs();
    match specs.get(usize::from(*mode) % (specs.len() + 1)) {
        Some(spec) => {
            drop(AggregateState::decode(spec, rest).map(|state| state_again(spec, state)))
        }
        None => drop(Tile::decode(&AGGREGATES, rest).map(|tile| tile_again(&tile))),
    }
}

fn state_again(spec: &Arc<AggregateSpec>, mut state: AggregateState) {
    let bytes = |state: &AggregateState| {
        let mut bytes = Vec::new();
        state.encode(&mut bytes).expect("a state that was read");
        bytes
    };
    // Compared by text, because a NaN differs from itself.
    let values = |state: &AggregateState| format!("{:?}", state.values().expect("values"));
    let encoded = bytes(&state);
    let decoded = AggregateState::decode(spec, &encoded).expect("a state that was written");
    assert_eq!(values(&decoded), values(&state));
    assert_eq!(bytes(&decoded).len(), encoded.len());
    let order = EventOrder { time: Timestamp::from_micros(1), position: Position::default() };
    let value = spec.input().map(value);
    (0..300).for_each(|_| state.insert(value.as_ref(), order).expect("a value of its input"));
    drop(state.merge(&decoded));
    values(&state);
}

fn value(input: ScalarType) -> Value {
    match input {
        ScalarType::Bool => Value::Bool(true),
        ScalarType::Int32 => Value::Int32(-3),
        ScalarType::Float32 => Value::Float32(0.5),
        ScalarType::Float64 => Value::Float64(1e300),
        ScalarType::String => Value::String("text".to_owned()),
        ScalarType::Bytes => Value::Bytes(vec![7]),
        ScalarType::Int64 => Value::Int64(i64::MIN),
        ScalarType::Timestamp => Value::Timestamp(9),
    }
}

fn tile_again(tile: &Tile) {
    let mut bytes = Vec::new();
    tile.encode(&mut bytes).expect("a tile that was read");
    let decoded = Tile::decode(&AGGREGATES, &bytes).expect("a tile that was written");
    let values = |tile: &Tile| format!("{:?}", tile.values().expect("values"));
    assert_eq!(values(&decoded), values(tile));
}
