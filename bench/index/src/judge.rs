//! What became of a goal. `met` when the median reaches it; a row whose quartiles lie further apart
//! than a fifth of the median is `noisy` and counts as missed.

use std::collections::BTreeMap;

use forebay_bench_report::{Rounds, Spread};
use serde::Serialize;

use crate::goals::{Goals, Part};

/// Quartiles further apart than this share of the median say too little.
pub const NOISY: f64 = 0.2;

/// What the sections measured, or why one did not.
pub type Measured = BTreeMap<String, Result<Rounds, String>>;

/// What became of one goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is reached.
    Met,
    /// It is not.
    Missed,
    /// The rounds differ too much to say.
    Noisy,
    /// There is no goal yet.
    NoGoal,
    /// Nothing was measured, for this reason.
    NotMeasured(String),
}

/// One goal and what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The row of the table of goals.
    pub measure: String,
    /// Which of its goals.
    pub name: String,
    /// The goal in words.
    pub goal: Option<String>,
    /// The stretch goal.
    pub stretch: Option<f64>,
    /// What the judged number is counted in.
    pub unit: String,
    /// The judged number.
    pub found: Option<Spread>,
    /// The value before it was divided.
    pub value: Option<Spread>,
    /// What the value is counted in.
    pub of: String,
    /// What is printed beside it.
    pub beside: Option<String>,
    /// What became of it.
    pub verdict: Verdict,
}

/// Judges all goals, in the file's order.
#[must_use]
pub fn judge(goals: &Goals, measured: &Measured) -> Vec<Judged> {
    let parts = goals.rows.iter().flat_map(|row| row.parts.iter().map(move |part| (row, part)));
    parts
        .map(|(row, part)| {
            let found = found(part, measured);
            let verdict = match &found {
                Ok((number, _)) => verdict(part, number),
                Err(reason) => Verdict::NotMeasured(reason.clone()),
            };
            let spreads = found.ok();
            Judged {
                measure: row.measure.clone(),
                name: part.name.clone(),
                goal: part.bound(),
                stretch: part.stretch,
                unit: part.unit.clone(),
                found: spreads.map(|(found, _)| found),
                value: spreads.map(|(_, value)| value),
                of: part.of.clone(),
                beside: part.beside.clone(),
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

/// The judged number and the value that it was made of.
fn found(part: &Part, measured: &Measured) -> Result<(Spread, Spread), String> {
    if let Some(needs) = &part.needs {
        return Err(format!("needs {needs}"));
    }
    let rounds = measured.get(&part.section);
    let rounds = rounds.ok_or_else(|| format!("no section '{}'", part.section))?;
    let rounds = rounds.as_ref().map_err(Clone::clone)?;
    let value = rounds.spread(&part.value)?;
    let number = match &part.over {
        Some(over) => rounds.ratio(&part.value, over)?,
        None => value,
    };
    Ok((number, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[(f64, f64)]) -> Measured {
        let mut rounds = Rounds::default();
        for (get, line) in values {
            rounds.record("get", *get);
            rounds.record("D", *line);
            rounds.close();
        }
        Measured::from([("s".to_owned(), Ok(rounds))])
    }

    fn judged(part: &str, measured: &Measured) -> Judged {
        let row = "[[row]]\nmeasure = 'm'\ngoal = 'g'\nstretch = '-'\n";
        let text = format!("{row}[[row.part]]\nname = 'p'\nunit = 'D'\n{part}");
        judge(&text.parse().unwrap(), measured).remove(0)
    }

    const PART: &str = "section = 's'\nvalue = 'get'\nover = 'D'\nat_most = 2.5";

    #[test]
    fn the_median_of_ratios_is_judged() {
        let steady = measured(&[(240.0, 100.0), (500.0, 200.0), (270.0, 100.0)]);
        let found = judged(PART, &steady);
        assert_eq!((found.found.unwrap().median, found.verdict), (2.5, Verdict::Met));
        let slow = measured(&[(260.0, 100.0), (520.0, 200.0), (270.0, 100.0)]);
        assert_eq!(judged(PART, &slow).verdict, Verdict::Missed);
    }

    #[test]
    fn wide_quartiles_are_noisy_whatever_the_median_says() {
        let wide = measured(&[(100.0, 100.0), (200.0, 100.0), (300.0, 100.0)]);
        let found = judged(PART, &wide);
        assert_eq!((found.found.unwrap().median, found.verdict), (2.0, Verdict::Noisy));
    }

    #[test]
    fn nothing_measured_says_why() {
        let none = Measured::from([("s".to_owned(), Err("it ended".to_owned()))]);
        let not = |words: &str| Verdict::NotMeasured(words.to_owned());
        assert_eq!(judged(PART, &none).verdict, not("it ended"));
        assert_eq!(judged(PART, &Measured::new()).verdict, not("no section 's'"));
        assert_eq!(judged("needs = 'the image'", &none).verdict, not("needs the image"));
        let free = judged("section = 's'\nvalue = 'get'", &measured(&[(1.0, 1.0)]));
        assert_eq!(free.verdict, Verdict::NoGoal);
    }
}
