//! Memory of a process, as the kernel counts it.

use std::fs;

/// Resident bytes of this process, and how many of them are in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// All resident bytes.
    pub bytes: u64,
    /// Bytes in anonymous huge pages, or huge pages of shared memory or of a file.
    pub huge_bytes: u64,
}

impl Resident {
    /// Reads the current values of this process.
    ///
    /// # Errors
    /// Fails if the kernel does not report them.
    pub fn now() -> Result<Self, String> {
        let text = fs::read_to_string("/proc/self/smaps_rollup");
        text.map(|text| Self::read(&text)).map_err(|error| format!("smaps_rollup: {error}"))
    }

    fn read(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        let names = ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"];
        let huge_bytes = names.into_iter().map(field).sum();
        Self { bytes: field("Rss:"), huge_bytes }
    }
}

/// Drops the page cache and compacts free memory, so that launches start alike, whatever was read
/// before them. Only root may do this; for other users the function has no effect.
pub fn clear_memory() {
    for file in ["drop_caches", "compact_memory"] {
        // Best effort: the share of memory in huge pages is printed next to the rows.
        drop(fs::write(format!("/proc/sys/vm/{file}"), "1"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_parsed_from_smaps_rollup() {
        let text = "0-1 ---p [rollup]\nRss:  12 kB\nPss: 3 kB\nAnonHugePages:   4 kB\n";
        assert_eq!(Resident::read(text), Resident { bytes: 12 * 1024, huge_bytes: 4 * 1024 });
        assert!(Resident::now().unwrap().bytes > 0);
    }
}
