//! Benchmarks of the whole path, as users run it: a real `forebayd` in a process of its own, the
//! Rust client in this one, and beside them in the same run whatever bounds them from below: raw
//! fdatasync, an RPC that writes nothing, a raw Kafka producer, decoding alone.
//!
//! Each module is one benchmark: it measures in rounds and forms rows; its binary only says how
//! long. Tests run each with a handful of operations.

pub mod apply;
pub mod bootstrap;
pub mod clock;
pub mod data;
pub mod floor;
pub mod freshness;
pub mod latency;
pub mod push;
pub mod raw_kafka;
pub mod server;
pub mod taken;
pub mod watch;
pub mod watcher;
pub mod writes;

/// What ends a benchmark early; it is printed and never handled.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The threads that clients, readers and this crate's own tasks run on.
///
/// # Errors
/// The operating system gives none.
pub fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| format!("start the runtime: {error}"))
}
