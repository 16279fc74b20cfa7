//! Execution of a push: reads the files into spilled rows, and folds the rows of each partition
//! into an image.

use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_core::outcome::{Outcome, Verdict};
use forebay_core::schema::Definition;
use forebay_core::versions::VersionNumber;
use forebay_core::{Error, Result};
use forebay_snapshot::{LoadBase, LoadedPartition, in_place};

use super::format::Reading;
use super::place::{Kept, Place};
use super::spill::Spill;
use super::{Input, Push, PushParts, PushProgress, Pushed, Target};
use crate::keeper::SnapshotParts;
use crate::new_store::{Begun, Made};
use crate::new_version::{LiveVersion, VersionBegun};

/// A push in progress.
pub(super) struct Pushing<'p> {
    pub(super) parts: &'p PushParts,
    pub(super) push: &'p Push,
    pub(super) inputs: &'p [Input],
    pub(super) place: &'p Place,
    pub(super) target: Target<'p>,
}

impl Pushing<'_> {
    /// Runs the whole push with this definition; calls `tell` with the progress.
    pub(super) async fn run(
        &self,
        definition: &Definition,
        tell: impl Fn(PushProgress),
    ) -> Result<Pushed> {
        let count = definition.partitions;
        let mut progress = PushProgress {
            bytes_in_all: self.inputs.iter().map(|input| input.file.bytes).sum(),
            partitions: count.0,
            ..PushProgress::default()
        };
        let (kept, spill) = self.read(definition, &mut progress, &tell).await?;
        self.push.limits.check_counts(&kept.counts, definition)?;
        match &self.target {
            Target::Store(store) => store.create_logs().await?,
            Target::Version(version) => version.prepare(self.place).await?,
        }
        let (mut made, time) = (Vec::<Made>::new(), self.parts.clock.now());
        for partition in count.partitions() {
            let rows = Rows { spill: &spill, kept: &kept, definition };
            made.push(self.partition(partition, rows, time).await?);
            progress.partitions_done += 1;
            tell(progress);
        }
        let (store, live) = match &self.target {
            Target::Store(store) => {
                store.define(definition.version).await?;
                (store.id, LiveVersion { number: VersionNumber(1), flipped: Vec::new() })
            }
            Target::Version(version) => (definition.store, version.go_live(&made).await?),
        };
        let documents = made.iter().map(|made| made.documents).sum();
        let LiveVersion { number: version, flipped } = live;
        Ok(Pushed { store, version, partitions: count.0, documents, flipped })
    }

    /// Reads the files that were not read yet.
    async fn read(
        &self,
        definition: &Definition,
        progress: &mut PushProgress,
        tell: &impl Fn(PushProgress),
    ) -> Result<(Kept, Spill)> {
        let mut kept = self.place.kept()?;
        let (path, partitions) = (self.place.rows(), definition.partitions);
        let mut spill = in_place(|| Spill::open(&path, kept.bytes, partitions))?;
        for (number, input) in self.inputs.iter().enumerate() {
            if number >= kept.file_rows.len() {
                let file = input.from.open_file(&input.file, &self.parts.scratch).await?;
                let names = &self.push.columns;
                let mut reading =
                    in_place(|| Reading::begin(file, input.format, definition, names))
                        .map_err(|error| error.while_doing(input.file.name()))?;
                let before = kept.counts.rows;
                while in_place(|| read_batch(&mut reading, &mut kept, before, &mut spill))
                    .map_err(|error| error.while_doing(input.file.name()))?
                {
                    progress.rows = kept.counts.rows;
                    tell(*progress);
                }
                kept.file_rows.push(kept.counts.rows - before);
                kept.bytes = in_place(|| spill.flush())?;
                in_place(|| self.place.keep(&kept))?;
            }
            progress.rows = kept.counts.rows;
            progress.bytes += input.file.bytes;
            tell(*progress);
        }
        Ok((kept, spill))
    }

    async fn partition(
        &self,
        partition: PartitionId,
        rows: Rows<'_>,
        time: Timestamp,
    ) -> Result<Made> {
        match &self.target {
            Target::Store(store) => {
                let log = match store.begin(partition).await? {
                    Begun::Made(made) => return Ok(made),
                    Begun::Log(log) => log,
                };
                let own = Definition { store: store.id, ..rows.definition.clone() };
                let base = log.begins(&own, time);
                let loaded = in_place(|| self.load(&[own], base, &rows))?;
                let (builder, state) = loaded.finish();
                store.publish(log, builder, &state).await
            }
            Target::Version(version) => {
                let base = match version.begin(partition).await? {
                    VersionBegun::Made(made) => return Ok(made),
                    VersionBegun::Base(base) => base,
                };
                let own = version.definitions(&base.state.state);
                let loaded = in_place(|| self.load(&own, base, &rows))?;
                let (builder, state) = loaded.finish();
                version.publish(builder, &state).await
            }
        }
    }

    /// Folds a partition's rows, encoded by the first of these definitions.
    fn load(&self, own: &[Definition], base: LoadBase, rows: &Rows<'_>) -> Result<LoadedPartition> {
        let SnapshotParts { entropy, options, .. } = &self.parts.kept;
        let (seed, memory) = (entropy.next_u64()?, options.memory_bytes);
        let state = &base.state.state;
        let (partition, log_id) = (state.partition.partition, state.log_id);
        let log_id = log_id.ok_or_else(|| Error::internal("a partition has no log"))?;
        let version = own.first().map_or(SchemaVersion(0), |own| own.version);
        let mut loaded = LoadedPartition::new(own, base, seed, memory)?;
        for entry in rows.spill.entries(partition, log_id, version) {
            let outcomes = loaded.add(entry?)?;
            if let Some(refused) = outcomes.iter().find(|it| it.verdict != Verdict::Applied) {
                return Err(self.refused(refused, rows.kept));
            }
        }
        Ok(loaded)
    }

    /// Returns the error for a refused row, with its file and its number in the file.
    fn refused(&self, outcome: &Outcome, kept: &Kept) -> Error {
        let error = match outcome.verdict {
            Verdict::TooLarge => {
                Error::invalid_argument("the document is too large; split the document")
            }
            _ => Error::invalid_argument(
                "the key is already in an earlier row; keep one of the two rows",
            ),
        };
        let mut row = outcome.sequence.0;
        for (input, rows) in self.inputs.iter().zip(&kept.file_rows) {
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
    kept: &'r Kept,
    definition: &'r Definition,
}

/// Reads the next batch of a file; returns whether there was one.
fn read_batch(
    reading: &mut Reading<'_>,
    kept: &mut Kept,
    rows_before: u64,
    spill: &mut Spill,
) -> Result<bool> {
    let Some(batch) = reading.next()? else { return Ok(false) };
    let (first, counts) = (kept.counts.rows, &mut kept.counts);
    let read = reading.columns.rows(&batch, first, |row| {
        counts.add(row.change.fields.iter().map(|change| change.field));
        spill.add(row)
    });
    read.map_err(|(row, error)| {
        let number = first - rows_before + row as u64 + 1;
        error.while_doing(&format!("row {number}"))
    })?;
    Ok(true)
}
