//! Execution of a push: reads the files into spilled rows, and folds the rows of each partition
//! into an image.

use forebay_core::id::SchemaVersion;
use forebay_core::outcome::{ConditionOutcome, Outcome};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_snapshot::{LoadBase, LoadedPartition};
use forebay_tasks::block_in_place;

use super::activation::LiveVersion;
use super::format::Reading;
use super::request::{Input, Push, PushProgress, PushResult};
use super::spill::Spill;
use super::target::PushTarget;
use super::workspace::{PushWorkspace, ReadProgress};
use crate::context::{PushParts, SnapshotParts};

/// A push in progress.
pub(super) struct PushRun<'p> {
    pub(super) parts: &'p PushParts,
    pub(super) push: &'p Push,
    pub(super) inputs: &'p [Input],
    pub(super) workspace: &'p PushWorkspace,
    pub(super) target: PushTarget<'p>,
}

impl PushRun<'_> {
    /// Runs the whole push with this definition; calls `tell` with the progress.
    pub(super) async fn run(
        &self,
        definition: &Definition,
        tell: impl Fn(PushProgress),
    ) -> Result<PushResult> {
        let count = definition.partitions;
        let mut progress = PushProgress {
            bytes_in_all: self.inputs.iter().map(|input| input.file.bytes).sum(),
            partitions: count.0,
            ..PushProgress::default()
        };
        let (read, spill) = self.read(definition, &mut progress, &tell).await?;
        self.push.limits.check_counts(&read.counts, definition)?;
        self.target.prepare(self.workspace).await?;
        let (mut finished, time) = (Vec::new(), self.parts.service.context.clock.now());
        for partition in count.partitions() {
            let rows = Rows { spill: &spill, read: &read };
            let load = |definitions: &[Definition], base| self.load(definitions, base, rows);
            finished.push(self.target.build(partition, definition, time, load).await?);
            progress.partitions_done += 1;
            tell(progress);
        }
        let live = self.target.go_live(definition, &finished).await?;
        let LiveVersion { number: version, changed_outcomes } = live;
        let store = match &self.target {
            PushTarget::Store(store) => store.id,
            PushTarget::Version(_) => definition.store,
        };
        let documents = finished.iter().map(|it| it.documents).sum();
        Ok(PushResult { store, version, partitions: count.0, documents, changed_outcomes })
    }

    /// Reads the files that were not read yet.
    async fn read(
        &self,
        definition: &Definition,
        progress: &mut PushProgress,
        tell: &impl Fn(PushProgress),
    ) -> Result<(ReadProgress, Spill)> {
        let mut read = self.workspace.read_progress()?;
        let (path, partitions) = (self.workspace.rows_path(), definition.partitions);
        let mut spill = block_in_place(|| Spill::open(&path, read.bytes, partitions))?;
        for (number, input) in self.inputs.iter().enumerate() {
            if number >= read.file_rows.len() {
                let file = input.from.open_file(&input.file, &self.parts.scratch).await?;
                let names = &self.push.columns;
                let mut reading =
                    block_in_place(|| Reading::begin(file, input.format, definition, names))
                        .map_err(|error| error.while_doing(input.file.name()))?;
                let before = read.counts.rows;
                while block_in_place(|| read_batch(&mut reading, &mut read, before, &mut spill))
                    .map_err(|error| error.while_doing(input.file.name()))?
                {
                    progress.rows = read.counts.rows;
                    tell(*progress);
                }
                read.file_rows.push(read.counts.rows - before);
                read.bytes = block_in_place(|| spill.flush())?;
                block_in_place(|| self.workspace.save_read_progress(&read))?;
            }
            progress.rows = read.counts.rows;
            progress.bytes += input.file.bytes;
            tell(*progress);
        }
        Ok((read, spill))
    }

    /// Folds a partition's rows, encoded by the first of these definitions.
    fn load(
        &self,
        definitions: &[Definition],
        base: LoadBase,
        rows: Rows<'_>,
    ) -> Result<LoadedPartition> {
        let SnapshotParts { context, options, .. } = &self.parts.service;
        let (seed, memory) = (context.entropy.next_u64()?, options.memory_bytes);
        let state = &base.state.state;
        let (partition, log_id) = (state.partition.partition, state.log_id);
        let log_id = log_id.ok_or_else(|| Error::internal("a partition has no log"))?;
        let version = definitions.first().map_or(SchemaVersion(0), |definition| definition.version);
        let mut loaded = LoadedPartition::new(definitions, base, seed, memory)?;
        for entry in rows.spill.entries(partition, log_id, version) {
            let outcomes = loaded.add(entry?)?;
            if let Some(outcome) =
                outcomes.iter().find(|it| it.condition != ConditionOutcome::Applied)
            {
                return Err(self.refusal_error(outcome, rows.read));
            }
        }
        Ok(loaded)
    }

    /// Returns the error for a refused row, with its file and its number in the file.
    fn refusal_error(&self, outcome: &Outcome, read: &ReadProgress) -> Error {
        let error = match outcome.condition {
            ConditionOutcome::TooLarge => {
                Error::invalid_argument("the document is too large; split the document")
            }
            _ => Error::invalid_argument(
                "the key is already in an earlier row; keep one of the two rows",
            ),
        };
        let mut row = outcome.sequence.0;
        for (input, rows) in self.inputs.iter().zip(&read.file_rows) {
            if row <= *rows {
                return error.while_doing(&format!("{}, row {row}", input.file.name()));
            }
            row -= rows;
        }
        error
    }
}

/// The rows of all files.
#[derive(Clone, Copy)]
struct Rows<'r> {
    spill: &'r Spill,
    read: &'r ReadProgress,
}

/// Reads the next batch of a file; returns whether there was one.
fn read_batch(
    reading: &mut Reading<'_>,
    read: &mut ReadProgress,
    rows_before: u64,
    spill: &mut Spill,
) -> Result<bool> {
    let Some(batch) = reading.next()? else { return Ok(false) };
    let (first, counts) = (read.counts.rows, &mut read.counts);
    let rows = reading.columns.rows(&batch, first, |row| {
        counts.add(row.change.fields.iter().map(|change| change.field));
        spill.add(row)
    });
    rows.map_err(|(row, error)| {
        let number = first - rows_before + row as u64 + 1;
        error.while_doing(&format!("row {number}"))
    })?;
    Ok(true)
}
