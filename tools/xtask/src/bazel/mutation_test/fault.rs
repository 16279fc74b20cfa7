//! Reads the list of faults from TOML. A mistake in the list is an error, because a skipped entry
//! would be a fault that nobody plants.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::workspace::Workspace;

const LIST: &str = "tools/bazel/faults.toml";

/// The witness of a fault: the command that must fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Witness {
    /// A rule of `xtask check`.
    Check(String),
    /// Bazel, which builds or tests some targets.
    Bazel {
        /// `build` or `test`.
        verb: String,
        /// The targets.
        labels: Vec<String>,
    },
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name, unique.
    pub name: String,
    /// The fault, in words.
    pub what: String,
    /// Whether `make test` plants the fault, too.
    pub is_in_test: bool,
    /// The witness.
    pub witness: Witness,
    /// Commands that must succeed without the fault, if not the witness itself.
    pub sound: Vec<Witness>,
    /// Words that the output of the witness must contain.
    pub names: Vec<String>,
    /// The edits that plant the fault.
    pub edits: Vec<Edit>,
}

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file, relative to the root.
    pub file: String,
    /// The text to replace, which occurs exactly once; empty for a file that does not exist yet.
    pub find: String,
    /// The new text.
    pub replace: String,
}

impl Fault {
    /// Returns the commands that must succeed without the fault.
    #[must_use]
    pub fn sound(&self) -> Vec<Witness> {
        if self.sound.is_empty() { vec![self.witness.clone()] } else { self.sound.clone() }
    }
}

impl Edit {
    /// Returns the text of the file with the edit, in the tree of this root.
    ///
    /// # Errors
    /// Returns an error if the file does not contain the old text exactly once, or cannot be read.
    pub fn changed(&self, root: &Path) -> Result<String, String> {
        let Self { file, find, replace } = self;
        let path = root.join(file);
        if find.is_empty() {
            let exists = || format!("cannot be planted: {file} exists already");
            return if path.exists() { Err(exists()) } else { Ok(replace.clone()) };
        }
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot be planted: read {file}: {error}"))?;
        self.replaced(&text)
    }

    fn replaced(&self, text: &str) -> Result<String, String> {
        let Self { file, find, replace } = self;
        match text.matches(find).count() {
            1 => Ok(text.replace(find, replace)),
            times => {
                Err(format!("cannot be planted: '{find}' occurs {times} times in {file}, not once"))
            }
        }
    }
}

impl Witness {
    /// Returns the fewest commands that run the same witnesses.
    #[must_use]
    pub fn together(witnesses: Vec<Self>) -> Vec<Self> {
        let mut by_verb: Vec<(String, Vec<String>)> = Vec::new();
        for witness in witnesses {
            let Self::Bazel { verb, labels } = witness else { continue };
            match by_verb.iter_mut().find(|(other, _)| *other == verb) {
                Some((_, all)) => all.extend(labels),
                None => by_verb.push((verb, labels)),
            }
        }
        by_verb.into_iter().map(|(verb, labels)| Self::Bazel { verb, labels }).collect()
    }

    /// Reads `check RULE`, `build LABEL...` or `test LABEL...`.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let (verb, labels) = (words.next()?, words.collect::<Vec<String>>());
        match (verb.as_str(), labels.as_slice()) {
            (_, []) => None,
            ("check", [rule]) => Some(Self::Check(rule.clone())),
            ("build" | "test", _) => Some(Self::Bazel { verb, labels }),
            _ => None,
        }
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(rule) => write!(formatter, "check {rule}"),
            Self::Bazel { verb, labels } => write!(formatter, "bazel {verb} {}", labels.join(" ")),
        }
    }
}

/// Returns all faults, or the one of this name.
///
/// # Errors
/// Returns an error if the list cannot be read, or contains no such fault.
pub fn read(workspace: &Workspace, only: Option<&str>) -> Result<Vec<Fault>, String> {
    let text = fs::read_to_string(workspace.root.join(LIST))
        .map_err(|error| format!("read {LIST}: {error}"))?;
    let faults = parse(&text)?;
    let selected: Vec<Fault> =
        faults.iter().filter(|fault| only.is_none_or(|only| only == fault.name)).cloned().collect();
    if selected.is_empty() {
        let names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
        return Err(format!("no such fault; fix: name one of {}", names.join(", ")));
    }
    Ok(selected)
}

fn parse(text: &str) -> Result<Vec<Fault>, String> {
    let table: Table = text.parse().map_err(|error| format!("{LIST}: {error}"))?;
    let entries = table.get("fault").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for entry in entries {
        let fault = fault(entry)?;
        if !names.insert(fault.name.clone()) {
            return Err(format!("{LIST}: two faults have the name {}", fault.name));
        }
        faults.push(fault);
    }
    if faults.is_empty() { Err(format!("{LIST} contains no fault")) } else { Ok(faults) }
}

fn fault(entry: &Value) -> Result<Fault, String> {
    let name = text(entry, "name")?;
    let problem = |field: &str| format!("{LIST}: fault {name}: {field}");
    let witness = |words: &str| {
        Witness::read(words)
            .ok_or_else(|| problem(&format!("'{words}' is no command of a witness")))
    };
    let list = |field: &str| -> Vec<String> {
        let values = entry.get(field).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let fault = Fault {
        what: text(entry, "what")?,
        is_in_test: entry.get("in_test").and_then(Value::as_bool).unwrap_or_default(),
        witness: witness(&text(entry, "witness")?)?,
        sound: list("sound").iter().map(|words| witness(words)).collect::<Result<_, _>>()?,
        names: list("names"),
        edits: edits(entry)?,
        name: name.clone(),
    };
    if fault.names.is_empty() || fault.names.iter().any(String::is_empty) {
        return Err(problem("the entry has no words that the witness must print"));
    }
    if fault.edits.is_empty() { Err(problem("the entry has no edit")) } else { Ok(fault) }
}

fn edits(entry: &Value) -> Result<Vec<Edit>, String> {
    let edits = entry.get("edit").and_then(Value::as_array).into_iter().flatten();
    let edit = |edit: &Value| {
        let find = edit.get("find").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Edit { file: text(edit, "file")?, find, replace: text(edit, "replace")? })
    };
    edits.map(edit).collect()
}

fn text(entry: &Value, field: &str) -> Result<String, String> {
    let found = entry.get(field).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| format!("{LIST}: an entry without {field}: {entry}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[fault]]\nname = 'a'\nwhat = 'w'\nwitness = 'build //a:a //b'\n\
        names = ['x']\n[[fault.edit]]\nfile = 'f'\nfind = '1'\nreplace = '2'\n";

    #[test]
    fn fault_is_parsed_whole() {
        let fault = &parse(ONE).unwrap()[0];
        assert_eq!((fault.name.as_str(), fault.names.len()), ("a", 1));
        assert!(!fault.is_in_test);
        assert!(parse(&ONE.replace("names", "in_test = true\nnames")).unwrap()[0].is_in_test);
        assert_eq!(fault.witness.to_string(), "bazel build //a:a //b");
        assert_eq!(fault.sound(), vec![fault.witness.clone()]);
        assert_eq!((fault.edits[0].find.as_str(), fault.edits[0].replace.as_str()), ("1", "2"));
    }

    #[test]
    fn invalid_fault_list_is_an_error() {
        assert!(parse("").is_err());
        assert!(parse(&format!("{ONE}{ONE}")).unwrap_err().contains("two faults"));
        for (from, to) in [
            ("names = ['x']", "names = []"),
            ("names = ['x']", "names = ['']"),
            ("build //a:a //b", "build"),
            ("build //a:a //b", "run //a:a"),
            ("build //a:a //b", "check tidy layers"),
            ("what = 'w'\n", ""),
            ("replace = '2'\n", ""),
        ] {
            assert!(parse(&ONE.replace(from, to)).is_err(), "{from} -> {to}");
        }
        let (without_edit, _) = ONE.split_once("[[fault.edit]]").unwrap();
        assert!(parse(without_edit).unwrap_err().contains("has no edit"));
    }

    #[test]
    fn fault_replaces_only_a_unique_text() {
        let edit = &parse(ONE).unwrap()[0].edits[0];
        assert_eq!(edit.replaced("3 1 3"), Ok("3 2 3".to_owned()));
        assert!(edit.replaced("3").unwrap_err().contains("0 times in f"));
        assert!(edit.replaced("1 1").unwrap_err().contains("2 times in f"));
    }

    #[test]
    fn witnesses_of_one_verb_are_merged() {
        let read = |words| Witness::read(words).unwrap();
        let all = [read("test //a"), read("build //b"), read("test //c //d"), read("check tidy")];
        let merged = Witness::together(all.to_vec());
        let words: Vec<String> = merged.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["bazel test //a //c //d", "bazel build //b"]);
    }
}
