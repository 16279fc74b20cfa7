//! Copies of shards: a shard is frozen as it is, its rows are read in ranges and parts, or its
//! files in pieces, and become another shard of the same rows elsewhere. Bytes:
//! `proto/spec/copy.md`.

mod export;
mod files;
mod import;
mod parts;
mod pieces;
mod ranges;
mod row_parts;

pub use export::{Export, ExportMode, ExportRows, PartEnd};
pub use import::{Import, PartBlock, PartSource, RangeDone};
pub use pieces::ExportFile;
