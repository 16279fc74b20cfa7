//! The meaning of log entries: this crate decodes what `forebay-log` stores as bytes.
//!
//! The crate folds the control log into the catalog, finds the id of a log, shows a store's log as
//! one version follows it, and copies entries between logs: [`OrderedSource`] reads each entry of a
//! log once, and [`ExactlyOnceSink`] appends each copy once.

mod catalog;
mod changed_keys;
mod exactly_once_sink;
mod log_identity;
mod ordered_source;
mod version_log;

pub use catalog::CatalogFollower;
pub use changed_keys::changed_keys;
pub use exactly_once_sink::{CopyOrigin, ExactlyOnceSink, SinkProgress};
pub use log_identity::{append_log_header, find_log_id, open_log};
pub use ordered_source::{AppliedEntry, OrderedSource, PendingEntry};
pub use version_log::follow_version;
