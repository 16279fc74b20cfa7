//! The join: writes, for each label, the values of its group as of the label's time, to Parquet
//! files.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use forebay_arrow::{arrow_type, column};
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_core::view::ViewOutput;
use forebay_core::{Error, Result};
use forebay_query::ParquetFile;
use forebay_snapshot::SnapshotStore;
use forebay_tasks::block_in_place;
use serde::Serialize;

use super::labels::{Label, Labels};
use super::replay::Replay;
use crate::derive::BATCH_WINDOW_US;
use crate::parts::FeatureParts;
use crate::plan::Plan;

/// Number of rows that are joined together.
const BATCH_ROWS: usize = 2_048;
/// Target size of a file in bytes.
const FILE_BYTES: usize = 32 << 20;
/// Name of the manifest, which exists once a training set is complete.
const MANIFEST: &str = "training.json";

/// A join of labels with the values of one view.
pub(super) struct Join<'v> {
    pub(super) parts: &'v FeatureParts,
    pub(super) definition: &'v Definition,
    pub(super) plan: &'v Plan,
    /// The destination: a folder without a training set.
    pub(super) to: &'v SnapshotStore,
}

/// Progress of a join.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct TrainingProgress {
    pub(super) rows: u64,
    pub(super) files: u32,
    pub(super) bytes: u64,
}

/// Manifest of a complete training set.
#[derive(Serialize)]
struct TrainingManifest<'m> {
    format: u32,
    view: &'m str,
    /// Version of the view's definition.
    version: u32,
    #[serde(flatten)]
    progress: TrainingProgress,
    names: &'m [String],
}

/// The files of a join in progress.
struct Files<'j> {
    to: &'j SnapshotStore,
    schema: SchemaRef,
    file: Option<ParquetFile>,
    names: Vec<String>,
    progress: TrainingProgress,
}

impl Join<'_> {
    /// Joins all labels, partition by partition; calls `report` after each file.
    ///
    /// # Errors
    /// `Conflict` if the folder has a training set; `InvalidArgument` if a column of the labels has
    /// the name of a value of the view; else as the logs and the object store.
    pub(super) async fn run(
        &self,
        labels: &Labels,
        mut report: impl FnMut(TrainingProgress),
    ) -> Result<TrainingProgress> {
        if self.to.file(MANIFEST).await?.is_some() {
            let message = "the folder already holds a training set; name another folder";
            return Err(Error::conflict(message));
        }
        let outputs = self.plan.view.outputs();
        let mut files = Files {
            to: self.to,
            schema: self.schema(labels, &outputs)?,
            file: None,
            names: Vec::new(),
            progress: TrainingProgress::default(),
        };
        let (rows, names) = (labels.rows(), labels.names());
        for of_partition in chunks(rows) {
            let rows = &rows[of_partition];
            let groups: BTreeSet<u32> = rows.iter().filter_map(|label| label.group).collect();
            let groups = groups.into_iter().map(|group| names[group as usize].to_vec());
            let Some(first) = rows.first() else { continue };
            let view = (self.definition, self.plan);
            let mut replay = Replay::new(self.parts, view, first.partition, groups);
            for label_rows in rows.chunks(BATCH_ROWS) {
                let values = self.values(&mut replay, label_rows, &names, outputs.len()).await?;
                let mut columns = labels.columns(label_rows)?;
                for (output, values) in outputs.iter().zip(values) {
                    columns.push(column(output.field_type, values)?);
                }
                let batch = RecordBatch::try_new(Arc::clone(&files.schema), columns);
                let batch = batch.map_err(|error| Error::internal(error.to_string()))?;
                if files.add(&batch).await? {
                    report(files.progress);
                }
            }
        }
        files.store().await?;
        let Files { names, progress, .. } = files;
        self.finish(&names, progress).await?;
        Ok(progress)
    }

    /// Returns the schema of the labels' columns and the values.
    fn schema(&self, labels: &Labels, outputs: &[ViewOutput]) -> Result<SchemaRef> {
        let mut fields: Vec<_> = labels.schema.fields().iter().cloned().collect();
        for output in outputs {
            if fields.iter().any(|field| *field.name() == output.name) {
                let message = "the labels have a column with the name of a value of the view; \
                    rename the column";
                return Err(Error::invalid_argument(message).with_field(&output.name));
            }
            fields.push(Arc::new(Field::new(&output.name, arrow_type(output.field_type), true)));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Returns the values of some labels, output by output.
    async fn values(
        &self,
        replay: &mut Replay<'_>,
        labels: &[Label],
        names: &[&[u8]],
        outputs: usize,
    ) -> Result<Vec<Vec<Option<Value>>>> {
        let mut columns = vec![Vec::with_capacity(labels.len()); outputs];
        for label in labels {
            let values = match label.group {
                None => vec![None; outputs],
                Some(group) => {
                    // An entry may have events that are this much later than the entry's time.
                    replay.fold_until(label.moment.plus_micros(-BATCH_WINDOW_US)).await?;
                    block_in_place(|| replay.values(names[group as usize], label.moment))?
                }
            };
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
        Ok(columns)
    }

    async fn finish(&self, names: &[String], progress: TrainingProgress) -> Result<()> {
        let (view, version) = (&self.definition.name, self.definition.version.0);
        let manifest = TrainingManifest { format: 1, view, version, progress, names };
        let bytes = serde_json::to_vec_pretty(&manifest);
        let bytes = bytes.map_err(|error| Error::internal(error.to_string()))?;
        self.to.create_file(MANIFEST, Bytes::from(bytes)).await
    }
}

/// Returns the row range of each partition.
fn chunks(rows: &[Label]) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    let mut from = 0;
    for of_partition in rows.chunk_by(|a, b| a.partition == b.partition) {
        chunks.push(from..from + of_partition.len());
        from += of_partition.len();
    }
    chunks
}

impl Files<'_> {
    /// Adds rows; returns whether a file became full and was stored.
    async fn add(&mut self, rows: &RecordBatch) -> Result<bool> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(ParquetFile::new(Arc::clone(&self.schema))?),
        };
        block_in_place(|| file.write(rows))?;
        self.progress.rows += rows.num_rows() as u64;
        let is_full = file.bytes() >= FILE_BYTES;
        if is_full {
            self.store().await?;
        }
        Ok(is_full)
    }

    async fn store(&mut self) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let bytes = block_in_place(|| file.finish())?;
        let name = format!("part-{:05}.parquet", self.names.len());
        self.progress.bytes += bytes.len() as u64;
        self.progress.files += 1;
        self.to.create_file(&name, bytes).await?;
        self.names.push(name);
        Ok(())
    }
}
