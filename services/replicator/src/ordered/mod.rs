//! Ordered reads of the shards of this process: documents by their keys, and scans of a partition
//! whose pages all read one position.

mod asked;
mod get;
mod held;
mod here;
mod pages;
mod scan;
mod service;

pub(crate) use held::HeldViews;
pub use service::ShardService;
