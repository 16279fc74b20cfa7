//! The rule `type-names`: a type, a module and a file are named by a noun, never by a bare
//! participle or a function word.

use super::declarations::DeclarationKind;
use super::exceptions::Violation;
use super::outline::outline;
use super::sources::SourceFile;
use super::words::words;
use crate::parallel::map_parallel;

/// The name of the rule.
pub const RULE: &str = "type-names";
/// Names of files that the languages give.
const GIVEN: [&str; 6] = ["__init__", "__main__", "build", "lib", "main", "mod"];

/// Returns a finding for each name of a file and each name in it.
pub fn findings(sources: &[SourceFile]) -> Vec<Violation> {
    map_parallel(sources, of_file).concat()
}

fn of_file(source: &SourceFile) -> Vec<Violation> {
    let extension = source.path.rsplit_once('.').map_or("", |(_, extension)| extension);
    if !["rs", "java", "py", "pyi"].contains(&extension) {
        return Vec::new();
    }
    let declared = outline(&source.path, &source.text).declared;
    let mut findings = Vec::new();
    for name in file_names(&source.path) {
        if is_bare(name) && !declared.iter().any(|found| found.name == name) {
            findings.push(finding(source, 1, "file or module", name));
        }
    }
    for found in declared.iter().filter(|found| is_bare(&found.name)) {
        let kind = if found.kind == DeclarationKind::Type { "type" } else { "module" };
        findings.push(finding(source, found.line, kind, &found.name));
    }
    findings
}

/// Returns the stem of a file and, if the file is the head of a module, the name of its folder.
fn file_names(path: &str) -> Vec<&str> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or(name);
    let stem = stem.strip_suffix("_test").unwrap_or(stem);
    if matches!(stem, "mod" | "__init__") {
        return vec![folder.rsplit('/').next().unwrap_or(folder)];
    }
    if GIVEN.contains(&stem) { Vec::new() } else { vec![stem] }
}

/// Reports whether a whole name is a bare participle or a function word.
pub fn is_bare(name: &str) -> bool {
    let name = name.trim_matches('_');
    let lower = name.to_lowercase();
    let lists = words();
    if lists.measured_names.contains(&lower) || lists.bare_names.contains(&lower) {
        return true;
    }
    let single = name.chars().all(|c| c.is_ascii_alphabetic())
        && !name.chars().skip(1).any(|c| c.is_ascii_uppercase());
    single && (lower.ends_with("ed") || lower.ends_with("ing")) && !lists.nouns.contains(&lower)
}

fn finding(source: &SourceFile, line: usize, kind: &str, name: &str) -> Violation {
    let path = &source.path;
    let fix = "fix: name it by a noun, or add the noun to tools/xtask/language/words.toml";
    let message = format!("{path}:{line}: the {kind} {name} is named by no noun; {fix}");
    Violation { place: path.clone(), text: name.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_distinguished_from_nouns() {
        for name in ["Held", "held", "Told", "HOW", "Pending", "_Given", "Smeared", "nothing"] {
            assert!(is_bare(name), "{name}");
        }
        for name in
            ["HeldLock", "held_lock", "Ring", "encoding", "Seed", "Log", "lib", "PendingRead"]
        {
            assert!(!is_bare(name), "{name}");
        }
    }

    #[test]
    fn file_names_are_extracted_from_paths() {
        assert_eq!(file_names("libs/a/src/held.rs"), ["held"]);
        assert_eq!(file_names("libs/a/src/held/mod.rs"), ["held"]);
        assert_eq!(file_names("libs/a/tests/held_test.rs"), ["held"]);
        assert_eq!(file_names("libs/a/src/lib.rs"), Vec::<&str>::new());
    }
}
