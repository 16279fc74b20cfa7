//! The stage `engine`: counts RocksDB's background errors of all tests. After such an error RocksDB
//! sleeps for a second on a thread that all databases of a process share. A test that removes the
//! folder of an open shard therefore slows all other tests down. In the unit stage each process
//! writes RocksDB's logs into one folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::suite::Suite;
use crate::suite_output::show;
use crate::workspace::Workspace;

/// The variable by which `libs/shard` receives the folder.
const VARIABLE: &str = "FOREBAY_ROCKSDB_LOG_DIR";
/// Words that RocksDB logs after a background error, before it sleeps, and the cause that a test
/// gives by removing the folder. Tests of a full disk cause other errors on purpose.
const ERROR_WORDS: [&str; 2] = ["Waiting after background", "No such file or directory"];

/// Returns the folder of the logs.
fn folder(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target()?.join("xtask/rocksdb"))
}

/// Removes the logs of earlier runs.
///
/// # Errors
/// Returns an error if the folder cannot be emptied.
pub fn clear(workspace: &Workspace) -> Result<(), String> {
    let folder = folder(workspace)?;
    let problem = |error| format!("empty {}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(problem)?;
    }
    fs::create_dir_all(&folder).map_err(problem)
}

/// Makes the RocksDB of a command log into the folder.
///
/// # Errors
/// Returns an error if the target folder is unknown.
pub fn redirect(workspace: &Workspace, command: &mut Command) -> Result<(), String> {
    command.env(VARIABLE, folder(workspace)?);
    Ok(())
}

/// Returns a suite that fails if the logs report a background error, or if there is no log.
///
/// # Errors
/// Returns an error if the target folder is unknown.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let (logs, errors) = count(&folder(workspace)?);
    let result = match (logs, errors.len()) {
        (0, _) => {
            Err(format!("no test wrote a log of RocksDB; fix: make libs/shard read {VARIABLE}"))
        }
        (_, 0) => Ok(()),
        (_, error_count) => Err(format!(
            "{error_count} background errors; fix: close a shard before its folder is removed"
        )),
    };
    let suite = Suite::single("engine/background-errors", result);
    println!("engine: {logs} logs of RocksDB, {} background errors", errors.len());
    show(&suite, &errors.join("\n"));
    Ok(vec![suite])
}

/// Counts the logs of a folder and returns their lines that report a background error.
fn count(folder: &Path) -> (usize, Vec<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts: Vec<String> = entries
        .filter_map(|entry| fs::read(entry.path()).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let errors = lines.filter(|line| is_error(line)).map(str::to_owned).collect();
    (texts.len(), errors)
}

fn is_error(line: &str) -> bool {
    ERROR_WORDS.iter().all(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_errors_of_all_logs_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(count(folder.path()), (0, vec![]));
        fs::write(folder.path().join("a_LOG"), "opened\n").unwrap();
        let line = "2026 7f Waiting after background flush error: No such file or directory";
        let full = "2026 7f Waiting after background flush error: No space left on device";
        fs::write(folder.path().join("b_LOG"), format!("opened\n{line}\n{full}\n")).unwrap();
        assert_eq!(count(folder.path()), (2, vec![line.to_owned()]));
    }
}
