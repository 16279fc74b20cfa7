//! The functions of statements. The memory budget counts the data that operators retain, but not
//! the result of a function for a batch. Therefore functions whose results may be many times as
//! large as their arguments are omitted, and string concatenation checks the length of its result
//! first.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue, exec_err, resources_err};
use datafusion::error::Result;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use forebay_core::limits::SQL_JOINED_BYTES_MAX;

/// Omitted functions, which make long strings of short ones.
const LEFT_OUT: [&str; 8] =
    ["concat", "concat_ws", "lpad", "overlay", "regexp_replace", "repeat", "replace", "rpad"];

/// Name of `||` in plans; no statement can call a function of this name.
const JOINED: &str = "joined";

/// Returns all scalar functions.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = SessionStateDefaults::default_scalar_functions();
    functions.retain(|function| !LEFT_OUT.contains(&function.name()));
    functions.push(Arc::new(ScalarUDF::from(Concat::new(true))));
    functions
}

/// Planner of chains of `||`, AND and OR.
#[derive(Debug)]
pub(crate) struct ChainPlanner;

impl ExprPlanner for ChainPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        Ok(match expr.op {
            BinaryOperator::StringConcat => {
                // The planner formats the whole expression below each call, and does so for each
                // call: the calls of a chain become one.
                let mut parts = parts_of(expr.left);
                parts.extend(parts_of(expr.right));
                PlannerResult::Planned(ScalarUDF::from(Concat::new(false)).call(parts))
            }
            BinaryOperator::And => {
                PlannerResult::Planned(level(expr.left, Operator::And, expr.right))
            }
            BinaryOperator::Or => {
                PlannerResult::Planned(level(expr.left, Operator::Or, expr.right))
            }
            _ => PlannerResult::Original(expr),
        })
    }
}

/// Adds a condition to a chain of AND or OR. The planner repeats its work on all that is below a
/// condition for each condition, so the chain becomes a tree of few levels, of the same order.
fn level(chain: Expr, op: Operator, mut last: Expr) -> Expr {
    let mut rest = chain;
    loop {
        match rest {
            Expr::BinaryExpr(BinaryExpr { left, op: above, right })
                if above == op && levels(&right, op) <= levels(&last, op) =>
            {
                last = Expr::BinaryExpr(BinaryExpr::new(right, op, Box::new(last)));
                rest = *left;
            }
            rest => return Expr::BinaryExpr(BinaryExpr::new(Box::new(rest), op, Box::new(last))),
        }
    }
}

/// Returns the number of levels of an operator below an expression.
fn levels(mut expression: &Expr, op: Operator) -> usize {
    let mut levels = 0;
    while let Expr::BinaryExpr(BinaryExpr { left, op: below, .. }) = expression
        && *below == op
    {
        (expression, levels) = (left, levels + 1);
    }
    levels
}

/// Returns the strings that an expression joins by `||`, or the expression itself.
fn parts_of(expression: Expr) -> Vec<Expr> {
    match expression {
        Expr::ScalarFunction(call) if call.func.name() == JOINED => call.args,
        other => vec![other],
    }
}

/// String concatenation: `concat`, which treats null as an empty string, and `||`, which returns
/// null for null.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concat {
    takes_null_as_empty: bool,
    signature: Signature,
}

impl Concat {
    fn new(takes_null_as_empty: bool) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { takes_null_as_empty, signature }
    }

    fn join(&self, parts: &[Strings], rows: usize) -> Result<ArrayRef> {
        let bytes = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.bytes(rows)));
        if bytes > SQL_JOINED_BYTES_MAX {
            return resources_err!(
                "the joined strings have {bytes} bytes in {rows} rows; at most \
                 {SQL_JOINED_BYTES_MAX} bytes are joined at once"
            );
        }
        let mut joined = StringBuilder::with_capacity(rows, bytes);
        let mut text = String::new();
        for row in 0..rows {
            if !self.takes_null_as_empty && parts.iter().any(|part| part.at(row).is_none()) {
                joined.append_null();
                continue;
            }
            text.clear();
            text.extend(parts.iter().filter_map(|part| part.at(row)));
            joined.append_value(&text);
        }
        Ok(Arc::new(joined.finish()))
    }
}

/// The strings of an argument.
enum Strings {
    /// A single string for all rows.
    Same(Option<String>),
    /// A string for each row.
    Each(StringArray),
}

impl Strings {
    fn of(argument: ColumnarValue) -> Result<Self> {
        match argument {
            ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Utf8)? {
                ScalarValue::Utf8(text) => Ok(Self::Same(text)),
                other => exec_err!("{other} is no string"),
            },
            ColumnarValue::Array(array) => {
                Ok(Self::Each(cast(&array, &DataType::Utf8)?.as_string::<i32>().clone()))
            }
        }
    }

    fn bytes(&self, rows: usize) -> usize {
        match self {
            Self::Same(text) => text.as_ref().map_or(0, String::len).saturating_mul(rows),
            Self::Each(column) => column.value_data().len(),
        }
    }

    fn at(&self, row: usize) -> Option<&str> {
        match self {
            Self::Same(text) => text.as_deref(),
            Self::Each(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

impl ScalarUDFImpl for Concat {
    fn name(&self) -> &str {
        if self.takes_null_as_empty { "concat" } else { JOINED }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if arguments.is_empty() {
            return exec_err!("concat needs at least one string");
        }
        Ok(vec![DataType::Utf8; arguments.len()])
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let is_scalar = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_scalar);
        let rows = if are_scalars { 1 } else { rows };
        let parts = arguments.args.into_iter().map(Strings::of).collect::<Result<Vec<_>>>()?;
        let joined = self.join(&parts, rows)?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(joined),
        })
    }
}
