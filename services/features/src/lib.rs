//! The features service: aggregates of events, computed when the events are inserted, and selects
//! of the stored events.
//!
//! Path of an event:
//!
//! 1. The writer appends the event to its stream.
//! 2. `derive` filters the event, joins documents, and appends the derived event to the logs of
//!    the view, partitioned by the columns of `entity`.
//! 3. `fold` folds these logs into the tiles of the view's groups, and writes tiles and position in
//!    one step.
//! 4. `materialize` computes the values of the windows from the tiles, and appends the values to
//!    the logs of a store, as fields of documents.
//!
//! An altered view is folded again from its own logs, which hold the joined values.
//!
//! The other modules work on stored events: `events` stores and selects the retained events of a
//! stream, `sql` offers each stream as an SQL table, `export` writes the events to Parquet files,
//! and `training` recomputes a group's values at an earlier time from the view's logs.
//!
//! Any number of processes may do the same work for a while: their appends take effect once, and
//! the fold of a log is the same everywhere.

mod derive;
mod dirty_groups;
pub mod events;
pub mod export;
mod feature_store;
mod fold;
mod materialize;
mod parts;
mod plan;
mod progress_stream;
mod resources;
mod rows;
pub mod service;
mod services;
mod settings;
pub mod sql;
mod streams;
pub mod training;
mod view_stats;
mod views;

pub use feature_store::{Features, GroupValues};
pub use parts::{FeatureParts, FeatureShards};
pub use services::FeatureServices;
pub use settings::{FeatureSettings, PROGRAM};
pub use view_stats::ViewStats;
