//! The features service: aggregates of events, computed when they are inserted, and the events
//! themselves, selected where they are stored.
//!
//! Path of an event: the writer appends it to its stream; `derive` takes it from there, filters it,
//! looks it up and appends what comes of it to the logs of the view, partitioned by the columns
//! that the view groups by; `fold` folds those logs into the tiles of the view's groups, tiles and
//! position in one step; `emit` makes the windows' values of them, and appends those to the logs of
//! a store, as fields of documents. A view that is altered is folded again of its own logs, which
//! hold what was looked up.
//!
//! The events of a stream that are retained are stored too, and found by what they have: `events`.
//! Each stream is a table of SQL besides: `sql`. They go into files of Parquet: `export`.
//! What a group had at a moment its logs make again: `training`.
//!
//! Any number of processes may do the same work for a while: what they append comes once, and the
//! fold of a log is the same everywhere.

mod counts;
mod derive;
mod emit;
pub mod events;
pub mod export;
mod fold;
mod keeper;
mod parts;
mod plan;
mod rows;
pub mod service;
mod shards;
pub mod sql;
mod streams;
pub mod training;
mod values;
mod views;

pub use counts::ViewCounts;
pub use parts::{FeatureParts, FeatureShards};
pub use values::{Features, GroupValues};
