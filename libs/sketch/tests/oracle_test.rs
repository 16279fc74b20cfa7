//! Compares every aggregate over every window with the naive model, on random streams: late and
//! unordered events, repeated values, and parts of the stream that are summary separately, encoded,
//! decoded and merged in any order. Exact aggregates must be equal; sketches must stay inside their
//! stated error.

mod naive;

use std::cmp::Ordering;

use forebay_core::clock::Timestamp;
use forebay_core::value::compare;
use forebay_core::value::{ScalarType, Value};
use forebay_core::view::{AggregateKind, AggregateSpec, Window};
use forebay_sketch::{EventAdmission, FoldPlan, GroupTiles, Tile, TileId};
use forebay_testkit::random::SeededRng;
use naive::{Row, counts, covered_rows, plan, stream, values_of};

const ALLOWED_LATENESS_US: i64 = 150;
const SEEDS: u64 = 40;
const ROWS: usize = 700;

fn windows() -> Vec<Window> {
    vec![
        Window::Tumbling { length_us: 500 },
        Window::Sliding { length_us: 100, slide_us: 10 },
        Window::Sliding { length_us: 600, slide_us: 10 },
        Window::Sliding { length_us: 3_000, slide_us: 250 },
        Window::Unbounded,
    ]
}

fn restarted(plan: &FoldPlan, group: &GroupTiles) -> GroupTiles {
    let mut read = GroupTiles::default();
    for (id, tile) in group.tiles() {
        let mut bytes = Vec::new();
        tile.encode(&mut bytes).unwrap();
        read.put(id, Tile::decode(plan.aggregates(), &bytes).unwrap());
    }
    read
}

/// Folds rows in order; at random restarts it encodes and decodes all tiles.
fn fold(plan: &FoldPlan, rows: &[Row], mut restarts: impl FnMut() -> bool) -> GroupTiles {
    let mut group = GroupTiles::default();
    for row in rows {
        let inputs = row.inputs(plan);
        let partition_time = Timestamp::from_micros(row.partition_time);
        let admission = group.insert(plan, &row.event(&inputs), partition_time).unwrap();
        let late_us = row.partition_time - row.time - ALLOWED_LATENESS_US;
        let expected = match late_us {
            1.. => EventAdmission::Late { by_us: late_us },
            _ => EventAdmission::Admitted,
        };
        assert_eq!(admission, expected);
        if restarts() {
            group = restarted(plan, &group);
        }
    }
    group
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Int64(v) => *v as f64,
        Value::Float64(v) => *v,
        other => panic!("no number: {other:?}"),
    }
}

/// Returns whether two values are equal to the last bit; the two zeros differ.
fn is_same(a: &Option<Value>, b: &Option<Value>) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

fn expect(found: &[Option<Value>], expected: Option<Value>, name: &str) {
    assert!(is_same(&found[0], &expected), "{name}: {found:?}, not {expected:?}");
}

fn check(spec: &AggregateSpec, values: &[Value], found: &[Option<Value>]) {
    use AggregateKind as Kind;
    let name = format!("{} of {:?}", spec.kind().name(), spec.input());
    match spec.kind() {
        Kind::Count => expect(found, Some(Value::Int64(values.len() as i64)), &name),
        Kind::First => expect(found, values.first().cloned(), &name),
        Kind::Last => expect(found, values.last().cloned(), &name),
        Kind::LastN { count } => {
            let last = values[values.len().saturating_sub(usize::from(*count))..].to_vec();
            let list = (!last.is_empty()).then(|| Value::List(spec.input().unwrap(), last));
            expect(found, list, &name);
        }
        Kind::Min => expect(found, best(values, Ordering::Less), &name),
        Kind::Max => expect(found, best(values, Ordering::Greater), &name),
        Kind::ApproxCountDistinct { .. } => check_distinct(values, found, &name),
        Kind::ApproxQuantile { q, .. } => check_quantiles(q, values, found, &name),
        Kind::TopK { count, lg_counters } => {
            check_top(usize::from(*count), *lg_counters, values, found, &name);
        }
        _ => check_moments(spec, values, found, &name),
    }
}

fn best(values: &[Value], expected: Ordering) -> Option<Value> {
    let order = |a: &Value, b: &Value| match (a, b) {
        (Value::Float64(a), Value::Float64(b)) => a.total_cmp(b),
        _ => compare(a, b).unwrap(),
    };
    let better = |a: Value, b: &Value| if order(b, &a) == expected { b.clone() } else { a };
    values.split_first().map(|(first, rest)| rest.iter().fold(first.clone(), better))
}

/// Sums of the model's floats are exact in any order: the floats are multiples of 1/64 below 32.
fn check_moments(spec: &AggregateSpec, values: &[Value], found: &[Option<Value>], name: &str) {
    let n = values.len() as f64;
    let sum: f64 = values.iter().map(number).sum::<f64>() + 0.0;
    let if_any = |value| (n > 0.0).then_some(value);
    let mean = sum / n;
    let central =
        |power: i32| values.iter().map(|v| (number(v) - mean).powi(power)).sum::<f64>() / n;
    let expected = match spec.kind() {
        AggregateKind::Sum if spec.input() == Some(ScalarType::Int64) => {
            return expect(found, if_any(Value::Int64(sum as i64)), name);
        }
        AggregateKind::Sum => return expect(found, if_any(Value::Float64(sum)), name),
        AggregateKind::Average => return expect(found, if_any(Value::Float64(mean)), name),
        AggregateKind::Variance => central(2),
        AggregateKind::StandardDeviation => central(2).sqrt(),
        AggregateKind::Skewness => central(3) / central(2).powf(1.5),
        AggregateKind::Kurtosis => central(4) / central(2).powi(2) - 3.0,
        other => panic!("no moment: {other:?}"),
    };
    match &found[0] {
        Some(Value::Float64(found)) => {
            let close = 1e-9 * expected.abs().max(1.0);
            assert!((found - expected).abs() <= close, "{name}: {found}, not {expected}");
        }
        other => assert!(other.is_none() && expected.is_nan(), "{name}: {other:?}, not {expected}"),
    }
}

fn check_distinct(values: &[Value], found: &[Option<Value>], name: &str) {
    let truth = counts(values).len() as f64;
    let [count, lower, upper] = [0, 1, 2].map(|place| number(found[place].as_ref().unwrap()));
    assert!(lower <= truth && truth <= upper, "{name}: {truth} outside {lower} to {upper}");
    let error = 4.0 * 1.04 / 256_f64.sqrt();
    assert!((count - truth).abs() <= error * truth, "{name}: {count}, not {truth}");
}

/// Compares the fraction of values at or below each returned quantile with its rank.
fn check_quantiles(ranks: &[f64], values: &[Value], found: &[Option<Value>], name: &str) {
    let n = values.len() as f64;
    if values.is_empty() {
        assert!(found.iter().all(Option::is_none), "{name}");
        return;
    }
    for (rank, found) in ranks.iter().zip(found) {
        let found = number(found.as_ref().unwrap());
        let share_below = values.iter().filter(|value| number(value) < found).count() as f64 / n;
        let upto = values.iter().filter(|value| number(value) <= found).count() as f64 / n;
        let slack = 0.03 + 1.0 / n;
        assert!(
            share_below - slack <= *rank && *rank <= upto + slack,
            "{name}: {share_below} {upto} at {rank}"
        );
        if *rank == 0.0 || *rank == 1.0 {
            let ordering = if *rank == 0.0 { Ordering::Less } else { Ordering::Greater };
            assert_eq!(found, number(&best(values, ordering).unwrap()), "{name} at {rank}");
        }
    }
}

fn check_top(count: usize, lg: u8, values: &[Value], found: &[Option<Value>], name: &str) {
    let (items, numbers) = match found {
        [Some(Value::List(_, items)), Some(Value::List(_, numbers))] => (items, numbers),
        _ => return assert!(values.is_empty(), "{name}: {found:?}"),
    };
    let truth = counts(values);
    let capacity = (1_usize << lg) * 3 / 4;
    if truth.len() <= capacity {
        let mut rows: Vec<_> = truth.values().collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| compare(&a.0, &b.0).unwrap()));
        rows.truncate(count);
        let (best, best_counts): (Vec<_>, Vec<_>) =
            rows.iter().map(|(item, count)| (item.clone(), Value::Int64(*count))).unzip();
        assert_eq!((items, numbers), (&best, &best_counts), "{name}");
    }
    let error = 3.5 / f64::from(1 << lg) * values.len() as f64;
    for (item, number) in items.iter().zip(numbers) {
        let Value::Int64(number) = number else { panic!("no count") };
        let true_count = truth.get(&format!("{item:?}")).map_or(0, |row| row.1);
        let excess = *number - true_count;
        assert!(excess >= 0 && excess as f64 <= error, "{name}: {excess} too many of {item:?}");
    }
}

/// Splits the returned values among the aggregates, in order.
fn check_all(plan: &FoldPlan, rows: &[&Row], mut found: &[Option<Value>]) {
    for spec in plan.aggregates().specs() {
        let (outputs, rest) = found.split_at(spec.outputs().len());
        check(spec, &values_of(rows, spec), outputs);
        found = rest;
    }
    assert!(found.is_empty());
}

fn moments(dice: &mut SeededRng, rows: &[Row]) -> Vec<i64> {
    let end = rows.last().map_or(0, |row| row.partition_time) + 700;
    let mut moments: Vec<_> = (0..6).map(|_| end - dice.below(8_000) as i64).collect();
    moments.extend([-1, 0, -500, end]);
    moments
}

#[test]
fn every_value_equals_the_naive_model() {
    let plan = plan(windows(), ALLOWED_LATENESS_US);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut dice = SeededRng::new(seed);
        let rows = stream(&mut dice, ROWS, false);
        let mut restarts = SeededRng::new(seed + 1_000_000);
        let group = fold(&plan, &rows, || restarts.chance(2));
        for at in moments(&mut dice, &rows) {
            for window in windows() {
                let found = group.values(&plan, window, Timestamp::from_micros(at)).unwrap();
                check_all(&plan, &covered_rows(&rows, window, ALLOWED_LATENESS_US, at), &found);
            }
        }
    }
}

fn is_independent_of_order(spec: &AggregateSpec) -> bool {
    let kind = spec.kind();
    !matches!(
        kind,
        AggregateKind::ApproxQuantile { .. } | AggregateKind::TopK { lg_counters: 3, .. }
    )
}

/// Proves that order-independent values are equal to the last bit, for any floats and integers.
#[test]
fn parts_of_a_stream_merge_in_any_order_to_the_same_bits() {
    let plan = plan(windows(), ALLOWED_LATENESS_US);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut dice = SeededRng::new(seed);
        let rows = stream(&mut dice, ROWS, seed % 2 == 0);
        let expected_group = fold(&plan, &rows, || false);
        let mut parts = vec![Vec::new(); 2 + dice.below(4)];
        for row in &rows {
            let part = dice.below(parts.len());
            parts[part].push(row.clone());
        }
        let mut groups: Vec<_> = parts.iter().map(|rows| fold(&plan, rows, || false)).collect();
        while groups.len() > 1 {
            let from = groups.swap_remove(dice.below(groups.len()));
            let place = dice.below(groups.len());
            groups[place].merge(&plan, &restarted(&plan, &from)).unwrap();
        }
        for at in moments(&mut dice, &rows) {
            for window in windows() {
                let values_at = |group: &GroupTiles| {
                    group.values(&plan, window, Timestamp::from_micros(at)).unwrap()
                };
                let (found, expected) = (values_at(&groups[0]), values_at(&expected_group));
                let mut place = 0;
                for spec in plan.aggregates().specs() {
                    for _ in spec.outputs() {
                        let is_equal = is_same(&found[place], &expected[place]);
                        assert!(is_equal || !is_independent_of_order(spec), "{spec:?}");
                        place += 1;
                    }
                }
                let window_rows = covered_rows(&rows, window, ALLOWED_LATENESS_US, at);
                if seed % 2 == 1 {
                    check_all(&plan, &window_rows, &found);
                }
            }
        }
    }
}

/// Proves that a training set gets the values that were served: equal bytes, sketches included,
/// although one of the two folds restarted repeatedly and dropped its old tiles.
#[test]
fn same_events_give_the_same_bits_despite_restarts_and_dropped_tiles() {
    let plan = plan(windows(), ALLOWED_LATENESS_US);
    for seed in 0..SEEDS / 2 {
        println!("seed {seed}");
        let mut dice = SeededRng::new(seed);
        let rows = stream(&mut dice, ROWS, seed % 2 == 0);
        let (mut served_group, mut dropped_count) = (GroupTiles::default(), 0);
        for (number, row) in rows.iter().enumerate() {
            let inputs = row.inputs(&plan);
            let now = Timestamp::from_micros(row.partition_time);
            served_group.insert(&plan, &row.event(&inputs), now).unwrap();
            if dice.chance(20) {
                served_group = restarted(&plan, &served_group);
                dropped_count += served_group.advance(&plan, now).len();
            }
            if number % 140 == 139 {
                let replayed_group = fold(&plan, &rows[..=number], || false);
                for window in windows() {
                    let (a, b) = [&served_group, &replayed_group]
                        .map(|group| group.values(&plan, window, now))
                        .into();
                    let (a, b) = (a.unwrap(), b.unwrap());
                    assert!(a.iter().zip(&b).all(|(a, b)| is_same(a, b)), "{window:?}");
                }
            }
        }
        assert!(dropped_count > 100, "only {dropped_count} tiles were dropped");
    }
}

/// Proves that values change at each announced moment and at no moment between.
#[test]
fn values_change_exactly_at_their_announced_moments() {
    let plan = plan(windows(), ALLOWED_LATENESS_US);
    for seed in 0..8 {
        println!("seed {seed}");
        let rows = stream(&mut SeededRng::new(seed), 40, false);
        let group = fold(&plan, &rows, || false);
        for window in windows() {
            let mut at = Timestamp::from_micros(-3_000);
            let values_at = |at| format!("{:?}", group.values(&plan, window, at).unwrap());
            let mut changes = 0;
            while let Some(next) = group.next_change(window, at) {
                assert!(next > at);
                let before = next.plus_micros(-1);
                assert_eq!(values_at(before), values_at(at), "{window:?} from {at} to {next}");
                assert_ne!(values_at(next), values_at(before), "{window:?} at {next}");
                (at, changes) = (next, changes + 1);
            }
            let last = values_at(at.plus_micros(1_000_000));
            assert_eq!(last, values_at(at));
            match window {
                Window::Unbounded => assert_eq!(changes, 0),
                _ => {
                    assert!(changes > 0);
                    let empty = Tile::new(plan.aggregates()).unwrap().values().unwrap();
                    assert_eq!(last, format!("{empty:?}"));
                }
            }
        }
        assert!(group.tiles().any(|(id, _)| id == TileId::Unbounded));
    }
}
