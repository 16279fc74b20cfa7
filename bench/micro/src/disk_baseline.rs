//! Limits of this disk: bytes appended to a file with one fdatasync after each append, bytes
//! written in order with one sync at the end, and pages read from anywhere in a file. The module
//! also drops files from the page cache, so that reads go to the disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use forebay_testkit::random::SeededRng;
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use rustix::io::pread;

use crate::clock::{nanos, seconds};
use crate::latency::Latency;

/// Bytes of one write to a file that is written in order.
const PIECE_BYTES: usize = 1 << 20;

/// Appends the record and syncs, again and again for `turn`, at least once; each latency is of one
/// append with its sync.
///
/// # Errors
/// Fails if the disk fails.
pub fn fdatasync(folder: &Path, record: &[u8], turn: Duration) -> Result<(f64, Latency), String> {
    let error_text =
        |error: std::io::Error| format!("append and sync in {}: {error}", folder.display());
    let path = folder.join("floor");
    let mut file = File::create(&path).map_err(error_text)?;
    let began = nanos();
    let latency = Latency::of_steps(began, turn, || {
        file.write_all(record).and_then(|()| file.sync_data()).map_err(error_text)
    })?;
    let rate = latency.rate_since(began);
    std::fs::remove_file(&path).map_err(error_text)?;
    Ok((rate, latency))
}

/// Returns the bytes per second of one new file, written in order and durably.
///
/// # Errors
/// Fails if the disk fails.
pub fn sequential(folder: &Path, bytes: u64) -> Result<f64, String> {
    let path = folder.join("sequential");
    let piece = SeededRng::new(bytes).noise(PIECE_BYTES);
    let (seconds, write_result) = seconds(|| {
        let mut file = File::create(&path)?;
        for _ in 0..bytes.div_ceil(PIECE_BYTES as u64) {
            file.write_all(&piece)?;
        }
        file.sync_all()
    });
    let removal = write_result.and_then(|()| std::fs::remove_file(&path));
    removal.map_err(|error| format!("write {}: {error}", path.display()))?;
    Ok(bytes as f64 / seconds)
}

/// The unit of reads past the page cache, with the alignment that they require.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Reads 4 KiB from anywhere in a file of `bytes` bytes, past the page cache, again and again for
/// `turn`, at least once; each latency is of one read.
///
/// # Errors
/// Fails if the disk fails, or its file system has no direct reads.
pub fn direct_reads(folder: &Path, bytes: u64, turn: Duration) -> Result<(f64, Latency), String> {
    let path = folder.join("pages");
    let error_text = |error: std::io::Error| format!("read {} directly: {error}", path.display());
    let pages = (bytes / 4096).max(1);
    let mut dice = SeededRng::new(pages);
    let mut file = File::create(&path).map_err(error_text)?;
    for _ in 0..(pages * 4096).div_ceil(PIECE_BYTES as u64) {
        file.write_all(&dice.noise(PIECE_BYTES)).map_err(error_text)?;
    }
    file.sync_all().map_err(error_text)?;
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::empty()).map_err(|error| error_text(error.into()))?;
    let mut page = Box::new(Page([0; 4096]));
    let began = nanos();
    let latency = Latency::of_steps(began, turn, || {
        let offset = (dice.bits() % pages) * 4096;
        match pread(&file, &mut page.0, offset).map_err(|error| error_text(error.into()))? {
            4096 => Ok(()),
            _ => Err(format!("{} has no whole page at {offset}", path.display())),
        }
    })?;
    let rate = latency.rate_since(began);
    std::fs::remove_file(&path).map_err(error_text)?;
    Ok((rate, latency))
}

/// Drops the files of a folder from the page cache, as a restart of the machine does.
///
/// # Errors
/// Fails if the files cannot be read.
pub fn forget_cached(folder: &Path) -> Result<(), String> {
    let forget = || -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_file() {
                continue;
            }
            let file = File::open(entry.path())?;
            // Dirty pages would not be dropped.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    };
    forget().map_err(|error| format!("drop the page cache of {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_of_zero_duration_syncs_once() {
        let folder = tempfile::tempdir().unwrap();
        let (rate, latency) = fdatasync(folder.path(), b"record", Duration::ZERO).unwrap();
        assert_eq!(latency.count(), 1);
        assert!(rate > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn disk_baseline_reads_pages_past_the_page_cache() {
        // The folder is on the tree's own disk: a file system in memory has no direct reads.
        let folder = crate::server::scratch().unwrap();
        let (rate, latency) = direct_reads(folder.path(), 1 << 20, Duration::ZERO).unwrap();
        assert_eq!(latency.count(), 1);
        assert!(rate > 0.0);
    }
}
