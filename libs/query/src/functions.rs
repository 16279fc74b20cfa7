//! The functions of statements. The memory limit counts the data that operators retain, but not
//! the result of a function for a batch. Therefore functions whose results may be many times as
//! large as their arguments are omitted, and string concatenation checks the length of its result
//! first.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err, resources_err};
use datafusion::error::Result;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use forebay_core::limits::SQL_JOINED_BYTES_MAX;

/// Omitted functions, which make long strings of short ones.
const OMITTED: [&str; 8] =
    ["concat", "concat_ws", "lpad", "overlay", "regexp_replace", "repeat", "replace", "rpad"];

/// Name of `||` in plans; no statement can call a function of this name.
pub(crate) const JOINED: &str = "joined";

/// Returns all scalar functions.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = SessionStateDefaults::default_scalar_functions();
    functions.retain(|function| !OMITTED.contains(&function.name()));
    functions.push(Arc::new(ScalarUDF::from(Concat::new(true))));
    functions
}

/// String concatenation: `concat`, which treats null as an empty string, and `||`, which returns
/// null for null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Concat {
    takes_null_as_empty: bool,
    signature: Signature,
}

impl Concat {
    pub(crate) fn new(takes_null_as_empty: bool) -> Self {
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
        let mut builder = StringBuilder::with_capacity(rows, bytes);
        let mut text = String::new();
        for row in 0..rows {
            if !self.takes_null_as_empty && parts.iter().any(|part| part.at(row).is_none()) {
                builder.append_null();
                continue;
            }
            text.clear();
            text.extend(parts.iter().filter_map(|part| part.at(row)));
            builder.append_value(&text);
        }
        Ok(Arc::new(builder.finish()))
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
        let array = self.join(&parts, rows)?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}
