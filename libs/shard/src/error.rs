//! RocksDB's errors as ours.

use forebay_core::Error;
use rocksdb::ErrorKind;

/// What a caller is told of a failure of the engine, which was `doing` something.
pub(crate) fn explained(error: &rocksdb::Error, doing: &str) -> Error {
    let text = error.as_ref();
    let told = |advice: &str| format!("{doing}: {text}; {advice}");
    match error.kind() {
        ErrorKind::Corruption => Error::corrupt(told("the shard is built anew; look at its disk")),
        ErrorKind::IOError if text.contains("lock") => {
            Error::unavailable(told("another process has the shard open; stop that one"))
        }
        ErrorKind::IOError => Error::unavailable(told("look at the disk and the space on it")),
        ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut => {
            Error::unavailable(told("try again"))
        }
        _ => Error::internal(told("report it with the service's log")),
    }
}
