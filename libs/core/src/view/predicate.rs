//! Conditions on the columns of an event, with the semantics of SQL: a comparison with a missing
//! value is neither true nor false, and an event counts only if its condition is true.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::limits::PREDICATE_DEPTH_MAX;
use crate::value::{Value, compare};

/// A condition on columns; `C` names a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate<C> {
    /// All conditions are true; true for an empty list.
    All(Vec<Predicate<C>>),
    /// At least one condition is true; false for an empty list.
    Any(Vec<Predicate<C>>),
    /// The condition is false.
    Not(Box<Predicate<C>>),
    /// The column has no value: it is absent or null.
    IsMissing(C),
    /// The comparison with a value of the column's type holds. NaN compares with nothing.
    Compare {
        /// Column on the left.
        column: C,
        /// The comparison.
        comparison: Comparison,
        /// Operand on the right.
        to: Operand<C>,
    },
    /// The column's value is one of these values.
    IsOneOf {
        /// The column.
        column: C,
        /// The values, of the column's type.
        values: Vec<Value>,
    },
}

/// Operand on the right of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<C> {
    /// A value of the column's type.
    Value(Value),
    /// Another column of the same type.
    Column(C),
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Returns whether the comparison holds for two values in this order.
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl<C> Predicate<C> {
    /// Returns whether the condition is true for an event; `value` returns the event's value in a
    /// column.
    ///
    /// ```
    /// use forebay_core::value::Value;
    /// use forebay_core::view::{Comparison, Operand, Predicate};
    ///
    /// let cheap = Predicate::Compare {
    ///     column: "price",
    ///     comparison: Comparison::Less,
    ///     to: Operand::Value(Value::Int64(10)),
    /// };
    /// let (nine, ten) = (Value::Int64(9), Value::Int64(10));
    /// assert!(cheap.is_true(&|_: &&str| Some(&nine)));
    /// assert!(!cheap.is_true(&|_: &&str| Some(&ten)));
    /// let dear = Predicate::Not(Box::new(cheap));
    /// assert!(dear.is_true(&|_: &&str| Some(&ten)));
    /// assert!(!dear.is_true(&|_: &&str| None), "nobody knows");
    /// ```
    pub fn is_true<'v>(&self, value: &impl Fn(&C) -> Option<&'v Value>) -> bool {
        self.truth(value) == Some(true)
    }

    /// Returns whether the condition is true; `None` if it is unknown.
    fn truth<'v>(&self, value: &impl Fn(&C) -> Option<&'v Value>) -> Option<bool> {
        match self {
            Self::All(all) => combine_truths(all.iter().map(|one| one.truth(value)), false),
            Self::Any(any) => combine_truths(any.iter().map(|one| one.truth(value)), true),
            Self::Not(other) => other.truth(value).map(|is_true| !is_true),
            Self::IsMissing(column) => Some(value(column).is_none()),
            Self::Compare { column, comparison, to } => {
                let to = match to {
                    Operand::Value(to) => to,
                    Operand::Column(to) => value(to)?,
                };
                compare(value(column)?, to).map(|order| comparison.holds(order))
            }
            Self::IsOneOf { column, values } => {
                let found = value(column)?;
                let is_it = |one: &Value| compare(found, one).map(Ordering::is_eq);
                combine_truths(values.iter().map(is_it), true)
            }
        }
    }

    /// Resolves the condition to other column names, with literals converted to the column's type.
    ///
    /// # Errors
    /// Returns the errors of `column` and `literal`; `LimitExceeded` for a condition that is nested
    /// too deep.
    pub fn resolved<D>(
        &self,
        column: &impl Fn(&C) -> Result<D>,
        literal: &impl Fn(&C, &Value) -> Result<Value>,
    ) -> Result<Predicate<D>> {
        self.resolved_at(0, column, literal)
    }

    fn resolved_at<D>(
        &self,
        depth: usize,
        column: &impl Fn(&C) -> Result<D>,
        literal: &impl Fn(&C, &Value) -> Result<Value>,
    ) -> Result<Predicate<D>> {
        if depth > PREDICATE_DEPTH_MAX {
            let (limit, actual) = (PREDICATE_DEPTH_MAX as u64, depth as u64);
            return Err(Error::limit_exceeded(
                "the condition is nested too deeply; nest less deeply",
                limit,
                actual,
            ));
        }
        let inner = |one: &Self| one.resolved_at(depth + 1, column, literal);
        Ok(match self {
            Self::All(all) => Predicate::All(all.iter().map(inner).collect::<Result<_>>()?),
            Self::Any(any) => Predicate::Any(any.iter().map(inner).collect::<Result<_>>()?),
            Self::Not(other) => Predicate::Not(Box::new(inner(other)?)),
            Self::IsMissing(column_ref) => Predicate::IsMissing(column(column_ref)?),
            Self::Compare { column: column_ref, comparison, to } => Predicate::Compare {
                column: column(column_ref)?,
                comparison: *comparison,
                to: match to {
                    Operand::Value(value) => Operand::Value(literal(column_ref, value)?),
                    Operand::Column(other) => Operand::Column(column(other)?),
                },
            },
            Self::IsOneOf { column: column_ref, values } => Predicate::IsOneOf {
                column: column(column_ref)?,
                values: values
                    .iter()
                    .map(|value| literal(column_ref, value))
                    .collect::<Result<_>>()?,
            },
        })
    }

    /// Calls `see` with each column.
    pub fn for_each_column(&self, see: &mut impl FnMut(&C)) {
        match self {
            Self::All(predicates) | Self::Any(predicates) => {
                predicates.iter().for_each(|one| one.for_each_column(see));
            }
            Self::Not(other) => other.for_each_column(see),
            Self::IsMissing(column) | Self::IsOneOf { column, .. } => see(column),
            Self::Compare { column, to, .. } => {
                see(column);
                if let Operand::Column(other) = to {
                    see(other);
                }
            }
        }
    }
}

/// Combines truth values: one `decisive` value decides. If there is none, the result is unknown if
/// any value is unknown.
fn combine_truths(truths: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
    let mut is_known = true;
    for truth in truths {
        match truth {
            Some(truth) if truth == decisive => return Some(decisive),
            Some(_) => {}
            None => is_known = false,
        }
    }
    is_known.then_some(!decisive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn compares(column: &'static str, comparison: Comparison, to: i64) -> Predicate<&'static str> {
        Predicate::Compare { column, comparison, to: Operand::Value(Value::Int64(to)) }
    }

    /// Evaluates with `one` = 1, `two` = 2 and `nan` = NaN; other columns are missing.
    fn truth(predicate: &Predicate<&'static str>) -> Option<bool> {
        let (one, two, nan) = (Value::Int64(1), Value::Int64(2), Value::Float64(f64::NAN));
        predicate.truth(&|column| match *column {
            "one" => Some(&one),
            "two" => Some(&two),
            "nan" => Some(&nan),
            _ => None,
        })
    }

    fn not(predicate: Predicate<&'static str>) -> Predicate<&'static str> {
        Predicate::Not(Box::new(predicate))
    }

    #[test]
    fn comparison_of_values_of_different_types_is_unknown() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let all = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
        let at = |to| all.map(|comparison| truth(&compares("one", comparison, to)));
        assert_eq!(at(0), [false, true, false, false, true, true].map(Some));
        assert_eq!(at(1), [true, false, false, true, false, true].map(Some));
        assert_eq!(at(2), [false, true, true, true, false, false].map(Some));
        for comparison in all {
            assert_eq!(truth(&compares("none", comparison, 1)), None);
            let to = Operand::Column("nan");
            assert_eq!(truth(&Predicate::Compare { column: "nan", comparison, to }), None);
        }
        let to = Operand::Column("two");
        let less = Predicate::Compare { column: "one", comparison: Less, to };
        assert_eq!(truth(&less), Some(true));
    }

    #[test]
    fn absent_column_makes_a_predicate_unknown() {
        let (yes, no) =
            (compares("one", Comparison::Equal, 1), compares("one", Comparison::Equal, 2));
        let unknown = compares("none", Comparison::Equal, 1);
        for (all, any, expected) in [
            (vec![], vec![], [Some(true), Some(false)]),
            (vec![&yes, &yes], vec![&no, &no], [Some(true), Some(false)]),
            (vec![&unknown, &no], vec![&unknown, &yes], [Some(false), Some(true)]),
            (vec![&unknown, &yes], vec![&unknown, &no], [None, None]),
        ] {
            let cloned = |predicates: Vec<&Predicate<_>>| predicates.into_iter().cloned().collect();
            let found = [Predicate::All(cloned(all)), Predicate::Any(cloned(any))];
            assert_eq!(found.map(|one| truth(&one)), expected);
        }
        assert_eq!(truth(&not(unknown.clone())), None);
        assert_eq!(truth(&not(yes)), Some(false));
        assert_eq!(truth(&Predicate::IsMissing("none")), Some(true));
        assert_eq!(truth(&Predicate::IsMissing("one")), Some(false));
        let one_of = |column, values: &[i64]| {
            let values = values.iter().copied().map(Value::Int64).collect();
            truth(&Predicate::IsOneOf { column, values })
        };
        assert_eq!([one_of("one", &[0, 1]), one_of("one", &[0, 2])], [Some(true), Some(false)]);
        assert_eq!([one_of("none", &[0]), one_of("one", &[])], [None, Some(false)]);
    }

    #[test]
    fn predicate_renames_its_columns_and_its_nesting_has_a_limit() {
        let predicate = Predicate::All(vec![
            compares("one", Comparison::Less, 5),
            Predicate::Any(vec![Predicate::IsMissing("two"), not(Predicate::IsMissing("one"))]),
        ]);
        let mut columns = Vec::new();
        predicate.for_each_column(&mut |column| columns.push(*column));
        assert_eq!(columns, ["one", "two", "one"]);
        let length = |name: &&str| Ok(name.len());
        let same_value = |_: &&str, value: &Value| Ok(value.clone());
        let resolved = predicate.resolved(&length, &same_value).unwrap();
        assert!(resolved.is_true(&|_| Some(&Value::Int64(4))));
        let deep = |depth| (0..depth).fold(Predicate::IsMissing("one"), |inner, _| not(inner));
        assert!(deep(PREDICATE_DEPTH_MAX).resolved(&length, &same_value).is_ok());
        let error = deep(PREDICATE_DEPTH_MAX + 1).resolved(&length, &same_value).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitExceeded);
    }
}
