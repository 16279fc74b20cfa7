//! A plan's fields at one version of a row. Fields that are adjacent in the row and in the matrix,
//! and are stored in the matrix's own type, are copied together.

use std::ops::Range;

use forebay_core::id::SchemaVersion;
use forebay_core::layout::{Place, Slot};

use crate::handle::FieldHandle;
use crate::number::Element;
use crate::row_ref::RowRef;

/// A field of a plan, and its columns.
#[derive(Clone, Debug)]
pub(super) struct PlannedField<E> {
    pub(super) handle: FieldHandle,
    pub(super) first: usize,
    /// The default of each column.
    pub(super) defaults: Box<[E]>,
}

/// The copy instructions of a plan for rows that were written at one version and are seen at one
/// version.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    versions: [SchemaVersion; 2],
    pub(super) runs: Box<[Run]>,
}

/// Consecutive fields of a plan.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The fields' indexes in the plan.
    pub(super) fields: Range<usize>,
    /// The fields' columns.
    pub(super) columns: Range<usize>,
    /// The bytes that are copied into the matrix; `None` for a single field that is read by itself.
    pub(super) copied_fields: Option<CopiedFields>,
}

/// Fields whose bytes are the bytes of their cells.
#[derive(Clone, Debug)]
pub(super) struct CopiedFields {
    /// The fields' numbers among the row's fields.
    pub(super) slots: Range<usize>,
    /// The fields' bytes in the row.
    pub(super) bytes: Range<usize>,
}

impl Runs {
    pub(super) fn of<E: Element>(fields: &[PlannedField<E>], row: &RowRef<'_>) -> Self {
        let mut runs: Vec<Run> = Vec::with_capacity(fields.len());
        for (place, field) in fields.iter().enumerate() {
            let columns = field.first..field.first + field.defaults.len();
            let slot = row.slot(field.handle.field());
            let copied_fields = slot.and_then(|slot| copied_fields::<E>(slot, columns.len()));
            let last_run =
                runs.last_mut().filter(|run| run.can_extend(&columns, copied_fields.as_ref()));
            match (last_run, &copied_fields) {
                (Some(run), Some(next)) => run.extend(&columns, next),
                _ => runs.push(Run { fields: place..place + 1, columns, copied_fields }),
            }
        }
        Self { versions: row.versions(), runs: runs.into() }
    }

    /// Whether these instructions apply to a row.
    #[inline]
    pub(super) fn apply_to(&self, row: &RowRef<'_>) -> bool {
        self.versions == row.versions()
    }
}

impl Run {
    /// Whether a field follows this run directly, in the row and in the matrix.
    fn can_extend(&self, columns: &Range<usize>, next: Option<&CopiedFields>) -> bool {
        let (Some(copied_fields), Some(next)) = (&self.copied_fields, next) else { return false };
        self.columns.end == columns.start
            && copied_fields.slots.end == next.slots.start
            && copied_fields.bytes.end == next.bytes.start
    }

    fn extend(&mut self, columns: &Range<usize>, next: &CopiedFields) {
        self.fields.end += 1;
        self.columns.end = columns.end;
        if let Some(copied_fields) = &mut self.copied_fields {
            (copied_fields.slots.end, copied_fields.bytes.end) = (next.slots.end, next.bytes.end);
        }
    }
}

fn copied_fields<E: Element>(slot: &Slot, cells: usize) -> Option<CopiedFields> {
    let Place::Fixed { at: fixed_at, width } = slot.place else { return None };
    let is_same = E::is_stored_as(slot.field_type) && width == cells * size_of::<E>();
    is_same.then_some(CopiedFields {
        slots: slot.number..slot.number + 1,
        bytes: fixed_at..fixed_at + width,
    })
}
