//! Copies of shards between replicators: one freezes a shard and streams its rows, the other makes
//! a shard of them, and then reads the log from there.

mod compression;
mod own;
mod progress;
mod source;
mod target;
mod throttle;

pub use own::ReplicaShards;
pub use progress::CopyProgress;
pub use source::{CopySource, FindShard};
pub use target::{CopyOptions, CopyTarget};
