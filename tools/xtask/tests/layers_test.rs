//! Each test builds a small Cargo workspace with one wrong edge and proves that `layers` reports
//! the edge by name. The forbidden packages are empty stand-ins with the real names, so no test
//! needs the network.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use xtask::workspace::Workspace;
use xtask::{check, layers};

const TABLES: &str = "\
<!-- layers:begin -->
| package | level | folder |
|---|---|---|
| forebay-core | L0 | libs/core |
| forebay-log | L2 | libs/log |
| forebay-testkit | dev | libs/testkit |
| forebay-writer-service | L4 | services/writer |
| rocksdb | L0 | libs/rocksdb |
<!-- layers:end -->
<!-- absences:begin -->
| package | never |
|---|---|
| forebay-log | datafusion*, rocksdb |
| forebay-absent | tokio |
<!-- absences:end -->
";

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn package(root: &Path, folder: &str, name: &str, rest: &str) {
    let manifest = format!("[package]\nname = '{name}'\nedition = '2024'\n{rest}\n");
    write(root, &format!("{folder}/Cargo.toml"), &manifest);
    write(root, &format!("{folder}/src/lib.rs"), "//! A stand-in for a test.\n");
}

/// Creates a tree of core and log without a wrong edge.
fn tree() -> (TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let members = "members = ['libs/*', 'services/*']\nresolver = '3'\n";
    write(root, "Cargo.toml", &format!("[workspace]\n{members}"));
    write(root, "ARCHITECTURE.md", TABLES);
    package(root, "libs/core", "forebay-core", "");
    package(root, "libs/testkit", "forebay-testkit", "");
    package(root, "libs/rocksdb", "rocksdb", "");
    package(root, "services/writer", "forebay-writer-service", "");
    package(root, "libs/log", "forebay-log", "[dependencies]\nforebay-core.path = '../core'");
    let workspace = Workspace { root: root.to_path_buf() };
    (folder, workspace)
}

fn problems(workspace: &Workspace) -> Vec<String> {
    let lock = ["generate-lockfile", "--offline"];
    let status = Command::new("cargo").args(lock).current_dir(&workspace.root).status();
    assert!(status.unwrap().success());
    layers::problems(workspace).unwrap()
}

fn only_problem(workspace: &Workspace, words: &[&str]) {
    let problems = problems(workspace);
    assert_eq!(problems.len(), 1, "{problems:?}");
    for word in words {
        assert!(problems[0].contains(word), "{word} in {}", problems[0]);
    }
}

#[test]
fn tree_in_order_has_no_problem() {
    let (_folder, workspace) = tree();
    assert_eq!(problems(&workspace), Vec::<String>::new());
}

#[test]
fn upward_edge_is_refused() {
    let (folder, workspace) = tree();
    let edge = "[dependencies]\nforebay-core.path = '../core'\n\
        forebay-writer-service = { path = '../../services/writer' }";
    package(folder.path(), "libs/log", "forebay-log", edge);
    let words = ["forebay-log (L2) may not import forebay-writer-service (L4)", "Cargo.toml:6"];
    only_problem(&workspace, &words);
    let problem = check::run(&workspace, &["layers".to_owned()]).unwrap_err();
    assert!(problem.contains("check/layers"), "{problem}");
}

#[test]
fn testkit_as_a_normal_dependency_is_refused() {
    let (folder, workspace) = tree();
    let edge = "[dependencies]\nforebay-testkit.path = '../testkit'";
    package(folder.path(), "libs/log", "forebay-log", edge);
    only_problem(&workspace, &["forebay-log (L2) may not import forebay-testkit (dev)"]);
    let edge = "[dev-dependencies]\nforebay-testkit.path = '../testkit'";
    package(folder.path(), "libs/log", "forebay-log", edge);
    assert_eq!(problems(&workspace), Vec::<String>::new());
}

#[test]
fn upward_edge_of_a_build_script_is_refused() {
    let (folder, workspace) = tree();
    let edge = "[build-dependencies]\nforebay-log.path = '../log'";
    package(folder.path(), "libs/core", "forebay-core", edge);
    package(folder.path(), "libs/log", "forebay-log", "");
    only_problem(&workspace, &["forebay-core (L0) may not import forebay-log (L2)"]);
}

#[test]
fn package_without_a_row_is_refused() {
    let (folder, workspace) = tree();
    package(folder.path(), "libs/utils", "forebay-utils", "");
    only_problem(&workspace, &["forebay-utils is not in ARCHITECTURE.md"]);
}

#[test]
fn package_in_another_folder_is_refused() {
    let (folder, workspace) = tree();
    fs::rename(folder.path().join("libs/core"), folder.path().join("libs/heart")).unwrap();
    package(folder.path(), "libs/log", "forebay-log", "");
    only_problem(&workspace, &["forebay-core is in libs/heart", "libs/core"]);
}

#[test]
fn forbidden_package_reached_through_another_is_refused() {
    let (folder, workspace) = tree();
    let edge = "[dependencies]\nrocksdb.path = '../rocksdb'";
    package(folder.path(), "libs/core", "forebay-core", edge);
    let text = TABLES.replace("forebay-core | L0", "forebay-core | L1");
    write(folder.path(), "ARCHITECTURE.md", &text);
    only_problem(&workspace, &["forebay-log reaches rocksdb", "cargo tree"]);
}
