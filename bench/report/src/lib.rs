//! The library under every benchmark. The library runs contenders in interleaved rounds, forms
//! ratios inside a round, takes medians with quartiles, compares them with the checked-in goals,
//! and writes one result file. A benchmark then consists only of its contenders and its rows.
//!
//! ```
//! use forebay_bench_report::{Goals, Rounds, Row, Unit};
//!
//! let mut rounds = Rounds::default();
//! for (get, peer) in [(40.0, 80.0), (50.0, 90.0), (45.0, 99.0)] {
//!     rounds.record("get", get);
//!     rounds.record("peer get", peer);
//!     rounds.close();
//! }
//! let row = Row::against("get p50", Unit::Nanoseconds, &rounds, "get", "peer get")?;
//! assert_eq!((row.value.median, row.ratio.unwrap().median), (45.0, 0.5));
//! let goals: Goals = "[[goal]]\nbench = 'x'\nmeasure = 'get p50'\nratio_at_most = 1.0".parse()?;
//! assert!(goals.of("x")[0].met_by(&row));
//! # Ok::<(), String>(())
//! ```

mod goals;
mod machine;
mod report;
mod rounds;
mod row;

pub use goals::{Goal, GoalBound, Goals};
pub use machine::{Machine, Noise, NoiseWatch, commit};
pub use report::{Bench, Report, RowResult, end};
pub use rounds::{Contender, Rounds, Spread, Values, interleave};
pub use row::{Row, Unit};
