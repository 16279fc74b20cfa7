//! `forebayd shard copy` as a process, and its progress.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::daemon::{Daemon, FOREBAYD, LONG};

/// Starts a `forebayd dev` whose log does not sync.
pub fn start(data: &Path, listen: &str) -> Daemon {
    let data = data.to_str().unwrap();
    Daemon::start(&["--data-dir", data, "--durability", "buffered"], listen)
}

/// A running `forebayd shard copy`; killed when the test ends.
pub struct CopyProcess(Child);

impl CopyProcess {
    /// Starts to copy the only partition of a store, with additional arguments.
    pub fn start(source_address: &str, store: &str, data: &Path, arguments: &[&str]) -> Self {
        let command = [
            &["shard", "copy", "--from", source_address, "--store", store, "--partition", "0"][..],
            &["--data-dir", data.to_str().unwrap()],
            arguments,
        ];
        let child = Command::new(FOREBAYD)
            .args(command.concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Returns the final report: the number of rows or files, their bytes, and the bytes received
    /// by this process.
    pub fn await_report(mut self) -> (u64, u64, u64) {
        let mut output = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(self.0.wait().unwrap().success(), "{output}");
        let numbers = output.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.take(3).collect();
        (numbers[0], numbers[1], numbers[2])
    }

    /// Returns the peak memory in KiB; `None` once the process has ended.
    pub fn peak_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        kib(peak)
    }

    /// Returns the memory in KiB that pages of the program's file and of a loaded RocksDB library
    /// take now.
    pub fn code_kib(&self) -> u64 {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", self.0.id()));
        let (mut sum, mut is_code) = (0, false);
        for line in maps.unwrap_or_default().lines() {
            match line.strip_prefix("Rss:") {
                Some(rss) if is_code => sum += kib(rss).unwrap_or(0),
                Some(_) => {}
                // A line about a mapping starts with its addresses and ends with its file.
                None if !line.split(' ').next().is_some_and(|word| word.ends_with(':')) => {
                    is_code = line.contains("/librocksdb") || line.ends_with("/forebayd");
                }
                None => {}
            }
        }
        sum
    }
}

/// Reads a number of KiB as the kernel writes it.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix(" kB")?.parse().ok()
}

impl Drop for CopyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn files_in(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path())
}

/// Returns the bytes of the table files of copies in progress, or of finished shards, in a folder.
pub fn table_bytes(data: &Path, kind: &str) -> u64 {
    let kind = format!("/{kind}-");
    let folders =
        files_in(&data.join("shards")).filter(|path| path.to_string_lossy().contains(&kind));
    let tables =
        folders.flat_map(|folder| files_in(&folder).chain(files_in(&folder.join("shard"))));
    let tables = tables.filter(|file| file.extension().is_some_and(|it| it == "sst"));
    tables.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Waits until a copy has this many bytes of table files.
pub async fn await_bytes(data: &Path, bytes: u64) {
    let wait = async {
        while table_bytes(data, "copy") < bytes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let result = tokio::time::timeout(LONG, wait).await;
    assert!(result.is_ok(), "{} bytes of {bytes}", table_bytes(data, "copy"));
}
