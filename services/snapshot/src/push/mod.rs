//! Pushes: bulk-load files as a version of a store's documents, or as a new store, without going
//! through a log.
//!
//! A push runs in three steps:
//!
//! 1. Read the files once, and spill their rows to disk by partition (`spill.rs`).
//! 2. Check the limits.
//! 3. Fold each partition into an image, and publish the image as the partition's first snapshot.
//!
//! A repeated push resumes after the last completely read file and the last finished partition, and
//! creates the same store. On two hosts the same push is two pushes, neither of which touches the
//! parts of the other.

mod activation;
mod changed_outcomes;
mod columns;
mod format;
mod limits;
mod new_version;
mod operations;
mod request;
mod run;
mod service;
mod spill;
mod target;
mod workspace;

pub use self::changed_outcomes::ChangedOutcome;
pub use self::columns::ColumnNames;
pub use self::format::Format;
pub use self::limits::PushLimits;
pub use self::request::{Push, PushProgress, PushResult};
pub use self::service::PushService;
