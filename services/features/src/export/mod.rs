//! Exports: the retained events of a stream as Parquet files in an object store.
//!
//! Each export continues after the previous one, partition by partition, so all exports together
//! have each event once, however many are taken and whichever process takes them. An export exists
//! once its manifest does: `manifests` lists the published exports, `run` takes one, `table` reads
//! them as an SQL table.

mod manifests;
mod run;
pub mod service;
mod table;

pub(crate) use self::manifests::Exports;
pub(crate) use self::table::ExportTables;
