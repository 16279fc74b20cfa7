//! Ordered reads of the shards of this process: documents by their keys, and scans of a partition
//! whose pages all read one position.

mod documents;
mod get;
mod local_store;
mod scan;
mod scan_sessions;
mod scan_spec;
mod service;

pub(crate) use scan_sessions::ScanSessions;
pub(crate) use service::ShardService;
