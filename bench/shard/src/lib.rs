//! Benchmarks of shards, as users run them: copies between processes of `forebayd`, compared with
//! the naive copy and the ceilings of both, and the ordered server by Simple-KV's four orders,
//! compared with Redis.
//!
//! Each module is one benchmark or a part of one; tests run each benchmark with a handful of
//! operations.

pub mod ceilings;
pub mod copies;
pub mod orders;
pub mod process;
pub mod source;
