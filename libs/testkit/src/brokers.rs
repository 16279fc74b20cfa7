//! Real Kafka brokers on loopback for tests: started from the settings in `infra/kafka`, killed,
//! stopped and restarted one by one, and gone when the test process is, however it ends.
//!
//! Brokers may live in a static, which Rust never drops, and a test process may be killed. So a
//! guard process holds the other end of a pipe, is told which brokers run, and when the pipe closes
//! it kills them and removes their folder.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::tree;

/// The folder of templates.
const TEMPLATES: &str = "infra/kafka";
/// What a Bazel target declares: Kafka's jars, as paths in its tree.
const DECLARED_JARS: &str = "FOREBAY_KAFKA_JARS";
/// Where set-up puts Kafka's jars, inside cargo's target directory.
const JARS: &str = "kafka";
/// A broker prints it when it serves.
const READY: &str = "Kafka Server started";
/// Bound of a start; three brokers on a busy machine take some 20 s.
const START_WAIT: Duration = Duration::from_secs(180);
/// Bound of an orderly stop; a broker that lost its quorum never ends by itself.
const STOP_WAIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// Ports are taken below those that outgoing connections get, so that a broker that is started
/// again finds its own free.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const PORT_TRIES_MAX: usize = 200;
const LOG_LINES_SHOWN: usize = 30;
/// Serial collection and the first compiler alone start fastest; out of memory, a broker must die
/// instead of hanging.
const JAVA: [&str; 5] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+ExitOnOutOfMemoryError",
];
/// Each line names the brokers that run now; at the end of input they are killed.
const GUARD: &str = "trap '' HUP INT TERM
now=
while read -r line; do now=$line; done
[ -z \"$now\" ] || kill -KILL $now
rm -rf -- \"$1\"";

/// What these methods answer; the text says what to do next.
pub type Result<T> = std::result::Result<T, String>;

/// One broker, or three in three zones with a quorum of two. Nodes are counted from 1. All methods
/// block; dropping kills every broker.
pub struct Brokers {
    nodes: Vec<Node>,
    guard: Mutex<Guard>,
    java: Java,
    /// Removed last.
    _folder: TempDir,
}

/// How to start Kafka's programs.
struct Java {
    templates: PathBuf,
    class_path: String,
}

struct Node {
    number: usize,
    address: String,
    folder: PathBuf,
    /// `None` while it is down.
    broker: Mutex<Option<Child>>,
}

impl Brokers {
    /// Starts one broker or three, and waits until all of them serve. One takes some 5 s.
    ///
    /// # Errors
    /// Another count, no jars (`make setup` fetches them), no Java, or a broker that does not
    /// start; its last words are in the text.
    pub fn start(count: usize) -> Result<Self> {
        Self::start_with(count, &[])
    }

    /// As [`Brokers::start`], with settings that override those of `infra/kafka`.
    ///
    /// # Errors
    /// As [`Brokers::start`].
    pub fn start_with(count: usize, overrides: &[(&str, &str)]) -> Result<Self> {
        let java = Java::find()?;
        let folder = tempfile::Builder::new()
            .prefix("forebay-brokers-")
            .tempdir()
            .map_err(|error| format!("make a folder for brokers: {error}"))?;
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

    /// Every broker's address, joined by commas, as Kafka clients want it.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| node.address.as_str()).collect();
        addresses.join(",")
    }

    /// Kills a broker as `kill -9` does. Killing one that is down changes nothing.
    ///
    /// # Errors
    /// There is no such node.
    pub fn kill(&self, number: usize) -> Result<()> {
        let node = self.node(number)?;
        let mut broker = node.broker();
        let Some(mut child) = broker.take() else { return Ok(()) };
        drop(broker);
        // The guard first: once the broker is waited for, its id may be somebody else's.
        self.tell_guard()?;
        child.kill().map_err(|error| format!("kill broker {number}: {error}"))?;
        child.wait().map_err(|error| format!("wait for broker {number}: {error}"))?;
        Ok(())
    }

    /// Stops a broker by SIGTERM, and kills it when it has not ended after 20 s. Stopping one that
    /// is down changes nothing.
    ///
    /// # Errors
    /// There is no such node.
    pub fn stop(&self, number: usize) -> Result<()> {
        let node = self.node(number)?;
        if let Some(child) = &mut *node.broker() {
            let id = child.id().to_string();
            let sent = Command::new("kill").args(["-TERM", &id]).stderr(Stdio::null()).status();
            sent.map_err(|error| format!("send SIGTERM to broker {number}: {error}"))?;
            wait(STOP_WAIT, || ended(child))?;
        }
        self.kill(number)
    }

    /// Starts a broker again on its own data and port, and waits until it serves. One that still
    /// runs is killed first.
    ///
    /// # Errors
    /// There is no such node, or it does not start.
    pub fn restart(&self, number: usize) -> Result<()> {
        self.kill(number)?;
        let node = self.node(number)?;
        let before = node.log().matches(READY).count();
        self.spawn(node)?;
        node.await_ready(before)
    }

    /// What a broker has logged so far.
    ///
    /// # Errors
    /// There is no such node.
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
            let status = wait(START_WAIT, || ended(&mut child))?;
            if status.is_none_or(|status| !status.success()) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(node.failed("could not be formatted"));
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
    /// Finds the settings, and Kafka's jars: those that are declared, or those that set-up fetched.
    fn find() -> Result<Self> {
        let class_path = match env::var(DECLARED_JARS) {
            Ok(jars) => joined(&tree::declared_paths(&jars)?),
            Err(_) => jars_of_cargo()?.join("*").display().to_string(),
        };
        Ok(Self { templates: tree::find(TEMPLATES)?, class_path })
    }

    /// A program of Kafka's, which logs into the node's folder.
    fn command(&self, class: &str, node: &Node) -> Result<Command> {
        let path = node.log_path();
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|error| format!("open {}: {error}", path.display()))?;
        let twin = log.try_clone().map_err(|error| format!("open {}: {error}", path.display()))?;
        let logging = self.templates.join("log4j2.properties");
        let mut command = Command::new("java");
        command.args(JAVA);
        command.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
        command.arg("-cp").arg(&self.class_path).arg(class);
        command.current_dir(&node.folder).stdin(Stdio::null()).stdout(log).stderr(twin);
        Ok(command)
    }
}

fn joined(jars: &[PathBuf]) -> String {
    let jars: Vec<String> = jars.iter().map(|jar| jar.display().to_string()).collect();
    jars.join(":")
}

/// The folder of jars in the target directory that this test was built in.
fn jars_of_cargo() -> Result<PathBuf> {
    if tree::is_bazel_test() {
        return Err(format!("this test declares no jars of Kafka's in {DECLARED_JARS}"));
    }
    let test = env::current_exe().map_err(|error| format!("find this test: {error}"))?;
    let targets = test.ancestors().skip(1).map(Path::to_path_buf).chain(tree::find("target").ok());
    let mut folders = targets.map(|target| target.join(JARS));
    let found = folders.find(|folder| holds_jars(folder));
    found.ok_or_else(|| "Kafka's jars are not in target/kafka; run: make setup".to_owned())
}

fn holds_jars(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| name.starts_with("kafka_") && name.ends_with(".jar"))
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
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log tells of one more start than `before`.
    fn await_ready(&self, before: usize) -> Result<()> {
        let ready = wait(START_WAIT, || {
            if self.log().matches(READY).count() > before {
                return Ok(Some(()));
            }
            match &mut *self.broker() {
                Some(child) => match ended(child)? {
                    Some(status) => Err(self.failed(&format!("ended at its start ({status})"))),
                    None => Ok(None),
                },
                None => Err(self.failed("was killed while it was waited for")),
            }
        })?;
        ready.ok_or_else(|| self.failed("did not get ready"))
    }

    fn failed(&self, how: &str) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
        format!("broker {} {how}; it logged last:\n{last}", self.number)
    }
}

/// The process that outlives ours by a moment.
struct Guard {
    child: Child,
    /// Closed to let the guard do its work.
    input: Option<ChildStdin>,
}

impl Guard {
    fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "forebay-brokers-guard"]).arg(folder).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: what ends our group must not end the guard before us.
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|error| format!("start the guard of brokers: {error}"))?;
        Ok(Self { input: child.stdin.take(), child })
    }

    fn tell(&mut self, ids: &str) -> Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let told = input.write_all(format!("{ids}\n").as_bytes());
        told.map_err(|error| format!("tell the guard of brokers: {error}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Makes a folder with its settings for each node.
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
        let written =
            fs::create_dir(&node.folder).and_then(|()| fs::write(node.settings(), settings));
        written.map_err(|error| format!("write {}: {error}", node.settings().display()))?;
        nodes.push(node);
    }
    Ok(nodes)
}

/// Ports that nobody listens on now. Another process may take one before the broker does; the
/// range is large, so that this is rare, and the start then fails with the broker's own words.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let mut held: Vec<(u16, TcpListener)> = Vec::new();
    for _ in 0..PORT_TRIES_MAX {
        if held.len() == count {
            break;
        }
        let random = u64::from_str_radix(&random_hex()?[..8], 16)
            .map_err(|error| format!("read a random number: {error}"))?;
        let port = PORTS.start + (random % PORTS.len() as u64) as u16;
        held.extend(TcpListener::bind(("127.0.0.1", port)).ok().map(|listener| (port, listener)));
    }
    if held.len() < count {
        return Err(format!("no {count} free ports from {} to {}", PORTS.start, PORTS.end));
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

/// 16 random bytes the way Kafka writes them: 22 characters of base64. The last one carries only
/// two bits, and hexadecimal digits are base64 too.
fn cluster_id() -> Result<String> {
    Ok(format!("{}A", &random_hex()?[..21]))
}

/// 32 hexadecimal digits from the kernel: nothing here is ever replayed.
fn random_hex() -> Result<String> {
    const SOURCE: &str = "/proc/sys/kernel/random/uuid";
    let id = fs::read_to_string(SOURCE).map_err(|error| format!("read {SOURCE}: {error}"))?;
    Ok(id.chars().filter(char::is_ascii_hexdigit).collect())
}

fn ended(child: &mut Child) -> Result<Option<ExitStatus>> {
    child.try_wait().map_err(|error| format!("wait for a broker: {error}"))
}

/// Looks until there is something to see; `None` when the bound is reached first.
fn wait<T>(bound: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    for _ in 0..bound.as_millis() / LOOK.as_millis() {
        if let Some(seen) = look()? {
            return Ok(Some(seen));
        }
        thread::sleep(LOOK);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_kills_what_it_was_told_last_and_removes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut told, mut untold) = (sleeper(), sleeper());
        let mut guard = Guard::start(folder.path()).unwrap();
        guard.tell(&format!("{} {}", told.id(), untold.id())).unwrap();
        guard.tell(&told.id().to_string()).unwrap();
        drop(guard);
        assert!(!told.wait().unwrap().success());
        assert!(untold.try_wait().unwrap().is_none());
        untold.kill().unwrap();
        untold.wait().unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn other_counts_are_refused() {
        let problem = lay_out(2, Path::new("nowhere"), Path::new("nowhere"), &[]).err().unwrap();
        assert!(problem.contains("1 or 3"), "{problem}");
    }
}
