//! The table: every goal and its result, followed by all other measurements.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use forebay_bench_report::{Rounds, Spread};

use crate::gets::HISTOGRAM;
use crate::verdict::{GoalResult, Measurements, Verdict};

/// Least percentage of a histogram's part that is printed.
const LEAST_PERCENT: f64 = 0.001;

/// Returns the goals in the order of their file, with a line per goal under each measure.
#[must_use]
pub fn goals(judged: &[GoalResult]) -> String {
    let mut text = String::new();
    let mut measure = "";
    for part in judged {
        if part.measure != measure {
            measure = &part.measure;
            let _ = writeln!(text, "\n{measure}");
        }
        let _ = writeln!(text, "{}", line(part));
    }
    text
}

fn line(part: &GoalResult) -> String {
    let goal = part.goal.as_deref().unwrap_or("-");
    let stretch = part.stretch.map_or("-".to_owned(), |stretch| format!("{stretch}"));
    let head =
        format!("  {:<12} {:<34} goal {goal:<13} stretch {stretch:<6}", word(part), part.name);
    let found = part.found.map_or(String::new(), |found| {
        let value = part.value.filter(|_| part.of != part.unit);
        let value =
            value.map_or(String::new(), |value| format!("  = {}", amount(&value, &part.of)));
        format!(" {:<28}{value}", amount(&found, &part.unit))
    });
    let reference =
        part.reference.as_ref().map_or(String::new(), |reference| format!("  ({reference})"));
    let reason = match &part.verdict {
        Verdict::NotMeasured(reason) => format!(" {reason}"),
        _ => String::new(),
    };
    format!("{head}{found}{reference}{reason}").trim_end().to_owned()
}

fn word(part: &GoalResult) -> &'static str {
    match &part.verdict {
        Verdict::Met if is_stretch(part) => "met, stretch",
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Noisy => "noisy",
        Verdict::NoGoal => "no goal yet",
        Verdict::NotMeasured(_) => "not measured",
    }
}

fn is_stretch(part: &GoalResult) -> bool {
    let is_lower_bound = part.goal.as_ref().is_some_and(|goal| goal.starts_with(">="));
    let reaches = |found: Spread, stretch: f64| {
        if is_lower_bound { found.median >= stretch } else { found.median <= stretch }
    };
    part.found.zip(part.stretch).is_some_and(|(found, stretch)| reaches(found, stretch))
}

/// Formats a spread as `2.41 D [2.38 .. 2.47]`.
fn amount(spread: &Spread, unit: &str) -> String {
    let Spread { quartile_1, median, quartile_3, .. } = *spread;
    format!("{} {unit} [{} .. {}]", number(median), number(quartile_1), number(quartile_3))
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns all values of all sections.
#[must_use]
pub fn values(measured: &Measurements) -> String {
    let mut text = String::new();
    for (section, rounds) in measured {
        let Ok(rounds) = rounds else { continue };
        let _ = writeln!(text, "\nall values of '{section}' (ns where a name says nothing else)");
        let is_one = |name: &String| !name.contains(HISTOGRAM);
        for name in rounds.names().into_iter().filter(is_one) {
            if let Ok(spread) = rounds.spread(&name) {
                let _ = writeln!(text, "  {name:<34} {}", amount(&spread, ""));
            }
        }
    }
    text
}

/// Returns the histograms of single times in all sections, a line for each.
#[must_use]
pub fn histograms(measured: &Measurements) -> String {
    let mut text = String::new();
    for (section, rounds) in measured {
        let Ok(rounds) = rounds else { continue };
        let lines = lines_of_histograms(rounds);
        if !lines.is_empty() {
            let _ = writeln!(text, "\nhistograms of '{section}': up to so many ns, % of the times");
            lines.iter().for_each(|(name, parts)| {
                let _ = writeln!(text, "  {name:<24} {}", parts.join(", "));
            });
        }
    }
    text
}

/// Returns, by name, the parts of each histogram that are large enough to print, in order.
fn lines_of_histograms(rounds: &Rounds) -> BTreeMap<String, Vec<String>> {
    let mut parts: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for name in rounds.names() {
        let Some((measure, end)) = name.split_once(HISTOGRAM) else { continue };
        if let (Ok(end), Ok(share)) = (end.parse(), rounds.spread(&name)) {
            parts.entry(measure.to_owned()).or_default().insert(end, share.median);
        }
    }
    let words = |parts: BTreeMap<u64, f64>| {
        let large_parts = parts.into_iter().filter(|(_, share)| *share >= LEAST_PERCENT);
        large_parts.map(|(end, share)| format!("{end}: {}", number(share))).collect()
    };
    parts.into_iter().map(|(name, parts)| (name, words(parts))).collect()
}

/// Returns the closing line.
#[must_use]
pub fn closing(judged: &[GoalResult]) -> String {
    let with_goal = judged.iter().filter(|part| part.goal.is_some());
    let goals_met = with_goal.clone().filter(|part| part.verdict == Verdict::Met).count();
    let (mut missed, mut noisy, mut unmeasured) = (0, 0, 0);
    for part in with_goal.clone() {
        match part.verdict {
            Verdict::Missed => missed += 1,
            Verdict::Noisy => noisy += 1,
            Verdict::NotMeasured(_) => unmeasured += 1,
            _ => {}
        }
    }
    let all = with_goal.count();
    format!(
        "bench-index: met {goals_met} of {all} goals ({missed} missed, {noisy} noisy, {unmeasured} \
         not measured)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(verdict: Verdict, median: f64) -> GoalResult {
        GoalResult {
            measure: "Rust get".to_owned(),
            name: "50 B".to_owned(),
            goal: Some("<= 2.5 D".to_owned()),
            stretch: Some(2.2),
            unit: "D".to_owned(),
            found: Spread::of(&[median]).ok(),
            value: Spread::of(&[median * 100.0]).ok(),
            of: "ns".to_owned(),
            reference: None,
            verdict,
        }
    }

    #[test]
    fn each_verdict_is_printed_and_counted_once() {
        let not_measured = Verdict::NotMeasured("needs the image".to_owned());
        let unmeasured = GoalResult { found: None, value: None, ..judged(not_measured, 1.0) };
        let all = [
            judged(Verdict::Met, 2.4),
            judged(Verdict::Met, 2.1),
            judged(Verdict::Missed, 2.6),
            judged(Verdict::Noisy, 2.4),
            unmeasured,
        ];
        let text = goals(&all);
        assert_eq!(text.matches("Rust get\n").count(), 1, "{text}");
        for words in ["met, stretch", "2.40 D [2.40 .. 2.40]", "= 240 ns", "needs the image"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        let closing = closing(&all);
        assert!(closing.ends_with("2 of 5 goals (1 missed, 1 noisy, 1 not measured)"), "{closing}");
    }

    #[test]
    fn histogram_line_lists_only_filled_parts() {
        let mut rounds = Rounds::default();
        for (end, share) in [(256, 99.0), (384, 0.0), (48, 1.0)] {
            rounds.record(&format!("get{HISTOGRAM}{end}"), share);
        }
        rounds.record("get p50", 200.0);
        rounds.close();
        let measured = [("reads".to_owned(), Ok(rounds))].into_iter().collect();
        let text = histograms(&measured);
        assert!(text.ends_with("48: 1.00, 256: 99.0\n"), "{text}");
        assert!(values(&measured).ends_with("[200 .. 200]\n"));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let words: Vec<String> = [0.2512, 2.512, 25.12, 251.2].map(number).to_vec();
        assert_eq!(words, ["0.251", "2.51", "25.1", "251"]);
    }
}
