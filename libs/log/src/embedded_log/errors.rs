//! Errors of an embedded log when the disk fails, and the permanent stop of the log.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use forebay_core::{Error, Result};
use tokio::sync::watch;

/// The failure after which the log accepts no append until the process restarts.
#[derive(Debug)]
pub(super) struct Poison {
    cause: OnceLock<Error>,
    is_set: watch::Sender<bool>,
}

impl Poison {
    pub(super) fn new() -> Self {
        Self { cause: OnceLock::new(), is_set: watch::Sender::new(false) }
    }

    /// Stops the log. The first cause is retained.
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

    /// Fails if the log has stopped.
    pub(super) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// Waits until the log stops, and returns the cause.
    pub(super) async fn wait(&self) -> Error {
        // The sender is a field of `self`, so the wait cannot end because the sender was dropped.
        let _ = self.is_set.subscribe().wait_for(|is_set| *is_set).await;
        self.check().err().unwrap_or_else(|| Error::internal("the log stopped without a cause"))
    }
}

/// Returns the error for a disk operation that failed and changed nothing.
pub(super) fn io_error(doing: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("could not {doing} {}: {error}; try again", path.display());
    Error::unavailable(message)
}

/// Returns the error for a write of this many bytes that failed and changed nothing.
pub(super) fn write_error(doing: &str, path: &Path, error: &io::Error, room: DiskSpace) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let message = format!(
                "could not {doing} {}: the disk is full; make room, then the log continues by \
                 itself",
                path.display()
            );
            Error::limit_exceeded(message, room.bytes_free, room.bytes_needed)
        }
        _ => io_error(doing, path, error),
    }
}

/// Disk space that an operation needed, and the space that was free.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskSpace {
    pub(super) bytes_needed: u64,
    pub(super) bytes_free: u64,
}

/// Returns the error for a file with other bytes than were written.
pub(super) fn damage_error(path: &Path, at: u64, damage: &str) -> Error {
    Error::corrupt(format!(
        "{} is damaged at byte {at}: {damage}; the bytes after the damage cannot be trusted: \
         restore the data directory from a snapshot or a copy",
        path.display()
    ))
}

/// Returns the error for a valid file of a newer format.
pub(super) fn too_new(path: &Path, version: u16) -> Error {
    Error::upgrade_needed(format!(
        "{} has format version {version}, which this build does not know; upgrade this build",
        path.display()
    ))
}
