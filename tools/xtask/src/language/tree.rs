//! The names that a citation may lead to: files, folders, decisions and the headings of Markdown.

use std::collections::{BTreeMap, BTreeSet};

use super::links::anchors;
use super::sources::SourceFile;

/// The names of a tree.
pub struct Tree<'a> {
    /// The paths of all files.
    pub files: BTreeSet<&'a str>,
    /// The paths of all folders.
    pub folders: BTreeSet<&'a str>,
    /// The names of the files, without folders, and how often each occurs.
    pub names: BTreeMap<&'a str, usize>,
    /// The four digits of each decision.
    pub decisions: BTreeSet<&'a str>,
    /// The anchors of each Markdown file.
    pub anchors: BTreeMap<&'a str, BTreeSet<String>>,
}

impl<'a> Tree<'a> {
    /// Finds the names in a list of files and their texts.
    #[must_use]
    pub fn new(files: &'a [String], sources: &'a [SourceFile]) -> Self {
        let mut tree = Self {
            files: files.iter().map(String::as_str).collect(),
            folders: BTreeSet::new(),
            names: BTreeMap::new(),
            decisions: BTreeSet::new(),
            anchors: BTreeMap::new(),
        };
        for file in files {
            tree.folders.extend(file.match_indices('/').map(|(offset, _)| &file[..offset]));
            let name = file.rsplit('/').next().unwrap_or(file);
            *tree.names.entry(name).or_default() += 1;
            let number = name.split_once('-').map(|(number, _)| number);
            let number = number.filter(|number| name.ends_with(".md") && is_number(number));
            tree.decisions.extend(number);
        }
        for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
            tree.anchors.insert(&source.path, anchors(&source.text));
        }
        tree
    }

    /// Reports whether a path is a file or a folder.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty() || self.files.contains(path) || self.folders.contains(path)
    }

    /// Reports whether a path is the end of the path of a file.
    #[must_use]
    pub fn has_end(&self, path: &str) -> bool {
        let end = format!("/{path}");
        self.files.iter().any(|file| file.ends_with(&end))
    }

    /// Reports whether a path exists from the root, or from a folder above the citing file.
    #[must_use]
    pub fn is_near(&self, path: &str, cited: &str) -> bool {
        let folders_above = path.rmatch_indices('/').map(|(offset, _)| &path[..offset]).chain([""]);
        folders_above.filter_map(|folder| normal(folder, cited)).any(|path| self.has(&path))
    }
}

/// Returns a path below a folder, without `.` and `..`; `None` if it leads out of the tree.
#[must_use]
pub fn normal(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Reports whether a text is four digits.
#[must_use]
pub fn is_number(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        assert_eq!(normal("a/b", "../c/./d.md").as_deref(), Some("a/c/d.md"));
        assert_eq!(normal("a", "../.."), None);
        assert_eq!(normal("", "a/").as_deref(), Some("a"));
    }
}
