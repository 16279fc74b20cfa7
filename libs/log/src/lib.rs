//! The change log: one ordered log of entries per partition, behind one trait.
//!
//! A log stores bytes and has no schema; `forebay-wire` defines the meaning of the bytes. The log
//! assigns each record an offset and an append time. The log acknowledges a record only when the
//! record survives everything that the implementation promises to survive.

mod catalog;
mod change_log;
mod changed_keys;
pub mod conformance;
mod copied_log;
pub mod disk;
pub mod embedded;
mod end_signal;
pub mod faulty;
pub mod kafka;
mod membership;
mod memory;
mod opening;
mod record_range;
pub mod remote;
pub mod serve;
mod tail_cache;
mod version_log;

pub use catalog::CatalogFollower;
pub use change_log::{Appended, Bounds, ChangeLog, LogRecord, ReadLimit, Records};
pub use changed_keys::changed_keys;
pub use copied_log::{CopiedFrom, CopiedLog, CopiedUpTo};
pub use embedded::{EmbeddedLog, EmbeddedOptions};
pub use faulty::FaultyLog;
pub use kafka::{KafkaGroup, KafkaLog, KafkaOptions, KafkaOwners};
pub use membership::{Alone, Assigned, Membership};
pub use memory::MemoryLog;
pub use opening::{append_opening, find_log_id, open_log};
pub use record_range::RecordRange;
pub use remote::RemoteLog;
pub use version_log::follow_version;
