//! Text form of values, keys and times of events: bytes as hex digits, times as RFC 3339 if
//! representable, numbers as digits.

use std::time::{Duration, UNIX_EPOCH};

use forebay_core::id::FieldId;
use forebay_core::key::KeyType;
use forebay_core::row::Document;
use forebay_core::schema::Field;
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, Result};
use forebay_wire::document::set_fields;
use forebay_wire::v1;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::node_args;

/// The first time after the range of RFC 3339.
const YEAR_10000_US: i64 = 253_402_300_800_000_000;

/// Parses a command-line time into microseconds.
pub(super) fn time_of(text: &str) -> std::result::Result<i64, String> {
    if let Ok(micros) = text.parse() {
        return Ok(micros);
    }
    let wrong =
        |error| format!("{error}; write a time such as 2026-11-27T12:00:00Z, or microseconds");
    let time = humantime::parse_rfc3339_weak(text).map_err(wrong)?;
    let micros = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Ok(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// Formats a time; returns `None` if RFC 3339 cannot represent it.
fn time_text(micros: i64) -> Option<String> {
    let since = u64::try_from(micros).ok().filter(|_| micros < YEAR_10000_US)?;
    Some(humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(since)).to_string())
}

/// Parses a key of this type into its bytes.
///
/// # Errors
/// `InvalidArgument` for another text.
pub(super) fn key_of(text: &str, key_type: KeyType) -> Result<Vec<u8>> {
    match key_type {
        KeyType::String => Ok(text.as_bytes().to_vec()),
        KeyType::Bytes => node_args::parse_hex(text),
        KeyType::Int64 => {
            let wrong = |_| {
                let message = format!("`{text}` is not of type int64; give an integer");
                Error::invalid_argument(message)
            };
            Ok(text.parse::<i64>().map_err(wrong)?.to_le_bytes().to_vec())
        }
    }
}

/// Parses a value of a scalar column.
///
/// # Errors
/// `InvalidArgument` for another text, and for a column that is not scalar.
pub(super) fn value_of(text: &str, column: &Field) -> Result<v1::Value> {
    let wrong = || format!("`{text}` is not of type {0}; give a {0}", column.field_type);
    let value = match column.field_type {
        FieldType::Scalar(scalar) => scalar_of(text, scalar).ok_or_else(wrong),
        other => Err(format!(
            "only scalar columns find events, and this column is a {other}; name another column"
        )),
    };
    let at_column = |message| Error::invalid_argument(message).with_field(&column.name);
    Ok((&value.map_err(at_column)?).into())
}

fn scalar_of(text: &str, scalar: ScalarType) -> Option<Value> {
    Some(match scalar {
        ScalarType::Bool => Value::Bool(text.parse().ok()?),
        ScalarType::Int32 => Value::Int32(text.parse().ok()?),
        ScalarType::Int64 => Value::Int64(text.parse().ok()?),
        ScalarType::Float32 => Value::Float32(text.parse().ok()?),
        ScalarType::Float64 => Value::Float64(text.parse().ok()?),
        ScalarType::String => Value::String(text.to_owned()),
        ScalarType::Bytes => Value::Bytes(node_args::parse_hex(text).ok()?),
        ScalarType::Timestamp => Value::Timestamp(time_of(text).ok()?),
    })
}

/// An event to print.
struct Line<'a> {
    event: v1::Event,
    key: Value,
    columns: &'a [v1::EventColumn],
    values: Document,
}

/// Names printed before the columns, in this order.
const HEAD: [&str; 6] = ["key", "time", "append_time", "partition", "offset", "index_in_entry"];

impl<'a> Line<'a> {
    fn of(mut event: v1::Event, key_type: KeyType, columns: &'a [v1::EventColumn]) -> Result<Self> {
        let mut values = Document::new(None, None);
        set_fields(&mut values, std::mem::take(&mut event.columns))?;
        Ok(Self { key: key_type.value(&event.key)?, event, columns, values })
    }

    fn head(&self) -> [Value; 6] {
        let number = |number: u64| Value::Int64(i64::try_from(number).unwrap_or(i64::MAX));
        [
            self.key.clone(),
            Value::Timestamp(self.event.time_us),
            Value::Timestamp(self.event.append_time_us),
            number(self.event.partition.into()),
            number(self.event.offset),
            number(self.event.index_in_entry.into()),
        ]
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (name, value) in HEAD.iter().zip(self.head()) {
            map.serialize_entry(name, &JsonValue(&value))?;
        }
        map.serialize_entry("columns", &Columns(self))?;
        map.end()
    }
}

/// The columns that an event has.
struct Columns<'a>(&'a Line<'a>);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let Line { columns, values, .. } = self.0;
        let mut map = to.serialize_map(None)?;
        for column in *columns {
            if let Some(cell) = values.cell(FieldId(column.id)) {
                map.serialize_entry(&column.name, &cell.value.as_ref().map(JsonValue))?;
            }
        }
        map.end()
    }
}

/// A value in JSON.
struct JsonValue<'a>(&'a Value);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Value::Bool(value) => to.serialize_bool(*value),
            Value::Int32(number) => to.serialize_i32(*number),
            Value::Int64(number) => to.serialize_i64(*number),
            // JSON represents only finite floats as numbers.
            Value::Float32(number) if number.is_finite() => to.serialize_f32(*number),
            Value::Float64(number) if number.is_finite() => to.serialize_f64(*number),
            Value::Float32(number) => to.collect_str(number),
            Value::Float64(number) => to.collect_str(number),
            Value::String(text) => to.serialize_str(text),
            Value::Bytes(bytes) => to.serialize_str(&hex::encode(bytes)),
            Value::Timestamp(micros) => match time_text(*micros) {
                Some(text) => to.serialize_str(&text),
                None => to.serialize_i64(*micros),
            },
            Value::List(_, items) => to.collect_seq(items.iter().map(JsonValue)),
            Value::VectorF32(items) => to.collect_seq(items),
            Value::VectorF16(items) => to.collect_seq(items.iter().map(|item| item.to_f32())),
            Value::VectorI8(items) => to.collect_seq(items),
        }
    }
}

/// Formats each event as a line of JSON.
///
/// # Errors
/// Returns an error if this build cannot decode the node's answer.
pub(super) fn json(answer: v1::SelectEventsResponse, key_type: KeyType) -> Result<Vec<String>> {
    let line = |event| json_text(&Line::of(event, key_type, &answer.columns)?);
    answer.events.into_iter().map(line).collect()
}

fn json_text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::internal(error.to_string()))
}

/// Formats the events as CSV with a header line; a missing or null column is an empty cell.
///
/// # Errors
/// As [`json`].
pub(super) fn csv(answer: v1::SelectEventsResponse, key_type: KeyType) -> Result<Vec<String>> {
    let names = answer.columns.iter().map(|column| column.name.as_str());
    let mut lines = vec![row(HEAD.into_iter().chain(names))?];
    for event in answer.events {
        let line = Line::of(event, key_type, &answer.columns)?;
        let value = |column: &v1::EventColumn| line.values.value(FieldId(column.id));
        let head = line.head();
        let cells = head.iter().map(Some).chain(line.columns.iter().map(value)).map(cell);
        lines.push(row(cells.collect::<Result<Vec<_>>>()?)?);
    }
    Ok(lines)
}

fn row<T: AsRef<[u8]>>(cells: impl IntoIterator<Item = T>) -> Result<String> {
    let wrong = |error: &dyn std::fmt::Display| Error::internal(error.to_string());
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(cells).map_err(|error| wrong(&error))?;
    let bytes = writer.into_inner().map_err(|error| wrong(&error))?;
    let mut line = String::from_utf8(bytes).map_err(|error| wrong(&error))?;
    line.truncate(line.trim_end_matches('\n').len());
    Ok(line)
}

fn cell(value: Option<&Value>) -> Result<String> {
    let Some(value) = value else { return Ok(String::new()) };
    let json = json_text(&JsonValue(value))?;
    // A string is written without its JSON quotes.
    Ok(serde_json::from_str::<String>(&json).unwrap_or(json))
}
