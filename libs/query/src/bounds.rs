//! Bounds of single columns in a statement's filters, for tables that find rows by them.

use std::ops::Bound;

use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use forebay_core::value::Value;

/// Bounds of a column's values. A row without a value is outside all bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Index of the column in the table.
    pub column: usize,
    /// Lower bound.
    pub from: Bound<Value>,
    /// Upper bound.
    pub to: Bound<Value>,
}

impl Bounds {
    /// Returns the value if the bounds permit exactly one.
    pub fn equal(&self) -> Option<&Value> {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) if from == to => Some(from),
            _ => None,
        }
    }

    /// Returns the bounds that a filter sets on a column; `None` for any other filter.
    pub(crate) fn of(filter: &Expr, schema: &SchemaRef) -> Option<Self> {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(value, _)) => {
                    Self::compared(&column.name, *op, value, schema)
                }
                (Expr::Literal(value, _), Expr::Column(column)) => {
                    Self::compared(&column.name, op.swap()?, value, schema)
                }
                _ => None,
            },
            Expr::Between(between) if !between.negated => {
                let (Expr::Column(column), Expr::Literal(low, _), Expr::Literal(high, _)) =
                    (&*between.expr, &*between.low, &*between.high)
                else {
                    return None;
                };
                let from = Bound::Included(value_of(low)?);
                let to = Bound::Included(value_of(high)?);
                Some(Self { column: schema.index_of(&column.name).ok()?, from, to })
            }
            _ => None,
        }
    }

    fn compared(name: &str, op: Operator, to: &ScalarValue, schema: &SchemaRef) -> Option<Self> {
        let column = schema.index_of(name).ok()?;
        let value = value_of(to)?;
        let (from, to) = match op {
            Operator::Eq => (Bound::Included(value.clone()), Bound::Included(value)),
            Operator::Gt => (Bound::Excluded(value), Bound::Unbounded),
            Operator::GtEq => (Bound::Included(value), Bound::Unbounded),
            Operator::Lt => (Bound::Unbounded, Bound::Excluded(value)),
            Operator::LtEq => (Bound::Unbounded, Bound::Included(value)),
            _ => return None,
        };
        Some(Self { column, from, to })
    }
}

fn value_of(scalar: &ScalarValue) -> Option<Value> {
    Some(match scalar {
        ScalarValue::Boolean(Some(value)) => Value::Bool(*value),
        ScalarValue::Int32(Some(value)) => Value::Int32(*value),
        ScalarValue::Int64(Some(value)) => Value::Int64(*value),
        ScalarValue::Float32(Some(value)) => Value::Float32(*value),
        ScalarValue::Float64(Some(value)) => Value::Float64(*value),
        ScalarValue::Utf8(Some(value))
        | ScalarValue::Utf8View(Some(value))
        | ScalarValue::LargeUtf8(Some(value)) => Value::String(value.clone()),
        ScalarValue::Binary(Some(value))
        | ScalarValue::BinaryView(Some(value))
        | ScalarValue::LargeBinary(Some(value)) => Value::Bytes(value.clone()),
        ScalarValue::TimestampMicrosecond(Some(value), _) => Value::Timestamp(*value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn comparison_with_a_literal_bounds_its_column() {
        let column = |name| Field::new(name, DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![column("a"), column("b")]));
        let bounds_of = |filter: Expr| Bounds::of(&filter, &schema);
        let int = Value::Int64;
        let bounds = bounds_of(col("b").gt(lit(3_i64))).unwrap();
        assert_eq!((bounds.column, bounds.from), (1, Bound::Excluded(int(3))));
        let bounds = bounds_of(lit(3_i64).gt_eq(col("a"))).unwrap();
        assert_eq!((bounds.from, bounds.to), (Bound::Unbounded, Bound::Included(int(3))));
        assert_eq!(bounds_of(col("a").eq(lit(7_i64))).unwrap().equal(), Some(&int(7)));
        let bounds = bounds_of(col("a").between(lit(1_i64), lit(2_i64))).unwrap();
        assert_eq!((bounds.from, bounds.to), (Bound::Included(int(1)), Bound::Included(int(2))));
        for other in [
            col("a").not_eq(lit(1_i64)),
            col("a").not_between(lit(1_i64), lit(2_i64)),
            col("a").eq(col("b")),
            col("a").eq(lit(ScalarValue::Int64(None))),
            col("c").eq(lit(1_i64)),
            (col("a") + lit(1_i64)).eq(lit(1_i64)),
        ] {
            assert_eq!(bounds_of(other.clone()), None, "{other}");
        }
    }
}
