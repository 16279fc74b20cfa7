//! The outcome of a part of the nightly run, and the committed record of all runs: a row for each
//! part, the newest last.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::suite::{Counts, Suite};
use crate::workspace::Workspace;

const PAGE: &str = "tools/nightly/record.md";

/// The suites and measurements of a part of the run.
#[derive(Debug, Default)]
pub(super) struct PartReport {
    /// The suites.
    pub(super) suites: Vec<Suite>,
    /// The measurements, in words, for the record.
    pub(super) measured: Vec<String>,
}

/// Adds a row.
///
/// # Errors
/// Returns an error if git or rustc fails, or the page cannot be written.
pub(super) fn add(
    workspace: &Workspace,
    part: &str,
    time: Duration,
    counts: Counts,
    measured: &[String],
) -> Result<(), String> {
    let read = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let text = process::read(command.args(arguments).current_dir(&workspace.root))?;
        Ok::<String, String>(text.trim().to_owned())
    };
    let environment = Environment {
        date: read("git", &["log", "-1", "--format=%cs"])?,
        commit: read("git", &["rev-parse", "--short", "HEAD"])?,
        is_changed: !read("git", &["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
        rustc: read("rustc", &["--version"])?,
    };
    let path = workspace.root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let row = row(&environment, part, time, counts, measured);
    fs::write(&path, format!("{}\n{row}\n", page.trim_end()))
        .map_err(|error| format!("{PAGE}: {error}"))
}

/// The identity of a run.
struct Environment {
    date: String,
    commit: String,
    /// Whether files differ from the commit.
    is_changed: bool,
    rustc: String,
}

fn row(
    environment: &Environment,
    part: &str,
    time: Duration,
    counts: Counts,
    measured: &[String],
) -> String {
    let Environment { date, commit, is_changed, rustc } = environment;
    let rustc = rustc.split(' ').nth(1).unwrap_or(rustc);
    let changed = if *is_changed { ", with changes" } else { "" };
    let minutes = time.as_secs_f64() / 60.0;
    let measured = measured.join("; ");
    format!(
        "| {date} | {commit}{changed} | {part} | {rustc} | {minutes:.1} | {counts} | {measured} |"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_commit_versions_time_and_outcome() {
        let environment = Environment {
            date: "2026-01-02".into(),
            commit: "12ab".into(),
            is_changed: true,
            rustc: "rustc 1.95.0 (x)".into(),
        };
        let counts = Counts { passed: 7, failed: 1, skipped: 0 };
        let row =
            row(&environment, "long", Duration::from_secs(90), counts, &["a 1".into(), "b".into()]);
        let expected = "| 2026-01-02 | 12ab, with changes | long | 1.95.0 | 1.5 | \
                        7 passed, 1 failed | a 1; b |";
        assert_eq!(row, expected);
    }
}
