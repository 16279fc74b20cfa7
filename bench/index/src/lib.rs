//! The embedded index against the limits of memory and against its peers, in one run and one table.
//!
//! Measurements run in *workers*: processes that each hold one data set and wait for orders, so
//! that Forebay and peers of any language take turns inside one round.
//!
//! - A [`plan::Section`] names the workers that live at the same time and the orders of each.
//! - The [`driver`] starts the workers in several launches and gathers the rounds.
//! - [`goals`] (`bench/index/goals.toml`) defines the judged numbers, and [`verdict`] compares them
//!   with their bounds.
//! - [`table`] and [`chart`] show the results.

pub mod cache_line;
pub mod chart;
pub mod clock;
pub mod data;
pub mod driver;
pub mod gets;
pub mod goals;
pub mod memory;
pub mod node;
pub mod peers;
pub mod plan;
pub mod reopen;
pub mod report;
pub mod serve;
pub mod table;
pub mod verdict;
pub mod worker;
pub mod writes;
