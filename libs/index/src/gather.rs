//! Gather: many keys x many fields straight into one dense matrix, without an object per value.
//!
//! A plan is created once: it resolves the fields to columns, checks that their types convert, and
//! converts the defaults. A plan contains no offset into a row, so it survives every alteration of
//! the store, as a handle does.

mod runs;

use std::sync::{Arc, OnceLock};

use forebay_core::row::Presence;
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, Value, VectorType};
use forebay_core::{Error, Result};

use self::runs::{PlannedField, Runs};
use crate::batch::check_key_count;
use crate::handle::FieldHandle;
use crate::key::KeyList;
use crate::lookup::Lookup;
use crate::number::{Element, Number, vector_numbers};
use crate::row_ref::{FieldRead, RowRef};
use crate::view::{KeyStatus, View};

/// A field to gather.
#[derive(Clone, Debug, PartialEq)]
pub struct GatherField<'a> {
    /// The field's name or an alias.
    pub name: &'a str,
    /// The value of the field's cells when the field is absent or null: a number, for a vector one
    /// number for all components or a vector. `None` takes the field's default in the schema, or 0
    /// if there is none.
    pub default: Option<Value>,
}

impl<'a> GatherField<'a> {
    /// Gathers a field with the schema's default.
    pub fn new(name: &'a str) -> Self {
        Self { name, default: None }
    }

    /// Returns the same field with this default.
    #[must_use]
    pub fn or(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }
}

/// Whether a gather may change values to make them fit the matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conversion {
    /// Every value stays exact; pairs of types that cannot guarantee this are refused.
    #[default]
    Exact,
    /// Values are rounded to the nearest float, cut to an integer (NaN becomes 0), and limited to
    /// the range of the matrix's type.
    Lossy,
}

/// The columns of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherColumns {
    /// The field's name as the plan was created with.
    pub field: String,
    /// The field's first column.
    pub first: usize,
    /// The field's number of columns: 1, or the components of a vector.
    pub count: usize,
}

/// Fields resolved to the columns of a matrix of `E`; any thread may use it, any number of times.
#[derive(Clone, Debug)]
pub struct GatherPlan<E> {
    fields: Box<[PlannedField<E>]>,
    width: usize,
    conversion: Conversion,
    /// The copy instructions for the row versions that were met first.
    runs_by_version: [OnceLock<Arc<Runs>>; VERSIONS_KNOWN],
}

/// Number of version pairs whose row offsets a plan caches; for other pairs each call computes
/// them.
const VERSIONS_KNOWN: usize = 4;

/// The output buffers of a gather. Rows are in the order of the keys; cells are row-major.
#[derive(Debug)]
pub struct GatherOut<'o, E> {
    /// The matrix: keys x [`width`](GatherPlan::width).
    pub values: &'o mut [E],
    /// The status of each key.
    pub statuses: Option<&'o mut [KeyStatus]>,
    /// Whether each cell is a value, or the default instead of null or absent; same shape as the
    /// matrix.
    pub cells: Option<&'o mut [Presence]>,
}

impl<'o, E> GatherOut<'o, E> {
    /// Writes values only.
    pub fn values(values: &'o mut [E]) -> Self {
        Self { values, statuses: None, cells: None }
    }
}

impl<E: Element> GatherPlan<E> {
    pub(crate) fn new(
        definition: &Definition,
        fields: &[GatherField<'_>],
        conversion: Conversion,
    ) -> Result<Self> {
        if fields.is_empty() {
            let message = "name at least one field to gather";
            return Err(Error::invalid_argument(message).with_store(&definition.name));
        }
        let mut width = 0;
        let mut planned = Vec::with_capacity(fields.len());
        for field in fields {
            let planned_field = Self::plan_field(definition, field, width, conversion)
                .map_err(|error| error.with_store(&definition.name).with_field(field.name))?;
            width += planned_field.defaults.len();
            planned.push(planned_field);
        }
        Ok(Self { fields: planned.into(), width, conversion, runs_by_version: Default::default() })
    }

    fn plan_field(
        definition: &Definition,
        field: &GatherField<'_>,
        first: usize,
        conversion: Conversion,
    ) -> Result<PlannedField<E>> {
        let handle = FieldHandle::resolve(definition, field.name, None)?;
        let field_type = handle.asked();
        let count = match field_type {
            FieldType::Vector(_, count) => usize::from(count),
            FieldType::Scalar(scalar) if scalar.width().is_some() => 1,
            _ => {
                let message = format!(
                    "a field of type {field_type} does not fit a matrix; read the field alone"
                );
                return Err(Error::invalid_argument(message));
            }
        };
        if conversion == Conversion::Exact && !E::holds(field_type) {
            let name = E::NAME;
            let message = format!(
                "a {name} matrix cannot hold every {field_type}; ask for a lossy conversion, \
                 or for a wider matrix"
            );
            return Err(Error::invalid_argument(message));
        }
        let of_schema = || definition.field_by_id(handle.field())?.default.as_ref();
        let defaults = match field.default.as_ref().or_else(of_schema) {
            None => vec![E::default(); count],
            Some(value) => default_cells(value, count, conversion).ok_or_else(|| {
                let message = format!(
                    "the default must be a number that fits {}, or for a vector {count} of them",
                    E::NAME
                );
                Error::invalid_argument(message)
            })?,
        };
        Ok(PlannedField { handle, first, defaults: defaults.into() })
    }

    /// Number of columns in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Names and positions of the columns, in the order of the fields.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = GatherColumns> + '_ {
        self.fields.iter().map(|field| GatherColumns {
            field: field.handle.name().to_owned(),
            first: field.first,
            count: field.defaults.len(),
        })
    }

    fn check(&self, keys: usize, out: &GatherOut<'_, E>) -> Result<()> {
        let cells = keys * self.width;
        let short = [
            ("the matrix", cells, Some(out.values.len())),
            ("the statuses", keys, out.statuses.as_ref().map(|statuses| statuses.len())),
            ("the mask of cells", cells, out.cells.as_ref().map(|mask| mask.len())),
        ];
        for (buffer, needed, length) in short {
            if let Some(length) = length.filter(|length| *length < needed) {
                let message = format!(
                    "{buffer} needs room for {needed} elements, and has room for {length}; pass a \
                     larger one"
                );
                return Err(Error::invalid_argument(message));
            }
        }
        Ok(())
    }

    /// Returns the copy instructions for rows of this row's versions.
    fn runs(&self, row: &RowRef<'_>) -> Arc<Runs> {
        let make = || Arc::new(Runs::of(&self.fields, row));
        let mut known_runs = self.runs_by_version.iter().map(|runs| runs.get_or_init(make));
        let applicable = known_runs.find(|runs| runs.apply_to(row)).cloned();
        applicable.unwrap_or_else(make)
    }

    fn fill_row(
        &self,
        runs: &Runs,
        row: &RowRef<'_>,
        values: &mut [E],
        mask: Option<&mut [Presence]>,
    ) -> Result<()> {
        let mut mask = mask;
        for run in &runs.runs {
            let copied_fields = run.copied_fields.as_ref();
            let bytes = copied_fields
                .and_then(|fixed| row.values(fixed.slots.clone(), fixed.bytes.clone()));
            if let Some(bytes) = bytes {
                E::copy_from_row(bytes, &mut values[run.columns.clone()]);
                if let Some(mask) = &mut mask {
                    mask[run.columns.clone()].fill(Presence::Value);
                }
                continue;
            }
            for field in &self.fields[run.fields.clone()] {
                self.fill_field(field, row, values, mask.as_deref_mut())?;
            }
        }
        Ok(())
    }

    fn fill_field(
        &self,
        field: &PlannedField<E>,
        row: &RowRef<'_>,
        values: &mut [E],
        mask: Option<&mut [Presence]>,
    ) -> Result<()> {
        let cells = field.first..field.first + field.defaults.len();
        let read = row.field_bytes(field.handle.field())?;
        if let Some(mask) = mask {
            mask[cells.clone()].fill(read.presence());
        }
        match read {
            FieldRead::Value((bytes, stored_type)) => {
                self.fill_cells(field, bytes, stored_type, &mut values[cells])?;
            }
            FieldRead::Null | FieldRead::Absent => {
                values[cells].copy_from_slice(&field.defaults);
            }
        }
        Ok(())
    }

    fn fill_cells(
        &self,
        field: &PlannedField<E>,
        bytes: &[u8],
        stored_type: FieldType,
        cells: &mut [E],
    ) -> Result<()> {
        let misfit = || {
            let (name, advice) =
                (E::NAME, "plan the gather again, as lossy or with a wider matrix");
            let message = format!("a {stored_type} value does not fit {name}; {advice}");
            Error::invalid_argument(message).with_field(field.handle.name())
        };
        match stored_type {
            FieldType::Scalar(scalar) => {
                let number = Number::decode(bytes, scalar)?.ok_or_else(misfit)?;
                cells[0] = convert(number, self.conversion).ok_or_else(misfit)?;
            }
            FieldType::Vector(component, _) => {
                for (cell, number) in cells.iter_mut().zip(vector_numbers(bytes, component)) {
                    *cell = convert(number, self.conversion).ok_or_else(misfit)?;
                }
            }
            FieldType::List(_) => return Err(misfit()),
        }
        Ok(())
    }

    fn fill_defaults(&self, values: &mut [E], mask: Option<&mut [Presence]>) {
        for field in &self.fields {
            let cells = field.first..field.first + field.defaults.len();
            values[cells].copy_from_slice(&field.defaults);
        }
        if let Some(mask) = mask {
            mask.fill(Presence::Absent);
        }
    }
}

fn convert<E: Element>(number: Number, conversion: Conversion) -> Option<E> {
    match conversion {
        Conversion::Exact => E::exactly(number),
        Conversion::Lossy => Some(E::nearest(number)),
    }
}

/// Converts a default to cells; returns `None` if it is of another shape or does not fit.
fn default_cells<E: Element>(
    value: &Value,
    count: usize,
    conversion: Conversion,
) -> Option<Vec<E>> {
    if let Some(number) = Number::of(value) {
        return convert(number, conversion).map(|cell| vec![cell; count]);
    }
    let component = match value.field_type()? {
        FieldType::Vector(component, length) if usize::from(length) == count => component,
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(count * VectorType::F32.width());
    forebay_core::row::encode_value(value, &mut bytes);
    vector_numbers(&bytes, component).map(|number| convert(number, conversion)).collect()
}

impl View<'_> {
    /// Fills a matrix with the plan's columns: one row per key in the caller's order. A key that
    /// occurs twice gets two rows. Each row is of one version of its document. Null and absent
    /// fields take the default.
    ///
    /// # Errors
    /// - `InvalidArgument` for an `out` that is too small, with nothing written; for a plan of
    ///   another store; for a key of another type; for a value that no longer fits since its field
    ///   was widened.
    /// - If `statuses` is `None`, also the error of a key whose partition is not followed or does
    ///   not answer, because a default would pass for its value.
    /// - `LimitExceeded` over [`BATCH_KEYS_MAX`](forebay_core::limits::BATCH_KEYS_MAX) keys.
    ///
    /// After any other error than the first the content of `out` is unspecified.
    pub fn gather<E: Element, K: KeyList + ?Sized>(
        &self,
        plan: &GatherPlan<E>,
        keys: &K,
        out: &mut GatherOut<'_, E>,
    ) -> Result<()> {
        check_key_count(keys)?;
        for field in &plan.fields {
            field.handle.check_store(self.inner.store)?;
        }
        plan.check(keys.count(), out)?;
        let mut runs: Option<Arc<Runs>> = None;
        self.look_up_all(keys, |place, found| {
            let cells = place * plan.width..(place + 1) * plan.width;
            let values = &mut out.values[cells.clone()];
            let mask = out.cells.as_deref_mut().map(|mask| &mut mask[cells]);
            match (found, &mut out.statuses) {
                (_, Some(statuses)) => statuses[place] = found.status(),
                (Lookup::Refused(id, status), None) => return Err(self.refusal_error(*id, *status)),
                _ => {}
            }
            match found {
                Lookup::Found(row) => {
                    let previous = runs.take().filter(|runs| runs.apply_to(row));
                    let runs = runs.insert(previous.unwrap_or_else(|| plan.runs(row)));
                    plan.fill_row(runs, row, values, mask)
                }
                _ => {
                    plan.fill_defaults(values, mask);
                    Ok(())
                }
            }
        })
    }
}
