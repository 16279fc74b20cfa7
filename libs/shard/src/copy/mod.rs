//! Copies of shards. A copy freezes a shard, reads its rows in ranges and parts or its files in
//! pieces, and builds another shard of the same rows elsewhere. Format: `proto/spec/copy.md`.

mod export;
mod files;
mod import;
mod part;
mod parts_journal;
mod pieces;
mod ranges;
mod row_parts;

pub use export::{Export, ExportMode, ExportRows};
pub use import::{Import, RangeDone};
pub use part::{PartBlock, PartEnd, PartSource};
pub use pieces::ExportFile;
