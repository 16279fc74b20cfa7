//! The default memory limit of a reader: half of the memory of its container or host, and less if
//! the remainder would not suffice for the rest of the process.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use forebay_core::limits::{PROCESS_RESERVED_BYTES, PROCESS_RESERVED_PARTITION_BYTES};

/// Initial buffer size; larger than most of the files that this module reads.
const TEXT_BYTES: usize = 4_096;

/// The memory limit of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    /// The configured limit, or all memory of the container or host.
    total: u64,
    pub source: Source,
}

/// The origin of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Options,
    Group,
    Host,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Options => "the reader's options",
            Self::Group => "the control group's limit",
            Self::Host => "the host's memory",
        })
    }
}

impl MemoryLimit {
    /// Returns the configured limit, else the smaller of the control group's limit and the host's
    /// memory; `None` if the system reports neither.
    pub(crate) fn new(configured: Option<u64>) -> Option<Self> {
        if let Some(bytes) = configured {
            return Some(Self { total: bytes, source: Source::Options });
        }
        let read = |path: &Path| read(path).ok();
        let host = read(Path::new("/proc/meminfo")).and_then(|text| total_of(&text));
        Self::smaller_of(host, group_limit(&read))
    }

    /// Returns the memory for documents and index of this many partitions: the whole configured
    /// limit, else half of the available memory. If half leaves too little for the process and for
    /// the entries that its tails have in flight, the result is lower, but at least a quarter.
    pub(crate) fn bytes(&self, partitions: usize) -> u64 {
        if self.source == Source::Options {
            return self.total;
        }
        let reserved =
            PROCESS_RESERVED_BYTES + PROCESS_RESERVED_PARTITION_BYTES * partitions as u64;
        (self.total / 2).min(self.total.saturating_sub(reserved)).max(self.total / 4)
    }

    fn smaller_of(host: Option<u64>, group: Option<u64>) -> Option<Self> {
        let is_group = group.is_some_and(|group| host.is_none_or(|host| group < host));
        let source = if is_group { Source::Group } else { Source::Host };
        let total = if is_group { group } else { host };
        total.map(|total| Self { total, source })
    }
}

/// Reads a file of the kernel in as few calls as possible, because opening a reader waits for it.
/// Such a file reports no useful size; the `take` keeps the standard library from querying it.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(TEXT_BYTES);
    File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the host's memory from the text of `/proc/meminfo`.
fn total_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// Returns the lowest memory limit of the process's control groups (v1 or v2).
fn group_limit(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        // A limit of a parent group applies as well. In a container the path may be the host's.
        let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
        ancestors.map(|group| Path::new(root).join(group).join(name)).collect()
    });
    limits.filter_map(|path| read(&path)?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        group_limit(&|path| files.get(path.to_str()?).map(|text| (*text).to_owned()))
    }

    #[test]
    fn lowest_group_limit_counts() {
        let of_process = ("/proc/self/cgroup", "0::/a/b\n");
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[of_process]), None);
        let (b, a) = ("/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max");
        assert_eq!(limit(&[of_process, (b, "max\n")]), None);
        assert_eq!(limit(&[of_process, (b, "max\n"), (a, "7000\n")]), Some(7_000));
        assert_eq!(limit(&[of_process, (b, "500\n"), (a, "7000\n")]), Some(500));
        // In a container the path is the host's, and the container's own limit is at the root.
        let top = "/sys/fs/cgroup/memory.max";
        assert_eq!(limit(&[of_process, (top, "9000\n")]), Some(9_000));
        let first = ("/proc/self/cgroup", "5:cpu:/x\n4:memory:/x\n");
        let of_first = "/sys/fs/cgroup/memory/x/memory.limit_in_bytes";
        assert_eq!(limit(&[first, (of_first, "4096\n")]), Some(4_096));
    }

    #[test]
    fn default_memory_limit_is_the_smaller_of_host_and_group() {
        let smaller_of = MemoryLimit::smaller_of;
        let limit = |total, source| Some(MemoryLimit { total, source });
        assert_eq!(smaller_of(None, None), None);
        assert_eq!(smaller_of(Some(100), None), limit(100, Source::Host));
        assert_eq!(smaller_of(Some(100), Some(1 << 62)), limit(100, Source::Host));
        assert_eq!(smaller_of(Some(100), Some(60)), limit(60, Source::Group));
        assert_eq!(smaller_of(None, Some(60)), limit(60, Source::Group));
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:   24 kB\n"), Some(24 * 1_024));
        assert_eq!(total_of("nothing"), None);
        assert_eq!(MemoryLimit::new(Some(9)), limit(9, Source::Options));
    }

    #[test]
    fn default_limit_is_half_the_memory_and_leaves_a_reserve() {
        let mib = |total: u64, source| MemoryLimit { total: total << 20, source };
        let default_mib = |total, partitions| mib(total, Source::Group).bytes(partitions) >> 20;
        assert_eq!(
            [default_mib(4_096, 1), default_mib(4_096, 64), default_mib(128, 1)],
            [2_048, 2_048, 64]
        );
        assert_eq!([default_mib(96, 1), default_mib(1_024, 64), default_mib(64, 1)], [32, 456, 16]);
        assert_eq!(
            mib(64, Source::Options).bytes(64),
            64 << 20,
            "a configured limit is used in full"
        );
    }
}
