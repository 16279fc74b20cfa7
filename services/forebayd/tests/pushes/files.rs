//! Files of documents, in every format that can be pushed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListBuilder, Float32Builder, Float64Array, Int64Array,
    LargeStringArray, ListBuilder, RecordBatch, StringArray, StringBuilder,
    TimestampMillisecondArray,
};
use arrow::csv;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::json::LineDelimitedWriter;
use forebay::schema::{ScalarType, Value};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// Number of rows of all files together.
pub const ROWS: u64 = 9_000;
/// Time of the first row, in milliseconds.
const SEEN_MS: i64 = 1_700_000_000_000;

/// Returns the expected document of a row; some have no name.
pub fn expected(row: u64) -> BTreeMap<String, Value> {
    let number = row as i64;
    let tags = (0..row % 4).map(|tag| Value::String(format!("tag-{tag}"))).collect();
    let embedding = (0..4).map(|place| (row * 4 + place) as f32 * 0.5).collect();
    let mut fields = BTreeMap::from([
        ("member".to_owned(), Value::Bool(row.is_multiple_of(3))),
        ("age".to_owned(), Value::Int32((row % 100) as i32)),
        ("seen".to_owned(), Value::Timestamp((SEEN_MS + number) * 1_000)),
        ("score".to_owned(), Value::Float64(number as f64 / 8.0)),
        ("tags".to_owned(), Value::List(ScalarType::String, tags)),
        ("embedding".to_owned(), Value::VectorF32(embedding)),
    ]);
    if !row.is_multiple_of(5) {
        fields.insert("name".to_owned(), Value::String(format!("name of {row}, \"the\" one")));
    }
    fields
}

fn number(row: u64, field: &str) -> i64 {
    match &expected(row)[field] {
        Value::Int32(number) => i64::from(*number),
        Value::Timestamp(micros) => micros / 1_000,
        found => panic!("{found:?}"),
    }
}

/// Returns these rows, in types that differ from the fields' but fit them.
fn batch(rows: std::ops::Range<u64>) -> RecordBatch {
    let ids: StringArray = rows.clone().map(|row| Some(format!("user-{row}"))).collect();
    let members: BooleanArray = rows.clone().map(|row| Some(row.is_multiple_of(3))).collect();
    let ages: Int64Array = rows.clone().map(|row| Some(number(row, "age"))).collect();
    let seen: TimestampMillisecondArray =
        rows.clone().map(|row| Some(number(row, "seen"))).collect();
    let scores: Float64Array = rows.clone().map(|row| Some(row as f64 / 8.0)).collect();
    let name = |row| match expected(row).remove("name") {
        Some(Value::String(name)) => Some(name),
        _ => None,
    };
    let names: LargeStringArray = rows.clone().map(name).collect();
    let mut tags = ListBuilder::new(StringBuilder::new());
    let mut embeddings = FixedSizeListBuilder::new(Float32Builder::new(), 4);
    for row in rows {
        tags.append_value((0..row % 4).map(|tag| Some(format!("tag-{tag}"))));
        let Value::VectorF32(items) = &expected(row)["embedding"] else { panic!("a vector") };
        embeddings.values().append_slice(items);
        embeddings.append(true);
    }
    let columns: [(&str, ArrayRef); 8] = [
        ("id", Arc::new(ids)),
        ("member", Arc::new(members)),
        ("age", Arc::new(ages)),
        ("seen", Arc::new(seen)),
        ("score", Arc::new(scores)),
        ("name", Arc::new(names)),
        ("tags", Arc::new(tags.finish())),
        ("embedding", Arc::new(embeddings.finish())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A temporary folder of files.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with this text.
    pub fn text(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.at(name), text).unwrap();
        self.at(name)
    }

    /// Writes all rows as one file in each format that can hold a whole row.
    pub fn write_all_formats(&self) -> Vec<(&'static str, PathBuf)> {
        let all = batch(0..ROWS);
        let file = |name: &str| File::create(self.at(name)).unwrap();
        for (name, compression) in [
            ("zstd.parquet", Compression::ZSTD(ZstdLevel::default())),
            ("snappy.parquet", Compression::SNAPPY),
        ] {
            self.parquet(name, &all, compression);
        }
        let mut writer = FileWriter::try_new(file("all.arrow"), &all.schema()).unwrap();
        writer.write(&all).unwrap();
        writer.finish().unwrap();
        let mut writer = StreamWriter::try_new(file("stream.arrow"), &all.schema()).unwrap();
        writer.write(&all).unwrap();
        writer.finish().unwrap();
        let mut writer = LineDelimitedWriter::new(file("all.jsonl"));
        writer.write(&all).unwrap();
        writer.finish().unwrap();
        [
            ("parquet", "zstd.parquet"),
            ("parquet-snappy", "snappy.parquet"),
            ("arrow", "all.arrow"),
            ("arrow-stream", "stream.arrow"),
            ("json", "all.jsonl"),
        ]
        .map(|(store, name)| (store, self.at(name)))
        .into()
    }

    fn parquet(&self, name: &str, rows: &RecordBatch, compression: Compression) {
        let file = File::create(self.at(name)).unwrap();
        let properties = WriterProperties::builder().set_compression(compression).build();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
        writer.write(rows).unwrap();
        writer.close().unwrap();
    }

    /// Writes all rows without the columns that CSV cannot hold.
    pub fn csv(&self) -> PathBuf {
        let scalars = batch(0..ROWS).project(&[0, 1, 2, 3, 4, 5]).unwrap();
        let mut writer = csv::Writer::new(File::create(self.at("all.csv")).unwrap());
        writer.write(&scalars).unwrap();
        self.at("all.csv")
    }

    /// Writes a folder of this many files that hold all rows together.
    pub fn parts(&self, count: u64) -> PathBuf {
        fs::create_dir_all(self.at("parts")).unwrap();
        for part in 0..count {
            let rows = batch(ROWS * part / count..ROWS * (part + 1) / count);
            self.parquet(&format!("parts/{part}.parquet"), &rows, Compression::UNCOMPRESSED);
        }
        self.at("parts")
    }

    /// Writes a truncated file.
    pub fn write_truncated(&self) -> PathBuf {
        let rows = batch(0..100);
        self.parquet("cut.parquet", &rows, Compression::UNCOMPRESSED);
        let bytes = fs::read(self.at("cut.parquet")).unwrap();
        fs::write(self.at("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
        self.at("cut.parquet")
    }
}
