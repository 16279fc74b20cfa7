//! Copies of shards between replicators. The source freezes a shard and streams its rows or its
//! files; the target builds a shard from them and then follows the log from the copy's position.

mod blocks;
mod local_shards;
mod progress;
mod source;
mod stream;
mod target;

pub(crate) use local_shards::ReplicaShards;
pub use progress::{CopyMoved, CopyProgress};
pub(crate) use source::CopySource;
pub use target::{CopyOptions, CopyTarget};
