//! Values of each kind: for no events, missing values and NaN, after merges, after encoding and
//! decoding.

use forebay_core::ErrorCode;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, Offset, Position};
use forebay_core::value::FieldType;

use super::*;

fn state(kind: AggregateKind, input: Option<ScalarType>) -> AggregateState {
    let spec = AggregateSpec::new(kind, input).unwrap();
    AggregateState::new(&Arc::new(spec)).unwrap()
}

fn at(number: u64) -> EventOrder {
    let position = Position { epoch: Epoch(0), offset: Offset(number), index_in_entry: 0 };
    EventOrder { time: Timestamp::from_micros(number as i64), position }
}

fn every_kind() -> Vec<AggregateKind> {
    use AggregateKind as Kind;
    vec![
        Kind::Count,
        Kind::Sum,
        Kind::Average,
        Kind::Min,
        Kind::Max,
        Kind::Variance,
        Kind::StandardDeviation,
        Kind::Skewness,
        Kind::Kurtosis,
        Kind::First,
        Kind::Last,
        Kind::LastN { count: 2 },
        Kind::ApproxCountDistinct { lg_k: 12, confidence_stddevs: Some(2) },
        Kind::ApproxQuantile { q: vec![0.5, 0.9], k: 100 },
        Kind::TopK { count: 2, lg_counters: 9 },
        Kind::AccumulatingCount,
    ]
}

fn int_states() -> impl Iterator<Item = AggregateState> {
    every_kind().into_iter().map(|kind| state(kind, Some(ScalarType::Int64)))
}

fn feed(mut state: AggregateState, values: &[Option<i64>]) -> AggregateState {
    for (number, value) in (0..).zip(values) {
        let value = value.map(Value::Int64);
        state.insert(value.as_ref(), at(number)).unwrap();
    }
    state
}

fn int(value: i64) -> Option<Value> {
    Some(Value::Int64(value))
}

fn float(value: f64) -> Option<Value> {
    Some(Value::Float64(value))
}

fn ints(values: &[i64]) -> Option<Value> {
    let items = values.iter().copied().map(Value::Int64).collect();
    Some(Value::List(ScalarType::Int64, items))
}

#[test]
fn empty_states_and_missing_values_give_the_empty_value() {
    for state in int_states() {
        let (name, empty) = (state.spec.kind().name(), state.values().unwrap());
        let expected = match name {
            "count" | "accumulating_count" => vec![int(0)],
            "approx_count_distinct" => vec![int(0); 3],
            "approx_quantile" | "top_k" => vec![None; 2],
            _ => vec![None],
        };
        assert_eq!(empty, expected, "{name}");
        assert_eq!(feed(state, &[None, None]).values().unwrap(), expected, "{name} of nothing");
    }
}

#[test]
fn every_aggregate_kind_computes_its_value() {
    let expected = [
        vec![int(5)],
        vec![int(25)],
        vec![float(5.0)],
        vec![int(2)],
        vec![int(9)],
        vec![float(5.6)],
        vec![float(5.6_f64.sqrt())],
        vec![],
        vec![],
        vec![int(4)],
        vec![int(9)],
        vec![ints(&[6, 9])],
        vec![int(4), int(4), int(5)],
        vec![float(4.0), float(9.0)],
        vec![ints(&[4, 2]), ints(&[2, 1])],
        vec![int(25)],
    ];
    let values = [Some(4), None, Some(4), Some(2), Some(6), Some(9)];
    for (state, expected) in int_states().zip(expected) {
        let name = state.spec.kind().name();
        let state = feed(state, &values);
        let found = state.values().unwrap();
        match (&found[..], name) {
            // The central moments are 5.6 (second), 7.2 (third) and 68 (fourth).
            ([Some(Value::Float64(skewness))], "skewness") => {
                assert!((skewness - 7.2 / 5.6_f64.powf(1.5)).abs() < 1e-12, "{skewness}");
            }
            ([Some(Value::Float64(kurtosis))], "kurtosis") => {
                assert!((kurtosis - (68.0 / 31.36 - 3.0)).abs() < 1e-12, "{kurtosis}");
            }
            _ => assert_eq!(found, expected, "{name}"),
        }
        let types = state.spec.outputs();
        assert_eq!(types.len(), found.len());
        for (output, value) in types.iter().zip(&found) {
            assert_eq!(value.as_ref().unwrap().field_type(), Some(output.field_type), "{name}");
        }
    }
}

#[test]
fn count_without_input_counts_events() {
    for kind in [AggregateKind::Count, AggregateKind::AccumulatingCount] {
        let mut state = state(kind, None);
        (0..3).for_each(|number| state.insert(None, at(number)).unwrap());
        assert_eq!(state.values().unwrap(), [int(3)]);
        let error = state.insert(Some(&Value::Int64(1)), at(4)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}

#[test]
fn accumulating_count_also_decreases() {
    let state = state(AggregateKind::AccumulatingCount, Some(ScalarType::Int64));
    assert_eq!(feed(state, &[Some(5), Some(-7), None, Some(1)]).values().unwrap(), [int(-1)]);
}

#[test]
fn nan_is_a_missing_value_to_every_aggregate() {
    for kind in every_kind() {
        let Ok(spec) = AggregateSpec::new(kind, Some(ScalarType::Float64)) else { continue };
        let spec = Arc::new(spec);
        let mut state = AggregateState::new(&spec).unwrap();
        let mut other = state.clone();
        for (number, value) in (0..).zip([1.5, f64::NAN, -2.0]) {
            state.insert(Some(&Value::Float64(value)), at(number)).unwrap();
            let number_value = Some(Value::Float64(value)).filter(|value| !value.is_nan());
            other.insert(number_value.as_ref(), at(number)).unwrap();
        }
        assert_eq!(bytes_of(&state), bytes_of(&other), "{}", spec.kind().name());
    }
}

fn bytes_of(state: &AggregateState) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn aggregate_states_round_trip() {
    let values: Vec<_> = (0..2_000).map(|v: i64| (v % 7 != 0).then_some(v * v % 541)).collect();
    for state in int_states() {
        for state in [state.clone(), feed(state.clone(), &values[..9]), feed(state, &values)] {
            let (name, bytes) = (state.spec.kind().name(), bytes_of(&state));
            let read = AggregateState::decode(&state.spec, &bytes).unwrap();
            assert_eq!(read.values().unwrap(), state.values().unwrap(), "{name}");
            assert_eq!(bytes_of(&read).len(), bytes.len(), "{name}");
            for end in 0..bytes.len() {
                let result = AggregateState::decode(&state.spec, &bytes[..end]);
                assert_eq!(result.unwrap_err().code(), ErrorCode::Corrupt, "{name} cut at {end}");
            }
            let result = AggregateState::decode(&state.spec, &[&bytes[..], &[0]].concat());
            assert_eq!(result.unwrap_err().code(), ErrorCode::Corrupt, "{name} with a byte more");
            let newer = AggregateState::decode(&state.spec, &[&[2], &bytes[1..]].concat());
            assert_eq!(newer.unwrap_err().code(), ErrorCode::UpgradeNeeded, "{name}");
        }
    }
}

#[test]
fn states_of_other_aggregates_neither_merge_nor_decode() {
    use AggregateKind as Kind;
    let are_alike = |a: &AggregateState, b: &AggregateState| {
        StateLayout::of(&a.spec) == StateLayout::of(&b.spec)
    };
    for mut into in int_states() {
        for from in int_states() {
            let decoded = AggregateState::decode(&into.spec, &bytes_of(&from));
            let (merge_result, decoded) = (into.merge(&from), decoded.map(|_| ()));
            if are_alike(&into, &from) {
                assert_eq!((merge_result, decoded), (Ok(()), Ok(())));
            } else {
                assert_eq!(merge_result.unwrap_err().code(), ErrorCode::InvalidArgument);
                assert_eq!(decoded.unwrap_err().code(), ErrorCode::Corrupt);
            }
        }
    }
    let is_refused = |kind: Kind, other: Kind| {
        let (mut into, from) =
            (state(kind, Some(ScalarType::Int64)), state(other, Some(ScalarType::Int64)));
        AggregateState::decode(&into.spec, &bytes_of(&from)).is_err() && into.merge(&from).is_err()
    };
    let distinct = |lg_k| Kind::ApproxCountDistinct { lg_k, confidence_stddevs: None };
    assert!(is_refused(distinct(10), distinct(11)));
    let quantiles = |k| Kind::ApproxQuantile { q: vec![0.5], k };
    assert!(is_refused(quantiles(100), quantiles(101)));
    assert!(is_refused(Kind::LastN { count: 3 }, Kind::LastN { count: 4 }));
    let top = |lg_counters| Kind::TopK { count: 1, lg_counters };
    assert!(is_refused(top(4), top(5)));
    let float = state(Kind::Sum, Some(ScalarType::Float64));
    assert!(state(Kind::Sum, Some(ScalarType::Int64)).merge(&float).is_err(), "another input");
}

#[test]
fn values_of_another_type_are_refused_and_change_nothing() {
    let mut sum = state(AggregateKind::Sum, Some(ScalarType::Int64));
    let error = sum.insert(Some(&Value::Float64(1.0)), at(0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(sum.values().unwrap(), [None]);
    assert_eq!(sum.spec.outputs()[0].field_type, FieldType::INT64);
}
