//! Tests of the index through its public API.

mod concurrent_reads;
mod gather;
mod image;
#[path = "../support/images.rs"]
mod images;
mod model;
mod record_sharing;
mod repair;
mod shared_copy;
mod spill;
#[path = "../support/mod.rs"]
mod support;
mod typed_reads;
