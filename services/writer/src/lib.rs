//! The writer: checks what clients send, routes it to partitions and appends it to the change log.
//!
//! It holds no data. What it knows is the catalog (the fold of the control log) and, per partition,
//! the log's id and the schema version that the partition has seen. Any number of writers may run
//! side by side: the log orders them, de-duplication is part of the fold, and of two definitions
//! for one version the first in the control log wins.
//!
//! Path of a request: [`service`] (translate) → `admit` (check, widen, split by partition) →
//! `queue` (coalesce into one entry per partition) → `partition` (log id, definition, append).
//! Administration is in `admin`, that of feature views in `views`.

mod admin;
mod admit;
mod moves;
mod outcome;
mod partition;
mod queue;
mod remote_outcomes;
mod repair;
pub mod service;
mod views;
mod writer;

pub use admit::Claimed;
pub use outcome::{NoOutcomes, Outcomes};
pub use remote_outcomes::RemoteOutcomes;
pub use views::Applied;
pub use writer::{Writer, WriterParts};
