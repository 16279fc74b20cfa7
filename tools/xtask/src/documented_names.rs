//! The rule `documented-names`: the code has the names that two pages give to it. In the page of
//! client names, a cell of a table names calls, types and options of the language at the head of
//! its column. In the table of verbs in ARCHITECTURE.md, a row names files and a function in each,
//! whose name is the verb.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::workspace::Workspace;

const CLIENT_NAMES: &str = "tools/docs/src/client-names.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const VERBS: [&str; 3] = ["verb", "file", "function"];

/// A language of the clients.
struct ClientLanguage {
    /// Head of its column.
    head: &'static str,
    /// Folders with its declarations.
    folders: &'static [&'static str],
    /// Endings of its files.
    endings: &'static [&'static str],
    /// Whether a word declares a name.
    declares: fn(&CodeWord<'_>) -> bool,
}

const LANGUAGES: [ClientLanguage; 4] = [
    ClientLanguage {
        head: "Rust",
        folders: &[
            "clients/rust/src/",
            "libs/core/src/",
            "libs/index/src/",
            "libs/reader/src/",
            "libs/replica/src/",
        ],
        endings: &[".rs"],
        declares: declares_in_rust,
    },
    ClientLanguage {
        head: "C",
        folders: &["clients/c/include/"],
        endings: &[".h"],
        declares: |_| true,
    },
    ClientLanguage {
        head: "Java",
        folders: &["clients/java/src/main/java/"],
        endings: &[".java"],
        declares: declares_in_java,
    },
    ClientLanguage {
        head: "Python",
        folders: &["clients/python/forebay/"],
        endings: &[".py", ".pyi"],
        declares: declares_in_python,
    },
];

/// The declared names of each language, by the head of its column.
type DeclaredNames = BTreeMap<&'static str, BTreeSet<String>>;

/// A word of a line of code: letters, digits and underscores.
struct CodeWord<'a> {
    before: &'a str,
    name: &'a str,
    after: &'a str,
}

/// A row of a Markdown table: its line, its cells and the cells of the table's head.
struct DocumentRow<'a> {
    line: usize,
    head: Vec<&'a str>,
    cells: Vec<&'a str>,
}

/// Returns a finding for each name that the code does not have.
///
/// # Errors
/// Returns an error if a page cannot be read, or git cannot list the files.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let read = |file: &str| {
        fs::read_to_string(workspace.root.join(file)).map_err(|error| format!("{file}: {error}"))
    };
    let files = workspace.files()?;
    let mut declared = DeclaredNames::new();
    for language in &LANGUAGES {
        let names = declared.entry(language.head).or_default();
        let is_source = |file: &&String| {
            language.folders.iter().any(|folder| file.starts_with(folder))
                && language.endings.iter().any(|ending| file.ends_with(ending))
        };
        for file in files.iter().filter(is_source) {
            names.extend(declared_names(&read(file)?, language.declares));
        }
    }
    let mut problems = client_problems(&read(CLIENT_NAMES)?, &declared);
    problems.extend(verb_problems(&read(ARCHITECTURE)?, |file| read(file).ok()));
    Ok(problems)
}

/// Returns a finding for each name of a table that its language does not declare.
fn client_problems(page: &str, declared: &DeclaredNames) -> Vec<String> {
    let mut problems = Vec::new();
    for row in rows(page) {
        for (head, cell) in row.head.iter().zip(&row.cells) {
            let Some(names) = declared.get(*head) else { continue };
            let words = spans(cell).flat_map(words).map(|word| word.name);
            for name in words.filter(|name| !names.contains(*name)) {
                let fix = "fix: name what the code has, or rename the code";
                let place = format!("{CLIENT_NAMES}:{}", row.line);
                problems.push(format!("{place}: the {head} client declares no {name}; {fix}"));
            }
        }
    }
    problems
}

/// Returns a finding for each row of the table of verbs that the code contradicts.
fn verb_problems(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let table: Vec<_> = rows(page).into_iter().filter(|row| row.head == VERBS).collect();
    if table.is_empty() {
        let head = VERBS.join(" | ");
        return vec![format!("{ARCHITECTURE} has no table | {head} |; fix: restore the table")];
    }
    let mut problems = Vec::new();
    for row in table {
        let [verb, files, functions] = row.cells[..] else { continue };
        let (files, functions): (Vec<_>, Vec<_>) =
            (spans(files).collect(), spans(functions).collect());
        let place = format!("{ARCHITECTURE}:{}", row.line);
        if files.is_empty() || files.len() != functions.len() {
            problems.push(format!("{place}: {verb} needs one function for each file; fix the row"));
        }
        for (file, function) in files.iter().zip(functions) {
            let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
            let text = read(file).unwrap_or_default();
            let has_owner =
                owner.is_empty() || text.lines().flat_map(words).any(|word| word.name == owner);
            let has_function = declared_names(&text, declares_in_rust).contains(name);
            if name != verb || !has_owner || !has_function {
                let fix = "fix: name the function of this verb and its file";
                problems.push(format!("{place}: {file} has no {function} for {verb}; {fix}"));
            }
        }
    }
    problems
}

/// Returns the body rows of all tables of a page.
fn rows(page: &str) -> Vec<DocumentRow<'_>> {
    let (mut rows, mut head) = (Vec::new(), Vec::new());
    for (index, text) in page.lines().enumerate() {
        let Some(inside) = text.trim().strip_prefix('|') else {
            head.clear();
            continue;
        };
        let inside = inside.strip_suffix('|').unwrap_or(inside);
        let cells: Vec<&str> = inside.split('|').map(str::trim).collect();
        if head.is_empty() {
            head = cells;
        } else if !cells[0].starts_with("--") {
            rows.push(DocumentRow { line: index + 1, head: head.clone(), cells });
        }
    }
    rows
}

/// Returns the code spans of a cell.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the names that a source declares outside of comments.
fn declared_names(source: &str, declares: fn(&CodeWord<'_>) -> bool) -> BTreeSet<String> {
    let is_comment =
        |line: &str| ["//", "/*", "*", "#"].iter().any(|mark| line.trim_start().starts_with(mark));
    let code = source.lines().filter(|line| !is_comment(line)).flat_map(words);
    code.filter(declares).map(|word| word.name.to_owned()).collect()
}

fn words(line: &str) -> Vec<CodeWord<'_>> {
    let (mut words, mut start) = (Vec::new(), None);
    for (place, letter) in line.char_indices().chain([(line.len(), ' ')]) {
        let is_part = letter == '_' || letter.is_alphanumeric();
        match (is_part, start) {
            (true, None) => start = Some(place),
            (false, Some(first)) => {
                let (before, after) = (&line[..first], &line[place..]);
                words.push(CodeWord { before, name: &line[first..place], after });
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// Returns whether a word is an item, a field, a parameter or a variant.
fn declares_in_rust(word: &CodeWord<'_>) -> bool {
    let items = ["fn ", "struct ", "enum ", "trait ", "type "];
    let is_item = items.iter().any(|item| word.before.ends_with(item));
    let is_typed = word.after.starts_with(": ");
    let is_variant = word.before.trim().is_empty() && word.name.starts_with(char::is_uppercase);
    is_item || is_typed || is_variant
}

/// Returns whether a word follows a type or the keyword of one, or is a constant of an enum.
fn declares_in_java(word: &CodeWord<'_>) -> bool {
    let is_use = ["return ", "new ", "throw "].iter().any(|verb| word.before.ends_with(verb));
    let follows_type = word.before.strip_suffix(' ').is_some_and(|before| {
        before.ends_with(|last: char| last.is_alphanumeric() || ">])".contains(last))
    });
    let is_constant = word.before.trim().is_empty() && word.name.starts_with(char::is_uppercase);
    is_constant || (follows_type && !is_use)
}

/// Returns whether a word is a function, a class, an attribute, a parameter or a text.
fn declares_in_python(word: &CodeWord<'_>) -> bool {
    let is_item = ["def ", "class "].iter().any(|item| word.before.ends_with(item));
    let is_named = word.after.starts_with(':') || word.after.starts_with(" =");
    let is_text = word.before.ends_with('"') && word.after.starts_with('"');
    is_item || is_named || is_text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| idea | Rust | C | Java | Python |\n|---|---|---|---|---|\n\
        | open | `Reader::open`, `ttl_us` | `fb_open` | `open` and others | `\"exact\"` |\n";
    const PATH: &str = "| verb | file | function |\n|---|---|---|\n\
        | admit | `a.rs` | `admit` |\n| apply | `a.rs`, `b.rs` | `A::apply`, `B::apply` |\n";

    fn declared() -> DeclaredNames {
        let sources = [
            "pub struct Reader {\n    pub ttl_us: i64,\n}\npub async fn open() {}\n",
            "/* fb_close */\nint32_t fb_open(\n",
            "    public Reader open(\n        Key key) {\n        return close(key);\n",
            "def admit(index: Literal[\"exact\", \"range\"]) -> None:\n",
        ];
        let names = |(language, source): (&ClientLanguage, &str)| {
            (language.head, declared_names(source, language.declares))
        };
        LANGUAGES.iter().zip(sources).map(names).collect()
    }

    fn of_path(page: &str) -> Vec<String> {
        verb_problems(page, |file| match file {
            "a.rs" => Some("pub fn admit() {}\nimpl A {\n    fn apply() {}\n}\n".to_owned()),
            "b.rs" => Some("impl B {\n    fn apply() {}\n}\n".to_owned()),
            _ => None,
        })
    }

    fn assert_only(problems: &[String], words: &[&str]) {
        assert_eq!(problems.len(), 1, "{problems:?}");
        words.iter().for_each(|word| assert!(problems[0].contains(word), "{problems:?}"));
    }

    #[test]
    fn names_of_the_code_have_no_problem() {
        assert_eq!(client_problems(PAGE, &declared()), Vec::<String>::new());
        assert_eq!(of_path(PATH), Vec::<String>::new());
    }

    #[test]
    fn name_that_a_client_does_not_declare_is_found() {
        let planted = [
            ("Reader::open", "Reader::unseal", "Rust client declares no unseal"),
            ("fb_open", "fb_close", "C client declares no fb_close"),
            ("`open` and", "`close` and", "Java client declares no close"),
            ("\"exact\"", "\"inexact\"", "Python client declares no inexact"),
        ];
        for (name, other, problem) in planted {
            let page = PAGE.replace(name, other);
            assert_only(&client_problems(&page, &declared()), &[problem, "client-names.md:3"]);
        }
    }

    #[test]
    fn verb_that_is_not_its_function_is_found() {
        assert_only(&of_path(&PATH.replace("| admit |", "| check |")), &["for check", ".md:3"]);
        assert_only(&of_path(&PATH.replace("B::apply", "C::apply")), &["b.rs has no C::apply"]);
        assert_only(&of_path(&PATH.replace("`b.rs`", "`c.rs`")), &["c.rs has no B::apply"]);
        assert_only(&of_path(&PATH.replace(", `b.rs`", "")), &["one function for each file"]);
        assert_only(&of_path("no table"), &["has no table"]);
    }
}
