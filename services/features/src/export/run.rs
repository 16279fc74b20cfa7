//! Execution of an export: writes the events of each partition since the last export to files, and
//! publishes a manifest.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{max, min};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use forebay_core::Result;
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::StoreId;
use forebay_core::value::Value;
use forebay_query::{Bounds, ParquetFile, Table, TableScan};
use forebay_tasks::block_in_place;
use futures::TryStreamExt;

use super::manifests::{ExportedFile, ExportedRange, Exports, Manifest};
use crate::sql::StreamTable;

/// Target size of a file in bytes.
const FILE_BYTES: usize = 32 << 20;

/// An export in progress.
pub(super) struct Export<'e> {
    pub(super) exports: &'e Exports,
    pub(super) table: &'e StreamTable,
    pub(super) clock: &'e Arc<dyn Clock>,
    pub(super) entropy: &'e Arc<dyn Entropy>,
}

/// Progress of an export.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExportProgress {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) files: u32,
    pub(super) partitions: u32,
}

impl Export<'_> {
    /// Exports the events since the last export; returns the export's number, or `None` if there
    /// are no new events. Calls `report` after each file and each partition.
    ///
    /// # Errors
    /// `Conflict` if another process has exported the stream in the meantime; else as the
    /// partitions and the object store. In these cases the written files are not part of any
    /// export.
    pub(super) async fn run(&self, report: impl FnMut(ExportProgress)) -> Result<Option<u64>> {
        let stream = self.table.definition().store;
        let before = self.exports.of_stream(stream).await?;
        let last = before.last().map(|last| &**last);
        if let Some(last) = last {
            self.remove_others(stream, last).await?;
        }
        let name = &self.table.definition().name;
        let taken_at = self.clock.now().as_micros();
        let mut manifest = Manifest::after(last, name, taken_at);
        self.write(last, &mut manifest, report).await?;
        if manifest.files.is_empty() {
            return Ok(None);
        }
        // If this fails, the files stay until the next export: the manifest may have been created
        // although the answer was lost.
        self.exports.add(stream, &manifest).await?;
        Ok(Some(manifest.number))
    }

    /// Removes the files of failed exports: they have the number of the last published export, but
    /// its manifest does not list them.
    async fn remove_others(&self, stream: StoreId, last: &Manifest) -> Result<()> {
        let data = self.exports.data(stream);
        let own_names: BTreeSet<_> = last.files.iter().map(|file| file.name.as_str()).collect();
        let begin = prefix(last.number);
        for name in data.names().await? {
            if name.starts_with(&begin) && !own_names.contains(name.as_str()) {
                data.remove_file(&name).await?;
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        last: Option<&Manifest>,
        manifest: &mut Manifest,
        mut report: impl FnMut(ExportProgress),
    ) -> Result<()> {
        let mut progress = ExportProgress::default();
        // Prefix of file names that no other process uses.
        let own_prefix = format!("{}{:016x}", prefix(manifest.number), self.entropy.next_u64()?);
        for partition in 0..self.table.parts() as u32 {
            let from = last.map_or(0, |last| last.end_of(partition));
            let (mut exported, first_file) =
                (ExportedRange { partition, from, to: from, events: 0 }, manifest.files.len());
            let mut rows = self.table.rows(partition as usize, &self.scan_from(from)?);
            let mut file: Option<OpenFile> = None;
            while let Some(batch) = rows.try_next().await? {
                let number = manifest.files.len() - first_file;
                let writing = match &mut file {
                    Some(writing) => writing,
                    None => {
                        let name = format!("{own_prefix}-{partition:04}-{number:04}.parquet");
                        file.insert(OpenFile::begin(self.table, name, partition)?)
                    }
                };
                exported.to = writing.add(self.table, &batch)?;
                exported.events += batch.num_rows() as u64;
                progress.events += batch.num_rows() as u64;
                if writing.file.bytes() >= FILE_BYTES
                    && let Some(full) = file.take()
                {
                    self.store(full, manifest, &mut progress).await?;
                    report(progress);
                }
            }
            if let Some(rest) = file {
                self.store(rest, manifest, &mut progress).await?;
            }
            manifest.partitions.push(exported);
            progress.partitions += 1;
            report(progress);
        }
        Ok(())
    }

    /// Returns the scan of all columns of the events from an offset on.
    fn scan_from(&self, from: u64) -> Result<TableScan> {
        let columns = (0..self.table.schema().fields().len()).collect();
        let from = Bound::Included(Value::Int64(from as i64));
        let column = self.table.offset_index()?;
        Ok(TableScan { columns, bounds: vec![Bounds { column, from, to: Bound::Unbounded }] })
    }

    async fn store(
        &self,
        file: OpenFile,
        manifest: &mut Manifest,
        progress: &mut ExportProgress,
    ) -> Result<()> {
        let (mut exported, bytes) = (file.exported, block_in_place(|| file.file.finish())?);
        exported.bytes = bytes.len() as u64;
        let data = self.exports.data(self.table.definition().store);
        data.create_file(&exported.name, bytes).await?;
        progress.bytes += exported.bytes;
        progress.files += 1;
        manifest.files.push(exported);
        Ok(())
    }
}

/// Returns the prefix of an export's file names.
fn prefix(number: u64) -> String {
    format!("{number:010}-")
}

/// A file that is being written.
struct OpenFile {
    file: ParquetFile,
    exported: ExportedFile,
}

impl OpenFile {
    fn begin(table: &StreamTable, name: String, partition: u32) -> Result<Self> {
        let (from_us, to_us) = (i64::MAX, i64::MIN);
        let exported = ExportedFile { name, bytes: 0, events: 0, partition, from_us, to_us };
        Ok(Self { file: ParquetFile::new(table.schema())?, exported })
    }

    /// Adds events in the order of their offsets; returns the offset after them.
    fn add(&mut self, table: &StreamTable, batch: &RecordBatch) -> Result<u64> {
        block_in_place(|| self.file.write(batch))?;
        let times = batch.column(table.time_index()?).as_primitive::<TimestampMicrosecondType>();
        self.exported.from_us = self.exported.from_us.min(min(times).unwrap_or(i64::MAX));
        self.exported.to_us = self.exported.to_us.max(max(times).unwrap_or(i64::MIN));
        self.exported.events += batch.num_rows() as u64;
        let offsets = batch.column(table.offset_index()?).as_primitive::<Int64Type>();
        Ok(max(offsets).map_or(0, |last| last as u64 + 1))
    }
}
