//! SQL over rows that other crates store: a memory-capped engine with an Arrow Flight SQL
//! interface.
//!
//! A statement takes these steps:
//!
//! 1. `statement_limits` rejects statements that must not be planned.
//! 2. [`SqlEngine`] plans the statement over its [`Tables`], and runs it on dedicated threads with
//!    a budget of memory and time.
//! 3. The tables read their rows in parts, given the columns and the [`Bounds`] of the statement.
//! 4. [`FlightSql`] serves the result.
//!
//! DataFusion plans and executes. Callers of this crate do not see DataFusion.

mod bounds;
mod chain_planner;
mod client;
mod datafusion_24686;
mod deadline;
mod engine;
mod error;
mod flight;
mod functions;
mod metadata;
mod parquet;
mod statement_limits;
mod table;

pub use bounds::Bounds;
pub use client::{query, rows_of_peer};
pub use engine::{Rows, SqlEngine, SqlOptions};
pub use flight::{FlightSql, Scans};
pub use parquet::{FileStorage, ParquetFile, StoredFile, identified};
pub use table::{Batches, Table, TableScan, Tables};
