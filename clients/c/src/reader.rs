//! Readers: open, wait, read one document, report the status.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay::reads::{
    CheckpointOptions, CopyOut, DocumentKey, FieldHandle, FieldRead, PartitionFilter,
    SnapshotStore, View,
};
use forebay::schema::{FieldType, PartitionId, ScalarType, Timestamp};
use forebay::writes::Token;
use forebay::{Error, ReaderOptions, Result};
use forebay_core::row::encode_value;

use crate::abi::{
    FbBytes, FbError, FbKey, FbReadOptions, FbReaderOptions, FbScalar, FbSink, FbText,
};
use crate::error::ffi_call;
use crate::event::Sink;
use crate::handles::OpenReader;
use crate::input::{field_type_of, millis_or, one, put, read_arguments, slice, slice_mut};
use crate::output::{Packer, owned, presence_code, presence_of, type_code};
use crate::process::wait;
use crate::registry::{self, Object};

/// Reads one field of one document; all functions for one field use this one.
///
/// # Safety
/// Pointers satisfy the header's rules.
unsafe fn read_field<T>(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbReadOptions,
    visit: impl FnOnce(&View<'_>, &FieldHandle, DocumentKey<'_>) -> Result<T>,
) -> Result<T> {
    let open = registry::open(reader)?;
    let found = open.reader()?;
    let handle = found.fields.get(reader, field)?;
    // SAFETY: the caller follows the header's rules.
    let (key, options) = unsafe { (one(key)?.key()?, read_arguments(read)?) };
    found.read(&options, key, |view| visit(view, handle, key))
}

/// Opens a reader over a client's connection. Returns before anything is read.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_open(
    client: u64,
    options: *const FbReaderOptions,
    reader: *mut u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(client)?;
        // SAFETY: the caller follows the header's rules.
        let options = unsafe { one(options)?.options()? };
        let keeps_checkpoints = options.checkpoint.is_some();
        let reader_opened = wait(open.client()?.client.reader(options))??;
        let open_reader = OpenReader::following(reader_opened, keeps_checkpoints);
        let id = registry::insert(Object::Reader(open_reader))?;
        // SAFETY: as above.
        unsafe { put(reader, id) };
        Ok(())
    })
}

impl FbReaderOptions {
    /// # Safety
    /// The rules of [`slice`] apply to every pointer inside.
    unsafe fn options(&self) -> Result<ReaderOptions> {
        // SAFETY: the caller vouches for it.
        let (store, partitions, dir, snapshots) = unsafe {
            let partitions = slice(self.partitions, self.partition_count)?;
            let (dir, snapshots) = (self.checkpoint_dir.text()?, self.snapshots.text()?);
            (self.store.text()?, partitions, dir, snapshots)
        };
        let mut options = ReaderOptions::new(store);
        if !self.partitions.is_null() {
            let followed: BTreeSet<_> = partitions.iter().copied().map(PartitionId).collect();
            options.partitions = PartitionFilter::Only(followed);
        }
        options.allow_incomplete_reads = self.allow_incomplete_reads != 0;
        options.ready_max_staleness =
            millis_or(self.ready_max_staleness_ms, options.ready_max_staleness);
        options.open_timeout = millis_or(self.open_timeout_ms, options.open_timeout);
        if !dir.is_empty() {
            let mut checkpoint = CheckpointOptions::new(dir);
            checkpoint.interval = millis_or(self.checkpoint_interval_ms, checkpoint.interval);
            if self.checkpoint_bytes_max > 0 {
                checkpoint.bytes_max = self.checkpoint_bytes_max;
            }
            options.checkpoint = Some(checkpoint);
        }
        if !snapshots.is_empty() {
            options.snapshots = Some(SnapshotStore::open(snapshots)?);
        }
        options.memory_limit = (self.memory_limit > 0).then_some(self.memory_limit);
        options.spill_limit = self.spill_limit;
        Ok(options)
    }
}

/// Waits until every partition that the reader follows serves within its bound.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_await_ready(
    reader: u64,
    timeout_ms: u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let open = open.reader()?;
        Ok(open.wait(open.reader.await_ready(Duration::from_millis(timeout_ms)))??)
    })
}

/// Waits until everything that a token covers is applied.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_await_token(
    reader: u64,
    token: FbText,
    timeout_ms: u64,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let open = open.reader()?;
        // SAFETY: the caller follows the header's rules.
        let token = Token::decode(unsafe { token.bytes()? })?;
        Ok(open.wait(open.reader.await_token(&token, Duration::from_millis(timeout_ms)))??)
    })
}

/// Resolves a field; type 0 is the field's own type. The field belongs to the reader.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_field(
    reader: u64,
    name: FbText,
    asked: u32,
    field: *mut u64,
    field_type: *mut u32,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let found = open.reader()?;
        // SAFETY: the caller follows the header's rules.
        let name = unsafe { name.text()? };
        let handle = match asked {
            0 => found.reader.field(name)?,
            type_number => found.reader.field_as(name, field_type_of(type_number)?)?,
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

/// Returns the partition that a key belongs to.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_partition_of(
    reader: u64,
    key: *const FbKey,
    partition: *mut u32,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        // SAFETY: the caller follows the header's rules.
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
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_scalar(
    reader: u64,
    field: u64,
    wanted: u32,
    key: *const FbKey,
    read: *const FbReadOptions,
    scalar: *mut FbScalar,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        // SAFETY: the caller follows the header's rules.
        let answer = unsafe {
            read_field(reader, field, key, read, |view, handle, key| {
                scalar_of(view, handle, key, wanted)
            })?
        };
        // SAFETY: as above.
        unsafe { put(scalar, answer) };
        Ok(())
    })
}

fn scalar_of(
    view: &View<'_>,
    handle: &FieldHandle,
    key: DocumentKey<'_>,
    type_number: u32,
) -> Result<FbScalar> {
    let integer = |value: i64| (value, value as f64);
    let real = |value: f64| (value as i64, value);
    let FieldType::Scalar(scalar) = field_type_of(type_number)? else {
        return Err(no_number(type_number));
    };
    Ok(match scalar {
        ScalarType::Bool => {
            mapped(view.get_scalar(handle, key)?, |value: bool| integer(value.into()))
        }
        ScalarType::Int32 => {
            mapped(view.get_scalar(handle, key)?, |value: i32| integer(value.into()))
        }
        ScalarType::Int64 => mapped(view.get_scalar(handle, key)?, integer),
        ScalarType::Float32 => {
            mapped(view.get_scalar(handle, key)?, |value: f32| real(value.into()))
        }
        ScalarType::Float64 => mapped(view.get_scalar(handle, key)?, real),
        ScalarType::Timestamp => {
            mapped(view.get_scalar(handle, key)?, |value: Timestamp| integer(value.as_micros()))
        }
        ScalarType::String | ScalarType::Bytes => return Err(no_number(type_number)),
    })
}

fn no_number(type_number: u32) -> Error {
    let named = field_type_of(type_number)
        .map_or_else(|_| type_number.to_string(), |field_type| field_type.to_string());
    Error::invalid_argument(format!("a {named} is no number; read the field as a value"))
}

fn mapped<T>(read: FieldRead<T>, number: impl FnOnce(T) -> (i64, f64)) -> FbScalar {
    let (mut integer, mut real) = (0, 0.0);
    let presence = presence_of(read, |value| (integer, real) = number(value));
    FbScalar { presence, reserved: 0, integer, real }
}

/// Copies a string or bytes into a buffer, if the buffer is large enough, and returns the value's
/// length.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_bytes(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbReadOptions,
    buffer: *mut u8,
    capacity: u64,
    length: *mut u64,
    presence: *mut u32,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        // SAFETY: the caller follows the header's rules.
        let copied = unsafe {
            let buffer = slice_mut(buffer, capacity)?;
            read_field(reader, field, key, read, |view, handle, key| match handle.asked() {
                FieldType::STRING => view.get_str(handle, key, buffer),
                _ => view.get_bytes(handle, key, buffer),
            })?
        };
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

/// Reads a value of any type, in the encoding of the row codec.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_value(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbReadOptions,
    value: *mut FbBytes,
    presence: *mut u32,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        // SAFETY: the caller follows the header's rules.
        let answer = unsafe {
            read_field(reader, field, key, read, |view, handle, key| view.get_value(handle, key))?
        };
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

/// Returns whether a field of a document is absent, null or a value.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_presence(
    reader: u64,
    field: u64,
    key: *const FbKey,
    read: *const FbReadOptions,
    presence: *mut u32,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        // SAFETY: the caller follows the header's rules.
        let answer = unsafe {
            read_field(reader, field, key, read, |view, handle, key| view.presence(handle, key))?
        };
        // SAFETY: as above.
        unsafe { put(presence, presence_code(answer).into()) };
        Ok(())
    })
}

/// Returns the whole document, packed; no bytes if there is no document.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_get_document(
    reader: u64,
    key: *const FbKey,
    read: *const FbReadOptions,
    document: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        // SAFETY: the caller follows the header's rules.
        let (key, options) = unsafe { (one(key)?.key()?, read_arguments(read)?) };
        let packed = open.reader()?.read(&options, key, |view| {
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

/// Returns the definition at the newest version that the reader has seen, packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_definition(
    reader: u64,
    definition: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let mut packer = Packer::default();
        packer.definition(&open.reader()?.reader.definition());
        // SAFETY: the caller follows the header's rules.
        unsafe { put(definition, packer.finish()) };
        Ok(())
    })
}

/// Returns the newest schema version that any partition of the reader has seen; 0 before the first.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_schema_version(
    reader: u64,
    version: *mut u32,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let newest = open.reader()?.reader.schema_version();
        // SAFETY: the caller follows the header's rules.
        unsafe { put(version, newest.0) };
        Ok(())
    })
}

/// Sends each schema version that the reader reaches from now on to the sink: its definition,
/// packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_on_schema_change(
    reader: u64,
    sink: *const FbSink,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        // SAFETY: the caller follows the header's rules.
        let sink = unsafe { Sink::of(sink)? };
        open.reader()?.reader.on_schema_change(Arc::new(move |definition| {
            let mut packer = Packer::default();
            packer.definition(definition);
            sink.tell(packer.into_bytes(), None);
        }));
        Ok(())
    })
}

/// Returns the status of the reader and of each partition, and the reader's counts, packed.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_metrics(
    reader: u64,
    metrics: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let mut packer = Packer::default();
        packer.metrics(&open.reader()?.reader.metrics());
        // SAFETY: the caller follows the header's rules.
        unsafe { put(metrics, packer.finish()) };
        Ok(())
    })
}
