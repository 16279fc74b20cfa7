//! The functions of statements. The memory budget counts the data that operators retain, but not
//! the result of a function for a batch. Therefore functions whose results may be many times as
//! large as their arguments are omitted, and string concatenation checks the length of its result
//! first.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, exec_err, resources_err};
use datafusion::error::Result;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use forebay_core::limits::SQL_JOINED_BYTES_MAX;

/// Omitted functions, which make long strings of short ones.
const LEFT_OUT: [&str; 8] =
    ["concat", "concat_ws", "lpad", "overlay", "regexp_replace", "repeat", "replace", "rpad"];

/// Returns all scalar functions.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = SessionStateDefaults::default_scalar_functions();
    functions.retain(|function| !LEFT_OUT.contains(&function.name()));
    functions.push(Arc::new(ScalarUDF::from(Joined::new(true))));
    functions
}

/// Planner of `||`.
#[derive(Debug)]
pub(crate) struct JoinedPlanner;

impl ExprPlanner for JoinedPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        Ok(match expr.op {
            BinaryOperator::StringConcat => {
                let joined = ScalarUDF::from(Joined::new(false));
                PlannerResult::Planned(joined.call(vec![expr.left, expr.right]))
            }
            _ => PlannerResult::Original(expr),
        })
    }
}

/// String concatenation: `concat`, which treats null as an empty string, and `||`, which returns
/// null for null.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined {
    takes_null_as_empty: bool,
    signature: Signature,
}

impl Joined {
    fn new(takes_null_as_empty: bool) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { takes_null_as_empty, signature }
    }

    fn join(&self, columns: &[StringArray], rows: usize) -> Result<ArrayRef> {
        let bytes: usize = columns.iter().map(|column| column.value_data().len()).sum();
        if bytes > SQL_JOINED_BYTES_MAX {
            return resources_err!(
                "the joined strings have {bytes} bytes in {rows} rows; at most \
                 {SQL_JOINED_BYTES_MAX} bytes are joined at once"
            );
        }
        let mut joined = StringBuilder::with_capacity(rows, bytes);
        let mut text = String::new();
        for row in 0..rows {
            let is_null = |column: &StringArray| column.is_null(row);
            if !self.takes_null_as_empty && columns.iter().any(is_null) {
                joined.append_null();
                continue;
            }
            text.clear();
            for column in columns.iter().filter(|column| !is_null(column)) {
                text.push_str(column.value(row));
            }
            joined.append_value(&text);
        }
        Ok(Arc::new(joined.finish()))
    }
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &str {
        if self.takes_null_as_empty { "concat" } else { "joined" }
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
        let mut columns = Vec::with_capacity(arguments.args.len());
        let mut bytes = 0;
        for argument in arguments.args {
            // A literal is repeated for each row.
            if let ColumnarValue::Scalar(value) = &argument {
                bytes += value.size().saturating_mul(rows);
                if bytes > SQL_JOINED_BYTES_MAX {
                    return resources_err!("the joined strings have {bytes} bytes in {rows} rows");
                }
            }
            let column = cast(&argument.into_array(rows)?, &DataType::Utf8)?;
            columns.push(column.as_string::<i32>().clone());
        }
        let joined = self.join(&columns, rows)?;
        Ok(match are_scalars {
            true => {
                ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&joined, 0)?)
            }
            false => ColumnarValue::Array(joined),
        })
    }
}
