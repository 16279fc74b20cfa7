//! Real Kafka brokers on loopback for tests. The settings are in `infra/kafka`. A test starts,
//! kills, stops and restarts brokers one by one; a guard removes them when the test process ends,
//! in whatever way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::processes::{self, Guard, exit_status, free_ports, random_hex, retry_taken_ports, wait};
use crate::tree;

pub use crate::processes::Result;

/// The folder of the settings' templates.
const TEMPLATES: &str = "infra/kafka";
/// Environment variable of a Bazel target: paths of Kafka's jars in its runfiles.
const DECLARED_JARS: &str = "FOREBAY_KAFKA_JARS";
/// Folder of Kafka's jars inside cargo's target directory, filled by set-up.
const JARS: &str = "kafka";
/// Line that a broker logs once it serves.
const READY: &str = "Kafka Server started";
/// Bound of a start; three brokers on a busy machine take about 20 s.
const START_WAIT: Duration = Duration::from_secs(180);

/// A cluster of one broker, or of three in three zones with a quorum of two. All methods block;
/// node numbers start at 1; the drop kills every broker.
pub struct Brokers {
    nodes: Vec<Node>,
    guard: Mutex<Guard>,
    java: Java,
    /// Temporary folder; declared last, so that it is removed last.
    _folder: TempDir,
}

/// The parts of a command line that starts Kafka's programs.
struct Java {
    templates: PathBuf,
    class_path: String,
}

struct Node {
    number: usize,
    address: String,
    folder: PathBuf,
    /// Running broker; `None` while it is down.
    broker: Mutex<Option<Child>>,
}

impl Brokers {
    /// Starts one broker or three, and waits until all of them serve. A single broker takes about 5
    /// s.
    ///
    /// # Errors
    /// Returns an error for another count, without jars (`make setup` fetches them), without Java,
    /// or if a broker does not start; the text includes its last log lines.
    pub fn start(count: usize) -> Result<Self> {
        Self::start_with(count, &[])
    }

    /// Starts brokers as [`Brokers::start`] does, with settings that override those of
    /// `infra/kafka`.
    ///
    /// # Errors
    /// Returns the errors of [`Brokers::start`].
    pub fn start_with(count: usize, overrides: &[(&str, &str)]) -> Result<Self> {
        retry_taken_ports(|| Self::try_start(count, overrides))
    }

    fn try_start(count: usize, overrides: &[(&str, &str)]) -> Result<Self> {
        let java = Java::find()?;
        let folder = processes::folder("brokers")?;
        let nodes = lay_out(count, folder.path(), &java.templates, overrides)?;
        let guard = Mutex::new(Guard::start(folder.path())?);
        let brokers = Self { nodes, guard, java, _folder: folder };
        brokers.format()?;
        for node in &brokers.nodes {
            brokers.spawn(node)?;
        }
        for node in &brokers.nodes {
            node.await_ready(0)?;
        }
        Ok(brokers)
    }

    /// Returns every broker's address, joined by commas, as Kafka clients expect them.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| node.address.as_str()).collect();
        addresses.join(",")
    }

    /// Kills a broker as `kill -9` does. Does nothing to a broker that is down.
    ///
    /// # Errors
    /// Returns an error if there is no such node.
    pub fn kill(&self, number: usize) -> Result<()> {
        let node = self.node(number)?;
        let mut broker = node.broker();
        let Some(mut child) = broker.take() else { return Ok(()) };
        drop(broker);
        // Update the guard first: after the wait, another process may have the broker's id.
        self.tell_guard()?;
        processes::kill(&format!("broker {number}"), &mut child)
    }

    /// Stops a broker by SIGTERM, and kills it if it has not ended after 20 s. Does nothing to a
    /// broker that is down.
    ///
    /// # Errors
    /// Returns an error if there is no such node.
    pub fn stop(&self, number: usize) -> Result<()> {
        let node = self.node(number)?;
        if let Some(child) = &mut *node.broker() {
            processes::ask_to_stop(child)?;
        }
        self.kill(number)
    }

    /// Starts a broker again on its own data and port, and waits until it serves. A running broker
    /// is killed first.
    ///
    /// # Errors
    /// Returns an error if there is no such node, or if the broker does not start.
    pub fn restart(&self, number: usize) -> Result<()> {
        self.kill(number)?;
        let node = self.node(number)?;
        let before = node.log().matches(READY).count();
        self.spawn(node)?;
        node.await_ready(before)
    }

    /// Returns the broker's log so far.
    ///
    /// # Errors
    /// Returns an error if there is no such node.
    pub fn log(&self, number: usize) -> Result<String> {
        Ok(self.node(number)?.log())
    }

    fn node(&self, number: usize) -> Result<&Node> {
        let node = number.checked_sub(1).and_then(|place| self.nodes.get(place));
        node.ok_or_else(|| format!("no broker {number}: they are 1 to {}", self.nodes.len()))
    }

    /// Writes the cluster's id into every node's data folder, in parallel.
    fn format(&self) -> Result<()> {
        let cluster = cluster_id()?;
        let mut formatting = Vec::new();
        for node in &self.nodes {
            let mut command = self.java.command("kafka.tools.StorageTool", node)?;
            command.args(["format", "-t", &cluster, "-c"]).arg(node.settings());
            let child = command.spawn().map_err(|error| format!("start java: {error}"))?;
            formatting.push((node, child));
        }
        for (node, mut child) in formatting {
            let status = wait(START_WAIT, || exit_status(&mut child))?;
            if status.is_none_or(|status| !status.success()) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(node.failure_message("could not be formatted"));
            }
        }
        Ok(())
    }

    fn spawn(&self, node: &Node) -> Result<()> {
        let mut command = self.java.command("kafka.Kafka", node)?;
        let child = command.arg(node.settings()).spawn();
        *node.broker() = Some(child.map_err(|error| format!("start java: {error}"))?);
        self.tell_guard()
    }

    fn tell_guard(&self) -> Result<()> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<String> = self
            .nodes
            .iter()
            .filter_map(|node| node.broker().as_ref().map(|child| child.id().to_string()))
            .collect();
        guard.tell(&ids.join(" "))
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for node in &self.nodes {
            let _ = self.kill(node.number);
        }
    }
}

impl Java {
    /// Finds the settings and Kafka's jars: declared by the target, or fetched by set-up.
    fn find() -> Result<Self> {
        let class_path = processes::class_path(DECLARED_JARS, JARS)?;
        Ok(Self { templates: tree::find(TEMPLATES)?, class_path })
    }

    /// Returns the command of a Kafka program that logs into the node's folder.
    fn command(&self, class: &str, node: &Node) -> Result<Command> {
        let logging = self.templates.join("log4j2.properties");
        let mut command = processes::java(&self.class_path);
        command.arg(format!("-Dlog4j2.configurationFile={}", logging.display())).arg(class);
        command.current_dir(&node.folder);
        processes::log_into(&mut command, &node.log_path())?;
        Ok(command)
    }
}

impl Node {
    fn broker(&self) -> MutexGuard<'_, Option<Child>> {
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("broker.log")
    }

    fn log(&self) -> String {
        processes::log_of(&self.log_path())
    }

    /// Waits until the log contains one more start than `before`.
    fn await_ready(&self, before: usize) -> Result<()> {
        let ready = wait(START_WAIT, || {
            if self.log().matches(READY).count() > before {
                return Ok(Some(()));
            }
            match &mut *self.broker() {
                Some(child) => match exit_status(child)? {
                    Some(status) => {
                        Err(self.failure_message(&format!("ended at its start ({status})")))
                    }
                    None => Ok(None),
                },
                None => Err(self.failure_message("was killed while it was waited for")),
            }
        })?;
        ready.ok_or_else(|| self.failure_message("did not get ready"))
    }

    fn failure_message(&self, failure: &str) -> String {
        processes::failure_message(&format!("broker {}", self.number), failure, &self.log_path())
    }
}

/// Creates a folder with settings for each node.
fn lay_out(
    count: usize,
    folder: &Path,
    templates: &Path,
    overrides: &[(&str, &str)],
) -> Result<Vec<Node>> {
    let kind = match count {
        1 => "one-broker.properties",
        3 => "three-brokers.properties",
        _ => return Err(format!("{count} brokers are not offered; start 1 or 3")),
    };
    let read = |name: &str| {
        let path = templates.join(name);
        fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))
    };
    let template = format!("{}\n{}", read("broker.properties")?, read(kind)?);
    let ports = free_ports(2 * count)?;
    let (ports, controllers) = ports.split_at(count);
    let voter = |(place, port): (usize, &u16)| format!("{}@127.0.0.1:{port}", place + 1);
    let voters: Vec<String> = controllers.iter().enumerate().map(voter).collect();
    let mut nodes = Vec::new();
    for (place, (port, controller)) in ports.iter().zip(controllers).enumerate() {
        let number = place + 1;
        let node = Node {
            number,
            address: format!("127.0.0.1:{port}"),
            folder: folder.join(number.to_string()),
            broker: Mutex::new(None),
        };
        let mut settings = template
            .replace("@NODE@", &number.to_string())
            .replace("@ZONE@", &format!("zone-{number}"))
            .replace("@VOTERS@", &voters.join(","))
            .replace("@PORT@", &port.to_string())
            .replace("@CONTROLLER_PORT@", &controller.to_string())
            .replace("@DATA@", &node.folder.join("data").to_string_lossy());
        for (name, value) in overrides {
            settings.push_str(&format!("{name}={value}\n"));
        }
        let result =
            fs::create_dir(&node.folder).and_then(|()| fs::write(node.settings(), settings));
        result.map_err(|error| format!("write {}: {error}", node.settings().display()))?;
        nodes.push(node);
    }
    Ok(nodes)
}

/// Returns 16 random bytes in Kafka's notation: 22 characters of base64. The last character carries
/// only two bits, and hexadecimal digits are valid base64.
fn cluster_id() -> Result<String> {
    Ok(format!("{}A", &random_hex()?[..21]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_refuses_other_broker_counts() {
        let problem = lay_out(2, Path::new("nowhere"), Path::new("nowhere"), &[]).err().unwrap();
        assert!(problem.contains("1 or 3"), "{problem}");
    }
}
