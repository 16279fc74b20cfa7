//! Gather: many keys by many fields, directly into the caller's matrix.

use std::time::Duration;

use forebay::reads::{
    Conversion, Element, GatherColumns, GatherField, GatherOut, GatherPlan, KeyStatus, Presence,
};
use forebay::schema::StoreId;
use forebay::{Error, Reader};
use pyo3::prelude::*;

use crate::buffer::OutArray;
use crate::error::{CallError, native_call};
use crate::key::GivenKeys;
use crate::value::value_of;

/// Returns the code of a key's status, as `forebay.KeyStatus` has it.
pub(crate) fn status_code(status: KeyStatus) -> u8 {
    status as u8
}

/// Returns the code of a field or cell, as `forebay.Presence` has it.
pub(crate) fn presence_code(presence: Presence) -> u8 {
    match presence {
        Presence::Absent => 0,
        Presence::Null => 1,
        Presence::Value => 2,
    }
}

enum TypedPlan {
    F32(GatherPlan<f32>),
    F64(GatherPlan<f64>),
    I32(GatherPlan<i32>),
    I64(GatherPlan<i64>),
}

/// Fields resolved to the columns of a matrix; any thread may use a plan, repeatedly.
#[pyclass(frozen, name = "GatherPlan", module = "forebay")]
pub(crate) struct Plan {
    typed: TypedPlan,
    store: StoreId,
}

/// Evaluates an expression for the plan of any type.
macro_rules! each {
    ($typed:expr, $plan:ident => $do:expr) => {
        match $typed {
            TypedPlan::F32($plan) => $do,
            TypedPlan::F64($plan) => $do,
            TypedPlan::I32($plan) => $do,
            TypedPlan::I64($plan) => $do,
        }
    };
}

#[pymethods]
impl Plan {
    /// Number of columns of a row.
    #[getter]
    fn width(&self) -> usize {
        each!(&self.typed, plan => plan.width())
    }

    /// Name of the matrix's NumPy type.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.typed {
            TypedPlan::F32(_) => "float32",
            TypedPlan::F64(_) => "float64",
            TypedPlan::I32(_) => "int32",
            TypedPlan::I64(_) => "int64",
        }
    }

    /// Field, first column and number of columns, in the order of the fields.
    #[getter]
    fn columns(&self) -> Vec<(String, usize, usize)> {
        let parts = |columns: GatherColumns| (columns.field, columns.first, columns.count);
        each!(&self.typed, plan => plan.columns().map(parts).collect())
    }
}

/// Plans a gather on a reader. Each field is a name, or a name with a default.
pub(crate) fn make_plan(
    reader: &Reader,
    store: StoreId,
    fields: &Bound<'_, PyAny>,
    dtype: &str,
    lossy: bool,
) -> Result<Plan, CallError> {
    let mut named_defaults = Vec::new();
    for field in fields.try_iter()? {
        let field = field?;
        named_defaults.push(match field.extract::<(String, Bound<'_, PyAny>)>() {
            Ok((name, default)) => (name, Some(value_of(&default)?)),
            Err(_) => (field.extract::<String>()?, None),
        });
    }
    let fields: Vec<_> = named_defaults
        .iter()
        .map(|(name, default)| GatherField { name, default: default.clone() })
        .collect();
    let conversion = if lossy { Conversion::Lossy } else { Conversion::Exact };
    let typed = match dtype {
        "float32" => TypedPlan::F32(reader.plan_gather(&fields, conversion)?),
        "float64" => TypedPlan::F64(reader.plan_gather(&fields, conversion)?),
        "int32" => TypedPlan::I32(reader.plan_gather(&fields, conversion)?),
        "int64" => TypedPlan::I64(reader.plan_gather(&fields, conversion)?),
        other => {
            let message = format!("no matrix holds {other}; plan float32, float64, int32 or int64");
            return Err(Error::invalid_argument(message).into());
        }
    };
    Ok(Plan { typed, store })
}

/// The arrays of one gather.
pub(crate) struct Arrays<'a, 'py> {
    pub(crate) out: &'a Bound<'py, PyAny>,
    pub(crate) mask: Option<&'a Bound<'py, PyAny>>,
    pub(crate) statuses: Option<&'a Bound<'py, PyAny>>,
}

/// Checks the arrays, then fills them.
///
/// # Errors
/// `InvalidArgument` for an array that does not fit, before anything is written; the errors of a
/// gather.
pub(crate) fn gather(
    py: Python<'_>,
    reader: &Reader,
    plan: &Plan,
    keys: &GivenKeys<'_>,
    arrays: &Arrays<'_, '_>,
    max_staleness: Option<Duration>,
) -> Result<(), CallError> {
    let dtype = plan.dtype();
    each!(&plan.typed, typed => fill(py, reader, (typed, dtype), keys, arrays, max_staleness))
}

fn fill<E: Element + pyo3::buffer::Element>(
    py: Python<'_>,
    reader: &Reader,
    (plan, dtype): (&GatherPlan<E>, &str),
    keys: &GivenKeys<'_>,
    arrays: &Arrays<'_, '_>,
    max_staleness: Option<Duration>,
) -> Result<(), CallError> {
    use forebay::reads::KeyList as _;
    let (rows, width) = (keys.count(), plan.width());
    let mut out = OutArray::<E>::check(arrays.out, "out", dtype, rows, Some(width))?;
    let mask = arrays.mask.map(|mask| OutArray::check(mask, "mask", "uint8", rows, Some(width)));
    let mut mask = mask.transpose()?;
    let statuses = arrays.statuses.map(|all| OutArray::check(all, "statuses", "uint8", rows, None));
    let mut statuses = statuses.transpose()?;
    let mut cells = mask.as_ref().map(|_| vec![Presence::Absent; rows * width]);
    let mut found = statuses.as_ref().map(|_| vec![KeyStatus::Absent; rows]);
    {
        // SAFETY: this is the only slice of `out` in this call; mask and statuses, which a caller
        // may have cut out of the same array, are written after the slice has ended.
        #[allow(unsafe_code)]
        let values = unsafe { out.as_mut_slice() };
        let (cells, found) = (cells.as_deref_mut(), found.as_deref_mut());
        py.detach(|| {
            let mut gather_out = GatherOut { values, statuses: found, cells };
            reader.read_local(max_staleness, |view| view.gather(plan, keys, &mut gather_out))
        })?;
    }
    if let (Some(mask), Some(cells)) = (&mut mask, cells) {
        mask.fill(cells.into_iter().map(presence_code));
    }
    if let (Some(statuses), Some(found)) = (&mut statuses, found) {
        statuses.fill(found.into_iter().map(status_code));
    }
    Ok(())
}

impl Plan {
    /// Refuses a plan of another store before any other check.
    pub(crate) fn check_store(&self, store: StoreId) -> Result<(), CallError> {
        native_call(|| {
            if self.store == store {
                return Ok(());
            }
            let message = "the plan is of another store; plan the gather on this reader";
            Err(Error::invalid_argument(message).into())
        })
    }
}
