//! Copies of shards between replicators: one freezes a shard and streams its rows or its files, the
//! other makes a shard of them, and then reads the log from there.

mod blocks;
mod compression;
mod own;
mod progress;
mod source;
mod stream;
mod target;
mod throttle;

pub use own::ReplicaShards;
pub use progress::{CopyMoved, CopyProgress};
pub use source::{CopySource, FindShard};
pub use target::{CopyOptions, CopyTarget};
