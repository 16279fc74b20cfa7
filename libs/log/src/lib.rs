//! The change log: one ordered log of entries per partition, behind one trait.
//!
//! A log stores bytes and has no schema: `forebay-wire` defines the form of the bytes, and
//! `forebay-entries` decodes them. The log assigns each record an offset and an append time. The
//! log acknowledges a record only when the record survives everything that the implementation
//! promises to survive.

mod append_notifier;
mod change_log;
pub mod change_stream_service;
pub mod conformance;
pub mod disk;
pub mod embedded;
pub mod faulty;
pub mod kafka;
mod membership;
mod memory;
mod record_range;
pub mod remote;
mod tail_cache;

pub use change_log::{Appended, Bounds, ChangeLog, LogRecord, ReadLimit, Records};
pub use embedded::{EmbeddedLog, EmbeddedOptions};
pub use faulty::FaultyLog;
pub use kafka::{KafkaGroup, KafkaLog, KafkaOptions, KafkaOwners};
pub use membership::{Alone, Assigned, Membership};
pub use memory::MemoryLog;
pub use record_range::RecordRange;
pub use remote::RemoteLog;
