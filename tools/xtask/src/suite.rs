//! The result of a suite of tests, and the parsers that read it from the output of a tool. A suite
//! that ran no test fails, because a test that never runs proves nothing.

use std::fmt;

/// Lines of a failed suite that are printed again at the end of a run, at most.
const FINDINGS: usize = 8;

/// The counts of a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// The name, unique within a run: `package/suite`.
    pub name: String,
    /// Tests that ran, the failed ones included.
    pub ran: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that the tool skipped.
    pub skipped: u64,
    /// The reason if the suite failed as a whole.
    pub problem: Option<String>,
}

impl Suite {
    /// Returns a suite of one test that passed, or failed with a reason.
    #[must_use]
    pub fn single(name: &str, result: Result<(), String>) -> Self {
        let problem = result.err();
        let failed = u64::from(problem.is_some());
        Self { name: name.to_owned(), ran: 1, failed, skipped: 0, problem }
    }

    /// Returns a suite that ended without a report.
    #[must_use]
    pub fn broken(name: &str, problem: String) -> Self {
        Self { name: name.to_owned(), problem: Some(problem), ..Self::default() }
    }

    /// Reports whether the suite counts as passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.ran > 0 && self.failed == 0 && self.problem.is_none()
    }

    /// Returns the suite's part of the closing line. A failed suite counts at least one failure.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let failed = if self.passed() { 0 } else { self.failed.max(1) };
        Counts { passed: self.ran.saturating_sub(self.failed), failed, skipped: self.skipped }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "suite {}: ran {}, failed {}", self.name, self.ran, self.failed)?;
        match &self.problem {
            Some(problem) => write!(formatter, " ({})", problem.lines().next().unwrap_or_default()),
            None if self.ran == 0 => write!(formatter, " (a suite that ran nothing fails)"),
            None => Ok(()),
        }
    }
}

/// The closing line of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and suites that failed as a whole.
    pub failed: u64,
    /// Tests and stages that were skipped.
    pub skipped: u64,
}

impl Counts {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(formatter, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

/// Reads libtest's output: one suite for each header `Running ...` or `Doc-tests ...`, or a single
/// suite without a name if a test binary ran by itself. A header without a result is a suite that
/// crashed.
#[must_use]
pub fn parse_libtest(text: &str) -> Vec<Suite> {
    let mut suites = Vec::new();
    let mut open: Option<Suite> = None;
    for line in text.lines() {
        if let Some(name) = header(line) {
            suites.extend(open.take().map(died));
            open = Some(Suite { name, ..Suite::default() });
        } else if is_start(line) && open.is_none() {
            open = Some(Suite::default());
        } else if let Some((ran, failed, skipped)) = result(line) {
            let name = open.take().unwrap_or_default().name;
            suites.push(Suite { name, ran, failed, skipped, problem: None });
        }
    }
    suites.extend(open.map(died));
    suites
}

/// Reads the lines `suite NAME: ran N, failed M` that Forebay's tools print.
#[must_use]
pub fn parse_suite_lines(text: &str) -> Vec<Suite> {
    text.lines().filter_map(suite_line).collect()
}

/// Returns the first lines of a failed suite's output that name failures of libtest, pytest or
/// Maven. If there is none, returns the last lines.
#[must_use]
pub fn findings(output: &str) -> Vec<&str> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let beginnings = ["FAILED ", "ERROR ", "[ERROR] "];
    let names_one = |line: &str| {
        line.ends_with("... FAILED")
            || line.contains("panicked at ")
            || beginnings.iter().any(|begin| line.starts_with(begin))
    };
    // The message of a panic is on the next line.
    let is_told = |number: usize| {
        names_one(lines[number]) || (number > 0 && lines[number - 1].contains("panicked at "))
    };
    let mut findings: Vec<&str> =
        (0..lines.len()).filter(|number| is_told(*number)).map(|number| lines[number]).collect();
    if findings.is_empty() {
        findings = lines[lines.len().saturating_sub(FINDINGS)..].to_vec();
    }
    findings.truncate(FINDINGS);
    findings
}

fn died(suite: Suite) -> Suite {
    Suite { problem: Some("ended without a result".to_owned()), ..suite }
}

/// Reads a header: `     Running unittests src/lib.rs (target/debug/deps/core-12ab)`, `   Doc-tests
/// core`.
fn header(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(name.trim().to_owned());
    }
    let (source, binary) = line.strip_prefix("Running ")?.rsplit_once(" (")?;
    let binary = binary.strip_suffix(')')?;
    let stem = binary.rsplit('/').next()?.rsplit_once('-')?.0;
    Some(format!("{stem} {source}"))
}

/// Reads a count: `running 3 tests`.
fn is_start(line: &str) -> bool {
    let count = line
        .strip_prefix("running ")
        .and_then(|rest| rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")));
    count.is_some_and(|count| count.parse::<u64>().is_ok())
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in
/// 0.1s` at any column, because a test may print before it without a line end.
fn result(line: &str) -> Option<(u64, u64, u64)> {
    let (_, counts) = line.split_once("test result: ")?.1.split_once(". ")?;
    let count = |noun: &str| {
        counts.split("; ").find_map(|part| part.trim().strip_suffix(noun)?.trim().parse().ok())
    };
    let (passed, failed): (u64, u64) = (count("passed")?, count("failed")?);
    let skipped: u64 = count("ignored").unwrap_or(0);
    let filtered: u64 = count("filtered out").unwrap_or(0);
    Some((passed + failed, failed, skipped + filtered))
}

fn suite_line(line: &str) -> Option<Suite> {
    let (name, counts) = line.strip_prefix("suite ")?.split_once(": ran ")?;
    let (ran, failed) = counts.split_once(", failed ")?;
    let failed = failed.split_whitespace().next()?;
    let name = name.to_owned();
    Some(Suite { name, ran: ran.parse().ok()?, failed: failed.parse().ok()?, ..Suite::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARGO: &str = "\
     Running unittests src/lib.rs (target/debug/deps/forebay_core-4be1cb5d9d0b5b1a)

running 3 tests
test a ... ok
test b ... FAILED
test c ... ignored

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s

     Running tests/codec_test.rs (target/debug/deps/codec_test-77aa)

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests forebay_core

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    fn suite(name: &str, ran: u64, failed: u64, skipped: u64) -> Suite {
        Suite { name: name.to_owned(), ran, failed, skipped, problem: None }
    }

    #[test]
    fn cargo_output_gives_a_suite_per_header() {
        let expected = [
            suite("forebay_core unittests src/lib.rs", 2, 1, 3),
            suite("codec_test tests/codec_test.rs", 1, 0, 0),
            suite("forebay_core", 0, 0, 0),
        ];
        assert_eq!(parse_libtest(CARGO), expected);
    }

    #[test]
    fn output_of_one_binary_gives_one_unnamed_suite() {
        let text = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 m";
        assert_eq!(parse_libtest(text), [suite("", 2, 0, 0)]);
    }

    #[test]
    fn suite_without_a_result_fails() {
        let text = "running 2 tests\ntest a ... ok\nmemory allocation failed\n";
        let suites = parse_libtest(text);
        assert_eq!(suites.len(), 1);
        assert!(!suites[0].passed());
        let header = "     Running tests/a.rs (target/debug/deps/a-1)\n";
        assert!(!parse_libtest(&format!("{header}{CARGO}"))[0].passed());
    }

    #[test]
    fn noise_before_the_result_does_not_hide_the_result() {
        let text = "running 1 test\nprogress 3%test result: ok. 1 passed; 0 failed; 0 ignored";
        assert_eq!(parse_libtest(text), [suite("", 1, 0, 0)]);
    }

    #[test]
    fn empty_suite_fails_and_reports_the_cause() {
        let empty = suite("core/unit", 0, 0, 0);
        assert!(!empty.passed());
        assert_eq!(empty.counts(), Counts { passed: 0, failed: 1, skipped: 0 });
        assert!(empty.to_string().starts_with("suite core/unit: ran 0, failed 0 ("));
    }

    #[test]
    fn suite_lines_round_trip() {
        let line = suite("sim", 100, 2, 0).to_string();
        assert_eq!(line, "suite sim: ran 100, failed 2");
        assert_eq!(parse_suite_lines(&format!("hello\n{line}\n")), [suite("sim", 100, 2, 0)]);
        assert_eq!(parse_suite_lines("suite sim: ran many, failed 2"), []);
    }

    #[test]
    fn findings_name_failures_and_their_causes() {
        let text = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\n---- b stdout ----\n\n\
            thread 'b' (7) panicked at src/lib.rs:3:5:\nleft is not right\n  note\n";
        let panicked = "thread 'b' (7) panicked at src/lib.rs:3:5:";
        assert_eq!(findings(text), ["test b ... FAILED", panicked, "left is not right"]);
        let pytest = "..F\nE   assert 1\nFAILED tests/test_a.py::test_a - assert 1\n1 failed";
        assert_eq!(findings(pytest), ["FAILED tests/test_a.py::test_a - assert 1"]);
        assert_eq!(findings("one\n\ntwo\n"), ["one", "two"]);
        assert_eq!(findings(&"test x ... FAILED\n".repeat(100)).len(), FINDINGS);
    }

    #[test]
    fn closing_line_has_its_exact_form() {
        let mut counts = Counts::default();
        counts.add(suite("a", 3, 1, 0).counts());
        assert_eq!(counts.to_string(), "2 passed, 1 failed");
        counts.add(Suite::broken("b", "gone".to_owned()).counts());
        counts.add(suite("c", 1, 0, 4).counts());
        assert_eq!(counts.to_string(), "3 passed, 2 failed, 4 skipped");
    }
}
