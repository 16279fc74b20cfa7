//! The writer: checks the changes that clients send, routes them to partitions and appends them to
//! the change log.
//!
//! The writer stores no data. A writer's state is the catalog (the fold of the control log) and,
//! per partition, the log's id and the schema version that the partition has seen. Any number of
//! writers may run at the same time: the log orders their entries, de-duplication is part of the
//! fold, and of two definitions for one version the first in the control log wins.
//!
//! Path of a request: [`service`] (translate) → `admit` (check, widen, split by partition) →
//! `queue` (enqueue, one entry per partition) → `partition` (log id, definition, append).
//! `admin` administers stores, `views` administers feature views.

mod admin;
mod admit;
mod outcomes;
mod partition;
mod queue;
mod repair;
mod repartition_gate;
pub mod service;
mod services;
mod settings;
mod views;
mod writer;

pub use admit::ClientRouting;
pub use outcomes::{NoOutcomes, Outcomes};
pub use services::WriterServices;
pub use settings::{PROGRAM, WriterSettings};
pub use views::{ApplyEffect, ViewDocument, read_view_documents};
pub use writer::Writer;
