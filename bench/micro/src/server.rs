//! A real `forebayd dev`, or a writer on Kafka, in a separate process, with its own data directory.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use forebay_testkit::child::OwnedChild;
use forebay_testkit::tree;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time limit of a server's shutdown, which flushes its shards.
const END_BOUND: Duration = Duration::from_secs(120);

/// The log of a server's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log<'a> {
    /// The embedded log, synced before each acknowledgement.
    Fsync,
    /// The embedded log, not synced.
    Buffered,
    /// Kafka, at these bootstrap servers.
    Kafka(&'a str),
}

/// A running server; dropping it kills the process and removes its data.
pub struct Server {
    child: OwnedChild,
    /// Output of the server, kept open so that it can always write.
    _stdout: BufReader<ChildStdout>,
    address: String,
    data: TempDir,
}

impl Server {
    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// Fails if there is no `forebayd` next to this program (`make bench-NAME` builds it), or the
    /// server does not start.
    pub fn start(log: Log<'_>) -> Result<Self, String> {
        Self::start_on(scratch()?, log)
    }

    /// Starts a server on a directory that may contain data already.
    ///
    /// # Errors
    /// Errors of [`Server::start`].
    pub fn start_on(data: TempDir, log: Log<'_>) -> Result<Self, String> {
        Self::start_with(data, log, &[])
    }

    /// Starts a server with more settings.
    ///
    /// # Errors
    /// Errors of [`Server::start`].
    pub fn start_with(data: TempDir, log: Log<'_>, settings: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(tree::built("forebayd")?);
        command.args(["dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data.path());
        command.args(settings);
        match log {
            Log::Fsync => command.args(["--durability", "fsync"]),
            Log::Buffered => command.args(["--durability", "buffered"]),
            Log::Kafka(brokers) => command.args(["--change-log", "kafka", "--brokers", brokers]),
        };
        Self::spawn("forebayd", command, data)
    }

    /// Starts a writer alone, on Kafka as in production, or with topics of one replica.
    ///
    /// # Errors
    /// Errors of [`Server::start`].
    pub fn start_writer(brokers: &str, has_one_replica: bool) -> Result<Self, String> {
        let mut command = Command::new(tree::built("forebay-writer")?);
        command.args(["--listen", "127.0.0.1:0", "--brokers", brokers]);
        if has_one_replica {
            command.arg("--dev");
        }
        Self::spawn("forebay-writer", command, scratch()?)
    }

    fn spawn(name: &str, mut command: Command, data: TempDir) -> Result<Self, String> {
        command.env("FOREBAY_LOG_FILTER", "warn").stdin(Stdio::null()).stdout(Stdio::piped());
        let error_text = |error| format!("start {name}: {error}");
        let mut child = OwnedChild(command.spawn().map_err(error_text)?);
        let stdout = child.stdout.take().ok_or_else(|| format!("{name} has no standard output"))?;
        let mut stdout = BufReader::new(stdout);
        let mut greeting = String::new();
        let read = stdout.read_line(&mut greeting);
        match greeting.trim().strip_prefix(&format!("{name} ready http://")) {
            Some(address) if read.is_ok() => {
                let address = address.to_owned();
                Ok(Self { child, _stdout: stdout, address, data })
            }
            _ => Err(format!("{name} did not get ready; it printed {greeting:?}")),
        }
    }

    /// Shuts the server down, without a kill; its data remains.
    ///
    /// # Errors
    /// Fails if the server does not end.
    pub fn stop(self) -> Result<TempDir, String> {
        let Self { mut child, _stdout, data, .. } = self;
        let id = Pid::from_child(&child);
        kill_process(id, Signal::TERM).map_err(|error| format!("end forebayd: {error}"))?;
        for _ in 0..END_BOUND.as_millis() / 10 {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return Ok(data);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("forebayd did not end in {END_BOUND:?}"))
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the server's data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.path()
    }
}

/// Creates a folder on the disk that the tree was built on: a temporary folder may be in memory,
/// where a sync costs nothing. Under Bazel the folder is in the folder that a test may write to.
///
/// # Errors
/// Fails if the folder cannot be created.
pub fn scratch() -> Result<TempDir, String> {
    let own_program = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let built_in = own_program.parent().unwrap_or(Path::new("."));
    let disk = env::var_os("TEST_TMPDIR").map_or_else(|| built_in.to_owned(), PathBuf::from);
    let folder_result = tempfile::Builder::new().prefix("bench-").tempdir_in(disk);
    folder_result.map_err(|error| format!("make a folder for data: {error}"))
}

/// Copies a folder of plain files and folders to a new folder next to it.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub fn copy_of(folder: &Path) -> Result<TempDir, String> {
    let copy = scratch()?;
    let error_text = |error| format!("copy {}: {error}", folder.display());
    copy_into(folder, copy.path()).map_err(error_text)?;
    Ok(copy)
}

fn copy_into(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy_into(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
