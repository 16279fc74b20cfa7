//! The printed results of suites, and the failures that a run repeats at its end.

use std::sync::Mutex;

use crate::suite::{Suite, findings};

/// The failures so far, printed again at the end of a run, because many systems store only the end
/// of a long log.
static FAILED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a suite's line, and the suite's output if it failed.
pub fn show(suite: &Suite, output: &str) {
    println!("{suite}");
    if !suite.passed() {
        println!("---- {} wrote:\n{}\n----", suite.name, output.trim_end());
        tell_again(&suite.to_string(), output);
    }
}

/// Repeats the findings of a failure at the end of the run.
pub fn tell_again(suite_name: &str, output: &str) {
    let lines: String = findings(output).iter().map(|line| format!("\n    {line}")).collect();
    if let Ok(mut failures) = FAILED.lock() {
        failures.push(format!("failed: {suite_name}{lines}"));
    }
}

/// Converts the end of a process into the result of a suite of one test.
///
/// # Errors
/// Returns the ending if the process failed.
pub fn ended(ok: bool, ending: &str) -> Result<(), String> {
    if ok { Ok(()) } else { Err(ending.to_owned()) }
}

/// Returns the failures so far, one in a line.
#[must_use]
pub fn failures() -> String {
    FAILED.lock().map(|failures| failures.join("\n")).unwrap_or_default()
}
