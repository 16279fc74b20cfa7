//! Copies of shards. A copy freezes a shard, reads its rows in ranges and parts or its files in
//! pieces, and builds another shard of the same rows elsewhere. Format: `proto/spec/copy.md`.

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
