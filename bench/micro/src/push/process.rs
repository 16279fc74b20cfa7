//! The processes of the push benchmark that are neither its own nor the node: the reader, and the
//! commands that push a version and drop one.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use forebay_testkit::child::OwnedChild;
use forebay_testkit::tree;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::memory::copies;
use super::reads::{READ, ReaderLine, Stretch};
use crate::Failure;

/// Time limit of one step, after which the benchmark fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// Interval of polls.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Suffix of the name by which a version links the file of its donor.
const DONOR_LINK_SUFFIX: &str = ".borrowed";

/// Runs a command of `forebayd` to its end; returns its output.
///
/// # Errors
/// Fails if the command fails, or takes too long.
pub(super) async fn forebayd(arguments: &[&str]) -> Result<String, Failure> {
    let program = tree::built("forebayd")?;
    let command = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("start {}: {error}", program.display()))?;
    let mut child = OwnedChild(command);
    let wait = async {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok::<_, Failure>(status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let status = tokio::time::timeout(PATIENCE, wait).await??;
    let mut printed = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut printed)?;
    }
    if status.success() { Ok(printed) } else { Err(format!("{arguments:?}: {status}").into()) }
}

/// The reader process; killed on drop.
pub(super) struct ReaderProcess {
    child: OwnedChild,
    stdin: ChildStdin,
    receiver: UnboundedReceiver<ReaderLine>,
}

impl ReaderProcess {
    /// Starts the process and waits until its reader answers.
    pub(super) async fn start(program: &Path, arguments: &[&str]) -> Result<Self, Failure> {
        let child = Command::new(program)
            .arg(READ)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {}: {error}", program.display()))?;
        let mut child = OwnedChild(child);
        let stdout = child.stdout.take().ok_or("the reader has no standard output")?;
        let stdin = child.stdin.take().ok_or("the reader has no standard input")?;
        let (sender, receiver) = unbounded_channel();
        // The task ends with the reader.
        tokio::task::spawn_blocking(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if ReaderLine::of(&line).is_none_or(|reader_line| sender.send(reader_line).is_err())
                {
                    return;
                }
            }
        });
        let mut reader = Self { child, stdin, receiver };
        match reader.hear().await? {
            ReaderLine::Ready => Ok(reader),
            other => Err(format!("the reader printed {other:?} before it was ready").into()),
        }
    }

    /// Returns the id of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    async fn hear(&mut self) -> Result<ReaderLine, Failure> {
        let reader_line = tokio::time::timeout(PATIENCE, self.receiver.recv()).await;
        let reader_line = reader_line.map_err(|_| "the reader printed nothing")?;
        Ok(reader_line.ok_or("the reader has ended")?)
    }

    fn ask(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.stdin, "{line}").map_err(|error| format!("ask the reader: {error}").into())
    }

    /// Announces the next version to the reader.
    pub(super) fn expect(&mut self, version: u64) -> Result<(), Failure> {
        self.ask(&format!("version {version}"))
    }

    /// Waits until the announced version answers; returns the time of its first answer.
    pub(super) async fn flip(&mut self) -> Result<u64, Failure> {
        match self.hear().await? {
            ReaderLine::Flip(nanos) => Ok(nanos),
            other => Err(format!("the reader printed {other:?} before the version arrived").into()),
        }
    }

    /// Returns the reads around that moment.
    pub(super) async fn around(&mut self) -> Result<Stretch, Failure> {
        match self.hear().await? {
            ReaderLine::Around(stretch) => Ok(stretch),
            other => Err(format!("the reader printed {other:?} instead of its read times").into()),
        }
    }

    /// Returns the reads since the last query.
    pub(super) async fn stretch(&mut self) -> Result<Stretch, Failure> {
        self.ask("stretch")?;
        match self.hear().await? {
            ReaderLine::Since(stretch) => Ok(stretch),
            other => Err(format!("the reader printed {other:?} instead of its read times").into()),
        }
    }

    /// Waits until the reader has a copy of each partition, and none that uses another version's
    /// memory.
    pub(super) async fn stands_alone(&self, partitions: usize) -> Result<(), Failure> {
        let is_alone = || {
            let copies = copies(self.id())?;
            let shares_records = copies.iter().any(|name| name.ends_with(DONOR_LINK_SUFFIX));
            Ok::<_, String>(copies.len() == partitions && !shares_records)
        };
        let wait = async {
            while !is_alone()? {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Ok::<_, String>(())
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(is_alone) => Ok(is_alone?),
            Err(_) => Err(format!("the reader keeps {:?}", copies(self.id())).into()),
        }
    }
}
