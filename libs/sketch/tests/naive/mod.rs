//! Naive model: it stores every event and computes each value from all of them, by plain sorting,
//! counting and adding.

use std::collections::BTreeMap;

use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, Offset, Position};
use forebay_core::value::{ScalarType, Value};
use forebay_core::view::{AggregateKind, AggregateSpec, Window};
use forebay_sketch::{Aggregates, Event, EventOrder, FoldPlan, Windows};
use forebay_testkit::random::SeededRng;

/// An event of the model.
#[derive(Clone, Debug)]
pub struct Row {
    pub time: i64,
    pub offset: u64,
    /// Partition time at the event's entry.
    pub partition_time: i64,
    pub integer: Option<i64>,
    pub float: Option<f64>,
    pub text: Option<String>,
}

impl Row {
    pub fn at(&self) -> EventOrder {
        let offset = Offset(self.offset);
        let position =
            Position { epoch: Epoch(1), offset, index_in_entry: (self.offset % 3) as u16 };
        EventOrder { time: Timestamp::from_micros(self.time), position }
    }

    /// Returns the inputs of the plan's aggregates, by the type of each.
    pub fn inputs(&self, plan: &FoldPlan) -> Vec<Option<Value>> {
        let input = |spec: &AggregateSpec| match spec.input()? {
            ScalarType::Int64 => self.integer.map(Value::Int64),
            ScalarType::Float64 => self.float.map(Value::Float64),
            _ => self.text.clone().map(Value::String),
        };
        plan.aggregates().specs().iter().map(|spec| input(spec)).collect()
    }

    pub fn event<'e>(&self, inputs: &'e [Option<Value>]) -> Event<'e> {
        Event { at: self.at(), inputs }
    }
}

const RANKS: [f64; 4] = [0.0, 0.25, 0.9, 1.0];

/// Returns a plan with every kind over every type of the model, including small sketches, which
/// overflow.
pub fn plan(windows: Vec<Window>, allowed_lateness_us: i64) -> FoldPlan {
    use AggregateKind as Kind;
    let numeric = [Kind::Sum, Kind::Average, Kind::Variance, Kind::StandardDeviation];
    let shapes = [Kind::Skewness, Kind::Kurtosis];
    let quantiles = Kind::ApproxQuantile { q: RANKS.to_vec(), k: 100 };
    let any_input_kinds = [Kind::Count, Kind::Min, Kind::Max, Kind::First, Kind::Last];
    let last = Kind::LastN { count: 5 };
    let distinct = Kind::ApproxCountDistinct { lg_k: 8, confidence_stddevs: Some(3) };
    let top = [3, 10].map(|lg_counters| Kind::TopK { count: 4, lg_counters });
    let types = [ScalarType::Int64, ScalarType::Float64, ScalarType::String];
    let mut specs = vec![AggregateSpec::new(Kind::Count, None).unwrap()];
    let kinds = numeric.iter().chain(&shapes).chain(&any_input_kinds).chain(&top);
    for kind in kinds.chain([&quantiles, &last, &distinct]) {
        let of_types = types.map(|scalar| AggregateSpec::new(kind.clone(), Some(scalar)));
        specs.extend(of_types.into_iter().flatten());
    }
    let windows = Windows::new(windows, allowed_lateness_us).unwrap();
    FoldPlan::new(Aggregates::new(specs).unwrap(), windows).unwrap()
}

/// Returns a stream in log order. Event times are scattered around partition time, values repeat,
/// and some are missing or NaN. Floats add up without rounding, except in a wild stream.
pub fn stream(dice: &mut SeededRng, rows: usize, is_wild: bool) -> Vec<Row> {
    let mut partition_time = -3_000_i64;
    let row = |offset: usize| {
        partition_time += dice.below(20) as i64;
        let ahead_us = dice.below(40) as i64;
        let behind_us =
            if dice.chance(10) { dice.below(900) as i64 } else { dice.below(60) as i64 };
        let float = match dice.below(20) {
            0 => f64::NAN,
            1 => -0.0,
            _ if is_wild => f64::from_bits(dice.bits()),
            _ => (dice.below(4_000) as f64 - 2_000.0) / 64.0,
        };
        let integer = match dice.below(30) {
            0 if is_wild => i64::MAX - dice.below(3) as i64,
            1 if is_wild => i64::MIN + dice.below(3) as i64,
            _ => dice.below(300) as i64 - 150,
        };
        let length = dice.below(60).min(dice.below(60));
        Row {
            time: partition_time + ahead_us - behind_us,
            offset: offset as u64,
            partition_time,
            integer: dice.chance(90).then_some(integer),
            float: dice.chance(90).then_some(float),
            text: dice.chance(90).then(|| format!("{length:02}")),
        }
    };
    (0..rows).map(row).collect()
}

/// Returns the events that a window covers at a moment, without late ones, in the events' order.
pub fn covered_rows(rows: &[Row], window: Window, allowed_lateness_us: i64, at: i64) -> Vec<&Row> {
    let (from, to) = match window {
        Window::Unbounded => (i64::MIN, i64::MAX),
        Window::Tumbling { length_us } => {
            let start = (at as f64 / length_us as f64).floor() as i64 * length_us;
            (start, start + length_us)
        }
        Window::Sliding { length_us, slide_us } => {
            let end = (at as f64 / slide_us as f64).floor() as i64 * slide_us + slide_us;
            (end - length_us, end)
        }
    };
    let is_in_time = |row: &&Row| row.time >= row.partition_time - allowed_lateness_us;
    let is_covered = |row: &&Row| from <= row.time && row.time < to;
    let mut found: Vec<_> = rows.iter().filter(is_in_time).filter(is_covered).collect();
    found.sort_by_key(|row| row.at());
    found
}

/// Returns the inputs of an aggregate from these rows.
pub fn values_of(rows: &[&Row], spec: &AggregateSpec) -> Vec<Value> {
    let value = |row: &&Row| match spec.input() {
        None => Some(Value::Bool(true)),
        Some(ScalarType::Int64) => row.integer.map(Value::Int64),
        Some(ScalarType::Float64) => row.float.filter(|v| !v.is_nan()).map(Value::Float64),
        Some(_) => row.text.clone().map(Value::String),
    };
    rows.iter().filter_map(value).collect()
}

/// Returns the number of occurrences of each value, keyed by its bytes.
pub fn counts(values: &[Value]) -> BTreeMap<String, (Value, i64)> {
    let mut counts = BTreeMap::new();
    for value in values {
        let name = match value {
            Value::Float64(v) => format!("{:?}", v + 0.0),
            other => format!("{other:?}"),
        };
        counts.entry(name).or_insert_with(|| (value.clone(), 0)).1 += 1;
    }
    counts
}
