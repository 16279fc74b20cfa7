//! Training sets: the values that a view's groups had at given moments, joined to rows that name
//! them.
//!
//! A value as of a moment is what the fold makes of the view's own logs up to there: the events as
//! they were derived, in their order, with what was looked up when they came. It is the fold that
//! runs at insert, so that both make the same bytes of the same entries; `compare` holds the one
//! against the other. Nothing that came later is in a value, late events neither.

mod compare;
mod join;
mod labels;
mod replay;
pub mod service;
