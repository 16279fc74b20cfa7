//! Each test plants a violation of a rule of tidy in a small tree and proves that the rule reports
//! it by name. The same tree without the violation has no finding, so a test passes only for its
//! reason.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use xtask::workspace::Workspace;
use xtask::{check, tidy};

const CLEAN: [(&str, &str); 11] = [
    ("Cargo.toml", "[workspace]\n[workspace.lints.rust]\nunsafe_code = 'forbid'\n"),
    ("libs/a/Cargo.toml", "[lints]\nworkspace = true\n"),
    ("libs/a/src/lib.rs", "//! A crate to plant violations in.\n\nfn calm() {}\n"),
    (".ci/run", "x"),
    ("bench/a.md", "x"),
    ("clients/a.md", "x"),
    ("infra/a.md", "x"),
    ("proto/a.proto", "// A contract to plant violations in.\n"),
    ("services/a.sh", "#!/bin/sh\n# A script to plant violations in.\n"),
    ("tools/a.py", "\"\"\"A script to plant violations in.\"\"\"\n"),
    ("clients/A.java", "/** A class to plant violations in. */\nclass A {}\n"),
];
const ROOT: [&str; 8] = [
    "ARCHITECTURE.md",
    "BUILD.bazel",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "WORKSPACE",
];

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn tree() -> (TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    CLEAN.iter().for_each(|(file, text)| write(folder.path(), file, text));
    ROOT.iter().for_each(|file| write(folder.path(), file, "x\n"));
    let status = Command::new("git").args(["init", "-q"]).current_dir(folder.path()).status();
    assert!(status.unwrap().success());
    let workspace = Workspace { root: folder.path().to_path_buf() };
    (folder, workspace)
}

/// Requires that the file causes exactly one finding, and that the finding contains all words.
fn planted(file: &str, text: &str, words: &[&str]) {
    let (folder, workspace) = tree();
    assert_eq!(tidy::problems(&workspace).unwrap(), Vec::<String>::new());
    write(folder.path(), file, text);
    let problems = tidy::problems(&workspace).unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
    for word in words {
        assert!(problems[0].contains(word), "{word} in {}", problems[0]);
    }
    assert!(check::run(&workspace, &["tidy".to_owned()]).is_err());
}

const LIB: &str = "libs/a/src/lib.rs";

fn rust(body: &str) -> String {
    format!("//! A crate to plant violations in.\n{body}\n")
}

#[test]
fn file_without_an_opening_is_refused() {
    planted(LIB, "fn calm() {}\n", &[LIB, ":1:", "opening"]);
    planted(LIB, "//! A\n", &["opening"]);
    planted("proto/a.proto", "syntax = \"proto3\";\n", &["opening"]);
    planted("services/a.sh", "#!/bin/sh\nset -eu\n", &["opening"]);
    planted("tools/a.py", "import os\nos.abort()\n", &["opening"]);
    planted("clients/A.java", "class A { int a; }\n", &["opening"]);
}

#[test]
fn long_function_is_refused() {
    let body = "\n".repeat(70);
    planted(LIB, &rust(&format!("fn long() {{{body}}}")), &[":2:", "71-line function 'long'"]);
    let body = "    x = 1\n".repeat(70);
    let python = format!("\"\"\"A script to plant in, again.\"\"\"\ndef long():\n{body}");
    planted("tools/a.py", &python, &["71-line function 'long'"]);
    let body = "\n".repeat(70);
    let java = format!("/** A class to plant in. */\nclass A {{ void b() {{{body}}} }}\n");
    planted("clients/A.java", &java, &["71-line function 'b'"]);
    let body = ":\n".repeat(70);
    let shell = format!("#!/bin/sh\n# A script to plant in.\nlong() {{\n{body}}}\n");
    planted("services/a.sh", &shell, &["72-line function 'long'"]);
}

#[test]
fn long_file_is_refused() {
    planted(LIB, &rust(&"\n".repeat(799)), &["801 lines (limit 800)"]);
}

#[test]
fn long_line_is_refused() {
    planted(LIB, &rust(&format!("// {}", "é".repeat(98))), &[":2:", "101 columns"]);
}

#[test]
fn postponed_work_is_refused() {
    planted(LIB, &rust(concat!("// TO", "DO later")), &[":2:", concat!("TO", "DO")]);
    planted("tools/a.py", concat!("# A script with FIX", "ME in it\n"), &[concat!("FIX", "ME")]);
}

#[test]
fn skipped_test_is_refused() {
    planted(LIB, &rust(concat!("#[", "ignore = \"slow\"]")), &["skipped test"]);
    let java = concat!("/** A class to plant in. */\n@", "Disabled class A {}\n");
    planted("clients/A.java", java, &["skipped test"]);
}

#[test]
fn machine_path_is_refused() {
    planted("bench/a.md", concat!("see /wo", "rk/main\n"), &["bench/a.md:1", "machine path"]);
    planted("bench/a.md", concat!("see `/ro", "ot/x`\n"), &["machine path"]);
}

#[test]
fn registry_host_is_refused() {
    let text = concat!("index-url = https://pypi.org/", "simple\n");
    planted("tools/pip.conf", text, &["tools/pip.conf:1", "registry host"]);
}

#[test]
fn unsafe_code_outside_the_fence_is_refused() {
    planted(LIB, &rust(concat!("fn a() { un", "safe { } }")), &[":2:", "unsafe outside"]);
    let (folder, workspace) = tree();
    write(folder.path(), "libs/index/src/lib.rs", &rust(concat!("fn a() { un", "safe { } }")));
    write(folder.path(), LIB, &rust("// This is not unsafe.\n#![forbid(unsafe_code)]"));
    assert_eq!(tidy::problems(&workspace).unwrap(), Vec::<String>::new());
}

#[test]
fn manifest_with_own_lints_is_refused() {
    planted(
        "libs/a/Cargo.toml",
        "[package]\nname = 'a'\n",
        &["libs/a/Cargo.toml", "inherit lints"],
    );
}

#[test]
fn unknown_top_level_entry_is_refused() {
    planted("rust-toolchain.toml", "x", &["rust-toolchain.toml", "top level"]);
    planted("docs/a.md", "x", &["docs", "top level"]);
}

#[test]
fn missing_top_level_entry_is_refused() {
    let (folder, workspace) = tree();
    fs::remove_file(folder.path().join("LICENSE")).unwrap();
    let problems = tidy::problems(&workspace).unwrap();
    assert_eq!(problems, ["LICENSE: missing from the top level"]);
}

#[test]
fn ignored_file_is_not_checked() {
    let (folder, workspace) = tree();
    write(folder.path(), ".gitignore", "/target\n");
    write(folder.path(), "target/a.rs", "no opening here");
    assert_eq!(tidy::problems(&workspace).unwrap(), Vec::<String>::new());
}
