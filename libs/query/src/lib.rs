//! SQL over rows that others store: a memory-capped engine, and its Arrow Flight SQL face.
//!
//! Path of a statement: `guard` refuses what no plan should be made of; [`SqlEngine`] plans it,
//! over the [`Tables`] that it was given, and runs it on threads of its own, with a budget of
//! memory and of time; [`FlightSql`] serves it. What a table holds it reads in parts, given the
//! columns and the [`Bounds`] that a statement asks for.
//!
//! DataFusion plans and executes. Nobody above sees it.

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
