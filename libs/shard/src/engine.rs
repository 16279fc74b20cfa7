//! The RocksDB library that the process has loaded. Demo, tests and benchmarks load a prebuilt one,
//! releases compile it in (`tools/setup/rocksdb.sh`), so the process asks the library which version
//! it is.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use forebay_core::{Error, Result};
use parking_lot::Mutex;
use rocksdb::{DB, Env, InfoLogger, LogLevel, Options};

use crate::error::from_rocksdb;

/// The version that the bindings of librocksdb-sys are made for; `make check` compares the two.
pub const ROCKSDB_VERSION: &str = "11.8.1";

/// Words before the version in the first lines that an opened database logs.
const VERSION_WORDS: &str = "RocksDB version:";
/// Names a folder for the logs of all databases of the process, instead of each one's own folder.
const LOG_FOLDER: &str = "FOREBAY_ROCKSDB_LOG_DIR";

/// Refuses a library of another version than [`ROCKSDB_VERSION`]. The first call of a process opens
/// a database in memory, which takes some milliseconds.
///
/// # Errors
/// `Unsupported` for another version, `Internal` if the library does not tell its version.
pub(crate) fn check_version() -> Result<()> {
    static LOADED: OnceLock<Result<String>> = OnceLock::new();
    let version = LOADED.get_or_init(loaded_version).clone()?;
    accept(&version)
}

fn accept(version: &str) -> Result<()> {
    if version == ROCKSDB_VERSION {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the loaded RocksDB is {version}, but this program needs {ROCKSDB_VERSION}; run make \
         setup, or look at LD_LIBRARY_PATH"
    )))
}

/// Asks the library for its version: its C interface has no call for it, its log names it.
fn loaded_version() -> Result<String> {
    let version_error =
        |error: rocksdb::Error| from_rocksdb(&error, "asking RocksDB for its version");
    let logged_version = Arc::new(Mutex::new(None));
    let found = Arc::clone(&logged_version);
    let logger = InfoLogger::new_callback_logger(LogLevel::Header, move |_, line| {
        if let Some((_, version)) = line.split_once(VERSION_WORDS) {
            *found.lock() = Some(version.trim().to_owned());
        }
    });
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_env(&Env::mem_env().map_err(version_error)?);
    options.set_info_logger(logger);
    drop(DB::open(&options, "/forebay-version").map_err(version_error)?);
    let version = logged_version.lock().take();
    version
        .ok_or_else(|| Error::internal("RocksDB does not report its version; report this as a bug"))
}

/// The folder for the logs of all databases, if the process's environment names one.
pub(crate) fn log_folder() -> Option<PathBuf> {
    std::env::var_os(LOG_FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    #[test]
    fn loaded_library_has_the_version_of_the_bindings() {
        assert_eq!(loaded_version().unwrap(), ROCKSDB_VERSION);
        check_version().unwrap();
    }

    #[test]
    fn library_of_another_version_is_refused_by_name() {
        let error = accept("11.8.0").unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unsupported);
        assert!(error.to_string().contains("11.8.0"), "{error}");
    }
}
