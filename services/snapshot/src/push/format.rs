//! The formats of files, and their way into batches of rows.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, ScalarType};
use forebay_core::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::columns::{ColumnNames, Columns, arrow_type};

/// Rows of a batch.
const BATCH_ROWS: usize = 4_096;
/// What a file of Arrow's begins with; a stream does not.
const ARROW_FILE_MAGIC: &[u8; 6] = b"ARROW1";

/// What files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// Arrow's own, as a file or as a stream.
    Arrow,
    /// Comma-separated values below a line of column names. An empty cell is null.
    Csv,
    /// A JSON object in each line.
    JsonLines,
}

impl Format {
    /// That of a file of this name.
    ///
    /// # Errors
    /// `InvalidArgument` where its ending says nothing.
    pub fn of_name(name: &str) -> Result<Self> {
        match name.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default() {
            "parquet" | "pq" => Ok(Self::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Ok(Self::Arrow),
            "csv" => Ok(Self::Csv),
            "jsonl" | "ndjson" => Ok(Self::JsonLines),
            _ => {
                let message = format!(
                    "the ending of `{name}` tells no format; name it .parquet, .arrow, .csv or \
                     .jsonl"
                );
                Err(Error::invalid_argument(message))
            }
        }
    }
}

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send>;

/// A file that is read.
pub(crate) struct Reading<'d> {
    pub columns: Columns<'d>,
    batches: Batches,
}

impl<'d> Reading<'d> {
    /// Begins to read a file of documents of this store.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no such file, and those of [`Columns::of`].
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
        // Those that are not read are not there.
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
        let text = FieldType::Scalar(ScalarType::String);
        let column = |name: &str| {
            let field_type = type_of(name, definition, names).unwrap_or(text);
            if !matches!(field_type, FieldType::Scalar(_)) {
                let message = format!("CSV has no {field_type}; take Parquet, Arrow or JSONL");
                return Err(Error::invalid_argument(message).with_field(name));
            }
            let data_type = match field_type {
                FieldType::Scalar(ScalarType::Bytes) => DataType::Utf8,
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

    /// Without columns to ignore, a name that means nothing is refused; with some, all such names
    /// are passed over, since a line says its names only when it is read.
    fn json_lines(file: File, definition: &'d Definition, names: &ColumnNames) -> Result<Self> {
        let of = |name: &str, field_type: FieldType| {
            let data_type = match field_type {
                // The length is checked when it is cast.
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
        let mut fields: Vec<_> = fields.map(|field| of(&field.name, field.field_type)).collect();
        if !fields.iter().any(|field| *field.name() == names.key) {
            fields.push(of(&names.key, definition.key_type.field_type()));
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

    /// The next rows.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are none.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.batches.next().transpose().map_err(|error| {
            let message = format!("it cannot be read on: {error}; mend the file");
            Error::invalid_argument(message)
        })
    }
}

/// The type of the values that a column of this name has.
fn type_of(name: &str, definition: &Definition, names: &ColumnNames) -> Option<FieldType> {
    match definition.field(name) {
        Some(field) => Some(field.field_type),
        None => (*name == names.key).then(|| definition.key_type.field_type()),
    }
}

fn damaged(format: &str, error: &dyn std::fmt::Display) -> Error {
    Error::invalid_argument(format!("it is no {format}: {error}; mend the file or its name"))
}
