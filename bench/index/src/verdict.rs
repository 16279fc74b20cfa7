//! Verdicts on goals. A goal is `met` if the median reaches it; a row whose quartiles are further
//! apart than a fifth of the median is `noisy` and counts as missed.

use std::collections::BTreeMap;

use forebay_bench_report::{Rounds, Spread};
use serde::Serialize;

use crate::goals::{Goals, Part};

/// Largest distance of the quartiles, as a share of the median, of a row that is not noisy.
pub const NOISY: f64 = 0.2;

/// The measurements of the sections, or the reason why a section has none.
pub type Measurements = BTreeMap<String, Result<Rounds, String>>;

/// The verdict on one goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The goal is met.
    Met,
    /// The goal is missed.
    Missed,
    /// The rounds differ too much for a verdict.
    Noisy,
    /// The part has no goal yet.
    NoGoal,
    /// Nothing was measured, for this reason.
    NotMeasured(String),
}

/// A goal and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoalResult {
    /// Row of the table of goals.
    pub measure: String,
    /// Name of the goal in its row.
    pub name: String,
    /// Goal in words.
    pub goal: Option<String>,
    /// Stretch goal.
    pub stretch: Option<f64>,
    /// Unit of the judged number.
    pub unit: String,
    /// Judged number.
    pub found: Option<Spread>,
    /// Value before the division.
    pub value: Option<Spread>,
    /// Unit of the value.
    pub of: String,
    /// Text that is printed next to the result.
    pub reference: Option<String>,
    /// Verdict.
    pub verdict: Verdict,
}

/// Judges all goals, in the file's order.
#[must_use]
pub fn judge(goals: &Goals, measured: &Measurements) -> Vec<GoalResult> {
    let parts = goals.rows.iter().flat_map(|row| row.parts.iter().map(move |part| (row, part)));
    parts
        .map(|(row, part)| {
            let found = found(part, measured);
            let verdict = match &found {
                Ok((number, _)) => verdict(part, number),
                Err(reason) => Verdict::NotMeasured(reason.clone()),
            };
            let spreads = found.ok();
            GoalResult {
                measure: row.measure.clone(),
                name: part.name.clone(),
                goal: part.bound(),
                stretch: part.stretch,
                unit: part.unit.clone(),
                found: spreads.map(|(found, _)| found),
                value: spreads.map(|(_, value)| value),
                of: part.of.clone(),
                reference: part.reference.clone(),
                verdict,
            }
        })
        .collect()
}

fn verdict(part: &Part, number: &Spread) -> Verdict {
    match part.is_met_by(number.median) {
        None => Verdict::NoGoal,
        Some(_) if number.relative() > NOISY => Verdict::Noisy,
        Some(true) => Verdict::Met,
        Some(false) => Verdict::Missed,
    }
}

/// Returns the judged number and the value that it derives from.
fn found(part: &Part, measured: &Measurements) -> Result<(Spread, Spread), String> {
    if let Some(requirement) = &part.needs {
        return Err(format!("needs {requirement}"));
    }
    let rounds = measured.get(&part.section);
    let rounds = rounds.ok_or_else(|| format!("no section '{}'", part.section))?;
    let rounds = rounds.as_ref().map_err(Clone::clone)?;
    let value = rounds.spread(&part.value)?;
    let number = match &part.over {
        Some(baseline) => rounds.ratio(&part.value, baseline)?,
        None => value,
    };
    Ok((number, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[(f64, f64)]) -> Measurements {
        let mut rounds = Rounds::default();
        for (get, line) in values {
            rounds.record("get", *get);
            rounds.record("D", *line);
            rounds.close();
        }
        Measurements::from([("s".to_owned(), Ok(rounds))])
    }

    fn judged(part: &str, measured: &Measurements) -> GoalResult {
        let row = "[[row]]\nmeasure = 'm'\ngoal = 'g'\nstretch = '-'\n";
        let text = format!("{row}[[row.part]]\nname = 'p'\nunit = 'D'\n{part}");
        judge(&text.parse().unwrap(), measured).remove(0)
    }

    const PART: &str = "section = 's'\nvalue = 'get'\nover = 'D'\nat_most = 2.5";

    #[test]
    fn verdict_judges_the_median_of_ratios() {
        let steady = measured(&[(240.0, 100.0), (500.0, 200.0), (270.0, 100.0)]);
        let found = judged(PART, &steady);
        assert_eq!((found.found.unwrap().median, found.verdict), (2.5, Verdict::Met));
        let slow = measured(&[(260.0, 100.0), (520.0, 200.0), (270.0, 100.0)]);
        assert_eq!(judged(PART, &slow).verdict, Verdict::Missed);
    }

    #[test]
    fn wide_quartiles_are_noisy_whatever_the_median() {
        let wide = measured(&[(100.0, 100.0), (200.0, 100.0), (300.0, 100.0)]);
        let found = judged(PART, &wide);
        assert_eq!((found.found.unwrap().median, found.verdict), (2.0, Verdict::Noisy));
    }

    #[test]
    fn section_without_measurements_gives_its_reason() {
        let without_section = Measurements::from([("s".to_owned(), Err("it ended".to_owned()))]);
        let not_measured = |words: &str| Verdict::NotMeasured(words.to_owned());
        assert_eq!(judged(PART, &without_section).verdict, not_measured("it ended"));
        assert_eq!(judged(PART, &Measurements::new()).verdict, not_measured("no section 's'"));
        assert_eq!(
            judged("needs = 'the image'", &without_section).verdict,
            not_measured("needs the image")
        );
        let free = judged("section = 's'\nvalue = 'get'", &measured(&[(1.0, 1.0)]));
        assert_eq!(free.verdict, Verdict::NoGoal);
    }
}
