//! Dead letters: copies the records that a store's replica skips to the dead-letter log of the
//! store, once for each position, and lists the copies. Rules and bytes:
//! `proto/spec/dead-letter.md`.
//!
//! `backlog` queues the records that the replica skipped until the copier has copied them, `copier`
//! appends them in order, and `letter_log` reads how far an earlier copier got, and pages of
//! letters.

mod backlog;
mod copier;
#[cfg(test)]
mod copier_test;
mod letter_log;

pub(crate) use backlog::Backlog;
pub use backlog::DeadLetterCounts;
pub(crate) use copier::Copier;
pub(crate) use letter_log::list;
