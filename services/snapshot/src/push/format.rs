//! File formats, and their conversion into batches of rows.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use forebay_core::schema::Definition;
use forebay_core::value::FieldType;
use forebay_core::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::columns::{ColumnNames, Columns, arrow_type};

/// Maximum number of rows of a batch.
const BATCH_ROWS: usize = 4_096;
/// Magic bytes at the start of an Arrow file; an Arrow stream has none.
const ARROW_FILE_MAGIC: &[u8; 6] = b"ARROW1";

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// Arrow IPC, as a file or as a stream.
    Arrow,
    /// Comma-separated values after a line of column names. An empty cell is null.
    Csv,
    /// A JSON object in each line.
    JsonLines,
}

impl Format {
    /// Returns the format of a file of this name.
    ///
    /// # Errors
    /// `InvalidArgument` if the name's extension is unknown.
    pub fn of_name(name: &str) -> Result<Self> {
        match name.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default() {
            "parquet" | "pq" => Ok(Self::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Ok(Self::Arrow),
            "csv" => Ok(Self::Csv),
            "jsonl" | "ndjson" => Ok(Self::JsonLines),
            _ => {
                let message = format!(
                    "the format of `{name}` is unknown; name the file .parquet, .arrow, .csv or \
                     .jsonl"
                );
                Err(Error::invalid_argument(message))
            }
        }
    }
}

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send>;

/// A file that is being read.
pub(crate) struct Reading<'d> {
    pub columns: Columns<'d>,
    batches: Batches,
}

impl<'d> Reading<'d> {
    /// Opens a file of documents of this store.
    ///
    /// # Errors
    /// `InvalidArgument` if the file does not have this format, and as [`Columns::of`].
    pub(crate) fn begin(
        file: File,
        format: Format,
        definition: &'d Definition,
        names: &ColumnNames,
    ) -> Result<Self> {
        match format {
            Format::Parquet => Self::parquet(file, definition, names),
            Format::Arrow => Self::arrow(file, definition, names),
            Format::Csv => Self::csv(file, definition, names),
            Format::JsonLines => Self::json_lines(file, definition, names),
        }
    }

    fn parquet(file: File, definition: &'d Definition, names: &ColumnNames) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| damaged("Parquet", error);
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| wrong(&error))?;
        let read = Columns::of(builder.schema(), definition, names)?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), read.places());
        let batches = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
        let batches = batches.map_err(|error| wrong(&error))?;
        // The batches have only the columns that are read.
        let columns = Columns::of(
            arrow::array::RecordBatchReader::schema(&batches).as_ref(),
            definition,
            names,
        )?;
        Ok(Self { columns, batches: Box::new(batches) })
    }

    fn arrow(mut file: File, definition: &'d Definition, names: &ColumnNames) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| damaged("Arrow", error);
        let mut magic = [0; ARROW_FILE_MAGIC.len()];
        let is_file = file.read_exact(&mut magic).is_ok() && magic == *ARROW_FILE_MAGIC;
        file.rewind().map_err(|error| wrong(&error))?;
        let file = BufReader::new(file);
        if is_file {
            let batches = FileReader::try_new(file, None).map_err(|error| wrong(&error))?;
            let columns = Columns::of(&batches.schema(), definition, names)?;
            return Ok(Self { columns, batches: Box::new(batches) });
        }
        let batches = StreamReader::try_new(file, None).map_err(|error| wrong(&error))?;
        let columns = Columns::of(&batches.schema(), definition, names)?;
        Ok(Self { columns, batches: Box::new(batches) })
    }

    fn csv(mut file: File, definition: &'d Definition, names: &ColumnNames) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| damaged("CSV", error);
        let mut first = csv::Reader::from_reader(BufReader::new(&file));
        let header = first.headers().map_err(|error| wrong(&error))?.clone();
        file.rewind().map_err(|error| wrong(&error))?;
        let text = FieldType::STRING;
        let column = |name: &str| {
            let field_type = type_of(name, definition, names).unwrap_or(text);
            if !matches!(field_type, FieldType::Scalar(_)) {
                let message =
                    format!("CSV cannot hold a {field_type}; use Parquet, Arrow or JSONL");
                return Err(Error::invalid_argument(message).with_field(name));
            }
            let data_type = match field_type {
                FieldType::BYTES => DataType::Utf8,
                field_type => arrow_type(field_type, &DataType::Null),
            };
            Ok(Field::new(name, data_type, true))
        };
        let fields: Vec<_> = header.iter().map(column).collect::<Result<_>>()?;
        let schema = Arc::new(Schema::new(fields));
        let columns = Columns::of(&schema, definition, names)?;
        let builder = arrow::csv::ReaderBuilder::new(schema).with_header(true);
        let batches = builder.with_batch_size(BATCH_ROWS).build(file);
        Ok(Self { columns, batches: Box::new(batches.map_err(|error| wrong(&error))?) })
    }

    /// Opens a file of JSON lines. If no columns are ignored, an unknown name is an error;
    /// otherwise all unknown names are ignored, since the names of a line are known only when it is
    /// read.
    fn json_lines(file: File, definition: &'d Definition, names: &ColumnNames) -> Result<Self> {
        let field_of = |name: &str, field_type: FieldType| {
            let data_type = match field_type {
                // The cast checks the length.
                FieldType::Vector(..) => match arrow_type(field_type, &DataType::Null) {
                    DataType::FixedSizeList(item, _) if *item.data_type() == DataType::Float16 => {
                        DataType::List(Arc::new(Field::new_list_field(DataType::Float32, true)))
                    }
                    DataType::FixedSizeList(item, _) => DataType::List(item),
                    other => other,
                },
                field_type => arrow_type(field_type, &DataType::Null),
            };
            Field::new(name, data_type, true)
        };
        let fields = definition.fields.iter().filter(|field| !names.ignored.contains(&field.name));
        let mut fields: Vec<_> =
            fields.map(|field| field_of(&field.name, field.field_type)).collect();
        if !fields.iter().any(|field| *field.name() == names.key) {
            fields.push(field_of(&names.key, definition.key_type.field_type()));
        }
        let schema = Arc::new(Schema::new(fields));
        let columns = Columns::of(&schema, definition, names)?;
        let builder = arrow::json::ReaderBuilder::new(schema)
            .with_batch_size(BATCH_ROWS)
            .with_strict_mode(names.ignored.is_empty());
        let batches = builder.build(BufReader::new(file));
        let batches = batches.map_err(|error| damaged("JSONL", &error))?;
        Ok(Self { columns, batches: Box::new(batches) })
    }

    /// Returns the next rows.
    ///
    /// # Errors
    /// `InvalidArgument` if the file cannot be decoded.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.batches.next().transpose().map_err(|error| {
            let message = format!("the rest of the file cannot be read: {error}; correct the file");
            Error::invalid_argument(message)
        })
    }
}

/// Returns the type of the values in a column of this name.
fn type_of(name: &str, definition: &Definition, names: &ColumnNames) -> Option<FieldType> {
    match definition.field(name) {
        Some(field) => Some(field.field_type),
        None => (*name == names.key).then(|| definition.key_type.field_type()),
    }
}

fn damaged(format: &str, error: &dyn std::fmt::Display) -> Error {
    Error::invalid_argument(format!(
        "the file is not {format}: {error}; correct the file or its name"
    ))
}
