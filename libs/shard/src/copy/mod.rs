//! Copies of shards: a shard is frozen as it is, its rows are read in ranges and parts, and become
//! another shard of the same rows elsewhere. Bytes: `proto/spec/copy.md`.

mod export;
mod files;
mod import;
mod parts;
mod ranges;

pub use export::{Export, ExportRows, PartEnd};
pub use import::{Import, PartSource, RangeDone};
