//! RocksDB's errors as ours.

use std::path::Path;

use forebay_core::Error;
use rocksdb::ErrorKind;

/// What a caller is told of a failure of the engine, which was `doing` something.
pub(crate) fn explained(error: &rocksdb::Error, doing: &str) -> Error {
    let text = error.as_ref();
    let told = |advice: &str| format!("{doing}: {text}; {advice}");
    match error.kind() {
        ErrorKind::Corruption => {
            Error::corrupt(told("look at its disk, and build the shard anew from its log"))
        }
        // The file by which the engine keeps a second opening out, of this process too.
        ErrorKind::IOError if text.contains("/LOCK:") => {
            Error::unavailable(told("the shard is open already; close it there"))
        }
        ErrorKind::IOError if text.contains("Too many open files") => {
            Error::unavailable(told("let the process open more of them: ulimit -n"))
        }
        ErrorKind::IOError => Error::unavailable(told("look at the disk and the space on it")),
        ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut => {
            Error::unavailable(told("try again"))
        }
        _ => Error::internal(told("report it with the service's log")),
    }
}

/// As [`explained`], of a shard in this folder that does not open. Where one of its files is
/// missing, as when a kill broke its removal off, it is damaged: the file will not come back.
pub(crate) fn explained_open(error: &rocksdb::Error, path: &Path) -> Error {
    let is_missing = error.as_ref().contains("No such file or directory") && path.is_dir();
    match is_missing {
        true => Error::corrupt(format!("a file of a shard is missing: {}", error.as_ref())),
        false => explained(error, "opening a shard"),
    }
}
