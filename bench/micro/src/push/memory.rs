//! Memory of a reader on its host, sampled again and again: private pages, pages of mapped files,
//! and the shared copies that it maps or maintains, in a memory file system.
//!
//! A shared copy counts once, with the memory of its file: two versions may map the same file,
//! which the process's own count of resident pages then contains twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::nanos;

/// Interval of the samples.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Prefix of the names of shared copies in a memory file system.
const LIVE: &str = "forebay-";

/// Bytes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemorySample {
    /// Time of the sample.
    pub nanos: u64,
    /// Private bytes of the process.
    pub own: u64,
    /// Bytes of mapped files on disk: the program, images.
    pub mapped: u64,
    /// Bytes of shared copies.
    pub live: u64,
}

impl MemorySample {
    /// Returns the bytes that no other process can use.
    #[must_use]
    pub fn held(&self) -> f64 {
        (self.own + self.live) as f64
    }

    /// Returns the same bytes with those that the system may evict, and read again from the disk.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.held() + self.mapped as f64
    }
}

/// A sampler of one process.
#[derive(Debug, Default)]
struct Look {
    /// Bytes of the shared copies that were seen, by the inodes of their files.
    copies: BTreeMap<u64, u64>,
}

impl Look {
    fn at(&mut self, process: u32) -> Result<MemorySample, String> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            fs::read_to_string(&path).map_err(|error| format!("read {path}: {error}"))
        };
        let (status, maps) = (read("status")?, read("maps")?);
        let kilobytes = |name: &str| {
            let words = status.lines().find_map(|line| line.strip_prefix(name));
            words.and_then(|words| words.split_whitespace().next()?.parse().ok()).unwrap_or(0_u64)
        };
        let (own_bytes, mapped) = (kilobytes("RssAnon:") * 1_024, kilobytes("RssFile:") * 1_024);
        Ok(MemorySample { nanos: nanos(), own: own_bytes, mapped, live: self.live_bytes(&maps) })
    }

    /// Returns the bytes of the mapped shared copies, and of all others of their directories. A
    /// removed copy exists as long as it is mapped, and keeps its size.
    fn live_bytes(&mut self, maps: &str) -> u64 {
        let mapped: Vec<_> = maps.lines().filter_map(LiveMapping::of).collect();
        let directories: BTreeSet<_> =
            mapped.iter().map(|mapping| (mapping.folder, mapping.directory)).collect();
        let mut files: BTreeSet<u64> = mapped.iter().map(|mapping| mapping.file).collect();
        for (folder, directory) in directories {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let is_copy = entry.file_name().to_string_lossy().starts_with(directory);
                let Some(metadata) = entry.metadata().ok().filter(|_| is_copy) else { continue };
                self.copies.insert(metadata.ino(), metadata.blocks() * 512);
                files.insert(metadata.ino());
            }
        }
        self.copies.retain(|file, _| files.contains(file));
        self.copies.values().sum()
    }
}

/// Returns the names of all shared copies in the directories of the copies that a process maps.
///
/// # Errors
/// Fails if there is no such process, or it is another user's.
pub fn copies(process: u32) -> Result<BTreeSet<String>, String> {
    let path = format!("/proc/{process}/maps");
    let maps = fs::read_to_string(&path).map_err(|error| format!("read {path}: {error}"))?;
    let mut names = BTreeSet::new();
    for mapping in maps.lines().filter_map(LiveMapping::of) {
        for entry in fs::read_dir(mapping.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            names.extend(Some(name).filter(|name| name.starts_with(mapping.directory)));
        }
    }
    Ok(names)
}

/// A shared copy that a process maps.
#[derive(Debug, PartialEq)]
struct LiveMapping<'m> {
    /// Inode of the file.
    file: u64,
    folder: &'m Path,
    /// Prefix of the names of all copies of the directory: `forebay-TOKEN-`.
    directory: &'m str,
}

impl<'m> LiveMapping<'m> {
    /// Parses a line of `/proc/PID/maps`, if it is a shared copy.
    fn of(line: &'m str) -> Option<Self> {
        let path = Path::new(&line[line.find('/')?..]);
        let name = path.file_name()?.to_str()?;
        let token = name.strip_prefix(LIVE)?.find('-')?;
        let file = line.split_whitespace().nth(4)?.parse().ok()?;
        let directory = &name[..=LIVE.len() + token];
        Some(Self { file, folder: path.parent()?, directory })
    }
}

/// A thread that samples a process until the process ends.
pub struct Watch {
    samples: Arc<Mutex<Vec<MemorySample>>>,
    ended: Arc<AtomicBool>,
}

impl Watch {
    /// Starts to sample.
    ///
    /// # Errors
    /// Fails if there is no such process, or it is another user's.
    pub fn start(process: u32) -> Result<Self, String> {
        let mut look = Look::default();
        let samples = Arc::new(Mutex::new(vec![look.at(process)?]));
        let has_ended = Arc::new(AtomicBool::new(false));
        thread::spawn({
            let (samples, has_ended) = (Arc::clone(&samples), Arc::clone(&has_ended));
            move || {
                while !has_ended.load(Ordering::Relaxed) {
                    // A process that is gone keeps its last samples.
                    let now = look.at(process);
                    samples.lock().extend(now);
                    thread::sleep(LOOK_EVERY);
                }
            }
        });
        Ok(Self { samples, ended: has_ended })
    }

    /// Returns the samples between two moments.
    ///
    /// # Errors
    /// Fails if there are no samples.
    pub fn between(&self, from: u64, to: u64) -> Result<Vec<MemorySample>, String> {
        let samples = self.samples.lock();
        let is_within = |sample: &&MemorySample| (from..=to).contains(&sample.nanos);
        let samples_between: Vec<_> = samples.iter().filter(is_within).copied().collect();
        if samples_between.is_empty() {
            Err("no sample of the memory was taken".to_owned())
        } else {
            Ok(samples_between)
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_copy_mapping_is_recognized() {
        let line = "7f00-7f10 rw-s 00000000 00:1a 51   /dev/shm/forebay-00ff-01-0000-1 (deleted)";
        let mapping = LiveMapping::of(line).unwrap();
        let folder = Path::new("/dev/shm");
        assert_eq!(mapping, LiveMapping { file: 51, folder, directory: "forebay-00ff-" });
        for other in ["7f00-7f10 rw-p 00000000 00:00 0", "7f00-7f10 r-xp 0 08:01 9 /bin/forebayd"] {
            assert_eq!(LiveMapping::of(other), None, "{other}");
        }
    }

    #[test]
    fn shared_copy_counts_once_while_it_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forebay-00ff-01-0000-1");
        fs::write(&path, [7; 10_000]).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let line = format!("7f00-7f10 rw-s 0 00:1a {} {}\n", metadata.ino(), path.display());
        let (mut look, bytes) = (Look::default(), metadata.blocks() * 512);
        assert!(bytes > 0);
        assert_eq!(look.live_bytes(&line.repeat(2)), bytes);
        fs::remove_file(&path).unwrap();
        assert_eq!(look.live_bytes(&line.replace('\n', " (deleted)\n")), bytes);
        assert_eq!(look.live_bytes(""), 0);
    }

    #[test]
    fn sample_contains_the_memory_of_this_process() {
        let began = nanos();
        let watch = Watch::start(std::process::id()).unwrap();
        let samples = watch.between(began, nanos()).unwrap();
        assert!(samples[0].held() > 0.0 && samples[0].all() > samples[0].held(), "{samples:?}");
        assert!(watch.between(0, 1).is_err());
    }
}
