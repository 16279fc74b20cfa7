//! Domain types of Forebay: ids, keys, schema, documents, the row codec and the fold.
//!
//! This crate does no I/O, reads no clock, draws no random number and never awaits; callers pass
//! time and randomness as arguments. The same code therefore runs in a writer, a reader, a replica
//! and the simulator, and the same log prefix gives the same state everywhere.

pub mod backoff;
pub mod byte_reader;
pub mod catalog;
pub mod change;
pub mod clock;
pub mod coerce;
pub mod dead_letter;
pub mod dedup;
pub mod entropy;
pub mod error;
pub mod fold;
pub mod id;
pub mod key;
pub mod key_order;
pub mod layout;
pub mod limits;
pub mod merge;
mod native;
pub mod outcome;
pub mod partition;
pub mod replica_state;
pub mod row;
pub mod rows_digest;
pub mod schema;
pub mod schema_set;
pub mod state_rows;
pub mod value;
pub mod versions;
pub mod view;

pub use error::{Error, ErrorCode, Result};
