//! Goals of benchmarks. The goals are in one checked-in file, `bench/goals.toml`, and in the table
//! of `bench/README.md`; a test compares the two. A goal moves only by an ADR with the run that
//! moved it.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;

use crate::row::Row;

/// The bound of a row; written as `value_at_most = 20`, `ratio_at_least = 2` and so on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalBound {
    /// The row's median, at most.
    ValueAtMost(f64),
    /// The row's median, at least.
    ValueAtLeast(f64),
    /// The row's ratio to its peer, at most.
    RatioAtMost(f64),
    /// The row's ratio to its peer, at least.
    RatioAtLeast(f64),
}

/// A goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The benchmark.
    pub bench: String,
    /// The row's measure, exactly.
    pub measure: String,
    /// The bound.
    pub bound: GoalBound,
}

/// All goals of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goals(Vec<Goal>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    goal: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bench: String,
    measure: String,
    value_at_most: Option<f64>,
    value_at_least: Option<f64>,
    ratio_at_most: Option<f64>,
    ratio_at_least: Option<f64>,
}

impl Goals {
    /// Path of the file in the tree.
    pub const FILE: &str = "bench/goals.toml";

    /// Reads the goals under the root of the tree.
    ///
    /// # Errors
    /// Fails if the file is missing or invalid.
    pub fn load(root: &Path) -> Result<Self, String> {
        let path = root.join(Self::FILE);
        let text = fs::read_to_string(&path);
        text.map_err(|error| format!("read {}: {error}", path.display()))?.parse()
    }

    /// Returns the goals of one benchmark, in the file's order.
    #[must_use]
    pub fn of(&self, bench: &str) -> Vec<&Goal> {
        self.0.iter().filter(|goal| goal.bench == bench).collect()
    }

    /// Returns every goal, in the file's order.
    #[must_use]
    pub fn all(&self) -> &[Goal] {
        &self.0
    }
}

impl FromStr for Goals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| format!("read goals: {error}"))?;
        let goals: Vec<Goal> = file.goal.into_iter().map(goal).collect::<Result<_, _>>()?;
        for (place, goal) in goals.iter().enumerate() {
            let is_same = |other: &Goal| other.bench == goal.bench && other.measure == goal.measure;
            if goals[..place].iter().any(is_same) {
                return Err(format!("two goals for {} / {}", goal.bench, goal.measure));
            }
        }
        Ok(Self(goals))
    }
}

fn goal(entry: Entry) -> Result<Goal, String> {
    let bounds = [
        entry.value_at_most.map(GoalBound::ValueAtMost),
        entry.value_at_least.map(GoalBound::ValueAtLeast),
        entry.ratio_at_most.map(GoalBound::RatioAtMost),
        entry.ratio_at_least.map(GoalBound::RatioAtLeast),
    ];
    let Entry { bench, measure, .. } = entry;
    match bounds.into_iter().flatten().collect::<Vec<_>>().as_slice() {
        [bound] => Ok(Goal { bench, measure, bound: *bound }),
        _ => Err(format!("goal {bench} / {measure} needs exactly one bound")),
    }
}

impl Goal {
    /// Returns whether a row meets the goal; a ratio that was not measured does not.
    #[must_use]
    pub fn met_by(&self, row: &Row) -> bool {
        let ratio = row.ratio.map(|ratio| ratio.median);
        match self.bound {
            GoalBound::ValueAtMost(bound) => row.value.median <= bound,
            GoalBound::ValueAtLeast(bound) => row.value.median >= bound,
            GoalBound::RatioAtMost(bound) => ratio.is_some_and(|ratio| ratio <= bound),
            GoalBound::RatioAtLeast(bound) => ratio.is_some_and(|ratio| ratio >= bound),
        }
    }

    /// Returns the bound as the documented table and the reports write it: `value <= 20`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.bound {
            GoalBound::ValueAtMost(bound) => format!("value <= {bound}"),
            GoalBound::ValueAtLeast(bound) => format!("value >= {bound}"),
            GoalBound::RatioAtMost(bound) => format!("ratio <= {bound}"),
            GoalBound::RatioAtLeast(bound) => format!("ratio >= {bound}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{Rounds, Spread};
    use crate::row::Unit;

    fn read(entry: &str) -> Result<Goals, String> {
        format!("[[goal]]\nbench = 'b'\nmeasure = 'm'\n{entry}").parse()
    }

    #[test]
    fn goal_has_exactly_one_bound() {
        assert_eq!(read("value_at_most = 20").unwrap().all()[0].words(), "value <= 20");
        assert_eq!(read("ratio_at_least = 1.5").unwrap().of("b")[0].words(), "ratio >= 1.5");
        assert!(read("").is_err());
        assert!(read("value_at_most = 1\nratio_at_most = 2").is_err());
        assert!(read("value_at_mots = 1").is_err());
        let two_bounds =
            "value_at_most = 1\n[[goal]]\nbench = 'b'\nmeasure = 'm'\nratio_at_most = 2";
        assert!(read(two_bounds).unwrap_err().contains("two goals"));
        assert!(read("value_at_most = 1").unwrap().of("c").is_empty());
    }

    #[test]
    fn bounds_include_their_edge() {
        let mut rounds = Rounds::default();
        rounds.record("m", 20.0);
        rounds.close();
        let mut row = Row::alone("m", Unit::Milliseconds, &rounds, "m").unwrap();
        let is_met = |entry: &str, row: &Row| read(entry).unwrap().all()[0].met_by(row);
        assert!(is_met("value_at_most = 20", &row) && is_met("value_at_least = 20", &row));
        assert!(!is_met("value_at_most = 19.9", &row) && !is_met("value_at_least = 20.1", &row));
        assert!(!is_met("ratio_at_most = 9", &row) && !is_met("ratio_at_least = 0", &row));
        row.ratio = Some(Spread::of(&[2.0]).unwrap());
        assert!(is_met("ratio_at_most = 2", &row) && !is_met("ratio_at_least = 2.1", &row));
    }
}
