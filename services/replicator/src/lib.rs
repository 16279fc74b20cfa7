//! The replicator: until it holds shards, it serves the change stream to readers without access to
//! the log.

use std::sync::Arc;

use forebay_core::clock::Clock;
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_log::ChangeLog;
use forebay_log::serve::ChangeStreamService;
use forebay_wire::v1::change_stream_server::ChangeStreamServer;

/// The change stream over a log, as a gRPC service.
pub fn change_stream(
    log: Arc<dyn ChangeLog>,
    clock: Arc<dyn Clock>,
) -> ChangeStreamServer<ChangeStreamService> {
    ChangeStreamServer::new(ChangeStreamService::new(log, clock))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}
