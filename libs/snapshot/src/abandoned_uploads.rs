//! Remains of killed puts in a folder of this machine. A put writes to a temporary file next to the
//! object, under a name that no list shows, and renames the file at the end.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path as LocalPath;
use std::time::SystemTime;

use forebay_core::{Error, Result};

/// Removes the temporary files directly in this folder whose time is past; returns their number.
///
/// # Errors
/// `Unavailable` if the folder cannot be read, or a file cannot be removed.
pub(crate) fn remove_abandoned_uploads(
    folder: &LocalPath,
    is_past: impl Fn(SystemTime) -> bool,
) -> Result<u64> {
    let told = |error: io::Error| {
        let message = format!(
            "the remains of an interrupted put in {} could not be removed: {error}",
            folder.display()
        );
        Error::unavailable(format!("{message}; look at its permissions"))
    };
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        files => files.map_err(told)?,
    };
    let mut removed = 0;
    for file in files {
        let file = file.map_err(told)?;
        if !file.file_name().to_str().is_some_and(is_temporary) {
            continue;
        }
        let removing = || match file.metadata()?.modified().map(&is_past)? {
            true => fs::remove_file(file.path()).map(|()| 1),
            false => Ok(0),
        };
        match removing() {
            // Another collector was faster, or the put has completed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => removed += done.map_err(told)?,
        }
    }
    Ok(removed)
}

/// Returns whether a name is temporary: `object_store` appends `#` and a number, which never occur
/// in its own object names.
fn is_temporary(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
