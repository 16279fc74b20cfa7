//! Aggregates of events, and the time windows over which they are computed: the fold of a feature
//! view.
//!
//! - An [`AggregateSpec`](forebay_core::view::AggregateSpec) specifies an aggregate.
//! - An [`AggregateState`] holds the state so far. States of parts of a stream merge into the state
//!   of the whole.
//! - A [`Tile`] holds the states of all aggregates of a view for one group and one slide of time.
//! - [`Windows`] map an event to its tiles, and a window to the tiles that it covers.
//! - [`GroupTiles`] combine tiles and windows.
//!
//! This crate reads no clock, draws no random number and does no I/O. The same events in the same
//! order give the same values to the last bit, at insert and in a training set. The bytes are in
//! `proto/spec/aggregates.md`.
//!
//! # Exactness and dependence on order
//!
//! | aggregates | value | order of events and merges |
//! |---|---|---|
//! | count, accumulating count | exact | irrelevant |
//! | sum, average, variance, deviation, skewness, kurtosis | of exact sums | irrelevant |
//! | min, max, first, last, last-n | exact | irrelevant |
//! | distinct count | standard error 1.04 / √2^lg_k | irrelevant |
//! | quantiles | estimate, best near the ends | affects the last digits |
//! | top-k of up to 0.75 · 2^lg_counters values | exact | irrelevant |
//! | top-k of more | at most 2.7 / 2^lg_counters of all events too high | relevant |
//!
//! If the order is relevant, it is fixed: events in the order of the log, tiles in the order of
//! their starts. Encoding and decoding a state changes nothing, so a restart does not affect
//! values. Quantiles and small distinct counts use the platform's logarithms; their bit-equality is
//! guaranteed only within one build.
//!
//! # Special values
//!
//! - A missing value is left out; a count without input counts the event. NaN is a missing value.
//! - Counts, min, max, first, last, last-n and distinct counts treat infinities like other values.
//!   With an infinity a sum and an average are infinite, or NaN if both infinities occur; other
//!   moments are NaN. Quantiles leave infinities out.
//! - -0.0 is less than 0.0 for min and max, and equal to it for a distinct count. A sum of zero is
//!   0.0.
//! - A sum of integers beyond int64 returns the end of its range, a sum of floats beyond float64 an
//!   infinity. The state stays exact, so later values can bring the sum back into range.
//! - If there are no values, counts are 0 and all other aggregates are null. Skewness and kurtosis
//!   are also null if all values are equal. A top-k whose counters hold none of its values returns
//!   empty lists.
//! - Quantiles round an integer beyond 2^53 to a float64.
//! - A value of another type, or a value too long to be stored, is refused before anything is
//!   folded.

mod distinct;
mod exact;
mod first_last;
mod frequent_items;
mod group;
mod min_max;
mod moments;
mod quantiles;
mod state;
mod tile;
mod window;

pub use first_last::EventOrder;
pub use group::{FoldPlan, GroupTiles};
pub use state::AggregateState;
pub use tile::{Aggregates, Event, Tile};
pub use window::{EventAdmission, TileId, TiledWindow, Windows};
