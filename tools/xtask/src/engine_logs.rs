//! The stage `engine`: counts RocksDB's background errors of all tests. After such an error RocksDB
//! sleeps a second on a thread that all databases of a process share, so a test that removes the
//! folder of an open shard slows every other test down. The unit stage has each process write
//! RocksDB's logs into one folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stages::show;
use crate::suite::Suite;
use crate::workspace::Workspace;

/// Names the folder to `libs/shard`.
const VARIABLE: &str = "FOREBAY_ROCKSDB_LOG_DIR";
/// Words of RocksDB's log behind a background error, before it sleeps.
const ERROR_WORDS: &str = "Waiting after background";

/// The folder of the logs.
fn folder(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target()?.join("xtask/rocksdb"))
}

/// Removes the logs of earlier runs.
///
/// # Errors
/// The folder cannot be emptied.
pub fn clear(workspace: &Workspace) -> Result<(), String> {
    let folder = folder(workspace)?;
    let problem = |error| format!("empty {}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(problem)?;
    }
    fs::create_dir_all(&folder).map_err(problem)
}

/// Has a command's RocksDB log into the folder.
///
/// # Errors
/// The target folder is unknown.
pub fn redirect(workspace: &Workspace, command: &mut Command) -> Result<(), String> {
    command.env(VARIABLE, folder(workspace)?);
    Ok(())
}

/// A suite that fails if a log tells of a background error, or if there is no log at all.
///
/// # Errors
/// The target folder is unknown.
pub fn suites(workspace: &Workspace) -> Result<Vec<Suite>, String> {
    let (logs, errors) = count(&folder(workspace)?);
    let result = match (logs, errors.len()) {
        (0, _) => Err(format!("no test wrote a log of RocksDB; does {VARIABLE} still count?")),
        (_, 0) => Ok(()),
        (_, some) => {
            Err(format!("{some} background errors; fix: close shards before their folder"))
        }
    };
    let suite = Suite::single("engine/background-errors", result);
    println!("engine: {logs} logs of RocksDB, {} background errors", errors.len());
    show(&suite, &errors.join("\n"));
    Ok(vec![suite])
}

/// How many logs a folder holds, and their lines that tell of a background error.
fn count(folder: &Path) -> (usize, Vec<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts: Vec<String> = entries
        .filter_map(|entry| fs::read(entry.path()).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let errors = lines.filter(|line| line.contains(ERROR_WORDS)).map(str::to_owned).collect();
    (texts.len(), errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_errors_of_all_logs_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(count(folder.path()), (0, vec![]));
        fs::write(folder.path().join("a_LOG"), "opened\n").unwrap();
        let line = "2026 7f Waiting after background flush error: IO error: No such file";
        fs::write(folder.path().join("b_LOG"), format!("opened\n{line}\n")).unwrap();
        assert_eq!(count(folder.path()), (2, vec![line.to_owned()]));
    }
}
