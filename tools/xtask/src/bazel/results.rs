//! Reads the results of `bazel test` from Bazel's stream of build events, which names every test
//! target, its end and its log. The log has the counts of the language's test runner. Each target
//! is a suite; a target whose log has no count has run no test.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::pytest;
use crate::suite::{Suite, parse_libtest, parse_suite_lines};
use crate::workspace::{array, text};

/// A test target of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Bazel's status of the target; empty if the target did not run.
    pub status: String,
    /// The log of the last run.
    pub log: Option<PathBuf>,
    /// Whether the result is of an earlier run with the same inputs.
    pub cached: bool,
}

/// Reads the events, one JSON object in each line.
#[must_use]
pub fn targets(events: &str) -> BTreeMap<String, Target> {
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    for event in events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let id = &event["id"];
        if event["configured"]["testSize"].is_string() {
            targets.entry(text(&id["targetConfigured"], "label").to_owned()).or_default();
        }
        let result = &event["testResult"];
        if result.is_object() {
            let target = targets.entry(text(&id["testResult"], "label").to_owned()).or_default();
            target.status = text(result, "status").to_owned();
            target.cached = result["cachedLocally"] == true;
            target.log = log(result);
        }
    }
    targets
}

fn log(result: &Value) -> Option<PathBuf> {
    let files = array(result, "testActionOutput").iter();
    let logs = files.filter(|file| file["name"] == "test.log");
    let paths = logs.filter_map(|file| text(file, "uri").strip_prefix("file://").map(unescaped));
    paths.map(PathBuf::from).next()
}

/// Decodes the path of an address: `%20` is a space.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let escaped = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a target as a suite, with its output.
#[must_use]
pub fn suite(label: &str, target: &Target) -> (Suite, String) {
    let name = format!("bazel{label}");
    if target.status.is_empty() {
        let problem = "the target was not built, so it did not run; see above".to_owned();
        return (Suite::broken(&name, problem), String::new());
    }
    let output = target.log.as_ref().and_then(|log| fs::read(log).ok()).unwrap_or_default();
    let output = String::from_utf8_lossy(&output).into_owned();
    let mut suite = Suite { name, ..count_tests(&output) };
    if target.status != "PASSED" && (suite.failed == 0 || target.status != "FAILED") {
        suite.problem = Some(target.status.clone());
    }
    (suite, output)
}

/// Returns the counts in a log, by the first runner whose format matches.
fn count_tests(output: &str) -> Suite {
    let mut parts = parse_libtest(output);
    if parts.is_empty() {
        parts = parse_suite_lines(output);
    }
    parts.extend(junit(output));
    if parts.is_empty() {
        parts.push(pytest::parse_pytest(output));
    }
    let mut sum = Suite::default();
    for part in parts {
        sum.ran += part.ran;
        sum.failed += part.failed;
        sum.skipped += part.skipped;
        sum.problem = sum.problem.or(part.problem);
    }
    sum
}

/// Reads the summary of JUnit's console: `[         3 tests successful      ]`.
fn junit(output: &str) -> Option<Suite> {
    let count = |words: &str| {
        let lines = output.lines().rev().filter_map(|line| {
            let inside = line.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
            inside.strip_suffix(words)?.trim().parse::<u64>().ok()
        });
        lines.take(1).next()
    };
    let (passed, failed) = (count("tests successful")?, count("tests failed")?);
    let skipped = count("tests skipped")? + count("tests aborted")?;
    Some(Suite { ran: passed + failed, failed, skipped, ..Suite::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"{"id":{"pattern":{}},"expanded":{}}
{"id":{"targetConfigured":{"label":"//a:lib"}},"configured":{"targetKind":"rust_library rule"}}
{"id":{"targetConfigured":{"label":"//a:x_test"}},"configured":{"testSize":"SMALL"}}
{"id":{"targetConfigured":{"label":"//a:y_test"}},"configured":{"testSize":"SMALL"}}
{"id":{"testResult":{"label":"//a:x_test","run":1}},"testResult":RESULT}
not json"#;

    const RESULT: &str = r#"{"status":"PASSED","cachedLocally":true,"testActionOutput":[
        {"name":"test.log","uri":"file:///t%20x/test.log"},
        {"name":"test.xml","uri":"file:///t/test.xml"}]}"#;

    const JUNIT: &str = "\
[         5 containers found      ]
[         4 tests found           ]
[         1 tests skipped         ]
[         3 tests started         ]
[         0 tests aborted         ]
[         2 tests successful      ]
[         1 tests failed          ]
";

    fn read(status: &str, log: &str) -> Suite {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.log");
        fs::write(&path, log).unwrap();
        let target = Target { status: status.to_owned(), log: Some(path), cached: false };
        suite("//a:x_test", &target).0
    }

    #[test]
    fn every_test_target_is_found_and_an_unrun_target_fails() {
        let events = EVENTS.replace("RESULT", &RESULT.replace('\n', ""));
        let targets = targets(&events);
        assert_eq!(targets.keys().collect::<Vec<_>>(), ["//a:x_test", "//a:y_test"]);
        let ran = &targets["//a:x_test"];
        assert_eq!(ran.log, Some(PathBuf::from("/t x/test.log")));
        assert!(ran.cached && ran.status == "PASSED");
        let (suite_left, _) = suite("//a:y_test", &targets["//a:y_test"]);
        assert!(!suite_left.passed());
        assert!(suite_left.to_string().contains("bazel//a:y_test"), "{suite_left}");
    }

    #[test]
    fn each_language_is_counted_by_its_own_summary() {
        let rust = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!((read("PASSED", rust).ran, read("PASSED", rust).passed()), (2, true));
        let java = read("FAILED", JUNIT);
        assert_eq!((java.ran, java.failed, java.skipped, java.passed()), (3, 1, 1, false));
        assert!(read("PASSED", "..\n14 passed in 0.81s\n").passed());
        assert_eq!(read("PASSED", "suite sim: ran 9, failed 0\n").ran, 9);
    }

    #[test]
    fn target_without_counts_or_with_a_bad_end_fails() {
        assert!(!read("PASSED", "all is well\n").passed());
        assert!(!read("PASSED", "").passed());
        let late = read("TIMEOUT", "2 passed in 0.1s\n");
        assert_eq!((late.passed(), late.problem.as_deref()), (false, Some("TIMEOUT")));
        assert!(!read("FAILED", "2 passed in 0.1s\n").passed());
        assert!(!read("FLAKY", "2 passed in 0.1s\n").passed());
    }
}
