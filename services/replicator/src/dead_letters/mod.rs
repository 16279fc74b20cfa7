//! Dead letters: copies what a store's replica skips to the log beside the store, once for each
//! position, and lists what was copied. Rules and bytes: `proto/spec/dead-letter.md`.
//!
//! `waiting` holds what the replica skipped until the copier has taken it, `copier` appends it in
//! order, `tail` reads back how far an earlier copier came, `list` pages through the letters.

mod copier;
#[cfg(test)]
mod copier_test;
mod list;
mod tail;
mod waiting;

pub(crate) use copier::Copier;
pub(crate) use list::list;
pub use waiting::DeadLetterCounts;
pub(crate) use waiting::Waiting;
