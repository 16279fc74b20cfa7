//! Minimum and maximum.

use std::cmp::Ordering;

use forebay_core::value::Value;
use forebay_core::value::compare;

/// The best value so far.
#[derive(Clone, Debug)]
pub(crate) struct MinMax {
    is_greatest: bool,
    best: Option<Value>,
}

impl MinMax {
    /// Creates the state of no values.
    pub(crate) fn new(is_greatest: bool) -> Self {
        Self { is_greatest, best: None }
    }

    /// Returns the state with this best value.
    pub(crate) fn with_best(self, best: Option<Value>) -> Self {
        Self { best, ..self }
    }

    /// Adds a value.
    pub(crate) fn insert(&mut self, value: &Value) {
        let expected = if self.is_greatest { Ordering::Greater } else { Ordering::Less };
        if self.best.as_ref().is_none_or(|best| order(value, best) == expected) {
            self.best = Some(value.clone());
        }
    }

    /// Merges another state.
    pub(crate) fn merge(&mut self, other: &Self) {
        if let Some(best) = &other.best {
            self.insert(best);
        }
    }

    /// Returns the minimum or maximum; `None` if there are no values.
    pub(crate) fn best(&self) -> Option<&Value> {
        self.best.as_ref()
    }
}

/// Returns the total order of two values of one type. -0.0 sorts below 0.0, so that the result does
/// not depend on which of two zeros came first.
pub(crate) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Float32(a), Value::Float32(b)) => a.total_cmp(b),
        (Value::Float64(a), Value::Float64(b)) => a.total_cmp(b),
        _ => compare(a, b).unwrap_or(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(is_greatest: bool, values: &[Value]) -> Option<Value> {
        let mut min_max = MinMax::new(is_greatest);
        values.iter().for_each(|value| min_max.insert(value));
        min_max.best
    }

    #[test]
    fn min_and_max_of_every_type_are_found() {
        let texts = ["b", "a", "c", ""].map(|text| Value::String(text.to_owned()));
        assert_eq!(best(false, &texts), Some(Value::String(String::new())));
        assert_eq!(best(true, &texts), Some(Value::String("c".to_owned())));
        let times = [3, i64::MIN, 5].map(Value::Timestamp);
        assert_eq!(best(false, &times), Some(Value::Timestamp(i64::MIN)));
        assert_eq!(best(true, &[false, true, false].map(Value::Bool)), Some(Value::Bool(true)));
        assert_eq!(best(true, &[]), None);
    }

    #[test]
    fn negative_zero_sorts_before_positive_zero() {
        let text = |is_greatest, zeros: [Value; 2]| format!("{:?}", best(is_greatest, &zeros));
        for zeros in [[0.0, -0.0], [-0.0, 0.0]] {
            let [wide, narrow] =
                [zeros.map(Value::Float64), zeros.map(|v| Value::Float32(v as f32))];
            assert_eq!(text(false, wide.clone()), "Some(Float64(-0.0))");
            assert_eq!(text(true, wide), "Some(Float64(0.0))");
            assert_eq!(text(false, narrow.clone()), "Some(Float32(-0.0))");
            assert_eq!(text(true, narrow), "Some(Float32(0.0))");
        }
    }
}
