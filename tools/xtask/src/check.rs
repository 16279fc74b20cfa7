//! `xtask check`: the rules of the tree, checked in seconds. Each rule is a suite of one test, so
//! that its failure has a name. A new rule needs one entry in `RULES`.

use std::time::Duration;

use crate::suite::Suite;
use crate::suite_output::{ended, show};
use crate::workspace::{BUILD_BOUND, Workspace};
use crate::{bazel, documented_names, language, layers, process, rocksdb_pins, tidy};

const TOOL_BOUND: Duration = Duration::from_secs(5 * 60);

/// The result of a rule: `Ok(None)` if the tree has nothing to check, `Err` with all findings.
type Finding = Result<Option<()>, String>;

struct CheckRule {
    name: &'static str,
    check: fn(&Workspace) -> Finding,
}

const RULES: &[CheckRule] = &[
    CheckRule { name: "fmt", check: fmt },
    CheckRule { name: "tidy", check: |tree| listed(tidy::problems(tree)?) },
    CheckRule { name: "subjects", check: |tree| listed(language::subjects(tree)?) },
    CheckRule { name: "type-names", check: |tree| listed(language::type_names(tree)?) },
    CheckRule { name: "one-definition", check: |tree| listed(language::one_definition(tree)?) },
    CheckRule { name: "citations", check: |tree| listed(language::citations(tree)?) },
    CheckRule { name: "commit-subjects", check: |tree| listed(language::commit_subjects(tree)?) },
    CheckRule { name: "documented-names", check: |tree| listed(documented_names::problems(tree)?) },
    CheckRule { name: "layers", check: |tree| listed(layers::problems(tree)?) },
    CheckRule { name: "rocksdb-version", check: |tree| listed(rocksdb_pins::problems(tree)?) },
    CheckRule { name: "bazel-format", check: |tree| listed(bazel::format::problems(tree)?) },
    CheckRule { name: "bazel-pins", check: |tree| listed(bazel::pins::problems(tree)?) },
    CheckRule { name: "bazel-sources", check: |tree| listed(bazel::sources::problems(tree)?) },
    CheckRule { name: "bazel-deps", check: |tree| listed(bazel::deps::problems(tree)?) },
    CheckRule {
        name: "bazel-visibility",
        check: |tree| listed(bazel::visibility::problems(tree)?),
    },
    CheckRule { name: "bazel-suites", check: |tree| listed(bazel::suites::problems(tree)?) },
    CheckRule { name: "bazel-faults", check: |tree| listed(bazel::mutation_test::problems(tree)?) },
    CheckRule { name: "clippy", check: clippy },
    CheckRule { name: "ruff", check: ruff },
    CheckRule { name: "mypy", check: mypy },
];

/// Runs all rules, or only the named ones.
///
/// # Errors
/// Returns an error if a rule fails, after its findings are printed.
pub fn run(workspace: &Workspace, only: &[String]) -> Result<(), String> {
    let suites = suites(workspace, only)?;
    let failed_suites: Vec<&str> =
        suites.iter().filter(|suite| !suite.passed()).map(|suite| suite.name.as_str()).collect();
    if failed_suites.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed_suites.join(", ")))
    }
}

/// Runs the rules as suites of `make test`.
///
/// # Errors
/// Returns an error if no rule has a given name.
pub fn suites(workspace: &Workspace, only: &[String]) -> Result<Vec<Suite>, String> {
    if let Some(name) = only.iter().find(|name| !RULES.iter().any(|rule| rule.name == **name)) {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        return Err(format!("no rule {name}; fix: name one of {}", names.join(", ")));
    }
    let selected =
        RULES.iter().filter(|rule| only.is_empty() || only.iter().any(|name| name == rule.name));
    let mut suites = Vec::new();
    for rule in selected {
        let name = format!("check/{}", rule.name);
        match (rule.check)(workspace) {
            Ok(None) => println!("{name}: nothing to check"),
            Ok(Some(())) => suites.push((Suite::single(&name, Ok(())), String::new())),
            Err(found) => {
                suites.push((Suite::single(&name, Err("see the findings".to_owned())), found));
            }
        }
        if let Some((suite, found)) = suites.last().filter(|(suite, _)| suite.name == name) {
            show(suite, found);
        }
    }
    Ok(suites.into_iter().map(|(suite, _)| suite).collect())
}

fn listed(problems: Vec<String>) -> Finding {
    if problems.is_empty() { Ok(Some(())) } else { Err(problems.join("\n")) }
}

fn fmt(workspace: &Workspace) -> Finding {
    tool(workspace, "fmt", &mut workspace.cargo(&["fmt", "--all", "--check"]), "cargo fmt --all")
}

fn clippy(workspace: &Workspace) -> Finding {
    let form = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet"];
    let mut command = workspace.cargo(&form);
    command.args(["--", "-D", "warnings"]);
    let log = workspace.target()?.join("xtask/check/clippy.log");
    let outcome = process::capture(&mut command, &log, BUILD_BOUND)?;
    ended(outcome.ok, &outcome.output).map(Some)
}

fn python_files(workspace: &Workspace) -> Result<Vec<String>, String> {
    let files = workspace.files()?.into_iter();
    Ok(files.filter(|file| file.ends_with(".py") || file.ends_with(".pyi")).collect())
}

fn ruff(workspace: &Workspace) -> Finding {
    let files = python_files(workspace)?;
    if files.is_empty() {
        return Ok(None);
    }
    let fix = "run: .venv/bin/ruff format --config tools/setup/ruff.toml FILE";
    for verb in [&["check", "--quiet"][..], &["format", "--check", "--diff"][..]] {
        let mut command = workspace.python(&["-m", "ruff"]);
        command.args(verb).args(["--config", "tools/setup/ruff.toml"]).args(&files);
        tool(workspace, "ruff", &mut command, fix)?;
    }
    Ok(Some(()))
}

fn mypy(workspace: &Workspace) -> Finding {
    let files = python_files(workspace)?;
    if files.is_empty() {
        return Ok(None);
    }
    let cache = workspace.target()?.join("xtask/mypy");
    let mut command = workspace.python(&["-m", "mypy", "--config-file", "tools/setup/mypy.ini"]);
    command.arg("--cache-dir").arg(cache).args(&files);
    tool(workspace, "mypy", &mut command, "add or correct the types named above")
}

fn tool(
    workspace: &Workspace,
    name: &str,
    command: &mut std::process::Command,
    fix: &str,
) -> Finding {
    let log = workspace.target()?.join(format!("xtask/check/{name}.log"));
    let outcome = process::capture(command, &log, TOOL_BOUND)?;
    let found = format!("{}\n{name}: {}; fix: {fix}", outcome.output, outcome.ending);
    ended(outcome.ok, &found).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_rule_is_an_error_that_names_the_known_rules() {
        let nowhere = Workspace { root: std::env::temp_dir() };
        let problem = run(&nowhere, &["formats".to_owned()]).unwrap_err();
        assert!(problem.contains("clippy"), "{problem}");
    }
}
