//! Forebay in one process: the writer, the change stream, the replicator and the other services
//! over one change log. `forebayd dev` runs a [`Node`] on the embedded log; the simulator runs the
//! same [`Node`] on a faulty one.

pub mod config;
mod config_file;
mod node;

pub use node::{Node, NodeParts};

/// Name of the program.
pub const PROGRAM: &str = "forebayd";
