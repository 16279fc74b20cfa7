//! The disk as an argument: the few things that a log does to files, so that the same code runs on
//! a real file system and on one that loses power on command.
//!
//! Methods are synchronous; callers decide on which thread they block. Nothing is durable before
//! [`DiskFile::sync_data`] (for bytes and length) and [`Disk::sync_dir`] (for names).

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
    /// Makes a directory and those above it; one that exists is fine.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes a new, empty file; fails with `AlreadyExists` when the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file or directory another name in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that it holds; not in one step.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that may still be written below a directory.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Whether its paths are those of the host's own file system, where files can be mapped and
    /// other processes find them.
    fn is_of_host(&self) -> bool {
        false
    }

    /// Takes the lock that a file stands for, making the file if need be; it is held until the
    /// returned value is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` when somebody holds it, in this process or another.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// One open file. Dropping it closes it and makes nothing durable.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Bytes that it takes of the disk, about: fewer than its length where parts were never
    /// written.
    fn stored_bytes(&self) -> io::Result<u64> {
        self.size()
    }

    /// Reads at a place; fewer bytes than asked for only at the file's end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all bytes at a place, making the file longer if need be. A failure may leave any part
    /// of them written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable. After a failure nothing is known about either.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts the file at a length.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// What the file can be mapped by; `None` where there is no such thing.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A lock that is held until it is dropped.
pub trait DiskLock: Send + Sync + fmt::Debug {}
