//! The machine and the noise of a run: a number without its machine and its noise is hearsay. The
//! values come from /proc; an unreadable value is reported as unknown, never guessed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn here() -> Self {
        let memory_kib = field("/proc/meminfo", "MemTotal").and_then(|line| first_number(&line));
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
        }
    }
}

/// The noise of the machine during a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Load average over a minute before the run.
    pub load_before: f64,
    /// Load average over a minute after the run.
    pub load_after: f64,
    /// Percentage of processor time during the run that the host gave to others.
    pub stolen_percent: f64,
    /// Spread of the widest row: distance of its quartiles as a share of its median.
    pub spread_worst: f64,
}

/// Watches the noise from the start of a run to its end.
#[derive(Clone, Copy, Debug)]
pub struct NoiseWatch {
    load: f64,
    ticks: Ticks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl NoiseWatch {
    /// Starts to watch.
    #[must_use]
    pub fn start() -> Self {
        Self { load: load(), ticks: ticks(&read("/proc/stat")) }
    }

    /// Returns the noise since the start.
    #[must_use]
    pub fn stop(&self, spread_worst: f64) -> Noise {
        let now = ticks(&read("/proc/stat"));
        let all = now.all.saturating_sub(self.ticks.all).max(1);
        let stolen_ticks = now.stolen.saturating_sub(self.ticks.stolen);
        let stolen_percent = 100.0 * stolen_ticks as f64 / all as f64;
        Noise { load_before: self.load, load_after: load(), stolen_percent, spread_worst }
    }
}

/// Returns the commit of the tree, with `+changes` if the tree differs from it.
#[must_use]
pub fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return unknown() };
    let changed = git(&["status", "--porcelain"]).is_none_or(|changes| !changes.is_empty());
    if changed { format!("{commit}+changes") } else { commit }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn load() -> f64 {
    let text = read("/proc/loadavg");
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(-1.0)
}

/// Returns the text after the first `name :` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Parses the first line of /proc/stat: user nice system idle iowait irq softirq steal guest
/// guest_nice. Guest time is part of user time, so only the first eight are summed.
fn ticks(stat: &str) -> Ticks {
    let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    Ticks { all: numbers.iter().sum(), stolen: numbers.get(7).copied().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_description_is_complete() {
        let machine = Machine::here();
        assert!(machine.cores >= 1);
        assert!(machine.memory_bytes > 1 << 20, "{machine:?}");
        assert_ne!(machine.kernel, "unknown");
    }

    #[test]
    fn stolen_time_is_the_eighth_cpu_field() {
        let ticks = ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 100\n");
        assert_eq!(ticks, Ticks { all: 36, stolen: 8 });
        assert_eq!(super::ticks(""), Ticks::default());
    }

    #[test]
    fn noise_is_never_negative() {
        let noise = NoiseWatch::start().stop(0.25);
        assert!(noise.stolen_percent >= 0.0 && noise.load_before >= 0.0);
        assert_eq!(noise.spread_worst, 0.25);
    }

    #[test]
    fn folder_outside_a_repository_has_no_commit() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(commit(folder.path()), "unknown");
    }
}
