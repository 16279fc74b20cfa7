//! The spill file of a space. The file takes the records that no longer fit into memory.
//!
//! A spilled address has a bit of its own ([`SPILLED`](super::geometry::SPILLED)); without the bit
//! it is an offset in the file. The file is allocated in chunks, as memory is. The index reads the
//! file by `pread` and never maps it, so a failing disk causes an error and not a signal. The file
//! is not needed after a crash of the machine: the file of a shared space is next to the space's
//! header and is removed with the space; the file of private memory has no name.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_core::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::free::Free;
use super::geometry::{BLOCK_BYTES, SPACE_HEADER_NAME_AT};
use super::space_file::file_error;

/// Numbers the files of one process, to keep their names unique until the names are removed.
static FILES: AtomicU64 = AtomicU64::new(0);

/// The location of a space's spill file.
#[derive(Clone, Debug)]
pub(crate) enum SpillPlace {
    /// A file in this directory, without a name.
    Unnamed(PathBuf),
    /// A file of this name; the bytes name the header that leads to it.
    Named(PathBuf, Vec<u8>),
}

/// The spill file of one memory, opened at first use.
#[derive(Debug)]
pub(super) struct Spill {
    pub(super) place: OnceLock<SpillPlace>,
    pub(super) file: OnceLock<File>,
    pub(super) free: Mutex<Free>,
    /// Bytes of the chunks in use or retired.
    pub(super) used: AtomicU64,
    pub(super) is_damaged: AtomicBool,
}

impl Spill {
    pub(super) fn new() -> Self {
        Self {
            place: OnceLock::new(),
            file: OnceLock::new(),
            free: Mutex::new(Free::with_fresh(BLOCK_BYTES)),
            used: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns an error if the file's content may not be trusted any more.
    pub(super) fn check_integrity(&self) -> Result<()> {
        match self.is_damaged.load(Ordering::Relaxed) {
            true => Err(Error::corrupt("the spill file is damaged, or cannot be read")),
            false => Ok(()),
        }
    }

    pub(super) fn file(&self, is_written: bool) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let missing =
            || Error::corrupt("a document is in a spill file, but the copy has no spill file");
        let opened_file = open(self.place.get().ok_or_else(missing)?, is_written)?;
        // Two threads that open it at the same time have opened the same file, if it has a name.
        Ok(self.file.get_or_init(|| opened_file))
    }
}

fn open(place: &SpillPlace, is_written: bool) -> Result<File> {
    let options = |path: &Path| {
        let mut options = File::options();
        options.read(true).write(is_written).create(is_written).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
    };
    match place {
        SpillPlace::Named(path, header_name) => {
            let file = options(path).map_err(|error| file_error("open", path, &error))?;
            if is_written {
                let write_result = file.write_all_at(header_name, SPACE_HEADER_NAME_AT);
                write_result.map_err(|error| file_error("write", path, &error))?;
            }
            Ok(file)
        }
        SpillPlace::Unnamed(dir) => {
            let number = FILES.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("spill-{}-{number}", std::process::id()));
            let file = options(&path).map_err(|error| file_error("make", &path, &error))?;
            std::fs::remove_file(&path).map_err(|error| file_error("unlink", &path, &error))?;
            Ok(file)
        }
    }
}
