//! Resources that a process has taken, read from `/proc`.

use std::fs;

use rustix::param::clock_ticks_per_second;

/// The resources that a process has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// Processor seconds.
    pub cpu_seconds: f64,
    /// Most bytes of memory at once.
    pub memory_bytes: f64,
    /// Private bytes at this moment, without files.
    pub own_bytes: f64,
    /// Bytes that were read from disks, and not from the page cache.
    pub disk_bytes: f64,
}

impl ProcessUsage {
    /// Reads the resources of a process that runs, or has ended and was not waited for; the memory
    /// of an ended process is unknown.
    ///
    /// # Errors
    /// Fails if there is no such process.
    pub fn by(process: u32) -> Result<Self, String> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            fs::read_to_string(&path).map_err(|error| format!("read {path}: {error}"))
        };
        let (stat, status, io) = (read("stat")?, read("status")?, read("io")?);
        // The numbers follow the name, which may contain anything: user and system time are numbers
        // 12 and 13.
        let numbers = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks =
            numbers.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
        // Less than a tick is not counted.
        let ticks = ticks.sum::<u64>().max(1);
        let cpu_seconds = ticks as f64 / clock_ticks_per_second() as f64;
        let number = |text: &str, name: &str| {
            let words = text.lines().find_map(|line| line.strip_prefix(name));
            let number = words.and_then(|words| words.split_whitespace().next()?.parse().ok());
            number.unwrap_or(0_u64) as f64
        };
        let kilobytes = |name: &str| number(&status, name) * 1024.0;
        let (memory_bytes, own_bytes) = (kilobytes("VmHWM:"), kilobytes("RssAnon:"));
        Ok(Self { cpu_seconds, memory_bytes, own_bytes, disk_bytes: number(&io, "read_bytes:") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_positive() {
        let usage = ProcessUsage::by(std::process::id()).unwrap();
        assert!(usage.cpu_seconds > 0.0 && usage.own_bytes > 0.0, "{usage:?}");
        assert!(usage.memory_bytes >= usage.own_bytes, "{usage:?}");
        assert!(ProcessUsage::by(u32::MAX).is_err());
    }
}
