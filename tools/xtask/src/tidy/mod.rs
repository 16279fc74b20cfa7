//! Taste is code: the house rules that a program can hold. Each rule is a function over one file
//! or over the tree, and every problem names file, line and limit. `tests/tidy_test.rs` plants one
//! violation for each rule.

mod functions;
mod manifests;
mod top_level;

use std::fs;

use crate::language::lexer::{Syntax, blank};
use crate::workspace::Workspace;

/// Lines of one function, at most.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of one file, at most; beyond 500 a split is due.
const FILE_LINES_MAX: usize = 800;
/// Columns of one line of code, at most.
const COLUMNS_MAX: usize = 100;
/// Where unsafe code may stand.
pub const UNSAFE_FOLDERS: [&str; 3] = ["libs/index/", "clients/c/", "clients/python/"];

const CODE: [&str; 10] = ["rs", "py", "pyi", "java", "sh", "proto", "go", "c", "h", "bzl"];

/// One file under examination.
struct Source<'a> {
    path: &'a str,
    extension: &'a str,
    text: &'a str,
}

/// Prints every problem.
///
/// # Errors
/// There is one, or git cannot list the files.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let problems = problems(workspace)?;
    problems.iter().for_each(|problem| println!("tidy: {problem}"));
    if problems.is_empty() { Ok(()) } else { Err(format!("tidy: {} problems", problems.len())) }
}

/// Every problem, in words.
///
/// # Errors
/// git cannot list the files.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let files = workspace.files()?;
    let mut problems = top_level::problems(&files);
    problems.extend(manifests::problems(workspace, &files));
    for path in &files {
        // A file that is no text (a golden vector, an image) has no lines to judge.
        let Ok(text) = fs::read_to_string(workspace.root.join(path)) else { continue };
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let source = Source { path, extension, text: &text };
        file_problems(&source, &mut problems);
    }
    Ok(problems)
}

fn file_problems(source: &Source<'_>, problems: &mut Vec<String>) {
    if CODE.contains(&source.extension) {
        opening(source, problems);
        sizes(source, problems);
        postponed(source, problems);
        fence(source, problems);
    }
    if !is_lock_file(source.path) {
        machine(source, problems);
    }
}

/// Lock files are written by tools, and some of them name the registry they asked.
fn is_lock_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "Cargo.lock" | "go.sum" | "package-lock.json")
}

/// A file opens with a paragraph that says what it is for.
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
    let opened = lines.peek().is_some_and(|line| marks.iter().any(|mark| line.starts_with(mark)));
    let words = lines.take(3).flat_map(str::split_whitespace).count();
    if !opened || words < WORDS_MIN {
        let want = format!("open it with a paragraph ({}) on what it is for", marks[0]);
        problems.push(format!("{}:1: no opening; fix: {want}", source.path));
    }
}

fn sizes(source: &Source<'_>, problems: &mut Vec<String>) {
    let path = source.path;
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        problems.push(format!("{path}: {lines} lines (limit {FILE_LINES_MAX})"));
    }
    for (place, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        // An address cannot be broken.
        if columns > COLUMNS_MAX && !line.contains("://") {
            problems.push(format!("{path}:{}: {columns} columns (limit {COLUMNS_MAX})", place + 1));
        }
    }
    for function in functions::functions(source.extension, source.text) {
        if function.lines > FUNCTION_LINES_MAX {
            let (line, lines, name) = (function.line, function.lines, &function.name);
            let limit = format!("(limit {FUNCTION_LINES_MAX})");
            problems.push(format!("{path}:{line}: {lines}-line function '{name}' {limit}"));
        }
    }
}

/// No work is postponed in the code, and no test is left out.
fn postponed(source: &Source<'_>, problems: &mut Vec<String>) {
    // Put together here, so that this file does not find itself.
    const WORDS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
    const SKIPS: [&str; 5] = [
        concat!("#[", "ignore"),
        concat!("@", "Disabled"),
        concat!("pytest.mark.", "skip"),
        concat!("pytest.", "skip("),
        concat!("t.", "Skip("),
    ];
    for (place, line) in source.text.lines().enumerate() {
        let at = format!("{}:{}", source.path, place + 1);
        if let Some(word) = WORDS.iter().find(|word| has_word(line, word)) {
            problems.push(format!("{at}: {word}; fix: do it, or open an issue and say its number"));
        }
        if let Some(skip) = SKIPS.iter().find(|skip| line.contains(*skip)) {
            problems.push(format!("{at}: skipped test ({skip}); fix: mend it or take it out"));
        }
    }
}

/// Unsafe code stays inside its fence.
fn fence(source: &Source<'_>, problems: &mut Vec<String>) {
    let inside = UNSAFE_FOLDERS.iter().any(|folder| source.path.starts_with(folder));
    if source.extension != "rs" || inside {
        return;
    }
    let code = blank(source.text, Syntax::Rust);
    for (place, line) in code.lines().enumerate() {
        if has_word(line, "unsafe") {
            let folders = UNSAFE_FOLDERS.join(", ");
            problems.push(format!("{}:{}: unsafe outside {folders}", source.path, place + 1));
        }
    }
}

/// Nothing may name the machine it was written on, nor where a package client gets its packages.
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
        let at = format!("{}:{}", source.path, place + 1);
        for path in PATHS.iter().filter(|path| has_absolute(line, path)) {
            problems.push(format!("{at}: machine path {path}; fix: make it relative to the root"));
        }
        for host in HOSTS.iter().filter(|host| line.contains(*host)) {
            problems
                .push(format!("{at}: registry host {host}; fix: let the client's settings say"));
        }
    }
}

/// Reports whether a character can be part of a name.
fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The word by itself, not as a part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The path at the start of a path, not in the middle of a relative one or an address.
fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '}' | ')' | '~' | '*' | '/'))
    })
}
