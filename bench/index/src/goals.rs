//! Rows and goals: `bench/index/goals.toml`, one for one with the documented table of goals.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;

/// All rows of the file, in its order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    /// Rows of the table.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A row of the table of goals.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Measure, in the table's words.
    pub measure: String,
    /// The goals, in the table's words.
    pub goal: String,
    /// The stretch goals, in the table's words.
    pub stretch: String,
    /// The individual goals.
    #[serde(rename = "part")]
    pub parts: Vec<Part>,
}

/// A goal of a row: the judged value, and its bound.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Name of the goal in its row.
    pub name: String,
    /// Section that measures the value.
    #[serde(default)]
    pub section: String,
    /// Value that is judged.
    #[serde(default)]
    pub value: String,
    /// Divisor of the value, inside each round.
    pub over: Option<String>,
    /// Unit of the judged number: `D`, `x`, `B` and so on.
    pub unit: String,
    /// Unit of `value` itself.
    #[serde(default = "nanoseconds")]
    pub of: String,
    /// Goal, if less is better.
    pub at_most: Option<f64>,
    /// Goal, if more is better.
    pub at_least: Option<f64>,
    /// Stretch goal.
    pub stretch: Option<f64>,
    /// Text that is printed next to the result, such as a source's own figure.
    pub reference: Option<String>,
    /// Missing precondition of the measurement.
    pub needs: Option<String>,
}

fn nanoseconds() -> String {
    "ns".to_owned()
}

impl Goals {
    /// Path of the file in the tree.
    pub const FILE: &str = "bench/index/goals.toml";

    /// Reads the goals under the root of the tree.
    ///
    /// # Errors
    /// Fails if the file is missing or invalid.
    pub fn load(root: &Path) -> Result<Self, String> {
        let path = root.join(Self::FILE);
        let text = fs::read_to_string(&path);
        text.map_err(|error| format!("read {}: {error}", path.display()))?.parse()
    }

    /// Returns the number of judged goals: parts with a bound.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.parts).filter(|part| part.bound().is_some()).count()
    }
}

impl FromStr for Goals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let goals: Self = toml::from_str(text).map_err(|error| format!("read goals: {error}"))?;
        let mut names_seen = BTreeSet::new();
        for row in &goals.rows {
            for part in &row.parts {
                let place = format!("{} / {}", row.measure, part.name);
                part.check().map_err(|problem| format!("{place}: {problem}"))?;
                if !names_seen.insert(place.clone()) {
                    return Err(format!("two goals for {place}"));
                }
            }
        }
        Ok(goals)
    }
}

impl Part {
    fn check(&self) -> Result<(), String> {
        if self.at_most.is_some() && self.at_least.is_some() {
            return Err("a goal has two bounds; set one".to_owned());
        }
        let measured = !self.section.is_empty() && !self.value.is_empty();
        if measured == self.needs.is_some() {
            return Err("a goal needs a section and a value, or its needs".to_owned());
        }
        Ok(())
    }

    /// Returns the goal in words, such as `<= 2.5 D`.
    #[must_use]
    pub fn bound(&self) -> Option<String> {
        let unit = &self.unit;
        let upper_bound = self.at_most.map(|bound| format!("<= {bound} {unit}"));
        upper_bound.or_else(|| self.at_least.map(|bound| format!(">= {bound} {unit}")))
    }

    /// Returns whether a number meets the goal; `None` if there is no goal.
    #[must_use]
    pub fn is_met_by(&self, number: f64) -> Option<bool> {
        let is_below_upper = self.at_most.map(|bound| number <= bound);
        is_below_upper.or_else(|| self.at_least.map(|bound| number >= bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(part: &str) -> Result<Goals, String> {
        let row = "[[row]]\nmeasure = 'm'\ngoal = 'g'\nstretch = '-'\n";
        format!("{row}[[row.part]]\nname = 'p'\nunit = 'D'\n{part}").parse()
    }

    #[test]
    fn goal_part_has_a_bound_or_a_missing_prerequisite() {
        let goals = read("section = 's'\nvalue = 'get'\nover = 'D'\nat_most = 2.5").unwrap();
        let part = &goals.rows[0].parts[0];
        assert_eq!((part.bound().unwrap().as_str(), goals.count()), ("<= 2.5 D", 1));
        assert_eq!((part.is_met_by(2.5), part.is_met_by(2.6)), (Some(true), Some(false)));
        assert!(read("needs = 'the image'").is_ok());
        assert!(read("at_most = 2.5").is_err());
        assert!(read("section = 's'\nvalue = 'get'\nneeds = 'x'").is_err());
        assert!(read("section = 's'\nvalue = 'get'\nat_most = 1\nat_least = 1").is_err());
        assert!(read("section = 's'\nvalue = 'get'\nat_mots = 1").is_err());
    }

    #[test]
    fn goal_accepts_more_as_better_and_part_without_goal_is_never_met() {
        let goals = read("section = 's'\nvalue = 'get'\nat_least = 2").unwrap();
        let part = &goals.rows[0].parts[0];
        assert_eq!((part.is_met_by(2.0), part.is_met_by(1.9)), (Some(true), Some(false)));
        let without_goal = read("section = 's'\nvalue = 'get'").unwrap();
        assert_eq!((without_goal.rows[0].parts[0].is_met_by(1.0), without_goal.count()), (None, 0));
    }

    #[test]
    fn goals_refuse_a_repeated_part() {
        let part = "section = 's'\nvalue = 'get'";
        let repeated = format!("{part}\n[[row.part]]\nname = 'p'\nunit = 'D'\n{part}");
        assert!(read(&repeated).unwrap_err().contains("two goals"));
    }
}
