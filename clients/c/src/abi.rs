//! The structs of `forebay.h`, field by field; `tests/c_test.rs` compares their layouts with the C
//! compiler's layouts of the header.

use std::ffi::c_void;

/// Bytes or UTF-8 text that the caller owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbText {
    pub data: *const u8,
    pub length: u64,
}

/// Bytes that the library owns until `fb_bytes_free`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbBytes {
    pub data: *mut u8,
    pub length: u64,
}

/// A failure: the event, its context, and what to do next.
#[repr(C)]
pub struct FbError {
    pub code: i32,
    pub applies: u32,
    pub partition: u32,
    pub reserved: u32,
    pub key_digest: u64,
    pub limit: u64,
    pub actual: u64,
    pub pending: u64,
    pub message: FbBytes,
    pub store: FbBytes,
    pub field: FbBytes,
}

/// A value in the encoding of `proto/spec/row.md`, with its type; type 0 is null.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbValue {
    pub value_type: u32,
    pub reserved: u32,
    pub data: FbText,
}

/// A document's key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbKey {
    pub key_type: u32,
    pub partition_key_type: u32,
    pub key: FbText,
    pub partition_key: FbText,
}

/// Many keys, concatenated.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbKeys {
    pub key_type: u32,
    pub partition_key_type: u32,
    pub count: u64,
    pub keys: FbText,
    pub ends: *const u64,
    pub partition_keys: FbText,
    pub partition_ends: *const u64,
}

/// The wait of a read, and its staleness bound.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbReadOptions {
    pub wait: u32,
    pub reserved: u32,
    pub timeout_ms: u64,
    pub max_staleness_ms: u64,
    pub token: FbText,
}

/// A field of a store specification.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbFieldSpec {
    pub name: FbText,
    pub field_type: u32,
    pub required: u32,
    pub fallback: FbValue,
    pub ttl_us: i64,
    pub allowed: *const FbValue,
    pub allowed_count: u64,
    pub index: u32,
    pub reserved: u32,
}

/// Options of a store.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbStoreOptions {
    pub ttl_us: i64,
    pub heartbeat_ms: u32,
    pub versioned: u32,
    pub log_retention_us: i64,
    pub log_retention_bytes: u64,
}

/// A store specification.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbStoreSpec {
    pub name: FbText,
    pub key_type: u32,
    pub partitions: u32,
    pub partition_key: FbText,
    pub fields: *const FbFieldSpec,
    pub field_count: u64,
    pub options: FbStoreOptions,
    pub key_value: u32,
    pub stream: u32,
    pub event_time: FbText,
}

/// An alteration of a definition.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbAlteration {
    pub kind: u32,
    pub reserved: u32,
    pub field: FbFieldSpec,
    pub to: FbText,
    pub options: FbStoreOptions,
}

/// An operation of a change on one field.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbOp {
    pub op: u32,
    pub bound: u32,
    pub field: FbText,
    pub value: FbValue,
    pub ttl_us: i64,
}

/// A change of one document.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbChange {
    pub verb: u32,
    pub condition: u32,
    pub key: FbKey,
    pub ops: *const FbOp,
    pub op_count: u64,
    pub ttl_us: i64,
    pub if_version: u64,
    pub if_newer: FbText,
}

/// The outcome of one change.
#[repr(C)]
pub struct FbOutcome {
    pub result: u32,
    pub has_version: u32,
    pub version: u64,
    pub error: FbError,
}

/// Options of a reader.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbReaderOptions {
    pub store: FbText,
    pub partitions: *const u32,
    pub partition_count: u64,
    pub ready_max_staleness_ms: u64,
    pub open_timeout_ms: u64,
    pub allow_incomplete_reads: u32,
    pub reserved: u32,
    pub checkpoint_dir: FbText,
    pub checkpoint_interval_ms: u64,
    pub checkpoint_bytes_max: u64,
    pub memory_limit: u64,
    pub spill_limit: u64,
    pub snapshots: FbText,
}

/// The destination of a caller's later events.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbSink {
    pub callback: Option<extern "C" fn(*mut c_void, FbText)>,
    pub context: *mut c_void,
    pub inbox: u64,
    pub ticket: u64,
}

/// Limits of a stream's unresolved changes, and the deadline of its calls.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbStreamOptions {
    pub changes_max: u64,
    pub bytes_max: u64,
    pub deadline_ms: u64,
}

/// Counts of a stream's changes by outcome.
#[repr(C)]
pub struct FbStreamSummary {
    pub resolved: u64,
    pub condition_failed: u64,
    pub failed: u64,
    pub token: FbBytes,
}

/// A select: which events of a stream, and which columns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbEventQuery {
    pub flags: u32,
    pub limit: u32,
    pub key: FbKey,
    pub column: FbText,
    pub start: FbValue,
    pub end: FbValue,
    pub start_us: i64,
    pub end_us: i64,
    pub columns: *const FbText,
    pub column_count: u64,
    pub order_by: FbText,
}

/// A number, bool or timestamp of a document.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbScalar {
    pub presence: u32,
    pub reserved: u32,
    pub integer: i64,
    pub real: f64,
}

/// A field of a gather.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FbGatherField {
    pub name: FbText,
    pub fallback: FbValue,
}

/// Strings or bytes of many documents.
#[repr(C)]
pub struct FbPacked {
    pub values: FbBytes,
    pub ends: FbBytes,
    pub statuses: FbBytes,
    pub presences: FbBytes,
}

impl FbBytes {
    /// No bytes; freeing it does nothing.
    pub const EMPTY: Self = Self { data: std::ptr::null_mut(), length: 0 };
}

impl FbError {
    /// No failure.
    pub const NONE: Self = Self {
        code: 0,
        applies: 0,
        partition: 0,
        reserved: 0,
        key_digest: 0,
        limit: 0,
        actual: 0,
        pending: 0,
        message: FbBytes::EMPTY,
        store: FbBytes::EMPTY,
        field: FbBytes::EMPTY,
    };
}
