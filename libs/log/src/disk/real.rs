//! The host's file system.
//!
//! The lock is an fcntl record lock: a forked child does not inherit it. Such a lock belongs to the
//! process, and closing any descriptor of its file lets go of it, so a registry of what this
//! process holds, keyed by device and inode, answers before the file is opened a second time.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, fcntl_lock, statvfs};

use super::{Disk, DiskFile, DiskLock};

/// The host's file system (Linux and other Unix).
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Device and inode of each lock file that this process holds.
static HELD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

#[derive(Debug)]
struct RealFile(File);

#[derive(Debug)]
struct RealLock {
    key: (u64, u64),
    file: Option<File>,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closed under the registry's mutex: were the key gone first, another thread could take the
        // lock through a second descriptor and lose it when this one closes.
        let mut held = HELD.lock();
        drop(self.file.take());
        held.remove(&self.key);
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
                let message = format!("a name that is not UTF-8: {}", name.to_string_lossy());
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

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut held = HELD.lock();
        match std::fs::metadata(path) {
            Ok(metadata) if held.contains(&key_of(&metadata)) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            // POSIX lets a system say either when somebody else holds the lock.
            match error {
                rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN => {
                    io::ErrorKind::WouldBlock.into()
                }
                other => io::Error::from(other),
            }
        })?;
        let key = key_of(&file.metadata()?);
        held.insert(key);
        Ok(Box::new(RealLock { key, file: Some(file) }))
    }
}

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
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
