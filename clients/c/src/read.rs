//! Readers: open, wait, read one document, tell how they are.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay::{
    CopyOut, DocumentKey, Error, FieldRead, PartitionFilter, PartitionId, Phase, Reader,
    ReaderMetrics, ReaderOptions, ReaderStatus, Result, ScalarType, Token, View,
};
use forebay_core::row::encode_value;

use crate::abi::{FbBytes, FbError, FbKey, FbRead, FbReaderOptions, FbScalar, FbText};
use crate::fault::entry;
use crate::field::FieldTable;
use crate::input::{How, field_type_of, how, one, put, slice, slice_mut};
use crate::output::{NONE, Packer, owned, presence_code, presence_of, type_code};
use crate::process::wait;
use crate::registry::{self, Object};

/// A reader and the fields that its callers have resolved.
pub(crate) struct OpenReader {
    pub(crate) reader: Reader,
    pub(crate) fields: FieldTable,
}

impl OpenReader {
    pub(crate) fn close(&self) {
        self.reader.close();
    }

    /// Reads one document as `how` says.
    fn read<T>(
        &self,
        how: &How,
        key: DocumentKey<'_>,
        with: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        if how.waits {
            let partition = self.reader.partition_of(key)?;
            wait(self.reader.wait(&how.read, &[partition]))??;
        }
        self.reader.read_local(how.age_max, with)
    }
}

fn millis_or(given: u64, unless: Duration) -> Duration {
    if given > 0 { Duration::from_millis(given) } else { unless }
}

/// Opens a reader over a client's connection. Returns before anything is read.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_open(
    client: u64,
    options: *const FbReaderOptions,
    reader: *mut u64,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(client)?;
        // SAFETY: the caller keeps the header's rules.
        let (given, store, partitions) = unsafe {
            let given = one(options)?;
            (given, given.store.text()?, slice(given.partitions, given.partition_count)?)
        };
        let mut options = ReaderOptions::new(store);
        if !given.partitions.is_null() {
            let only: BTreeSet<_> = partitions.iter().copied().map(PartitionId).collect();
            options.partitions = PartitionFilter::Only(only);
        }
        options.serve_partial = given.serve_partial != 0;
        options.ready_age_max = millis_or(given.ready_age_max_ms, options.ready_age_max);
        options.open_timeout = millis_or(given.open_timeout_ms, options.open_timeout);
        let opened = wait(open.client()?.client.reader(options))??;
        let opened = OpenReader { reader: opened, fields: FieldTable::new() };
        let id = registry::insert(Object::Reader(opened))?;
        // SAFETY: as above.
        unsafe { put(reader, id) };
        Ok(())
    })
}

/// Waits until every partition that the reader follows serves inside its bound.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_await_ready(
    reader: u64,
    timeout_ms: u64,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let reader = &open.reader()?.reader;
        Ok(wait(reader.await_ready(Duration::from_millis(timeout_ms)))??)
    })
}

/// Waits until everything that a token speaks of is applied.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_await_token(
    reader: u64,
    token: FbText,
    timeout_ms: u64,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let reader = &open.reader()?.reader;
        // SAFETY: the caller keeps the header's rules.
        let token = Token::decode(unsafe { token.bytes()? })?;
        Ok(wait(reader.wait_token(&token, Duration::from_millis(timeout_ms)))??)
    })
}

/// Resolves a field; type 0 asks for its own. The field belongs to the reader.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_field(
    reader: u64,
    name: FbText,
    asked: u32,
    field: *mut u64,
    field_type: *mut u32,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        // SAFETY: the caller keeps the header's rules.
        let name = unsafe { name.text()? };
        let handle = match asked {
            0 => found.reader.handle_of_own_type(name)?,
            asked => found.reader.handle(name, field_type_of(asked)?)?,
        };
        let code = type_code(handle.asked());
        let number = found.fields.keep(reader, handle)?;
        // SAFETY: as above.
        unsafe {
            put(field, number);
            put(field_type, code);
        }
        Ok(())
    })
}

/// The partition that a key belongs to.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_partition(
    reader: u64,
    key: *const FbKey,
    partition: *mut u32,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        // SAFETY: the caller keeps the header's rules.
        let key = unsafe { one(key)?.key()? };
        let found = open.reader()?.reader.partition_of(key)?;
        // SAFETY: as above.
        unsafe { put(partition, found.0) };
        Ok(())
    })
}

/// Reads a number, bool or timestamp as a type, which must be the field's.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_scalar(
    reader: u64,
    field: u64,
    wanted: u32,
    key: *const FbKey,
    read: *const FbRead,
    scalar: *mut FbScalar,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller keeps the header's rules.
        let (key, how) = unsafe { (one(key)?.key()?, how(read)?) };
        let answer = found.read(&how, key, |view| {
            let integer = |value: i64| (value, value as f64);
            let real = |value: f64| (value as i64, value);
            Ok(match field_type_of(wanted)? {
                forebay::FieldType::Scalar(ScalarType::Bool) => {
                    mapped(view.get_scalar(handle, key)?, |value: bool| integer(value.into()))
                }
                forebay::FieldType::Scalar(ScalarType::Int32) => {
                    mapped(view.get_scalar(handle, key)?, |value: i32| integer(value.into()))
                }
                forebay::FieldType::Scalar(ScalarType::Int64) => {
                    mapped(view.get_scalar(handle, key)?, integer)
                }
                forebay::FieldType::Scalar(ScalarType::Float32) => {
                    mapped(view.get_scalar(handle, key)?, |value: f32| real(value.into()))
                }
                forebay::FieldType::Scalar(ScalarType::Float64) => {
                    mapped(view.get_scalar(handle, key)?, real)
                }
                forebay::FieldType::Scalar(ScalarType::Timestamp) => {
                    mapped(view.get_scalar(handle, key)?, |value: forebay::Timestamp| {
                        integer(value.as_micros())
                    })
                }
                other => {
                    let message = format!("a {other} is no number; read it as a value");
                    return Err(Error::invalid_argument(message));
                }
            })
        })?;
        // SAFETY: as above.
        unsafe { put(scalar, answer) };
        Ok(())
    })
}

fn mapped<T>(read: FieldRead<T>, number: impl FnOnce(T) -> (i64, f64)) -> FbScalar {
    let (mut integer, mut real) = (0, 0.0);
    let presence = presence_of(read, |value| (integer, real) = number(value));
    FbScalar { presence, reserved: 0, integer, real }
}

/// Copies a string or bytes into a buffer, if it has room, and tells the value's length.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_bytes(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbRead,
    buffer: *mut u8,
    capacity: u64,
    length: *mut u64,
    presence: *mut u32,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller keeps the header's rules.
        let (key, how, buffer) =
            unsafe { (one(key)?.key()?, how(read)?, slice_mut(buffer, capacity)?) };
        let is_text = handle.asked() == forebay::FieldType::Scalar(ScalarType::String);
        let copied = found.read(&how, key, |view| match is_text {
            true => view.get_str(handle, key, buffer),
            false => view.get_bytes(handle, key, buffer),
        })?;
        let (found, bytes) = match copied {
            CopyOut::Absent => (0, 0),
            CopyOut::Null => (1, 0),
            CopyOut::Length(bytes) | CopyOut::SizeNeeded(bytes) => (2, bytes as u64),
        };
        // SAFETY: as above.
        unsafe {
            put(length, bytes);
            put(presence, found);
        }
        Ok(())
    })
}

/// Reads a value of any type, as the row codec lays it out.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_value(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbRead,
    value: *mut FbBytes,
    presence: *mut u32,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller keeps the header's rules.
        let (key, how) = unsafe { (one(key)?.key()?, how(read)?) };
        let answer = found.read(&how, key, |view| view.get_value(handle, key))?;
        let mut bytes = Vec::new();
        let found = presence_of(answer, |value| encode_value(&value, &mut bytes));
        // SAFETY: as above.
        unsafe {
            put(presence, found);
            put(value, owned(bytes.into()));
        }
        Ok(())
    })
}

/// Whether a field of a document is absent, null or a value.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_presence(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbRead,
    presence: *mut u32,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        let handle = found.fields.get(reader, field)?;
        // SAFETY: the caller keeps the header's rules.
        let (key, how) = unsafe { (one(key)?.key()?, how(read)?) };
        let answer = found.read(&how, key, |view| view.presence(handle, key))?;
        // SAFETY: as above.
        unsafe { put(presence, presence_code(answer).into()) };
        Ok(())
    })
}

/// The whole document, packed; no bytes where there is none.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_document(
    reader: u64,
    key: *const FbKey,
    read: *const FbRead,
    document: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        // SAFETY: the caller keeps the header's rules.
        let (key, how) = unsafe { (one(key)?.key()?, how(read)?) };
        let packed = open.reader()?.read(&how, key, |view| {
            let Some(row) = view.get(key)? else { return Ok(FbBytes::EMPTY) };
            let mut packer = Packer::default();
            packer.document(&row)?;
            Ok(packer.finish())
        })?;
        // SAFETY: as above.
        unsafe { put(document, packed) };
        Ok(())
    })
}

/// The definition at the newest version that the reader has seen, packed.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_definition(
    reader: u64,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let mut packer = Packer::default();
        packer.definition(&open.reader()?.reader.schema().definition);
        // SAFETY: the caller keeps the header's rules.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

/// How the reader and each of its partitions are, and what it has counted, packed.
///
/// # Safety
/// Pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_metrics(
    reader: u64,
    metrics: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        let open = registry::open(reader)?;
        let mut packer = Packer::default();
        packer.metrics(&open.reader()?.reader.metrics());
        // SAFETY: the caller keeps the header's rules.
        unsafe { put(metrics, packer.finish()) };
        Ok(())
    })
}

impl Packer {
    fn metrics(&mut self, metrics: &ReaderMetrics) {
        let records = &metrics.records;
        for count in [
            metrics.reads.hits,
            metrics.reads.misses,
            metrics.memory_bytes,
            records.applied,
            records.read_bytes,
            records.skipped,
            records.repeats,
            records.too_large,
            records.log_errors,
            records.rebuilds,
        ] {
            self.u64(count);
        }
        self.status(&metrics.status);
    }

    fn status(&mut self, status: &ReaderStatus) {
        self.text(status.store.as_bytes());
        self.u8(status.is_ready.into());
        self.u8(phase_code(status.phase));
        self.u8(status.percent);
        self.duration(status.remaining);
        self.duration(status.age);
        self.u32(status.schema_version.0);
        self.u32(status.partitions.len() as u32);
        for partition in &status.partitions {
            self.u32(partition.partition.0);
            self.u8(phase_code(partition.phase));
            self.u32(partition.generation);
            self.u64(partition.offset_applied.0);
            self.u64(partition.end.0);
            self.u64(partition.lag_records);
            self.duration(partition.age);
            self.u32(partition.schema_version.0);
            self.u64(partition.documents);
            self.u64(partition.bytes);
            let why = partition.halted.as_ref().or(partition.trouble.as_ref());
            self.text(why.map(Error::to_string).unwrap_or_default().as_bytes());
        }
    }

    fn duration(&mut self, duration: Option<Duration>) {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.i64(duration.map_or(NONE, micros));
    }
}

fn phase_code(phase: Phase) -> u8 {
    match phase {
        Phase::Bootstrapping => 1,
        Phase::Serving => 2,
        Phase::Poisoned => 3,
    }
}
