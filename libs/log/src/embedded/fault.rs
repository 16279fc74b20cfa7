//! What an embedded log says when the disk fails it, and how it stops for good.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use forebay_core::{Error, Result};
use tokio::sync::watch;

/// The failure after which nothing may be appended any more until the process starts anew.
#[derive(Debug)]
pub(super) struct Poison {
    cause: OnceLock<Error>,
    is_set: watch::Sender<bool>,
}

impl Poison {
    pub(super) fn new() -> Self {
        Self { cause: OnceLock::new(), is_set: watch::Sender::new(false) }
    }

    /// Stops the log. The first cause stays.
    pub(super) fn set(&self, doing: &str, path: &Path, error: &io::Error) {
        let message = format!(
            "the log has stopped, because it could not {doing} {}: {error}; check the disk and \
             restart the service",
            path.display()
        );
        self.stop(Error::unavailable(message));
    }

    /// Stops the log because a read found damage.
    pub(super) fn set_damaged(&self, damage: &Error) {
        self.stop(damage.clone());
    }

    fn stop(&self, cause: Error) {
        // A second failure adds nothing to the first.
        if self.cause.set(cause.clone()).is_ok() {
            tracing::error!(%cause, "embedded log stopped");
        }
        self.is_set.send_replace(true);
    }

    /// Fails when the log has stopped.
    pub(super) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// Waits until the log stops, and says why.
    pub(super) async fn wait(&self) -> Error {
        // The sender lives in `self`, so the wait cannot end for want of one.
        let _ = self.is_set.subscribe().wait_for(|is_set| *is_set).await;
        self.check().err().unwrap_or_else(|| Error::internal("a log stopped without a cause"))
    }
}

/// The disk refused something, and nothing was changed by it.
pub(super) fn refused(doing: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("could not {doing} {}: {error}; try again", path.display());
    Error::unavailable(message)
}

/// The disk refused to write this many bytes, and nothing was changed by it.
pub(super) fn not_written(doing: &str, path: &Path, error: &io::Error, room: Room) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let message = format!(
                "could not {doing} {}: the disk is full; make room, the log goes on by itself",
                path.display()
            );
            Error::limit_exceeded(message, room.bytes_free, room.bytes_needed)
        }
        _ => refused(doing, path, error),
    }
}

/// What was needed on the disk and what there was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) bytes_needed: u64,
    pub(super) bytes_free: u64,
}

/// A file's bytes are not what was written.
pub(super) fn damaged(path: &Path, at: u64, how: &str) -> Error {
    Error::corrupt(format!(
        "{} is damaged at byte {at}: {how}; nothing behind it can be trusted: restore the data \
         directory from a snapshot or a copy",
        path.display()
    ))
}

/// A file is whole and newer than this build.
pub(super) fn too_new(path: &Path, version: u16) -> Error {
    Error::upgrade_needed(format!(
        "{} has format version {version}, which this build does not know; upgrade it",
        path.display()
    ))
}
