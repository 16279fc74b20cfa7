//! Runs of pytest: the tests of a folder on a Python, and the counts that pytest prints.

use std::path::PathBuf;
use std::time::Duration;

use crate::process;
use crate::suite::Suite;
use crate::suite_output::show;
use crate::workspace::Workspace;

/// Bound of the tests of one folder.
const SUITE_BOUND: Duration = Duration::from_secs(10 * 60);

/// A Python that runs tests.
pub(crate) struct Interpreter {
    /// The path of the interpreter, from the tree's root.
    pub(crate) path: PathBuf,
    /// The version, as part of the suite's name; `None` for the Python of .venv.
    pub(crate) version: Option<String>,
}

/// Runs the tests of a folder on a Python.
///
/// # Errors
/// Returns an error if the Python cannot be started.
pub(crate) fn run_tests(
    workspace: &Workspace,
    folder: &str,
    interpreter: &Interpreter,
) -> Result<Suite, String> {
    let target = workspace.target()?;
    let mut command = workspace.interpreter(&interpreter.path);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]);
    command.current_dir(workspace.root.join(folder));
    command.env("PYTHONPATH", workspace.root.join(folder)).env("NO_COLOR", "1");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("FOREBAY_BIN", target.join("debug"));
    let mut name = format!("{folder}/pytest");
    if let Some(version) = &interpreter.version {
        name = format!("{name}-{version}");
        // Formatters are not installed for every Python.
        command.env("RUFF", workspace.root.join(".venv/bin/ruff"));
    }
    let log = format!("xtask/python/{}.log", name.replace("/pytest", "").replace('/', "-"));
    let outcome = process::capture(&mut command, &target.join(log), SUITE_BOUND)?;
    let suite = suite(name, &outcome.output, outcome.ok, &outcome.ending);
    show(&suite, &outcome.output);
    Ok(suite)
}

/// Returns the suite of a folder on one Python.
fn suite(name: String, output: &str, ok: bool, ending: &str) -> Suite {
    let suite = parse_pytest(output);
    let unexplained = !ok && suite.failed == 0 && suite.ran > 0;
    let problem = unexplained.then(|| ending.to_owned());
    Suite { name, problem, ..suite }
}

/// Reads pytest's last line, such as `2 failed, 3 passed, 1 skipped in 0.12s`, as a suite without a
/// name.
#[must_use]
pub fn parse_pytest(output: &str) -> Suite {
    let last = output.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    let counts = last.trim_matches(['=', ' ']).rsplit_once(" in ").map_or("", |(counts, _)| counts);
    let count = |noun: &str| {
        let parts = counts.split(", ").filter_map(|part| part.split_once(' '));
        let found = parts.filter(|(_, word)| word.trim_end_matches('s') == noun);
        found.filter_map(|(number, _)| number.parse::<u64>().ok()).sum::<u64>()
    };
    // A test that passes although it is marked as failing has a wrong mark, so it counts as failed.
    let failed = count("failed") + count("error") + count("xpassed");
    let ran = count("passed") + failed;
    let skipped = count("skipped") + count("xfailed") + count("deselected");
    Suite { ran, failed, skipped, ..Suite::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, ok: bool) -> (u64, u64, u64, bool) {
        let suite =
            suite("tools/demo/pytest".to_owned(), &format!("...F\n\n{line}\n"), ok, "exit 1");
        (suite.ran, suite.failed, suite.skipped, suite.passed())
    }

    #[test]
    fn last_summary_line_is_read() {
        assert_eq!(read("14 passed in 0.81s", true), (14, 0, 0, true));
        let mixed = "2 failed, 3 passed, 1 skipped, 1 xfailed, 4 warnings, 2 errors in 1.00s";
        assert_eq!(read(mixed, false), (7, 4, 2, false));
        assert_eq!(read("===== 1 passed in 0.1s =====", true), (1, 0, 0, true));
    }

    #[test]
    fn missing_tests_and_a_dead_process_are_failures() {
        assert_eq!(read("no tests ran in 0.01s", false), (0, 0, 0, false));
        assert_eq!(read("Segmentation fault", false), (0, 0, 0, false));
        assert_eq!(read("3 passed in 0.01s", false), (3, 0, 0, false));
    }
}
