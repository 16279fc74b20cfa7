//! Every limit of Forebay, in one place; beyond one, a caller gets `LimitExceeded` with the limit
//! and what it sent.

/// Longest primary key or partition key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Largest single field value, in bytes of its encoded form.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest encoded row, in bytes. A writer cannot see what an upsert adds up to, so a replica skips
/// and counts a change whose result would be larger.
pub const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest entry body as the log holds it, in bytes.
pub const ENTRY_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Most changes in one entry; a place in an entry fits 16 bits.
pub const ENTRY_CHANGES_MAX: usize = 16 * 1024;
/// Most changes in one write request.
pub const REQUEST_CHANGES_MAX: usize = 16 * 1024;
/// Largest gRPC message that any of our services accepts or sends, in bytes.
pub const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX + 4 * 1024 * 1024;
/// Longest store or field name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most fields that a definition may hold, retired ids excluded.
pub const FIELDS_MAX: usize = 2_000;
/// Highest field id, retired ids included.
pub const FIELD_ID_MAX: u32 = 65_535;
/// Highest schema version of a store: it stands as 16 bits in every row.
pub const SCHEMA_VERSION_MAX: u32 = 65_535;
/// Most partitions of a store.
pub const PARTITIONS_MAX: u32 = 4_096;
/// Longest fixed-length vector, in components.
pub const VECTOR_COMPONENTS_MAX: usize = 65_535;
/// Most components of a list, also the largest bound of a list append.
pub const LIST_COMPONENTS_MAX: usize = 65_535;
/// Sequences below a client's highest that de-duplication remembers, per partition.
pub const DEDUP_WINDOW: u64 = 1_024;
/// Partition time after which an idle client is forgotten, in microseconds: 24 h.
pub const DEDUP_IDLE_US: i64 = 24 * 60 * 60 * 1_000_000;
/// Conditional outcomes that a partition's replicator keeps.
pub const OUTCOMES_KEPT: usize = 65_536;
/// Requests that wait in one partition's write queue before a writer pushes back.
pub const WRITE_QUEUE_REQUESTS_MAX: usize = 4_096;
/// Bytes that wait in one partition's write queue before a writer pushes back.
pub const WRITE_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time to live: 100 years, in microseconds; sums with any date stay inside `i64`.
pub const TTL_US_MAX: i64 = 100 * 365 * 24 * 60 * 60 * 1_000_000;
/// Keys of one multi-get or gather.
pub const BATCH_KEYS_MAX: usize = 1 << 20;

const _: () = assert!(VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + 1024 * 1024 < ENTRY_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < ROW_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(ENTRY_CHANGES_MAX <= 1 << 16);
const _: () = assert!(REQUEST_CHANGES_MAX <= ENTRY_CHANGES_MAX);
const _: () = assert!(FIELDS_MAX <= FIELD_ID_MAX as usize);
