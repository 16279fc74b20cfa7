//! Each test plants violations of a language rule in a small tree and proves that the rule reports
//! each by file, line and text. The correct form next to each proves that the rule refuses no more.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use xtask::language;
use xtask::workspace::Workspace;

type Rule = fn(&Workspace) -> Result<Vec<String>, String>;

const LIB: &str = "libs/a/src/lib.rs";
const EXCEPTIONS: &str = "tools/xtask/language/exceptions.toml";
const CLEAN: [(&str, &str); 6] = [
    ("libs/a/Cargo.toml", "# The manifest of a crate to plant violations in.\n"),
    (LIB, "//! A crate to plant violations in.\n\npub struct Log;\n"),
    ("clients/a/__init__.py", "\"\"\"A package to plant violations in.\"\"\"\n"),
    ("tools/decisions/0001-a-decision.md", "# 0001. Decisions are kept\n"),
    ("README.md", "# A tree\n\nThe tree has violations.\n"),
    ("tools/README.md", "# Tools\n\n## More of them\n\nThe tools are two.\n"),
];

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn git(root: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let mut command = Command::new("git");
    let status = command.args(identity).args(arguments).current_dir(root).status();
    assert!(status.unwrap().success());
}

fn tree() -> (TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    CLEAN.iter().for_each(|(file, text)| write(folder.path(), file, text));
    git(folder.path(), &["init", "-q"]);
    let workspace = Workspace { root: folder.path().to_path_buf() };
    (folder, workspace)
}

fn problems(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let (folder, workspace) = tree();
    assert_eq!(rule(&workspace).unwrap(), Vec::<String>::new());
    files.iter().for_each(|(file, text)| write(folder.path(), file, text));
    rule(&workspace).unwrap()
}

/// The only problem that the file brings holds all the words.
fn planted(rule: Rule, file: &str, text: &str, words: &[&str]) {
    let problems = problems(rule, &[(file, text)]);
    assert_eq!(problems.len(), 1, "{file}: {text}: {problems:?}");
    for word in words {
        assert!(problems[0].contains(word), "{word} in {}", problems[0]);
    }
}

fn passes(rule: Rule, file: &str, text: &str) {
    assert_eq!(problems(rule, &[(file, text)]), Vec::<String>::new(), "{file}: {text}");
}

#[test]
fn comment_without_a_subject_is_refused() {
    let rule = language::subjects;
    planted(rule, LIB, "//! A log.\n//!\n//! What is read is kept.\n", &[":3:", "\"What is read"]);
    planted(rule, LIB, "/// A log that\n/// waits. Its end\n/// is open.\n", &[":2:", "\"Its end"]);
    planted(rule, LIB, "let a = 1; // of which b is one\n", &[":1:", "\"of which b"]);
    planted(rule, LIB, "/* Those that wait. */\n", &["\"Those that wait.\""]);
    let java = "/**\n * A log.\n *\n * <p>Whoever reads {@code it} waits.\n */\n";
    planted(rule, "clients/A.java", java, &["clients/A.java:4:", "Whoever"]);
    let java = "/**\n * A log.\n *\n * @param a what is read\n */\n";
    planted(rule, "clients/A.java", java, &[":4:", "\"what is read\""]);
    planted(rule, "proto/a.proto", "// Where it ends up.\n", &[":1:", "Where"]);
    planted(rule, "clients/a.h", "/* Without it all fails. */\n", &["Without"]);
    planted(rule, "clients/a.go", "// Nobody reads it.\n", &["Nobody"]);
    let python = "def f():\n    \"\"\"Read it.\n\n    That is all of it.\n    \"\"\"\n";
    planted(rule, "tools/a.py", python, &["tools/a.py:4:", "That"]);
    planted(rule, "tools/a.pyi", "a: int  # one of the two\n", &["one of"]);
    planted(rule, "tools/a.sh", "#!/bin/sh\n# Who calls it waits.\n", &[":2:", "Who"]);
    planted(rule, "tools/a.toml", "a = '#'\n# One of the two.\n", &[":2:", "One"]);
    planted(rule, "tools/BUILD.bazel", "# What it builds.\n", &["What"]);
    planted(rule, "infra/a.yaml", "# What it runs.\n", &["What"]);
    planted(rule, "Makefile", "a: ## What it makes\n", &["Makefile:1:", "What"]);
}

#[test]
fn markdown_without_a_subject_is_refused() {
    let rule = language::subjects;
    planted(rule, "README.md", "# Tree\n\nIt grows. What\nfalls is kept.\n", &[":3:", "\"What"]);
    planted(rule, "README.md", "# What grows\n", &[":1:", "What grows"]);
    planted(rule, "README.md", "- a\n- **Whoever** reads `it`, waits\n", &[":2:", "Whoever"]);
    let title = "# 0002. One log is enough for all\n";
    planted(rule, "tools/decisions/0002-one-log.md", title, &[":1:", "One log"]);
}

#[test]
fn message_without_a_subject_is_refused() {
    let rule = language::subjects;
    planted(rule, LIB, "fn f() { panic!(\"what was read is gone: {a}\") }\n", &[":1:", "what was"]);
    let test = "#[cfg(test)]\nmod tests {\n    const A: &str = \"what was read is gone\";\n}\n";
    passes(rule, LIB, test);
    passes(rule, LIB, "const A: &str = \"WHERE a is null\";\nconst B: &str = \"one two\";\n");
    passes(rule, "libs/a/tests/a_test.rs", "const A: &str = \"what was read is gone\";\n");
}

#[test]
fn sentences_with_a_subject_pass() {
    let rule = language::subjects;
    for text in [
        "The reader waits for what is read.",
        "`What` is a name of a type.",
        "One-way streets are long.",
        "It ends: 8 of them are left.",
        "\"What is it\" asks for more.",
    ] {
        passes(rule, LIB, &format!("//! {text}\n"));
        passes(rule, "README.md", &format!("{text}\n"));
    }
    let fenced = "The form is\n\n```\nWhat is this\n```\n\nwhere `a` is a number.\n";
    passes(rule, "README.md", fenced);
    passes(rule, "README.md", "| What is it | One of them |\n|---|---|\n| Who is it | b |\n");
    passes(rule, LIB, "const A: &str = r#\"\n// What is this\n\"#;\n");
    passes(rule, "tools/a.py", "A = \"\"\"\nWhat is this here\n\"\"\"\n");
}

#[test]
fn bare_name_is_refused() {
    let rule = language::type_names;
    planted(rule, LIB, "//! A log.\nstruct Held<T>(T);\n", &[":2:", "type Held"]);
    planted(rule, LIB, "pub(crate) enum How { A }\n", &["type How"]);
    planted(rule, LIB, "trait Smeared {}\n", &["type Smeared"]);
    planted(rule, LIB, "type Waiting = u8;\n", &["type Waiting"]);
    planted(rule, LIB, "mod beside {}\n", &["module beside"]);
    planted(rule, "libs/a/src/held.rs", "//! A log.\n", &["held.rs:1:", "file or module held"]);
    planted(rule, "libs/a/src/held/mod.rs", "//! A log.\n", &["file or module held"]);
    planted(rule, "libs/a/tests/held_test.rs", "//! A test.\n", &["file or module held"]);
    planted(rule, "clients/Told.java", "final class Told {}\n", &["type Told"]);
    planted(rule, "clients/a/log.py", "class Given:\n    pass\n", &["type Given"]);
    planted(rule, "clients/a/_given.py", "", &["file or module _given"]);
}

#[test]
fn nouns_pass_as_names() {
    let rule = language::type_names;
    passes(rule, LIB, "struct HeldLock;\nenum Encoding { Held }\nstruct Ring;\nmod held_lock {}\n");
    passes(rule, LIB, "impl Iterator for Log {\n    type Pending = u8;\n}\n// struct Held;\n");
    passes(rule, "libs/a/src/encoding.rs", "//! An encoding.\n");
    passes(rule, "clients/Seed.java", "record Seed(int held) {}\n");
}

#[test]
fn second_definition_is_refused() {
    let rule = language::one_definition;
    let found = problems(rule, &[("libs/a/src/b.rs", "enum Log { A }\n")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("libs/a defines Log"), "{found:?}");
    assert!(found[0].contains("libs/a/src/b.rs:1, libs/a/src/lib.rs:3"), "{found:?}");
    let java = "package a;\nclass A { class C {} }\n";
    let second = java.replace("class A", "class B");
    let found = problems(rule, &[("clients/A.java", java), ("clients/B.java", &second)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("package a defines C"), "{found:?}");
    let class = "class C:\n    pass\n";
    let found = problems(rule, &[("clients/a/b.py", class), ("clients/a/c/d.py", class)]);
    assert!(found.len() == 1 && found[0].contains("clients/a defines C"), "{found:?}");
}

#[test]
fn definitions_in_separate_scopes_pass() {
    let rule = language::one_definition;
    let java = |outer: &str| format!("package a;\nclass {outer} {{ static class Builder {{}} }}\n");
    let (first, second) = (java("A"), java("B"));
    let found = problems(rule, &[("clients/A.java", &first), ("clients/B.java", &second)]);
    assert_eq!(found, [] as [String; 0]);
    let other = [("libs/b/Cargo.toml", ""), ("libs/b/src/lib.rs", "struct Log;\n")];
    assert_eq!(problems(rule, &other), Vec::<String>::new());
    passes(rule, "libs/a/tests/b.rs", "struct Log;\n");
    passes(rule, "libs/a/src/b.rs", "#[cfg(test)]\nmod tests {\n    struct Log;\n}\n");
    passes(rule, "libs/a/src/b.rs", "#[cfg(unix)]\nstruct Log;\n");
    passes(rule, "libs/a/src/b.rs", "impl A for B {\n    type Log = u8;\n}\n");
    let lib = "pub struct Log;\n#[cfg(test)]\nmod model;\n";
    let model = [(LIB, lib), ("libs/a/src/model.rs", "struct Log;\n")];
    assert_eq!(problems(rule, &model), Vec::<String>::new());
}

#[test]
fn broken_citation_is_refused() {
    let rule = language::citations;
    planted(rule, "tools/a.md", "# A\n\nSee [b](b.md).\n", &["tools/a.md:3:", "b.md"]);
    planted(rule, "tools/a.md", "See [b](README.md#less-of-them).\n", &["no heading"]);
    planted(rule, "tools/a.md", "See [b][c].\n\n[c]: ../d.svg\n", &[":3:", "../d.svg"]);
    planted(rule, LIB, "//! A log.\n//! Its form is in `design.md`.\n", &[":2:", "design.md"]);
    planted(rule, LIB, "//! A log (ADRs 0001 and 0002).\n", &[":1:", "ADR 0002"]);
    planted(rule, LIB, "//! A log (tools/decisions/0002).\n", &["tools/decisions/0002"]);
    planted(rule, LIB, "//! A log as in `libs/a/src/b.rs`.\n", &["libs/a/src/b.rs"]);
    planted(rule, LIB, "//! A log as in libs/a/src/b.rs.\n", &["libs/a/src/b.rs"]);
    planted(rule, LIB, "//! A log, as `tests/b.rs` shows.\n", &["tests/b.rs"]);
    planted(rule, "README.md", "The folder is `tools/none`.\n", &["tools/none"]);
    planted(rule, LIB, concat!("//! A log (style", " rule 7).\n"), &["rules of style"]);
}

#[test]
fn citations_of_the_tree_pass() {
    let rule = language::citations;
    for text in [
        "See [b](../README.md), [c](README.md#more-of-them) and [d](#a).",
        "The site is [e](https://a.example/b.md).",
        "The rest is in `README.md`, `0001-a-decision.md` and tools/decisions/0001.",
        "ADR 0001 says so; `libs/a/src/lib.rs:3`, `libs/a/src/` and `src/lib.rs` do it.",
        "Each has `libs/X/src/lib.rs`, `libs/*/b.rs`, `tools/{a,b}.md` and ADR NNNN.",
        "The build makes `target/a/b.rs` and `tools/made/b.rs` by `//tools/b:b.rs`.",
        "The suites are `libs/a/unit` and `clients/a/pytest-3.9`.",
    ] {
        let text = format!("# A\n\n{text}\n");
        let files = [(".gitignore", "/target\n/tools/made\n"), ("tools/a.md", text.as_str())];
        assert_eq!(problems(rule, &files), Vec::<String>::new(), "{text}");
    }
    passes(rule, LIB, "const A: &str = \"design.md and ADR 0002\";\n");
}

fn commit(root: &Path, subject: &str) {
    git(root, &["commit", "-q", "--allow-empty", "-m", subject]);
}

#[test]
fn commit_without_an_imperative_is_refused() {
    let rule = language::commit_subjects;
    let (folder, workspace) = tree();
    let root = folder.path();
    assert_eq!(rule(&workspace).unwrap(), Vec::<String>::new());
    commit(root, "Older commits are as they are.");
    write(root, "tools/xtask/src/language/commits.rs", "//! The rule.\n");
    git(root, &["add", "."]);
    git(root, &["commit", "-q", "-m", "introduces the rule"]);
    commit(root, "Pass the lock on");
    assert_eq!(rule(&workspace).unwrap(), Vec::<String>::new());
    let long = format!("Name {}", "x".repeat(68));
    let refused_subjects = [
        ("Named the lock", "imperative"),
        ("What names the lock", "imperative"),
        ("name the lock", "capital"),
        ("Name the lock.", "period"),
        (long.as_str(), "73 characters"),
    ];
    for (place, (subject, word)) in refused_subjects.into_iter().enumerate() {
        commit(root, subject);
        let problems = rule(&workspace).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(word) && problems[0].contains(subject), "{problems:?}");
        git(root, &["tag", &format!("v{place}")]);
        assert_eq!(rule(&workspace).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn shallow_clone_has_no_commits_to_check() {
    let (folder, workspace) = tree();
    git(folder.path(), &["add", "."]);
    git(folder.path(), &["commit", "-q", "-m", "Add the tree"]);
    git(folder.path(), &["tag", "v1"]);
    commit(folder.path(), "named the lock");
    assert_eq!(language::commit_subjects(&workspace).unwrap().len(), 1);
    let clone = folder.path().join("clone");
    let origin = format!("file://{}", folder.path().display());
    git(folder.path(), &["clone", "-q", "--depth", "1", &origin, "clone"]);
    let shallow = Workspace { root: clone };
    assert_eq!(language::commit_subjects(&shallow).unwrap(), Vec::<String>::new());
}

#[test]
fn exceptions_may_only_shrink() {
    let rule = language::type_names;
    let file = ("libs/a/src/held.rs", "struct Held;\n");
    let entry = "[type-names]\n\"libs/a/src/held.rs\" = [\"Held\", \"held\"]\n";
    assert_eq!(problems(rule, &[file, (EXCEPTIONS, entry)]), Vec::<String>::new());
    let stale_problems = problems(rule, &[(EXCEPTIONS, &entry.replace(", \"held\"", ""))]);
    assert_eq!(stale_problems.len(), 1, "{stale_problems:?}");
    assert!(
        stale_problems[0].contains("\"Held\"") && stale_problems[0].contains("remove it"),
        "{stale_problems:?}"
    );
    let (folder, workspace) = tree();
    write(folder.path(), EXCEPTIONS, "[names]\n");
    assert!(rule(&workspace).unwrap_err().contains("no rule [names]"));
    write(folder.path(), EXCEPTIONS, "[type-names]\n\"libs/a/src/held.rs\" = []\n");
    assert!(rule(&workspace).unwrap_err().contains("no list of texts"));
}

#[test]
fn measure_has_a_limit() {
    let (folder, workspace) = tree();
    assert_eq!(language::run(&workspace, true, false), Ok(()));
    write(folder.path(), LIB, "//! What is read is kept.\n\npub struct Log;\n");
    assert_eq!(language::run(&workspace, false, false), Ok(()));
    assert!(language::run(&workspace, true, false).unwrap_err().contains("4 %"));
    write(folder.path(), LIB, "//! A log.\n\npub struct Held;\n");
    assert!(language::run(&workspace, true, false).is_err());
}
