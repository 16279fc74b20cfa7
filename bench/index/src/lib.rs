//! The embedded index against the limits of memory and against its peers, in one run and one table.
//!
//! What is measured runs in *workers*: processes that hold one data set each and wait for orders,
//! so that ours and peers of any language take turns inside one round. A [`plan::Section`] names
//! the workers that live at the same time and what each is told to run; the [`driver`] starts them
//! in several launches and gathers the rounds; [`goals`] (`bench/index/goals.toml`) says what
//! becomes of them, [`judge`] whether that is enough, [`table`] and [`picture`] show it.

pub mod clock;
pub mod data;
pub mod driver;
pub mod gets;
pub mod goals;
pub mod judge;
pub mod line;
pub mod memory;
pub mod node;
pub mod peers;
pub mod picture;
pub mod plan;
pub mod reopen;
pub mod report;
pub mod serve;
pub mod table;
pub mod worker;
pub mod writes;
