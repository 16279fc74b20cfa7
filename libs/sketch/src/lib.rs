//! Aggregates of events, and the windows of time that they are over: the fold of a feature view.
//!
//! An [`AggregateSpec`](forebay_core::view::AggregateSpec) says what is aggregated, an
//! [`AggregateState`] what is known so far. States of parts of a stream merge into that of the
//! whole. A [`Tile`] holds the states of all aggregates of a view for one group and one hop of
//! time; [`Windows`] say which tiles an event goes into and which a window is made of;
//! [`GroupTiles`] are the two together. Nothing here reads a clock, draws a random number or does
//! I/O: the same events in the same order give the same values, at insert as in a training set, to
//! the last bit. The bytes are in `proto/spec/aggregates.md`.
//!
//! # What is exact, and what depends on an order
//!
//! | aggregates | value | order of events and merges |
//! |---|---|---|
//! | count, accumulating count | exact | not seen |
//! | sum, average, variance, deviation, skewness, kurtosis | of exact sums | not seen |
//! | min, max, first, last, last-n | exact | not seen |
//! | distinct count | standard error 1.04 / √2^lg_k | not seen |
//! | quantiles | estimate, best near the ends | seen in the last digits |
//! | top-k of up to 0.75 · 2^lg_counters values | exact | not seen |
//! | top-k of more | at most 2.7 / 2^lg_counters of all events too high | seen |
//!
//! Where the order counts it is fixed: events by the log, tiles by their starts. Writing a state
//! down and reading it changes nothing, so a restart is not seen either. Logarithms of the platform
//! enter quantiles and small distinct counts; bit-equality of those is promised for one build.
//!
//! # What becomes of odd values
//!
//! - A missing value is left out; a count without input counts the event. NaN is a missing value.
//! - Infinities are values like others to counts, min, max, first, last, last-n and distinct
//!   counts. A sum and an average are infinite then, or NaN with both; other moments are NaN.
//!   Quantiles leave them out.
//! - -0.0 is less than 0.0 to min and max, and equal to it in a distinct count. A sum of zero is
//!   0.0.
//! - A sum of integers beyond int64 answers the end of its range, one of floats beyond float64 an
//!   infinity; inside, both stay exact and come back.
//! - Of no values counts are 0, all else is null; so are skewness and kurtosis of values all alike.
//!   A top-k that could keep none of its values answers empty lists.
//! - An integer beyond 2^53 is rounded to a float64 in quantiles.
//! - A value of another type, or too long to be kept, is refused before anything is folded in.

mod bytes;
mod distinct;
mod exact;
mod extreme;
mod frequent;
mod group;
mod moments;
mod ordered;
mod quantiles;
mod shape;
mod state;
mod tile;
mod window;

pub use group::{FoldPlan, GroupTiles};
pub use ordered::EventAt;
pub use state::AggregateState;
pub use tile::{Aggregates, Event, Tile};
pub use window::{Admission, TileId, TiledWindow, Windows};
