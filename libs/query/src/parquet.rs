//! Rows in Parquet files: the crate writes files for storage elsewhere, and reads the requested
//! columns and row groups. A column is identified by its id, regardless of its name in the file.

use std::fmt::Debug;
use std::ops::{Bound, Range};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;

use crate::bounds::Bounds;
use crate::table::{Batches, TableScan};

/// Rows per row group, which is the unit that a reader may skip.
const GROUP_ROWS: usize = 16_384;
/// Rows per batch when reading.
const BATCH_ROWS: usize = 2_048;

/// Adds an id to a column, in a file as well as in a table.
pub fn identified(field: Field, id: i32) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    field.with_metadata(metadata)
}

fn id_of(field: &Field) -> Option<&String> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)
}

/// A Parquet file that is written in memory.
pub struct ParquetFile(ArrowWriter<Vec<u8>>);

impl ParquetFile {
    /// Creates an empty file.
    ///
    /// # Errors
    /// `Internal` for columns that Parquet does not support.
    pub fn new(schema: SchemaRef) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_created_by(format!("forebay {}", env!("CARGO_PKG_VERSION")))
            .build();
        let file = ArrowWriter::try_new(Vec::new(), schema, Some(properties));
        Ok(Self(file.map_err(|error| Error::internal(error.to_string()))?))
    }

    /// Adds rows.
    ///
    /// # Errors
    /// `Internal` for rows with other columns.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.0.write(rows).map_err(|error| Error::internal(error.to_string()))
    }

    /// Returns the approximate length so far, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes_written() + self.0.in_progress_size()
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// `Internal`.
    pub fn finish(self) -> Result<Bytes> {
        let bytes = self.0.into_inner().map_err(|error| Error::internal(error.to_string()))?;
        Ok(bytes.into())
    }
}

/// Storage of files.
pub trait FileStorage: Debug + Send + Sync + 'static {
    /// Reads a range of a file.
    fn range(&self, name: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>>;
}

/// A stored file.
#[derive(Clone, Debug)]
pub struct StoredFile {
    /// Storage of the file.
    pub storage: Arc<dyn FileStorage>,
    /// Name of the file in the storage.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
}

impl StoredFile {
    /// Returns the rows of a file for a table with these columns, each of which has an id. Columns
    /// that the file does not have are null, and columns of a narrower type are widened. Row groups
    /// outside the bounds are skipped.
    ///
    /// # Errors
    /// The errors of the storage; `Corrupt` if the file is not a Parquet file. An error is the last
    /// item.
    pub fn rows(self, table: &Schema, scan: &TableScan) -> Batches {
        let columns = scan.columns.iter().map(|place| Arc::clone(&table.fields()[*place]));
        let columns: Vec<FieldRef> = columns.collect();
        let bounds = scan
            .bounds
            .iter()
            .map(|bounds| (Arc::clone(&table.fields()[bounds.column]), bounds.clone()));
        let bounds: Vec<_> = bounds.collect();
        let rows = async move {
            let name = self.name.clone();
            let rows =
                self.begin(&columns, &bounds).await.map_err(|error| from_parquet(error, &name))?;
            Ok::<_, Error>(rows.map_err(move |error| from_parquet(error, &name)))
        };
        stream::once(rows).try_flatten().boxed()
    }

    /// Returns all rows of a file, with the columns of the file.
    ///
    /// # Errors
    /// The errors of the storage; `Corrupt` if the file is not a Parquet file.
    pub async fn all(self) -> Result<(SchemaRef, Batches)> {
        let name = self.name.clone();
        let file = ParquetRecordBatchStreamBuilder::new(self).await;
        let file = file.map_err(|error| from_parquet(error, &name))?;
        let schema = Arc::clone(file.schema());
        let rows =
            file.with_batch_size(BATCH_ROWS).build().map_err(|error| from_parquet(error, &name))?;
        Ok((schema, rows.map_err(move |error| from_parquet(error, &name)).boxed()))
    }

    async fn begin(
        self,
        columns: &[FieldRef],
        bounds: &[(FieldRef, Bounds)],
    ) -> parquet::errors::Result<stream::BoxStream<'static, parquet::errors::Result<RecordBatch>>>
    {
        let file = ParquetRecordBatchStreamBuilder::new(self).await?;
        let place = |column: &Field| {
            let fields = file.schema().fields().iter();
            fields.enumerate().find(|(_, it)| id_of(it).is_some() && id_of(it) == id_of(column))
        };
        let mut roots: Vec<_> =
            columns.iter().filter_map(|column| place(column)).map(|(place, _)| place).collect();
        roots.sort_unstable();
        roots.dedup();
        // After the projection the columns are in the order of the file.
        let sources: Vec<_> = columns
            .iter()
            .map(|column| place(column).and_then(|(place, _)| roots.binary_search(&place).ok()))
            .collect();
        let bounds: Vec<_> = bounds
            .iter()
            .filter_map(|(column, bounds)| Some((place(column)?.1.name().clone(), bounds)))
            .collect();
        let groups = file.metadata().row_groups().iter().enumerate();
        let groups = groups
            .filter(|(_, group)| bounds.iter().all(|(name, bounds)| may_have(group, name, bounds)));
        let groups = groups.map(|(group, _)| group).collect();
        let mask = ProjectionMask::roots(file.parquet_schema(), roots);
        let rows = file.with_projection(mask).with_row_groups(groups).with_batch_size(BATCH_ROWS);
        let schema = Arc::new(Schema::new(columns.to_vec()));
        let rows = rows.build()?.map(move |rows| cast_columns(&rows?, &schema, &sources));
        Ok(rows.boxed())
    }
}

/// Converts rows to the table's schema: each column comes from its index among the read columns.
fn cast_columns(
    rows: &RecordBatch,
    schema: &SchemaRef,
    sources: &[Option<usize>],
) -> parquet::errors::Result<RecordBatch> {
    let columns = schema.fields().iter().zip(sources).map(|(column, source)| match source {
        Some(source) => cast(rows.column(*source), column.data_type()),
        None => Ok(new_null_array(column.data_type(), rows.num_rows())),
    });
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Returns whether a row group may have rows within the bounds of a column, according to its
/// minimum and maximum integers.
fn may_have(group: &RowGroupMetaData, column: &str, bounds: &Bounds) -> bool {
    let chunk = group.columns().iter().find(|it| it.column_path().parts() == [column]);
    let Some(Statistics::Int64(statistics)) = chunk.and_then(|chunk| chunk.statistics()) else {
        return true;
    };
    let (Some(minimum), Some(maximum)) = (statistics.min_opt(), statistics.max_opt()) else {
        return true;
    };
    let number = |value: &Value| match value {
        Value::Int64(number) | Value::Timestamp(number) => Some(*number),
        _ => None,
    };
    let may_reach_from = match &bounds.from {
        Bound::Included(value) => number(value).is_none_or(|from| from <= *maximum),
        Bound::Excluded(value) => number(value).is_none_or(|from| from < *maximum),
        Bound::Unbounded => true,
    };
    let may_reach_to = match &bounds.to {
        Bound::Included(value) => number(value).is_none_or(|to| *minimum <= to),
        Bound::Excluded(value) => number(value).is_none_or(|to| *minimum < to),
        Bound::Unbounded => true,
    };
    may_reach_from && may_reach_to
}

fn from_parquet(error: ParquetError, name: &str) -> Error {
    match error {
        ParquetError::External(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::corrupt(format!("the file `{name}` cannot be read: {error}")),
        },
        error => Error::corrupt(format!("the file `{name}` cannot be read: {error}")),
    }
}

impl AsyncFileReader for StoredFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let read = self.storage.range(&self.name, range);
        Box::pin(async { read.await.map_err(|error| ParquetError::External(Box::new(error))) })
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        Box::pin(async move {
            let bytes = self.bytes;
            let read = ParquetMetaDataReader::new().load_and_finish(self, bytes).await;
            read.map(Arc::new)
        })
    }
}
