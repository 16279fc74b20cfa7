//! Conversion of RocksDB's errors.

use std::path::Path;

use forebay_core::Error;
use rocksdb::ErrorKind;

/// Converts a failure of the engine while it was `doing` something.
pub(crate) fn from_rocksdb(error: &rocksdb::Error, doing: &str) -> Error {
    let text = error.as_ref();
    let message = |advice: &str| format!("{doing}: {text}; {advice}");
    match error.kind() {
        ErrorKind::Corruption => {
            Error::corrupt(message("look at the disk, and rebuild the shard from its log"))
        }
        // The engine's lock file, which prevents a second open, even in this process.
        ErrorKind::IOError if text.contains("/LOCK:") => {
            Error::unavailable(message("the shard is open already; close it there"))
        }
        ErrorKind::IOError if text.contains("Too many open files") => Error::unavailable(message(
            "too many files are open; raise the limit of the process: ulimit -n",
        )),
        ErrorKind::IOError => Error::unavailable(message("look at the disk and its free space")),
        ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut => {
            Error::unavailable(message("try again"))
        }
        _ => Error::internal(message("report this with the service's log")),
    }
}

/// Converts a failed open of the shard in this folder, like [`from_rocksdb`]. If a file of the
/// shard is missing, for example because a kill interrupted its removal, the shard is damaged: the
/// file will not come back.
pub(crate) fn from_rocksdb_open(error: &rocksdb::Error, path: &Path) -> Error {
    let is_missing = error.as_ref().contains("No such file or directory") && path.is_dir();
    match is_missing {
        true => Error::corrupt(format!("a file of a shard is missing: {}", error.as_ref())),
        false => from_rocksdb(error, "opening a shard"),
    }
}
