//! Output of the library: bytes that the caller frees, and the packed forms of documents,
//! definitions and status that `forebay.h` describes.

use forebay::Result;
use forebay::reads::{FieldRead, Presence, RowRef};
use forebay::schema::{
    ColumnIndex, Definition, FieldType, KeyType, KeyValue, ScalarType, Value, VectorType,
};
use forebay_core::row::encode_value;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::abi::FbBytes;

/// "None" for a time, a version or a duration that may be missing.
pub(crate) const NONE: i64 = i64::MIN;

/// Levels of log records by their codes in the header, `FB_LOG_OFF` to `FB_LOG_TRACE`.
pub(crate) const LOG_LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

/// Passes ownership of bytes to the caller.
pub(crate) fn owned(bytes: Box<[u8]>) -> FbBytes {
    let length = bytes.len() as u64;
    if length == 0 {
        return FbBytes::EMPTY;
    }
    FbBytes { data: Box::into_raw(bytes).cast(), length }
}

/// Takes back ownership of bytes and frees them.
///
/// # Safety
/// The bytes are from [`owned`] and freed once, or empty.
pub(crate) unsafe fn free(bytes: FbBytes) {
    if bytes.data.is_null() {
        return;
    }
    let slice = std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.length as usize);
    // SAFETY: `owned` created pointer and length from one boxed slice.
    drop(unsafe { Box::from_raw(slice) });
}

/// Returns a type's code in the header: `FB_TYPE_*`.
pub(crate) fn type_code(field_type: FieldType) -> u32 {
    match field_type {
        FieldType::Scalar(scalar) => scalar_code(scalar),
        FieldType::List(scalar) => 0x100 | scalar_code(scalar),
        FieldType::Vector(component, length) => {
            let component = match component {
                VectorType::F32 => 1,
                VectorType::F16 => 2,
                VectorType::I8 => 3,
            };
            0x200 | component | (u32::from(length) << 16)
        }
    }
}

fn scalar_code(scalar: ScalarType) -> u32 {
    match scalar {
        ScalarType::Bool => 1,
        ScalarType::Int32 => 2,
        ScalarType::Int64 => 3,
        ScalarType::Float32 => 4,
        ScalarType::Float64 => 5,
        ScalarType::String => 6,
        ScalarType::Bytes => 7,
        ScalarType::Timestamp => 8,
    }
}

/// Returns a presence's code in the header: `FB_ABSENT`, `FB_NULL`, `FB_VALUE`.
pub(crate) fn presence_code(presence: Presence) -> u8 {
    match presence {
        Presence::Absent => 0,
        Presence::Null => 1,
        Presence::Value => 2,
    }
}

/// Returns a key type's code in the header: `FB_KEY_*`.
pub(crate) fn key_type_code(key_type: KeyType) -> u32 {
    match key_type {
        KeyType::String => 1,
        KeyType::Bytes => 2,
        KeyType::Int64 => 3,
    }
}

/// Returns an index's code in the header: `FB_INDEX_*`.
fn index_code(index: Option<ColumnIndex>) -> u8 {
    match index {
        None => 0,
        Some(ColumnIndex::Exact) => 1,
        Some(ColumnIndex::Range) => 2,
    }
}

/// A builder of packed bytes: little-endian, one part after another.
#[derive(Default)]
pub(crate) struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a length u32 and the bytes.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.u32(text.len() as u32);
        self.bytes.extend_from_slice(text);
    }

    /// Appends a type u32, 0 for none, then the length of the value's bytes and the bytes.
    pub(crate) fn value(&mut self, value: Option<&Value>) {
        let code = value.and_then(Value::field_type).map_or(0, type_code);
        self.u32(code);
        let mut bytes = Vec::new();
        if let Some(value) = value {
            encode_value(value, &mut bytes);
        }
        self.text(&bytes);
    }

    pub(crate) fn key(&mut self, key: KeyValue<'_>) {
        self.u32(key_type_code(key.key_type()));
        key.with_bytes(|bytes| self.text(bytes));
    }

    /// Appends a document: expiry i64, version i64, number of fields u32; per field its name, its
    /// expiry i64, and its value, which is none for null.
    pub(crate) fn document(&mut self, row: &RowRef<'_>) -> Result<()> {
        let (document, definition) = (row.document()?, row.definition());
        self.i64(document.expires_at.map_or(NONE, |expires_at| expires_at.as_micros()));
        self.i64(document.version.map_or(NONE, |version| version.0 as i64));
        let named: Vec<_> = document
            .cells()
            .iter()
            .filter_map(|cell| Some((definition.field_by_id(cell.field)?, cell)))
            .collect();
        self.u32(named.len() as u32);
        for (field, cell) in named {
            self.text(field.name.as_bytes());
            self.i64(cell.expires_at.map_or(NONE, |expires_at| expires_at.as_micros()));
            self.value(cell.value.as_ref());
        }
        Ok(())
    }

    /// Appends a definition: see `fb_store_definition` in the header.
    pub(crate) fn definition(&mut self, definition: &Definition) {
        self.u64(definition.store.0);
        self.text(definition.name.as_bytes());
        self.u32(definition.version.0);
        self.u32(key_type_code(definition.key_type));
        let partition_key = definition.partition_key.and_then(|id| definition.field_by_id(id));
        self.text(partition_key.map_or("", |field| &field.name).as_bytes());
        self.u32(definition.write_logs().partitions.0);
        self.i64(definition.options.ttl_us.unwrap_or(NONE));
        self.u32(definition.options.heartbeat_ms);
        self.u8(definition.options.versioned.into());
        self.i64(definition.options.log_retention_us.unwrap_or(NONE));
        self.u64(definition.options.log_retention_bytes.unwrap_or(0));
        self.u8(definition.key_value.into());
        self.u8(definition.stream.is_some().into());
        let event_time = definition.event_time().map_or("", |column| &column.name);
        self.text(event_time.as_bytes());
        self.u32(definition.fields.len() as u32);
        for field in &definition.fields {
            self.u32(field.id.0);
            self.text(field.name.as_bytes());
            self.u32(type_code(field.field_type));
            self.value(field.default.as_ref());
            self.i64(field.ttl_us.unwrap_or(NONE));
            self.u32(field.aliases.len() as u32);
            field.aliases.iter().for_each(|alias| self.text(alias.as_bytes()));
            self.u8(field.rules.required.into());
            self.u32(field.rules.allowed.len() as u32);
            field.rules.allowed.iter().for_each(|value| self.value(Some(value)));
            self.u8(index_code(field.rules.index));
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn finish(self) -> FbBytes {
        owned(self.bytes.into())
    }
}

/// Returns the presence of a read value, and passes the value to `visit`.
pub(crate) fn presence_of<T>(read: FieldRead<T>, visit: impl FnOnce(T)) -> u32 {
    let presence = presence_code(read.presence());
    if let FieldRead::Value(value) = read {
        visit(value);
    }
    presence.into()
}

/// Packs a log record as the header describes: level u32, which is `FB_LOG_ERROR` to
/// `FB_LOG_TRACE`, | target TEXT | message TEXT.
pub(crate) fn packed_record(level: Level, target: &str, message: &str) -> Vec<u8> {
    let code = LOG_LEVELS.iter().position(|log_level| *log_level == level).unwrap_or(0);
    let mut packer = Packer::default();
    packer.u32(code as u32);
    packer.text(target.as_bytes());
    packer.text(message.as_bytes());
    packer.into_bytes()
}
