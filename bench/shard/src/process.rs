//! Processes that a benchmark starts: their output with timestamps, and their resources, which are
//! read from `/proc` until they end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::rusage::ProcessUsage;
use forebay_testkit::child::OwnedChild;
use parking_lot::Mutex;

/// Time limit of a process.
const BOUND: Duration = Duration::from_secs(60 * 60);
/// Interval of the polls of a process.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A line of a process's output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputLine {
    /// Seconds since the start of the process.
    pub after: f64,
    /// Text of the line.
    pub line: String,
}

/// The results of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessResult {
    /// Lines of output and errors.
    pub output: Vec<OutputLine>,
    /// Duration of the process, in seconds.
    pub seconds: f64,
    /// Resources that the process took.
    pub usage: ProcessUsage,
}

/// A running process; dropping it kills the process.
pub struct Process {
    name: String,
    child: OwnedChild,
    began: u64,
    lines: Receiver<OutputLine>,
    output: Vec<OutputLine>,
    /// Resources of the process so far, polled until the watch is gone.
    usage: Arc<Mutex<ProcessUsage>>,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = nanos();
        let child = command.spawn().map_err(|error| format!("start {name}: {error}"))?;
        let mut child = OwnedChild(child);
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            listen(output, began, sender.clone());
        }
        if let Some(errors) = child.stderr.take() {
            listen(errors, began, sender);
        }
        let (name, usage) = (name.to_owned(), Arc::default());
        watch(child.id(), &usage);
        Ok(Self { name, child, began, lines, output: Vec::new(), usage })
    }

    /// Waits for a line with this beginning; returns the rest of the line.
    ///
    /// # Errors
    /// Fails if the process ends without the line, or takes too long.
    pub fn hear(&mut self, beginning: &str) -> Result<String, String> {
        loop {
            let Ok(output_line) = self.lines.recv_timeout(BOUND) else {
                return Err(format!("{} did not say `{beginning}`: {:?}", self.name, self.output));
            };
            let found = output_line.line.strip_prefix(beginning).map(str::to_owned);
            self.output.push(output_line);
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Waits until the process has succeeded.
    ///
    /// # Errors
    /// Fails if the process fails, or takes too long.
    pub fn end(mut self) -> Result<ProcessResult, String> {
        for _ in 0..BOUND.as_millis() / LOOK_EVERY.as_millis() {
            look(self.child.id(), &self.usage);
            let wait_result = self.child.try_wait();
            let Some(status) = wait_result.map_err(|error| format!("{}: {error}", self.name))?
            else {
                thread::sleep(LOOK_EVERY);
                continue;
            };
            let seconds = (nanos() - self.began) as f64 / 1e9;
            // The iterator ends with the pipes.
            self.output.extend(self.lines.iter());
            if !status.success() {
                return Err(format!("{} ended with {status}: {:?}", self.name, self.output));
            }
            let usage = *self.usage.lock();
            return Ok(ProcessResult { output: std::mem::take(&mut self.output), seconds, usage });
        }
        Err(format!("{} took over {BOUND:?}", self.name))
    }
}

/// Polls a process again and again, until its `usage` is dropped.
fn watch(process: u32, usage: &Arc<Mutex<ProcessUsage>>) {
    look(process, usage);
    let usage = Arc::downgrade(usage);
    thread::spawn(move || {
        while let Some(usage) = usage.upgrade() {
            look(process, &usage);
            drop(usage);
            thread::sleep(LOOK_EVERY);
        }
    });
}

/// Updates the resources of a process; a process that is gone keeps those of the last poll.
fn look(process: u32, usage: &Mutex<ProcessUsage>) {
    if let Ok(looked) = ProcessUsage::by(process) {
        let mut usage = usage.lock();
        let memory_bytes = usage.memory_bytes.max(looked.memory_bytes);
        *usage = ProcessUsage { memory_bytes, ..looked };
    }
}

fn listen(from: impl Read + Send + 'static, began: u64, to: Sender<OutputLine>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let after = (nanos() - began) as f64 / 1e9;
            if to.send(OutputLine { after, line }).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn process_reports_its_lines_and_usage() {
        let script = "echo at 7; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo no >&2";
        let mut process = shell(script);
        assert_eq!(process.hear("at ").unwrap(), "7");
        let ran = process.end().unwrap();
        // Two threads listen, so the order of the two lines is unknown.
        let mut lines: Vec<_> =
            ran.output.iter().map(|output_line| output_line.line.as_str()).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["at 7", "no"]);
        assert!(ran.usage.cpu_seconds > 0.0 && ran.usage.memory_bytes > 0.0, "{ran:?}");
        assert!(ran.output.iter().all(|output| output.after > 0.0) && ran.seconds > 0.0, "{ran:?}");
    }

    #[test]
    fn failed_process_reports_its_errors() {
        assert!(shell("echo broken; exit 3").end().unwrap_err().contains("broken"));
        assert!(shell("exit 0").hear("ready").unwrap_err().contains("did not say"));
    }
}
