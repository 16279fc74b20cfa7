//! The replicator: until it holds shards, it serves the change stream to readers without access to
//! the log.

use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_wire::v1::change_stream_server::ChangeStreamServer;

pub use forebay_log::serve::ChangeStreamService;

/// The change stream as a gRPC service.
pub fn change_stream(service: ChangeStreamService) -> ChangeStreamServer<ChangeStreamService> {
    ChangeStreamServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}
