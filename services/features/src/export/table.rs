//! The exports of a stream as an SQL table, with the files of all exports as its parts.

use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::value::Value;
use forebay_query::{Batches, Bounds, FileStorage, StoredFile, Table, TableScan, Tables};
use forebay_snapshot::SnapshotStore;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tonic::async_trait;

use super::manifests::ExportedFile;
use crate::feature_store::Features;
use crate::sql::StreamTable;

/// The exports of the streams that are open here.
pub(crate) struct ExportTables(Arc<Features>);

impl ExportTables {
    pub(crate) fn new(features: Arc<Features>) -> Self {
        Self(features)
    }
}

impl fmt::Debug for ExportTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[async_trait]
impl Tables for ExportTables {
    fn names(&self) -> Vec<String> {
        match self.0.exports() {
            Ok(_) => self.0.stream_names(),
            Err(_) => Vec::new(),
        }
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn Table>>> {
        let exports = self.0.exports()?;
        if !self.0.stream_names().iter().any(|it| it == name) {
            return Ok(None);
        }
        let stream = StreamTable::new(Arc::clone(&self.0), self.0.stream(name)?);
        let store = stream.definition().store;
        let manifests = exports.of_stream(store).await?;
        let files = manifests.iter().flat_map(|manifest| manifest.files.iter().cloned()).collect();
        let data = Arc::new(Data(exports.data(store)));
        Ok(Some(Arc::new(ExportTable { time: stream.time_index().ok(), stream, data, files })))
    }
}

/// The exports of one stream, with its current columns.
#[derive(Debug)]
struct ExportTable {
    stream: StreamTable,
    /// Index of the column with the event time.
    time: Option<usize>,
    data: Arc<Data>,
    files: Vec<ExportedFile>,
}

impl Table for ExportTable {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    fn parts(&self) -> usize {
        self.files.len()
    }

    fn rows(&self, part: usize, scan: &TableScan) -> Batches {
        let file = &self.files[part];
        let is_time = |bounds: &&Bounds| Some(bounds.column) == self.time;
        if !scan.bounds.iter().filter(is_time).all(|bounds| overlaps(file, bounds)) {
            return stream::empty().boxed();
        }
        let (name, bytes) = (file.name.clone(), file.bytes);
        let file = StoredFile { storage: Arc::clone(&self.data) as _, name, bytes };
        file.rows(&self.stream.schema(), scan)
    }
}

/// Returns whether a file may have events whose times are within these bounds.
fn overlaps(file: &ExportedFile, bounds: &Bounds) -> bool {
    let micros = |bound: &Bound<Value>| match bound {
        Bound::Included(Value::Timestamp(micros)) | Bound::Excluded(Value::Timestamp(micros)) => {
            Some(*micros)
        }
        _ => None,
    };
    micros(&bounds.from).is_none_or(|from| from <= file.to_us)
        && micros(&bounds.to).is_none_or(|to| file.from_us <= to)
}

/// The folder of the files.
#[derive(Debug)]
struct Data(SnapshotStore);

impl FileStorage for Data {
    fn range(&self, name: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let name = name.to_owned();
        Box::pin(async move { self.0.file_range(&name, range).await })
    }
}
