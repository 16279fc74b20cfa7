//! Reports the times of the stages after each run, compares them with their budgets, and writes
//! them into the table of CONTRIBUTING.md. The columns of the table are the budgets and the times
//! of the last whole run.

use std::fs;
use std::time::Duration;

use crate::stage::Stage;
use crate::workspace::Workspace;

const PAGE: &str = "CONTRIBUTING.md";
const BEGIN: &str = "<!-- stages:begin -->";
const END: &str = "<!-- stages:end -->";
const HEAD: &str =
    "| stage | budget cold | budget warm | last cold | last warm |\n|---|---|---|---|---|\n";

/// Prints the times, warns of a stage that exceeds its budget by a quarter, and updates the table
/// if all of these stages ran.
///
/// # Errors
/// Returns an error if the page has no table, or cannot be written.
pub fn report(
    workspace: &Workspace,
    stages: &[Stage],
    is_cold: bool,
    times: &[(&Stage, Duration)],
) -> Result<(), String> {
    for (stage, time) in times {
        println!("time {:19} {:8.1} s", stage.name, time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("time {:19} {:8.1} s", "total", total.as_secs_f64());
    times.iter().filter_map(|(stage, time)| warning(stage, is_cold, *time)).for_each(|warning| {
        println!("{warning}");
    });
    if times.len() < stages.len() {
        return Ok(());
    }
    let path = workspace.root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let updated = updated(&page, stages, is_cold, times)?;
    if updated == page {
        return Ok(());
    }
    fs::write(&path, updated).map_err(|error| format!("{PAGE}: {error}"))
}

/// Returns a stage's budget for this run.
fn budget(stage: &Stage, is_cold: bool) -> Duration {
    let (cold, warm) = stage.budget_s;
    Duration::from_secs(if is_cold { cold } else { warm })
}

fn warning(stage: &Stage, is_cold: bool, time: Duration) -> Option<String> {
    let budget = budget(stage, is_cold);
    if time <= budget + budget / 4 {
        return None;
    }
    let (name, kind) = (stage.name, if is_cold { "cold" } else { "warm" });
    let (took_s, budget_s) = (time.as_secs(), budget.as_secs());
    Some(format!("warning: stage {name} took {took_s} s; the {kind} budget is {budget_s} s"))
}

/// Returns the page with this run's times in the table.
fn updated(
    page: &str,
    stages: &[Stage],
    is_cold: bool,
    times: &[(&Stage, Duration)],
) -> Result<String, String> {
    let missing = || format!("{PAGE} has no table; fix: add the lines {BEGIN} and {END}");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (table, after) = rest.split_once(END).ok_or_else(missing)?;
    let last = |name: &str, column: usize| -> String {
        let row = table.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let cell = row.and_then(|row| row.split('|').nth(column)).unwrap_or(" ");
        cell.trim().to_owned()
    };
    let sum = |cold: bool| stages.iter().map(|stage| budget(stage, cold)).sum::<Duration>();
    let mut rows = String::from(HEAD);
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    let named = times
        .iter()
        .map(|(stage, time)| (stage.name, budget(stage, true), budget(stage, false), *time));
    for (name, cold, warm, time) in named.chain([("total", sum(true), sum(false), total)]) {
        let new = minutes(time);
        let (cold_cell, warm_cell) =
            if is_cold { (new, last(name, 5)) } else { (last(name, 4), new) };
        let (cold, warm) = (minutes(cold), minutes(warm));
        rows.push_str(&format!("| {name} | {cold} | {warm} | {cold_cell} | {warm_cell} |\n"));
    }
    Ok(format!("{before}{BEGIN}\n{rows}{END}{after}"))
}

/// Formats a duration as minutes and seconds, such as `12:05`.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::STAGES;

    fn all(seconds: u64) -> Vec<(&'static Stage, Duration)> {
        STAGES.iter().map(|stage| (stage, Duration::from_secs(seconds))).collect()
    }

    #[test]
    fn stage_over_its_budget_by_a_quarter_gets_a_warning() {
        let stage = &STAGES[0];
        let budget = budget(stage, true);
        assert_eq!(warning(stage, true, budget + budget / 5), None);
        let warned = warning(stage, true, budget + budget / 3).unwrap();
        assert!(warned.contains(stage.name) && warned.contains("cold"), "{warned}");
    }

    #[test]
    fn run_writes_only_its_own_column() {
        let page = format!("before\n{BEGIN}\n{END}\nafter\n");
        let cold = updated(&page, STAGES, true, &all(61)).unwrap();
        let updated_page = updated(&cold, STAGES, false, &all(5)).unwrap();
        let row = updated_page.lines().find(|line| line.starts_with("| setup |")).unwrap();
        assert!(row.ends_with("| 1:01 | 0:05 |"), "{row}");
        assert!(updated_page.starts_with("before\n") && updated_page.ends_with("\nafter\n"));
        assert_eq!(updated(&updated_page, STAGES, false, &all(5)).unwrap(), updated_page);
        assert!(updated("no table", STAGES, true, &all(1)).is_err());
    }
}
