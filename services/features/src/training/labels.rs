//! Labels: rows that name groups and times, read from Parquet files into memory, and sorted in the
//! order of the join.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options, interleave};
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_arrow::{arrow_type, cell};
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::limits::TRAINING_BYTES_MAX;
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, Result};
use forebay_query::StoredFile;
use futures::TryStreamExt;

use crate::feature_store::named_group;
use crate::plan::Plan;

/// The rows of all files.
pub(super) struct Labels {
    pub(super) schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// Numbers of the groups, by name.
    groups: BTreeMap<Vec<u8>, u32>,
    /// Partition and time of every row.
    rows: Vec<Label>,
}

/// A row of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label {
    pub(super) partition: PartitionId,
    pub(super) moment: Timestamp,
    /// Number of the row's group; `None` if a column of the group has no value.
    pub(super) group: Option<u32>,
    batch: u32,
    row: u32,
}

/// The columns that name a row's group and time.
struct Naming<'p> {
    definition: &'p Definition,
    plan: &'p Plan,
    columns: Vec<(usize, FieldType)>,
    moment: usize,
}

impl Labels {
    /// Reads all rows of these files, whose group columns have the names of the columns of
    /// `entity`.
    ///
    /// # Errors
    /// - `NotFound` for a column that a file does not have.
    /// - `InvalidArgument` for values that do not fit the view, rows without a time, and files
    ///   whose columns differ from the first file's.
    /// - `LimitExceeded` for too many bytes.
    /// - As the files.
    pub(super) async fn read(
        files: Vec<StoredFile>,
        (definition, plan): (&Definition, &Plan),
        moment: &str,
    ) -> Result<Self> {
        let mut labels: Option<Self> = None;
        for file in files {
            let name = file.name.clone();
            let (schema, mut rows) = file.all().await?;
            let labels = match &mut labels {
                None => labels.insert(Self::of(Arc::clone(&schema))),
                Some(labels) => labels,
            };
            if labels.schema.fields() != schema.fields() {
                let message = format!(
                    "the columns of `{name}` differ from the columns of the previous files"
                );
                return Err(Error::invalid_argument(message));
            }
            let naming = Naming::of(&schema, (definition, plan), moment)?;
            while let Some(batch) = rows.try_next().await? {
                labels.add(batch, &naming)?;
            }
        }
        let mut labels = labels.ok_or_else(|| Error::not_found("there are no label files"))?;
        labels.rows.sort_unstable();
        Ok(labels)
    }

    fn of(schema: SchemaRef) -> Self {
        let (batches, groups, rows) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { schema, batches, bytes: 0, groups, rows }
    }

    fn add(&mut self, batch: RecordBatch, naming: &Naming<'_>) -> Result<()> {
        self.bytes += batch.get_array_memory_size() + batch.num_rows() * size_of::<Label>();
        if self.bytes > TRAINING_BYTES_MAX {
            let message = "the labels are too large; split them over several training sets";
            let (limit, actual) = (TRAINING_BYTES_MAX as u64, self.bytes as u64);
            return Err(Error::limit_exceeded(message, limit, actual));
        }
        let names = naming.names(&batch)?;
        let number = self.batches.len() as u32;
        for (row, (moment, named)) in names.into_iter().enumerate() {
            let (partition, group) = match named {
                None => (PartitionId(0), None),
                Some((partition, name)) => {
                    let next = self.groups.len() as u32;
                    (partition, Some(*self.groups.entry(name).or_insert(next)))
                }
            };
            self.rows.push(Label { partition, moment, group, batch: number, row: row as u32 });
        }
        self.batches.push(batch);
        Ok(())
    }

    /// Returns all rows by partition, and within a partition by time.
    pub(super) fn rows(&self) -> &[Label] {
        &self.rows
    }

    /// Returns the names of groups by their numbers.
    pub(super) fn names(&self) -> Vec<&[u8]> {
        let mut names = vec![&[][..]; self.groups.len()];
        for (name, number) in &self.groups {
            names[*number as usize] = name;
        }
        names
    }

    /// Returns the columns of some rows.
    ///
    /// # Errors
    /// `Internal` if Arrow cannot gather the rows, for example if a column exceeds 2 GiB.
    pub(super) fn columns(&self, rows: &[Label]) -> Result<Vec<ArrayRef>> {
        let positions: Vec<_> =
            rows.iter().map(|label| (label.batch as usize, label.row as usize)).collect();
        let column = |index: usize| {
            let of_batches = self.batches.iter().map(|batch| batch.column(index).as_ref());
            let of_batches: Vec<&dyn Array> = of_batches.collect();
            interleave(&of_batches, &positions).map_err(|error| Error::internal(error.to_string()))
        };
        (0..self.schema.fields().len()).map(column).collect()
    }
}

impl<'p> Naming<'p> {
    fn of(
        schema: &Schema,
        (definition, plan): (&'p Definition, &'p Plan),
        moment: &str,
    ) -> Result<Self> {
        let index_of = |name: &str| {
            let missing = |_| Error::not_found("the labels have no such column").with_field(name);
            schema.index_of(name).map_err(missing)
        };
        let mut columns = Vec::new();
        for column in &plan.view.entity {
            let unknown = || Error::internal("the view groups by a column that it does not have");
            let column = definition.field_by_id(*column).ok_or_else(unknown)?;
            columns.push((index_of(&column.name)?, column.field_type));
        }
        Ok(Self { definition, plan, columns, moment: index_of(moment)? })
    }

    /// Returns the time of each row, and its group with the group's partition.
    #[expect(clippy::type_complexity, reason = "a row's, read once")]
    fn names(
        &self,
        batch: &RecordBatch,
    ) -> Result<Vec<(Timestamp, Option<(PartitionId, Vec<u8>)>)>> {
        let timestamp = FieldType::TIMESTAMP;
        let moments = cast(batch, self.moment, timestamp)?;
        let columns = self
            .columns
            .iter()
            .map(|(index, field_type)| Ok((cast(batch, *index, *field_type)?, *field_type)));
        let columns: Vec<_> = columns.collect::<Result<_>>()?;
        let mut names = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let Some(Value::Timestamp(moment)) = cell(&moments, timestamp, row)? else {
                let name = batch.schema().field(self.moment).name().clone();
                return Err(Error::invalid_argument("a label has no time; give each label a time")
                    .with_field(name));
            };
            let values = columns.iter().map(|(cells, field_type)| cell(cells, *field_type, row));
            let values: Option<Vec<Value>> = values.collect::<Result<_>>()?;
            let named = values.map(|values| named_group(self.definition, self.plan, &values));
            names.push((Timestamp::from_micros(moment), named.transpose()?));
        }
        Ok(names)
    }
}

/// Casts a column's cells to this type.
fn cast(batch: &RecordBatch, index: usize, to: FieldType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(batch.column(index), &arrow_type(to), &options).map_err(|error| {
        let name: &Field = batch.schema_ref().field(index);
        Error::invalid_argument(format!("a label does not fit the type {to}: {error}"))
            .with_field(name.name())
    })
}
