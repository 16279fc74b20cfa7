//! The replicator: the duties that one process has for each partition
//! (`tools/docs/src/semantics.md`, sections 3 and 5), and the change stream for readers without
//! access to the log.
//!
//! [`Replicas`] follows the logs of every store into shards, and has the duties: heartbeats,
//! outcomes of conditional changes, dead letters. [`ReplicatorService`] answers from the replicas,
//! and [`ShardService`] reads documents in the order of their keys. [`CopySource`] lets others copy
//! the shards, and [`CopyTarget`] copies the shards of others.

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

use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_wire::v1::change_stream_server::ChangeStreamServer;

pub use copies::{
    CopyMoved, CopyOptions, CopyProgress, CopySource, CopyTarget, FindShard, ReplicaShards,
};
pub use dead_letters::DeadLetterCounts;
pub use forebay_log::change_stream_service::ChangeStreamService;
pub use health::health;
pub use heartbeat::{Heartbeats, LogHeartbeats};
pub use ordered_reads::ShardService;
pub use parts::ReplicatorParts;
pub use replicas::{Replicas, StoreMetrics};
pub use service::ReplicatorService;
pub use services::ReplicatorServices;

/// Returns the change stream as a gRPC service.
pub fn change_stream(service: ChangeStreamService) -> ChangeStreamServer<ChangeStreamService> {
    ChangeStreamServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}
