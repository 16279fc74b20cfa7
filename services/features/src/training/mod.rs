//! Training sets: the values that a view's groups had at given times, joined to rows that name the
//! groups and times.
//!
//! A value as of a time is the fold of the view's own logs up to that time: the derived events in
//! their order, with the values joined when they arrived. The fold is the same code that runs at
//! insert, so both compute the same bytes from the same entries; `comparison` checks this. A value
//! contains nothing that arrived later, not even late events.

mod comparison;
mod join;
mod labels;
mod replay;
pub mod service;
