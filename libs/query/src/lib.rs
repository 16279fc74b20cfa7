//! SQL over rows that other crates store: a memory-capped engine with an Arrow Flight SQL
//! interface.
//!
//! A statement takes these steps:
//!
//! 1. `guard` rejects statements that must not be planned.
//! 2. [`SqlEngine`] plans the statement over its [`Tables`], and runs it on dedicated threads with
//!    a budget of memory and time.
//! 3. The tables read their rows in parts, given the columns and the [`Bounds`] of the statement.
//! 4. [`FlightSql`] serves the result.
//!
//! DataFusion plans and executes. Callers of this crate do not see DataFusion.

mod bounds;
mod client;
mod engine;
mod error;
mod flight;
mod functions;
mod guard;
mod metadata;
mod parquet;
mod table;
mod twins;

pub use bounds::Bounds;
pub use client::{query, rows_of_peer};
pub use engine::{Rows, SqlEngine, SqlOptions};
pub use flight::{FlightSql, Scans};
pub use parquet::{ParquetFile, Stored, StoredFile, identified};
pub use table::{Batches, Table, Tables, Wanted};
