//! Golden vectors of the states of aggregates, of tiles, and of their sketches, which the Java
//! tests (`clients/java`) read with DataSketches; this test also reads the sketches that Java
//! wrote. `UPDATE_VECTORS=1` rewrites the vectors of this crate.

use std::sync::Arc;

use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, Offset, Position};
use forebay_core::value::{ScalarType, Value};
use forebay_core::view::{AggregateKind, AggregateSpec};
use forebay_sketch::{AggregateState, Aggregates, Event, EventOrder, Tile};
use forebay_testkit::vectors::{self, check, read};
use serde_json::{Value as Json, json};

const COMMAND: &str = "cargo test --workspace --test vectors_test";
const OURS: &str = "aggregates.json";
const JAVAS: &str = "sketches-java.json";
const VERSION: u8 = 1;
const TAG_DISTINCT: u8 = 6;
const TAG_QUANTILES: u8 = 7;
const TAG_FREQUENT: u8 = 8;

/// Values `number * 7919 mod modulus` for each number below `count`; `value` gives their type.
#[derive(Clone, Copy)]
struct Numbers {
    count: u64,
    modulus: u64,
}

fn value(number: u64, input: ScalarType) -> Value {
    let integer = number as i64;
    match input {
        ScalarType::Bool => Value::Bool(integer % 2 == 1),
        ScalarType::Int32 => Value::Int32(integer as i32),
        ScalarType::Float32 => Value::Float32(integer as f32 / 8.0),
        ScalarType::Float64 => Value::Float64(integer as f64 / 8.0),
        ScalarType::String => Value::String(format!("item-{integer}")),
        ScalarType::Bytes => Value::Bytes(integer.to_le_bytes().to_vec()),
        ScalarType::Timestamp => Value::Timestamp(integer),
        ScalarType::Int64 => Value::Int64(integer),
    }
}

impl Numbers {
    fn values(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |number| number * 7_919 % self.modulus)
    }

    fn json(self) -> Json {
        json!({"count": self.count, "modulus": self.modulus})
    }
}

/// Returns the event of the n-th value: its time and its offset are both n.
fn at(number: u64) -> EventOrder {
    let position = Position { epoch: Epoch(0), offset: Offset(number), index_in_entry: 0 };
    EventOrder { time: Timestamp::from_micros(number as i64), position }
}

fn spec(kind: AggregateKind, input: Option<ScalarType>) -> Arc<AggregateSpec> {
    Arc::new(AggregateSpec::new(kind, input).unwrap())
}

fn summary(spec: &Arc<AggregateSpec>, numbers: Numbers) -> AggregateState {
    let mut state = AggregateState::new(spec).unwrap();
    for (number, number_value) in (0..).zip(numbers.values()) {
        let value = spec.input().map(|input| value(number_value, input));
        state.insert(value.as_ref(), at(number)).unwrap();
    }
    state
}

fn bytes_of(state: &AggregateState) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.encode(&mut bytes).unwrap();
    bytes
}

fn to_json(value: &Option<Value>) -> Json {
    let list = |items: &[Value]| items.iter().map(|item| to_json(&Some(item.clone()))).collect();
    match value {
        None => Json::Null,
        Some(Value::Bool(v)) => json!(v),
        Some(Value::Float32(v)) => json!(format!("{:08x}", v.to_bits())),
        Some(Value::Float64(v)) => json!(format!("{:016x}", v.to_bits())),
        Some(Value::String(v)) => json!(v),
        Some(Value::Bytes(v)) => json!(hex::encode(v)),
        Some(Value::Int32(v)) => json!(v.to_string()),
        Some(Value::Int64(v) | Value::Timestamp(v)) => json!(v.to_string()),
        Some(Value::List(_, items)) => Json::Array(list(items)),
        Some(other) => panic!("no aggregate answers {other:?}"),
    }
}

fn parameters(kind: &AggregateKind) -> Json {
    match kind {
        AggregateKind::LastN { count } => json!({"count": count}),
        AggregateKind::ApproxCountDistinct { lg_k, confidence_stddevs } => {
            json!({"lg_k": lg_k, "bounds": confidence_stddevs})
        }
        AggregateKind::ApproxQuantile { q, k } => json!({"ranks": q, "k": k}),
        AggregateKind::TopK { count, lg_counters } => {
            json!({"count": count, "lg_counters": lg_counters})
        }
        _ => json!({}),
    }
}

/// Returns the part of a state that DataSketches wrote, if it is a sketch.
fn sketch_of(kind: &AggregateKind, state: &[u8]) -> Option<Vec<u8>> {
    let pending_count = || usize::from(u16::from_le_bytes([state[2], state[3]]));
    match kind {
        AggregateKind::ApproxCountDistinct { .. } | AggregateKind::TopK { .. } => {
            Some(state[2..].to_vec())
        }
        AggregateKind::ApproxQuantile { .. } => Some(state[4 + 8 * pending_count()..].to_vec()),
        _ => None,
    }
}

fn state_vector(kind: AggregateKind, input: Option<ScalarType>, numbers: Numbers) -> Json {
    let spec = spec(kind, input);
    let state = summary(&spec, numbers);
    let (bytes, values) = (bytes_of(&state), state.values().unwrap());
    let mut vector = json!({
        "kind": vectors::aggregate_name(spec.kind()),
        "input": input.map(ScalarType::name),
        "parameters": parameters(spec.kind()),
        "numbers": numbers.json(),
        "values": values.iter().map(to_json).collect::<Vec<_>>(),
        "state_hex": hex::encode(&bytes),
    });
    if let Some(sketch) = sketch_of(spec.kind(), &bytes) {
        vector["sketch_hex"] = json!(hex::encode(&sketch));
    }
    vector
}

fn kinds() -> Vec<AggregateKind> {
    use AggregateKind as Kind;
    let mut kinds = vec![Kind::Count, Kind::AccumulatingCount, Kind::Sum, Kind::Average];
    kinds.extend([Kind::Min, Kind::Max, Kind::Variance, Kind::StandardDeviation]);
    kinds.extend([Kind::Skewness, Kind::Kurtosis, Kind::First, Kind::Last]);
    kinds.push(Kind::LastN { count: 3 });
    kinds.extend(sketches());
    kinds
}

fn sketches() -> [AggregateKind; 3] {
    [
        AggregateKind::ApproxCountDistinct { lg_k: 8, confidence_stddevs: Some(2) },
        AggregateKind::ApproxQuantile { q: vec![0.0, 0.25, 0.5, 0.99, 1.0], k: 50 },
        AggregateKind::TopK { count: 3, lg_counters: 5 },
    ]
}

/// Returns every kind over every input that it accepts, with few values; sketches also with no and
/// many values.
fn states() -> Vec<Json> {
    let inputs = [None]
        .into_iter()
        .chain([ScalarType::Bool, ScalarType::Int32, ScalarType::Int64].map(Some))
        .chain([ScalarType::Float32, ScalarType::Float64, ScalarType::String].map(Some))
        .chain([ScalarType::Bytes, ScalarType::Timestamp].map(Some));
    let few_numbers = Numbers { count: 7, modulus: 5 };
    let mut states = Vec::new();
    for kind in kinds() {
        for input in inputs.clone() {
            if AggregateSpec::new(kind.clone(), input).is_ok() {
                states.push(state_vector(kind.clone(), input, few_numbers));
            }
        }
    }
    for kind in sketches() {
        let input = Some(ScalarType::Int64);
        let amounts = [(0, 1), (31, 29), (2_000, 1_009), (30_000, 30_011)];
        for (count, modulus) in amounts {
            states.push(state_vector(kind.clone(), input, Numbers { count, modulus }));
        }
    }
    let text = Some(ScalarType::String);
    let many_numbers = Numbers { count: 2_000, modulus: 1_009 };
    states.push(state_vector(sketches()[0].clone(), text, many_numbers));
    states.push(state_vector(sketches()[2].clone(), text, many_numbers));
    states.push(state_vector(sketches()[1].clone(), Some(ScalarType::Float64), many_numbers));
    states
}

fn tile_kinds() -> Vec<AggregateKind> {
    vec![AggregateKind::Count, AggregateKind::Sum, AggregateKind::Last]
}

fn tile() -> Tile {
    let spec = |kind| AggregateSpec::new(kind, Some(ScalarType::Int64)).unwrap();
    let aggregates = Aggregates::new(tile_kinds().into_iter().map(spec).collect()).unwrap();
    let mut tile = Tile::new(&aggregates).unwrap();
    for number in 0..3 {
        let inputs = vec![Some(Value::Int64(-5 * number as i64)); 3];
        tile.insert(&Event { at: at(number), inputs: &inputs }).unwrap();
    }
    tile
}

fn make_vectors() -> Json {
    let mut bytes = Vec::new();
    tile().encode(&mut bytes).unwrap();
    json!({
        "spec": "proto/spec/aggregates.md",
        "description": "States of aggregates and a tile. The n-th of the `numbers` is n * 7919 \
            modulo `modulus`, at time and offset n; a float is an eighth of it, a bool whether it \
            is odd, a string `item-` and its digits, bytes its eight. Values: integers as digits, \
            floats as the hex of their bits. `sketch_hex` is what DataSketches reads.",
        "states": states(),
        "tiles": [{
            "aggregates": tile_kinds().iter().map(vectors::aggregate_name).collect::<Vec<_>>(),
            "input": "int64",
            "integers": ["0", "-5", "-10"],
            "values": tile().values().unwrap().iter().map(to_json).collect::<Vec<_>>(),
            "tile_hex": hex::encode(&bytes),
        }],
    })
}

fn named_spec(vector: &Json) -> Arc<AggregateSpec> {
    let name = vector["kind"].as_str().unwrap();
    let kind = kinds().into_iter().find(|kind| vectors::aggregate_name(kind) == name).unwrap();
    let scalars = forebay_testkit::random::SCALAR_TYPES;
    let input = vector["input"].as_str();
    spec(kind, scalars.into_iter().find(|scalar| Some(scalar.name()) == input))
}

fn text<'v>(vector: &'v Json, name: &str) -> &'v str {
    vector[name].as_str().unwrap_or_else(|| panic!("no {name} in {vector}"))
}

#[test]
fn aggregate_states_match_the_golden_vectors() {
    check(OURS, &make_vectors(), COMMAND);
    let vectors: Json = read(OURS);
    let states = vectors["states"].as_array().unwrap();
    assert!(states.len() > 60, "only {} states", states.len());
    for vector in states {
        let spec = named_spec(vector);
        let bytes = hex::decode(text(vector, "state_hex")).unwrap();
        let state = AggregateState::decode(&spec, &bytes).unwrap();
        let values: Vec<_> = state.values().unwrap().iter().map(to_json).collect();
        assert_eq!(Json::Array(values), vector["values"], "{vector}");
    }
    let read = Tile::decode(
        &Aggregates::new(tile().states().iter().map(|state| (**state.spec()).clone()).collect())
            .unwrap(),
        &hex::decode(text(&vectors["tiles"][0], "tile_hex")).unwrap(),
    );
    assert_eq!(read.unwrap().values().unwrap(), tile().values().unwrap());
}

/// Returns a state around a sketch that DataSketches for Java wrote.
fn state_around(spec: &AggregateSpec, sketch: &[u8]) -> Vec<u8> {
    let before: &[u8] = match spec.kind() {
        AggregateKind::ApproxCountDistinct { .. } => &[VERSION, TAG_DISTINCT],
        AggregateKind::ApproxQuantile { .. } => &[VERSION, TAG_QUANTILES, 0, 0],
        _ => &[VERSION, TAG_FREQUENT],
    };
    [before, sketch].concat()
}

fn float(value: &Option<Value>) -> f64 {
    match value {
        Some(Value::Float64(v)) => *v,
        Some(Value::Int64(v)) => *v as f64,
        other => panic!("no number: {other:?}"),
    }
}

#[test]
fn java_sketches_are_decoded_and_accept_more_values() {
    let vectors: Json = read(JAVAS);
    let sketches = vectors["sketches"].as_array().unwrap();
    for vector in sketches {
        let spec = named_spec(vector);
        let bytes = state_around(&spec, &hex::decode(text(vector, "sketch_hex")).unwrap());
        let mut state = AggregateState::decode(&spec, &bytes).unwrap();
        let found = state.values().unwrap();
        let numbers = Numbers {
            count: vector["numbers"]["count"].as_u64().unwrap(),
            modulus: vector["numbers"]["modulus"].as_u64().unwrap(),
        };
        let expected_state = summary(&spec, numbers);
        let expected = &vector["values"];
        match spec.kind() {
            // Equal hashes give equal registers, and therefore the same estimate to the last bit.
            AggregateKind::ApproxCountDistinct { .. } => {
                assert_eq!(found, expected_state.values().unwrap())
            }
            AggregateKind::ApproxQuantile { q, .. } => {
                assert_eq!(
                    hex::encode(bytes_of(&state)),
                    hex::encode(&bytes),
                    "it is written as it was read"
                );
                let mut truth: Vec<_> = numbers.values().collect();
                truth.sort_unstable();
                for (found, rank) in found.iter().zip(q) {
                    let count_below =
                        truth.partition_point(|number| (*number as f64) < float(found));
                    let error = (count_below as f64 / truth.len() as f64 - rank).abs();
                    assert!(error <= 0.02 + 1.0 / truth.len() as f64, "{error} at {rank}");
                }
            }
            _ => {
                let [Some(Value::List(_, items)), Some(Value::List(_, counts))] = &found[..] else {
                    panic!("no lists: {found:?}")
                };
                for (item, count) in items.iter().zip(counts) {
                    let name = to_json(&Some(item.clone()));
                    let expected_count = &expected[name.as_str().unwrap()];
                    assert_eq!(&to_json(&Some(count.clone())), expected_count, "{vector}");
                }
            }
        }
        let before = found.clone();
        state.merge(&expected_state).unwrap();
        if matches!(spec.kind(), AggregateKind::ApproxCountDistinct { .. }) {
            assert_eq!(state.values().unwrap(), before, "the values were in it");
        }
    }
    assert!(sketches.len() >= 9, "only {} sketches", sketches.len());
}
