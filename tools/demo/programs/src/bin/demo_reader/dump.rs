//! The dump: every document of two stores, by key and by scan, one JSON object per line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use forebay::Reader;
use forebay::reads::Document;
use forebay::schema::{KeyValue, Value};
use forebay_demo::Failure;
use serde_json::{Map, json};

use crate::readers::Readers;

const SCAN_BATCH: usize = 512;

/// A document of a scan.
pub struct Row {
    /// Key of the document.
    pub key: i64,
    /// Fields by name.
    pub fields: Map<String, serde_json::Value>,
}

/// The documents that the scans have returned.
pub struct Rows {
    /// All movies.
    pub movies: Vec<Row>,
    /// All users.
    pub users: Vec<Row>,
}

/// Returns the number of documents that the reader reports.
pub fn documents(reader: &Reader) -> u64 {
    reader.status().partitions.iter().map(|partition| partition.documents).sum()
}

/// Writes the dump of both stores; returns the documents of the scans.
pub fn write(
    readers: &Readers,
    keys: &BTreeMap<String, PathBuf>,
    path: &Path,
) -> Result<Rows, Failure> {
    let mut writer = BufWriter::new(File::create(path)?);
    let mut dump = |store: &str, reader: &Reader| {
        let keys = keys.get(store).ok_or("finish names no keys of a store")?;
        by_key(reader, keys, &mut writer)?;
        by_scan(reader, &mut writer)
    };
    let rows =
        Rows { movies: dump("movies", &readers.movies)?, users: dump("users", &readers.users)? };
    writer.flush()?;
    Ok(rows)
}

fn by_key(reader: &Reader, keys: &Path, writer: &mut impl Write) -> Result<(), Failure> {
    for line in std::fs::read_to_string(keys)?.lines() {
        let key: i64 = line.parse()?;
        let document =
            reader.get_document(key)?.map(|document| fields(reader, &document)).transpose()?;
        let store = reader.store();
        let answer = json!({ "store": store, "by": "key", "key": key, "document": document });
        writeln!(writer, "{answer}")?;
    }
    Ok(())
}

fn by_scan(reader: &Reader, writer: &mut impl Write) -> Result<Vec<Row>, Failure> {
    let mut documents = Vec::new();
    let mut scan = reader.scan();
    loop {
        let scanned = reader.scan_next(&mut scan, None, SCAN_BATCH, |scanned| {
            if let KeyValue::Int64(key) = scanned.key.primary() {
                documents.push((key, scanned.row.document()?));
            }
            Ok(())
        })?;
        if scanned == 0 {
            break;
        }
    }
    let mut rows = Vec::new();
    for (key, document) in documents {
        let row = Row { key, fields: fields(reader, &document)? };
        let answer = json!({
            "store": reader.store(), "by": "scan", "key": key, "document": row.fields,
        });
        writeln!(writer, "{answer}")?;
        rows.push(row);
    }
    Ok(rows)
}

fn fields(reader: &Reader, document: &Document) -> Result<Map<String, serde_json::Value>, Failure> {
    let definition = reader.definition();
    let mut fields = Map::new();
    for cell in document.cells() {
        let field = definition.field_by_id(cell.field).ok_or("a field of no definition")?;
        let value = cell.value.as_ref().map(json_of).transpose()?;
        fields.insert(field.name.clone(), json!(value));
    }
    Ok(fields)
}

/// Converts a value of the demo's types to JSON; a timestamp becomes its microseconds.
fn json_of(value: &Value) -> Result<serde_json::Value, Failure> {
    Ok(match value {
        Value::Int32(number) => json!(number),
        Value::Int64(number) | Value::Timestamp(number) => json!(number),
        Value::Float32(number) => json!(f64::from(*number)),
        Value::Float64(number) => json!(number),
        Value::String(text) => json!(text),
        Value::List(_, items) => items.iter().map(json_of).collect::<Result<_, _>>()?,
        _ => return Err("the demo's stores have no field of this type".into()),
    })
}
