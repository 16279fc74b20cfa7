//! The rules over one file: its opening, its sizes, postponed work, unsafe code and the names of
//! machines.

use super::functions::functions;
use super::manifests::UNSAFE_FOLDERS;
use super::word::{has_absolute, has_word};
use crate::language::lexer::{Syntax, blank};

/// Lines of a function, at most.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file, at most; the aim is 500.
const FILE_LINES_MAX: usize = 800;
/// Columns of a line of code, at most.
const COLUMNS_MAX: usize = 100;

const CODE: [&str; 10] = ["rs", "py", "pyi", "java", "sh", "proto", "go", "c", "h", "bzl"];

/// A file that is checked.
struct Source<'a> {
    path: &'a str,
    extension: &'a str,
    text: &'a str,
}

/// Returns every finding in a file.
pub fn problems(path: &str, text: &str) -> Vec<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let (source, mut problems) = (Source { path, extension, text }, Vec::new());
    if CODE.contains(&extension) {
        opening(&source, &mut problems);
        sizes(&source, &mut problems);
        postponed(&source, &mut problems);
        fence(&source, &mut problems);
    }
    if !is_lock_file(path) {
        machine(&source, &mut problems);
    }
    problems
}

/// Reports whether tools write a file as a lock file, which may name a registry.
fn is_lock_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "Cargo.lock" | "go.sum" | "package-lock.json")
}

/// Checks that a file begins with a paragraph on its purpose.
fn opening(source: &Source<'_>, problems: &mut Vec<String>) {
    const WORDS_MIN: usize = 4;
    let marks: &[&str] = match source.extension {
        "rs" => &["//!"],
        "py" | "pyi" => &["\"\"\"", "#", "r\"\"\""],
        "sh" | "bzl" => &["#", "\"\"\""],
        "java" | "c" | "h" => &["/**", "/*", "//"],
        _ => &["//"],
    };
    let mut lines = source.text.lines().filter(|line| !line.starts_with("#!")).peekable();
    let is_open = lines.peek().is_some_and(|line| marks.iter().any(|mark| line.starts_with(mark)));
    let words = lines.take(3).flat_map(str::split_whitespace).count();
    if !is_open || words < WORDS_MIN {
        let want = format!("begin with a paragraph ({}) on the purpose of the file", marks[0]);
        problems.push(format!("{}:1: the file has no opening; fix: {want}", source.path));
    }
}

fn sizes(source: &Source<'_>, problems: &mut Vec<String>) {
    let path = source.path;
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        problems.push(format!("{path}: {lines} lines (limit {FILE_LINES_MAX}); fix: split it"));
    }
    for (place, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        // An address cannot be wrapped.
        if columns > COLUMNS_MAX && !line.contains("://") {
            problems.push(format!(
                "{path}:{}: {columns} columns (limit {COLUMNS_MAX}); fix: wrap",
                place + 1
            ));
        }
    }
    for function in functions(source.extension, source.text) {
        if function.lines > FUNCTION_LINES_MAX {
            let (line, lines, name) = (function.line, function.lines, &function.name);
            let limit = format!("(limit {FUNCTION_LINES_MAX}); fix: split it");
            problems.push(format!("{path}:{line}: {lines}-line function '{name}' {limit}"));
        }
    }
}

/// Checks that code postpones no work and skips no test.
fn postponed(source: &Source<'_>, problems: &mut Vec<String>) {
    // Each text is built from parts, so that the rule does not find this file.
    const WORDS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
    const SKIPS: [&str; 5] = [
        concat!("#[", "ignore"),
        concat!("@", "Disabled"),
        concat!("pytest.mark.", "skip"),
        concat!("pytest.", "skip("),
        concat!("t.", "Skip("),
    ];
    for (place, line) in source.text.lines().enumerate() {
        let line_place = format!("{}:{}", source.path, place + 1);
        if let Some(word) = WORDS.iter().find(|word| has_word(line, word)) {
            problems.push(format!(
                "{line_place}: {word}; fix: do it, or open an issue and cite its number"
            ));
        }
        if let Some(skip) = SKIPS.iter().find(|skip| line.contains(*skip)) {
            problems.push(format!("{line_place}: skipped test ({skip}); fix: repair or remove it"));
        }
    }
}

/// Checks that unsafe code is in the allowed folders only.
fn fence(source: &Source<'_>, problems: &mut Vec<String>) {
    let inside = UNSAFE_FOLDERS.iter().any(|folder| source.path.starts_with(folder));
    if source.extension != "rs" || inside {
        return;
    }
    let code = blank(source.text, Syntax::Rust);
    for (place, line) in code.lines().enumerate() {
        if has_word(line, "unsafe") {
            let folders = UNSAFE_FOLDERS.join(", ");
            let fix = "fix: move the code there, or do without";
            problems.push(format!(
                "{}:{}: unsafe outside {folders}; {fix}",
                source.path,
                place + 1
            ));
        }
    }
}

/// Checks that no file names a path of its author's machine or the host of a package registry.
fn machine(source: &Source<'_>, problems: &mut Vec<String>) {
    const PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    const HOSTS: [&str; 10] = [
        concat!("index.", "crates.io"),
        concat!("static.", "crates.io"),
        concat!("pypi.org/", "simple"),
        concat!("files.", "pythonhosted.org"),
        concat!("registry.", "npmjs.org"),
        concat!("repo1.", "maven.org"),
        concat!("repo.maven.", "apache.org"),
        concat!("proxy.", "golang.org"),
        concat!("sum.", "golang.org"),
        concat!("deb.", "debian.org"),
    ];
    for (place, line) in source.text.lines().enumerate() {
        let line_place = format!("{}:{}", source.path, place + 1);
        for path in PATHS.iter().filter(|path| has_absolute(line, path)) {
            problems.push(format!(
                "{line_place}: machine path {path}; fix: use a path relative to the root"
            ));
        }
        for host in HOSTS.iter().filter(|host| line.contains(*host)) {
            problems.push(format!(
                "{line_place}: registry host {host}; fix: leave it to the client's settings"
            ));
        }
    }
}
