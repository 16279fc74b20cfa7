//! Forebay in one process: the writer, the change stream and the duties of a replicator, over one
//! change log. `forebayd dev` runs it on the embedded log; the simulator runs the same [`Node`] on
//! a faulty one.

pub mod config;
mod node;

pub use node::{Node, NodeParts};
