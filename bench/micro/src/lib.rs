//! Benchmarks of the whole path, as users run it: a real `forebayd` in a separate process, and the
//! Rust client in this one. Each run also measures lower bounds: raw fdatasync, an RPC that writes
//! nothing, a raw Kafka producer, decoding alone.
//!
//! Each module is one benchmark, which measures in rounds and forms rows; its binary only sets the
//! durations. Tests run each benchmark with a handful of operations.

pub mod apply;
pub mod bootstrap;
pub mod clock;
pub mod data;
pub mod disk_baseline;
pub mod freshness;
pub mod latency;
pub mod push;
pub mod raw_kafka;
pub mod rusage;
pub mod server;
pub mod watch;
pub mod watcher;
pub mod writes;

use std::io::{self, Write};

/// An error that ends a benchmark early; the benchmark prints it and never handles it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Creates the runtime of clients, readers and this crate's own tasks.
///
/// # Errors
/// Fails if the operating system provides no threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime_result = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime_result.map_err(|error| format!("start the runtime: {error}"))
}

/// Prints lines for the process that reads this one's standard output, without a delay.
fn say(lines: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines.as_bytes())?;
    stdout.flush()
}
