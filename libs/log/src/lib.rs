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
pub mod embedded_log;
pub mod faulty;
pub mod kafka;
mod membership;
mod memory;
pub mod remote;
mod tail_cache;

pub use change_log::{
    AppendReceipt, Bounds, ChangeLog, LogRecord, ReadLimit, RecordRange, Records,
};
pub use embedded_log::{EmbeddedLog, EmbeddedOptions};
pub use faulty::FaultyLog;
pub use kafka::{KafkaGroup, KafkaLog, KafkaOptions, KafkaOwners};
pub use membership::{Membership, PartitionAssignment, SingleMember};
pub use memory::MemoryLog;
pub use remote::RemoteLog;
