//! The copy of the tree in which faults are planted, below cargo's target folder. Later runs write
//! only the changed files into the copy, so Bazel builds only the targets that they affect. Crates
//! and jars are those of the tree itself, because a cargo of the copy would compile all of them
//! again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fault::Edit;
use crate::process;
use crate::workspace::Workspace;

/// Repositories of the tree that the copy uses if the tree's Bazel has built them: no fault changes
/// them, and they are slow to build. The stage `bazel` builds only those that `//:smoke` needs.
const BORROWED: [&str; 4] = ["crates", "maven", "maven_kafka", "maven_objects"];
/// Path of these repositories in the tree's own Bazel, below cargo's target folder.
const REPOSITORIES: &str = "bazel/base/external";
/// The settings of Bazel, to which the copy adds these repositories.
const SETTINGS: &str = "tools/bazel/host.bazelrc";

/// A copy that is up to date.
#[derive(Debug)]
pub struct Copy {
    /// The tree of the copy.
    pub tree: Workspace,
    /// The copy's target folder of cargo.
    pub target: PathBuf,
    /// The log of the witnesses.
    pub log: PathBuf,
    /// The path of the built xtask. The file of the running program is gone after cargo has rebuilt
    /// it.
    pub xtask: PathBuf,
    /// The original tree.
    original: Workspace,
    /// The text of the copy's settings of Bazel.
    settings: String,
}

impl Copy {
    /// Creates the copy, or brings it up to date.
    ///
    /// # Errors
    /// Returns an error if a file cannot be copied.
    pub fn make(workspace: &Workspace) -> Result<Self, String> {
        let target = workspace.target()?;
        let copy = Self {
            tree: Workspace { root: target.join("bazel/plant/tree") },
            target: target.join("bazel/plant/target"),
            log: super::super::log(workspace, "plant.log")?,
            xtask: workspace.binary("xtask")?,
            original: workspace.clone(),
            settings: settings(workspace, &target.join(REPOSITORIES))?,
        };
        make_folder(&copy.tree.root)?;
        make_folder(&copy.target)?;
        link(&workspace.root.join(".venv"), &copy.tree.root.join(".venv"))?;
        link(&target.join("tools"), &copy.target.join("tools"))?;
        make_folder(&copy.tree.root.join("target"))?;
        link(&target.join("rocksdb"), &copy.tree.root.join("target/rocksdb"))?;
        copy.update()?;
        if !copy.tree.root.join(".git").exists() {
            let mut command = Command::new("git");
            process::read(command.args(["init", "--quiet"]).current_dir(&copy.tree.root))?;
        }
        Ok(copy)
    }

    /// Plants an edit.
    ///
    /// # Errors
    /// Returns an error if the file does not contain the old text exactly once, or cannot be
    /// written.
    pub fn edit(&self, edit: &Edit) -> Result<(), String> {
        let path = self.tree.root.join(&edit.file);
        let changed = edit.changed(&self.tree.root)?;
        write(&path, changed.as_bytes())
    }

    /// Undoes all edits of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn restore(&self, file: &str) -> Result<(), String> {
        let path = self.tree.root.join(file);
        match self.content(file) {
            Some(content) => write(&path, &content),
            None if path.exists() => remove(&path),
            None => Ok(()),
        }
    }

    /// Returns the content of a file without a fault; `None` if there is no such file.
    fn content(&self, file: &str) -> Option<Vec<u8>> {
        if file == SETTINGS {
            return Some(self.settings.clone().into_bytes());
        }
        fs::read(self.original.root.join(file)).ok()
    }

    fn update(&self) -> Result<(), String> {
        let files: BTreeSet<String> = self.original.files()?.into_iter().collect();
        for file in &files {
            let (from, to) = (self.original.root.join(file), self.tree.root.join(file));
            let content = self.content(file).ok_or_else(|| format!("{file} no longer exists"))?;
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            write(&to, &content)?;
            let metadata = fs::metadata(&from).map_err(|error| format!("{file}: {error}"))?;
            fs::set_permissions(&to, metadata.permissions())
                .map_err(|error| format!("{file}: {error}"))?;
        }
        self.drop_others(&self.tree.root, &files)
    }

    /// Removes files that the tree no longer has.
    fn drop_others(&self, folder: &Path, files: &BTreeSet<String>) -> Result<(), String> {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| format!("{}: {error}", path.display()))?;
            let name = path.strip_prefix(&self.tree.root).unwrap_or(&path).to_string_lossy();
            if kind.is_dir() && name != ".git" {
                self.drop_others(&path, files)?;
            } else if kind.is_file() && !files.contains(name.as_ref()) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Returns the tree's settings of Bazel with the paths of the shared repositories.
fn settings(workspace: &Workspace, repositories: &Path) -> Result<String, String> {
    let mut settings = fs::read_to_string(workspace.root.join(SETTINGS))
        .map_err(|error| format!("read {SETTINGS}: {error}"))?;
    for name in BORROWED {
        let repository = repositories.join(name);
        if !repository.is_dir() {
            continue;
        }
        for command in ["build", "query"] {
            let option = format!("--override_repository={name}={}", repository.display());
            settings.push_str(&format!("{command} {option}\n"));
        }
    }
    Ok(settings)
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    make_folder(folder)?;
    fs::write(path, content).map_err(|error| format!("write {}: {error}", path.display()))
}

fn remove(path: &Path) -> Result<(), String> {
    fs::remove_file(path).map_err(|error| format!("remove {}: {error}", path.display()))
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("create {}: {error}", folder.display()))
}

fn link(from: &Path, to: &Path) -> Result<(), String> {
    if fs::read_link(to).is_ok_and(|old| old == from) {
        return Ok(());
    }
    if to.is_symlink() {
        remove(to)?;
    }
    symlink(from, to).map_err(|error| format!("link {}: {error}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(folder: &Path) -> Copy {
        let original = folder.join("original");
        write(&original.join("a/BUILD.bazel"), b"one two two\n").unwrap();
        let copy = Copy {
            tree: Workspace { root: folder.join("copy") },
            target: folder.join("target"),
            log: folder.join("log"),
            xtask: PathBuf::new(),
            original: Workspace { root: original },
            settings: String::new(),
        };
        write(&copy.tree.root.join("a/BUILD.bazel"), b"one two two\n").unwrap();
        copy
    }

    fn edit(file: &str, find: &str, replace: &str) -> Edit {
        let [file, find, replace] = [file, find, replace].map(str::to_owned);
        Edit { file, find, replace }
    }

    #[test]
    fn copy_of_the_tree_restores_edited_files() {
        let folder = tempfile::tempdir().unwrap();
        let copy = copy(folder.path());
        let read = |file: &str| fs::read_to_string(copy.tree.root.join(file)).ok();
        copy.edit(&edit("a/BUILD.bazel", "one", "three")).unwrap();
        assert_eq!(read("a/BUILD.bazel").as_deref(), Some("three two two\n"));
        copy.restore("a/BUILD.bazel").unwrap();
        assert_eq!(read("a/BUILD.bazel").as_deref(), Some("one two two\n"));
        copy.edit(&edit("a/new.rs", "", "//! New.\n")).unwrap();
        assert!(read("a/new.rs").is_some());
        copy.restore("a/new.rs").unwrap();
        assert!(read("a/new.rs").is_none());
        copy.restore("a/new.rs").unwrap();
    }

    #[test]
    fn fault_that_cannot_be_planted_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let copy = copy(folder.path());
        let edit_error = |edit: &Edit| copy.edit(edit).unwrap_err();
        assert!(edit_error(&edit("a/BUILD.bazel", "four", "five")).contains("0 times"));
        assert!(edit_error(&edit("a/BUILD.bazel", "two", "five")).contains("2 times"));
        assert!(edit_error(&edit("b/BUILD.bazel", "two", "five")).contains("b/BUILD.bazel"));
        assert!(edit_error(&edit("a/BUILD.bazel", "", "five")).contains("exists"));
    }
}
