//! The host's file system.
//!
//! The lock is an fcntl record lock: a forked child does not inherit it. An fcntl lock belongs to
//! the process, and closing any descriptor of its file releases the lock. Therefore a registry of
//! the locks of this process, keyed by device and inode, is checked before the file is opened a
//! second time. A forked child has its own registry: the child holds none of its parent's locks,
//! and a thread that fork did not copy may have held the mutex of the parent's registry.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, fcntl_lock, statvfs};

use super::{Disk, DiskFile, DiskLock};

/// The host's file system (Linux and other Unix).
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

static LOCKS: ArcSwapOption<Locks> = ArcSwapOption::const_empty();

/// Locks that one process holds.
#[derive(Debug)]
struct Locks {
    pid: u32,
    /// Device and inode of each lock file.
    lock_files: Mutex<BTreeSet<(u64, u64)>>,
}

impl Locks {
    /// Returns the locks of the current process.
    fn of_process() -> Arc<Self> {
        let pid = std::process::id();
        loop {
            let found = LOCKS.load_full();
            if let Some(locks) = found.as_ref().filter(|locks| locks.pid == pid) {
                return Arc::clone(locks);
            }
            LOCKS.compare_and_swap(
                &found,
                Some(Arc::new(Self { pid, lock_files: Mutex::default() })),
            );
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

#[derive(Debug)]
struct RealLock {
    key: (u64, u64),
    file: Option<File>,
    locks: Arc<Locks>,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        if self.locks.pid != std::process::id() {
            // A forked child may hold the lock through its own descriptor; closing this one would
            // release it.
            std::mem::forget(self.file.take());
            return;
        }
        // The file closes under the registry's mutex. If the key were removed first, another thread
        // could take the lock through a second descriptor and lose it when this one closes.
        let mut lock_files = self.locks.lock_files.lock();
        drop(self.file.take());
        lock_files.remove(&self.key);
    }
}

fn key_of(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(dir)? {
            let name = item?.file_name();
            let name = name.into_string().map_err(|name| {
                let message = format!("the file name is not UTF-8: {}", name.to_string_lossy());
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?;
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn is_of_host(&self) -> bool {
        true
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let locks = Locks::of_process();
        let mut lock_files = locks.lock_files.lock();
        match std::fs::metadata(path) {
            Ok(metadata) if lock_files.contains(&key_of(&metadata)) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            // POSIX permits either error if another process holds the lock.
            match error {
                rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN => {
                    io::ErrorKind::WouldBlock.into()
                }
                other => io::Error::from(other),
            }
        })?;
        let key = key_of(&file.metadata()?);
        lock_files.insert(key);
        drop(lock_files);
        Ok(Box::new(RealLock { key, file: Some(file), locks }))
    }
}

/// Wraps a host file that is already open, such as an unnamed one.
pub fn open_file(file: File) -> Arc<dyn DiskFile> {
    Arc::new(RealFile(file))
}

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn stored_bytes(&self) -> io::Result<u64> {
        // POSIX leaves the unit open; Linux counts 512-byte units regardless of the file system's
        // block size.
        Ok(self.0.metadata()?.blocks() * 512)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
