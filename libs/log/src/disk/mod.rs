//! The disk as an argument: the few file operations of a log, so that the same code runs on a real
//! file system and on a simulated one that loses power on command.
//!
//! Methods are synchronous; callers choose the thread that blocks. Data is not durable before
//! [`DiskFile::sync_data`] (bytes and length) and [`Disk::sync_dir`] (names).

mod real;
pub mod sim;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use real::{RealDisk, open_file};
pub use sim::SimDisk;

/// A file system.
pub trait Disk: Send + Sync + 'static {
    /// Creates a directory and its missing parents; an existing directory is no error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns the names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates an empty file; fails with `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file or directory atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with its contents; not atomically.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns the free bytes for files below a directory.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Returns whether the paths are paths of the host's file system, where files can be mapped and
    /// other processes find them.
    fn is_of_host(&self) -> bool {
        false
    }

    /// Takes the lock that a file represents, and creates the file if needed. The lock is held
    /// until the caller drops the returned value or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` if this process or another one holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// An open file. Dropping it closes the file and makes nothing durable.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Returns the length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Returns the approximate bytes that the file occupies on the disk: fewer than its length if
    /// parts were never written.
    fn stored_bytes(&self) -> io::Result<u64> {
        self.size()
    }

    /// Reads at an offset; returns fewer bytes than requested only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all bytes at an offset, and extends the file if needed. A failed write may leave any
    /// part of the bytes written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable. After a failure the state of both is unknown.
    fn sync_data(&self) -> io::Result<()>;

    /// Truncates the file to a length.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Returns a descriptor that can be mapped; `None` if the disk has none.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A lock that is held until it is dropped.
pub trait DiskLock: Send + Sync + fmt::Debug {}
