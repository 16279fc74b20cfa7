//! Exports: the retained events of a stream as files of Parquet in an object store.
//!
//! Each export goes on behind the one before, partition by partition, so that all of them together
//! have each event once, however many were taken and whoever takes them. An export is there once
//! its manifest is: `manifests` names what counts, `run` makes it, `table` reads it as a table of
//! SQL.

mod manifests;
mod run;
pub mod service;
mod table;

pub(crate) use self::manifests::Exports;
pub(crate) use self::table::ExportTables;
