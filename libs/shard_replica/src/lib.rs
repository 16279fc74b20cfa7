//! Replicas in RocksDB: the shards of one store that follow its logs.
//!
//! [`ShardReplicas`] is the storage that a follower of the logs writes to, and that readers find
//! the open shards in. A [`Materializer`] says how the entries of a log become rows: documents,
//! events, or tiles of a view. Everything else is the same for all shards:
//!
//! - A shard resumes from the position that it stores, or is rebuilt from the log next to the shard
//!   that readers use.
//! - A new shard is durable before the shard that it replaces is removed. A replaced shard that
//!   still has readers is removed after they have finished.
//! - Once a disk has refused a write, no shard of the store accepts another write before the owner
//!   has reopened all of them. The data on disk is consistent, and the rest is in the log.
//! - Shards are flushed periodically and when they close. After a crash, entries that were not
//!   flushed are replayed from the log.

mod materializer;
mod open_shards;
mod replica;
mod replicas;
#[cfg(test)]
mod replicas_test;

pub use materializer::{BufferedEntry, EntryRun, Materializer, WrittenShard};
pub use open_shards::ShardFolder;
pub use replicas::{ShardReplicas, await_all_closed, replica_parts, shard_resources};
