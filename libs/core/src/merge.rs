//! Merge operators: the effect of an operation on a field's present value. Deterministic and total.

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::change::FieldOp;
use crate::row::encode_value;
use crate::value::{FieldType, ScalarType, Value, compare};

/// Result of an operation on a field.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeResult {
    /// The field holds this value; `None` is null.
    Set(Option<Value>),
    /// The field becomes absent.
    Absent,
    /// The field does not change.
    Unchanged,
}

/// Applies an operation to the present value (`None`: absent or null) of a field of this type.
///
/// The operation's own value may be of a narrower type than the field; it is widened first.
pub fn merge(present: Option<&Value>, op: &FieldOp, field_type: FieldType) -> MergeResult {
    let widened = |value: &Value| value.clone().widened_to(field_type);
    match op {
        FieldOp::Set(None) => MergeResult::Set(None),
        FieldOp::Set(Some(value)) => MergeResult::Set(Some(widened(value))),
        FieldOp::Remove => MergeResult::Absent,
        FieldOp::Increment(increment) => {
            let increment = widened(increment);
            MergeResult::Set(Some(
                present.and_then(|value| add(value, &increment)).unwrap_or(increment),
            ))
        }
        FieldOp::Min(value) => keep(present, widened(value), Ordering::Less),
        FieldOp::Max(value) => keep(present, widened(value), Ordering::Greater),
        FieldOp::ListAppend { items, bound } => {
            let mut list = components(present);
            list.extend(items.iter().cloned());
            bounded(list, *bound, field_type)
        }
        FieldOp::SetAdd { items, bound } => {
            let mut list = components(present);
            let mut present_components: HashSet<_> = list.iter().map(component_bytes).collect();
            list.extend(
                items
                    .iter()
                    .filter(|item| present_components.insert(component_bytes(item)))
                    .cloned(),
            );
            bounded(list, *bound, field_type)
        }
        FieldOp::SetRemove { items } => match present {
            None => MergeResult::Unchanged,
            Some(_) => {
                let removed_components: HashSet<_> = items.iter().map(component_bytes).collect();
                let mut list = components(present);
                list.retain(|component| !removed_components.contains(&component_bytes(component)));
                MergeResult::Set(Some(Value::List(scalar_of(field_type), list)))
            }
        },
    }
}

/// Returns the bytes by which a set compares its components: NaN is one member, 0.0 and -0.0 are
/// two.
fn component_bytes(component: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_value(component, &mut bytes);
    bytes
}

fn add(value: &Value, increment: &Value) -> Option<Value> {
    match (value, increment) {
        (Value::Int32(a), Value::Int32(b)) => Some(Value::Int32(a.saturating_add(*b))),
        (Value::Int64(a), Value::Int64(b)) => Some(Value::Int64(a.saturating_add(*b))),
        (Value::Float32(a), Value::Float32(b)) => Some(Value::Float32(a + b).canonical()),
        (Value::Float64(a), Value::Float64(b)) => Some(Value::Float64(a + b).canonical()),
        _ => None,
    }
}

fn keep(present: Option<&Value>, value: Value, ordering: Ordering) -> MergeResult {
    let wins = match present {
        Some(old) if !old.is_nan() => compare(&value, old) == Some(ordering),
        _ => !value.is_nan(),
    };
    if wins { MergeResult::Set(Some(value)) } else { MergeResult::Unchanged }
}

fn components(present: Option<&Value>) -> Vec<Value> {
    match present {
        Some(Value::List(_, items)) => items.clone(),
        _ => Vec::new(),
    }
}

fn scalar_of(field_type: FieldType) -> ScalarType {
    match field_type {
        FieldType::List(scalar) | FieldType::Scalar(scalar) => scalar,
        FieldType::Vector(..) => ScalarType::Float32,
    }
}

fn bounded(mut list: Vec<Value>, bound: u32, field_type: FieldType) -> MergeResult {
    let excess = list.len().saturating_sub(bound as usize);
    list.drain(..excess);
    MergeResult::Set(Some(Value::List(scalar_of(field_type), list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT64: FieldType = FieldType::INT64;
    const FLOAT64: FieldType = FieldType::FLOAT64;
    const LIST: FieldType = FieldType::List(ScalarType::Int32);

    fn set(value: Value) -> MergeResult {
        MergeResult::Set(Some(value))
    }

    fn list(items: &[i32]) -> Value {
        Value::List(ScalarType::Int32, items.iter().map(|item| Value::Int32(*item)).collect())
    }

    fn items(items: &[i32]) -> Vec<Value> {
        items.iter().map(|item| Value::Int32(*item)).collect()
    }

    #[test]
    fn increments_start_at_zero_widen_and_saturate() {
        let increment = FieldOp::Increment(Value::Int32(5));
        assert_eq!(merge(None, &increment, INT64), set(Value::Int64(5)));
        assert_eq!(merge(Some(&Value::Int64(2)), &increment, INT64), set(Value::Int64(7)));
        let top = Value::Int64(i64::MAX);
        assert_eq!(merge(Some(&top), &increment, INT64), set(top));
    }

    #[test]
    fn min_and_max_select_the_better_value_and_never_nan() {
        let max = |value| FieldOp::Max(Value::Float64(value));
        let present = Value::Float64(2.0);
        assert_eq!(merge(None, &max(1.0), FLOAT64), set(Value::Float64(1.0)));
        assert_eq!(merge(Some(&present), &max(1.0), FLOAT64), MergeResult::Unchanged);
        assert_eq!(merge(Some(&present), &max(3.0), FLOAT64), set(Value::Float64(3.0)));
        assert_eq!(merge(Some(&present), &max(f64::NAN), FLOAT64), MergeResult::Unchanged);
        let nan = Value::Float64(f64::NAN);
        assert_eq!(merge(Some(&nan), &max(1.0), FLOAT64), set(Value::Float64(1.0)));
        let min = FieldOp::Min(Value::Float64(1.0));
        assert_eq!(merge(Some(&present), &min, FLOAT64), set(Value::Float64(1.0)));
    }

    #[test]
    fn appends_retain_the_newest_items_and_sets_one_of_each() {
        let append = FieldOp::ListAppend { items: items(&[3, 4]), bound: 3 };
        assert_eq!(merge(Some(&list(&[1, 2])), &append, LIST), set(list(&[2, 3, 4])));
        let add = FieldOp::SetAdd { items: items(&[2, 5, 5]), bound: 10 };
        assert_eq!(merge(Some(&list(&[1, 2])), &add, LIST), set(list(&[1, 2, 5])));
        let remove = FieldOp::SetRemove { items: items(&[1]) };
        assert_eq!(merge(Some(&list(&[1, 2])), &remove, LIST), set(list(&[2])));
        assert_eq!(merge(None, &remove, LIST), MergeResult::Unchanged);
    }

    #[test]
    fn min_and_max_never_set_nan() {
        let nan = FieldOp::Max(Value::Float64(f64::NAN));
        assert_eq!(merge(None, &nan, FLOAT64), MergeResult::Unchanged);
        let narrow = FieldOp::Min(Value::Float32(f32::NAN));
        assert_eq!(
            merge(Some(&Value::Float64(f64::NAN)), &narrow, FLOAT64),
            MergeResult::Unchanged
        );
    }

    /// Proves that sets compare components by their bytes: NaN is a member like any other, and the
    /// two zeros are two members.
    #[test]
    fn sets_distinguish_components_by_their_bytes() {
        let floats = FieldType::List(ScalarType::Float64);
        let all =
            |items: &[f64]| items.iter().map(|item| Value::Float64(*item)).collect::<Vec<_>>();
        let present = Value::List(ScalarType::Float64, all(&[f64::NAN, 0.0]));
        let length = |merged| match merged {
            MergeResult::Set(Some(Value::List(_, items))) => items.len(),
            other => panic!("no list: {other:?}"),
        };
        let add = FieldOp::SetAdd { items: all(&[f64::NAN, -0.0, 0.0]), bound: 9 };
        assert_eq!(length(merge(Some(&present), &add, floats)), 3);
        let remove = FieldOp::SetRemove { items: all(&[f64::NAN, -0.0]) };
        assert_eq!(length(merge(Some(&present), &remove, floats)), 1);
    }

    /// Proves that two full sets merge in one pass; quadratic work would stop a partition for
    /// minutes.
    #[test]
    fn full_sets_are_merged_in_one_pass() {
        let numbers = |from: i32| (from..from + 65_535).map(Value::Int32).collect::<Vec<_>>();
        let present = Value::List(ScalarType::Int32, numbers(0));
        let add = FieldOp::SetAdd { items: numbers(65_535), bound: 65_535 };
        let MergeResult::Set(Some(merged)) = merge(Some(&present), &add, LIST) else {
            panic!("no list")
        };
        assert_eq!(merged, Value::List(ScalarType::Int32, numbers(65_535)));
        let remove = FieldOp::SetRemove { items: numbers(65_535) };
        assert_eq!(merge(Some(&merged), &remove, LIST), set(list(&[])));
    }
}
