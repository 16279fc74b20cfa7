//! The data folder of a process that shares partitions with others.

use std::fs::{File, TryLockError};
use std::path::Path;

use forebay_core::entropy::Entropy;
use forebay_core::{Error, ErrorCode, Result};

/// Exclusive ownership of a data folder until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    _held: File,
    instance: String,
}

impl DataDir {
    /// Locks a folder against a second process: the group would take that process for this one, and
    /// fence this one. The folder need not exist yet.
    ///
    /// # Errors
    /// `Conflict` if another process has locked the folder; `Unavailable` if the folder cannot be
    /// used.
    pub fn lock(path: &Path, entropy: &dyn Entropy) -> Result<Self> {
        let lock_file = lock(path)?;
        Ok(Self { _held: lock_file, instance: instance(path, entropy)? })
    }

    /// Returns the instance id by which a group recognises this process after restarts; the folder
    /// stores the id.
    pub fn instance(&self) -> &str {
        &self.instance
    }
}

fn folder_error(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| {
        let path = path.display();
        Error::unavailable(format!(
            "could not use {path}: {error}; look at the folder and its disk"
        ))
    }
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    std::fs::create_dir_all(dir).map_err(folder_error(&path))?;
    let file = File::create(&path).map_err(folder_error(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(folder_error(&path)(error)),
        Err(TryLockError::WouldBlock) => {
            let dir = dir.display();
            let message = format!(
                "{dir} is in use by another process; stop that process, or use another directory"
            );
            Err(Error::new(ErrorCode::Conflict, message))
        }
    }
}

fn instance(dir: &Path, entropy: &dyn Entropy) -> Result<String> {
    let path = dir.join("instance");
    match std::fs::read_to_string(&path) {
        Ok(id) if u64::from_str_radix(&id, 16).is_ok() => return Ok(id),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(folder_error(&path)(error));
        }
        // The folder has no id yet, or a torn one.
        _ => {}
    }
    let id = format!("{:016x}", entropy.next_u64()?);
    std::fs::write(&path, &id).map_err(folder_error(&path))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use forebay_core::entropy::SeededEntropy;

    use super::*;

    #[test]
    fn folder_has_one_owner_and_retains_its_id_unless_damaged() {
        let path = std::env::temp_dir().join(format!("forebay-data-dir-{}", std::process::id()));
        let lock = |seed| DataDir::lock(&path, &SeededEntropy::new(seed));
        let first = lock(1).unwrap();
        assert_eq!(lock(2).unwrap_err().code(), ErrorCode::Conflict);
        let instance = first.instance().to_owned();
        drop(first);
        assert_eq!(lock(3).unwrap().instance(), instance);
        std::fs::write(path.join("instance"), "torn").unwrap();
        assert_ne!(lock(4).unwrap().instance(), instance);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
