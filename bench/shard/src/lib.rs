//! Benchmarks of shards, as users run them: copies between processes of `forebayd`, beside the
//! straight loop and what bounds both, and the ordered server by Simple-KV's four orders, beside
//! Redis.
//!
//! Each module is one benchmark or a part of one; tests run each with a handful of operations.

pub mod ceilings;
pub mod copies;
pub mod orders;
pub mod process;
pub mod source;
