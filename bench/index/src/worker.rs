//! The driver's side of a worker: a process that holds data and answers orders.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::serve::WorkerDescription;

/// Time limit of a worker's load.
const LOAD_BOUND: Duration = Duration::from_secs(40 * 60);
/// Time limit of one order.
const ORDER_BOUND: Duration = Duration::from_secs(10 * 60);
/// Time limit of a worker's end.
const END_BOUND: Duration = Duration::from_secs(5);

/// A worker that is ready; killed when it is dropped.
pub struct Worker {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Description of the worker's data.
    pub about: WorkerDescription,
}

impl Worker {
    /// Starts a worker and waits until it has loaded its data.
    ///
    /// # Errors
    /// Fails if the worker cannot be started, ends, or is not ready in time.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, String> {
        Self::spawn(name, command)?.into_ready()
    }

    /// Starts a worker that has yet to load its data.
    ///
    /// # Errors
    /// Fails if the worker cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {name}: {error}"))?;
        let (orders, lines) = (child.stdin.take(), child.stdout.take());
        let (sender, answers) = channel();
        let name = name.to_owned();
        let worker = Self { name, child, orders, answers, about: WorkerDescription::new() };
        let Some(lines) = lines else { return Err(format!("{} has no output", worker.name)) };
        // The thread ends with the pipe.
        thread::spawn(move || {
            let lines = BufReader::new(lines).lines().map_while(Result::ok);
            lines.take_while(|line| sender.send(line.clone()).is_ok()).count();
        });
        Ok(worker)
    }

    /// Waits until the worker has loaded its data.
    ///
    /// # Errors
    /// Fails if the worker ends, or is not ready in time.
    pub fn into_ready(mut self) -> Result<Self, String> {
        self.about = self.answer("ready ", LOAD_BOUND)?;
        Ok(self)
    }

    /// Runs one order once.
    ///
    /// # Errors
    /// Fails if the order fails, the worker ends, or the order takes too long.
    pub fn run(&mut self, order: &str) -> Result<WorkerDescription, String> {
        let line = format!("run {order}\n");
        let orders = self.orders.as_mut();
        let sent =
            orders.map(|orders| orders.write_all(line.as_bytes()).and_then(|()| orders.flush()));
        match sent {
            Some(Ok(())) => self.answer("done ", ORDER_BOUND),
            _ => Err(format!("{} has ended", self.name)),
        }
    }

    /// Kills the worker in any state.
    ///
    /// # Errors
    /// Fails if the worker cannot be killed.
    pub fn kill(mut self) -> Result<(), String> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(|_| ()).map_err(|error| format!("kill {}: {error}", self.name))
    }

    /// Returns the next answer; lines of other kinds are the libraries' own output.
    fn answer(&mut self, kind: &str, bound: Duration) -> Result<WorkerDescription, String> {
        loop {
            let line = self.answers.recv_timeout(bound).map_err(|error| match error {
                RecvTimeoutError::Timeout => format!("{} took over {bound:?}", self.name),
                RecvTimeoutError::Disconnected => format!("{} has ended", self.name),
            })?;
            if let Some(values) = line.strip_prefix(kind) {
                let problem = |error| format!("{} printed '{line}': {error}", self.name);
                return serde_json::from_str(values).map_err(problem);
            }
            if let Some(problem) = line.strip_prefix("failed ") {
                return Err(format!("{}: {problem}", self.name));
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(mut orders) = self.orders.take() {
            let _ = orders.write_all(b"quit\n");
        }
        for _ in 0..END_BOUND.as_millis() / 10 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Worker, String> {
        Worker::start("sh", Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn runner_ignores_other_output_of_a_worker() {
        let script = "echo hello; echo 'ready {\"entries\":3}'; read order; echo warning; \
                      echo 'done {\"get\":7}'; read order; echo 'failed no hit'";
        let mut worker = shell(script).unwrap();
        assert_eq!(worker.about["entries"], 3.0);
        assert_eq!(worker.run("get").unwrap()["get"], 7.0);
        assert_eq!(worker.run("get").unwrap_err(), "sh: no hit");
        assert!(worker.run("get").unwrap_err().contains("has ended"));
    }

    #[test]
    fn kill_ends_a_busy_worker() {
        let worker = shell("echo 'ready {}'; read order; sleep 1000").unwrap();
        worker.kill().unwrap();
    }

    #[test]
    fn worker_that_dies_while_loading_is_an_error() {
        assert!(shell("exit 3").err().unwrap().contains("has ended"));
    }
}
