//! The replicator: the duties that one process has for each partition
//! (`tools/docs/src/semantics.md`, sections 3 and 5), and the change stream for readers without
//! access to the log.
//!
//! [`Replicas`] follows the logs of every store into shards, and has the duties: heartbeats,
//! outcomes of conditional changes, dead letters. [`ReplicatorServices`] answers from the replicas,
//! reads documents in the order of their keys, and lets others copy the shards. [`CopyTarget`]
//! copies the shards of others.

mod copies;
mod dead_letters;
mod document_shards;
mod health;
mod heartbeat;
mod open_replica;
mod ordered_reads;
mod parts;
mod replicas;
mod resources;
mod service;
mod services;
mod settings;

pub use copies::{CopyMoved, CopyOptions, CopyProgress, CopyTarget};
pub use dead_letters::DeadLetterCounts;
pub use forebay_log::change_stream_service::ChangeStreamService;
pub use heartbeat::{Heartbeats, LogHeartbeats};
pub use parts::ReplicatorParts;
pub use replicas::{Replicas, StoreMetrics};
pub use services::ReplicatorServices;
pub use settings::{PROGRAM, ReplicatorSettings, shard_directory};
