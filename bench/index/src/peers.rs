//! The processes of workers: this program, Java and Python as `bench/peers/setup.sh` has prepared
//! them, and the server of the one peer that is not a library.

use std::cell::OnceCell;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use forebay_testkit::child::OwnedChild;
use forebay_testkit::tree;
use tempfile::TempDir;

use crate::node::Node;
use crate::plan::{Process, Runtime, Section};

/// Setting that lets malloc use huge pages, as Forebay's memory does, for workers in any language.
const MALLOC: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
const SETUP: &str = "bench/peers/setup.sh";
/// Number of polls until the server answers, and the pause between them.
const SERVER_LOOKS: u32 = 500;
const SERVER_PAUSE: Duration = Duration::from_millis(10);
/// Heap of a JVM; memory off the heap is additional.
const HEAP: [&str; 2] = ["-Xms3g", "-Xmx6g"];
/// JDK options that Chronicle Map requires, and that the newer JDK requires for access to its
/// internals.
const OPENED: [&str; 12] = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
];

/// Paths of the programs that run workers. Programs of other languages are prepared when the first
/// worker needs them.
#[derive(Debug)]
pub struct Programs {
    rust: PathBuf,
    peers: OnceCell<Result<Peers, String>>,
}

/// Paths that the setup has prepared.
#[derive(Clone, Debug)]
struct Peers {
    folder: PathBuf,
    worker: PathBuf,
    newer_jdk: Option<PathBuf>,
}

impl Programs {
    /// Creates the paths of a run; `rust` is this program.
    #[must_use]
    pub fn new(rust: PathBuf) -> Self {
        Self { rust, peers: OnceCell::new() }
    }

    /// Finds the paths of this process.
    ///
    /// # Errors
    /// Fails if the path of this program is unknown.
    pub fn find() -> Result<Self, String> {
        let rust = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        Ok(Self::new(rust))
    }

    /// Returns the command of a worker.
    ///
    /// # Errors
    /// Fails if the peers cannot be prepared, or there is no JDK of that kind.
    pub fn command(
        &self,
        section: &Section,
        process: &Process,
        scratch: &Scratch,
    ) -> Result<Command, String> {
        let data = &section.data;
        let entries = data.entries.to_string();
        let mut command = match process.runtime {
            Runtime::Rust => {
                let mut command = Command::new(&self.rust);
                command.args(["worker", section.name, process.role]);
                command.arg(entries);
                command
            }
            Runtime::Java25 | Runtime::Java17 => {
                if process.role == "redis" {
                    scratch.start_redis()?;
                }
                let mut command = self.peers()?.java(process.runtime)?;
                let sizes = [data.key_bytes(), data.value_bytes].map(|size| size.to_string());
                command.args([process.role, &entries]).args(sizes).arg(scratch.path());
                command
            }
            Runtime::Python => {
                let peers = self.peers()?;
                let mut command = Command::new(peers.folder.join("venv/bin/python"));
                command.arg(peers.worker.join("python/worker.py")).args([process.role, &entries]);
                command.arg(data.value_bytes.to_string()).arg(scratch.path());
                command.env("FOREBAY_PEERS", &peers.folder).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        };
        command.env(MALLOC.0, MALLOC.1);
        if process.needs_node() {
            scratch.node(section)?.tell(&mut command);
        }
        Ok(command)
    }

    fn peers(&self) -> Result<&Peers, String> {
        self.peers.get_or_init(|| Peers::set_up(&self.rust)).as_ref().map_err(Clone::clone)
    }
}

impl Peers {
    /// Runs the setup, which does nothing if nothing has changed.
    fn set_up(rust: &Path) -> Result<Self, String> {
        let root = tree::root_of(SETUP)?;
        // This program is in cargo's output folder: TARGET/release/index.
        let target = rust.ancestors().nth(2).ok_or("this program is in no target folder")?;
        let folder = target.join("bench-index");
        let mut setup = Command::new("sh");
        setup.arg(root.join(SETUP)).arg(&folder).arg(target).stdout(Stdio::inherit());
        let status = setup.status().map_err(|error| format!("{SETUP}: {error}"))?;
        if !status.success() {
            return Err(format!("{SETUP}: {status}; see its output above"));
        }
        let jdk = fs::read_to_string(folder.join("jdk")).unwrap_or_default();
        let newer_jdk = Some(PathBuf::from(jdk.trim())).filter(|jdk| jdk.is_dir());
        Ok(Self { folder, worker: root.join("bench/peers"), newer_jdk })
    }

    fn java(&self, runtime: Runtime) -> Result<Command, String> {
        let mut command = match (runtime, &self.newer_jdk) {
            (Runtime::Java25, None) => return Err("no JDK 25 is on this machine".to_owned()),
            (Runtime::Java25, Some(jdk)) => {
                let mut command = Command::new(jdk.join("bin/java"));
                command.arg("--sun-misc-unsafe-memory-access=allow");
                command
            }
            _ => Command::new("java"),
        };
        command.args(OPENED).args(HEAP).arg("--enable-native-access=ALL-UNNAMED");
        command.args(["-XX:+UseTransparentHugePages", "-XX:+UseG1GC", "-cp"]);
        command.arg(format!("{}/*", self.folder.join("jars").display()));
        command.arg("io.forebay.bench.peers.Worker");
        Ok(command)
    }
}

/// A folder for one launch, and the servers that may run in it.
pub struct Scratch {
    /// The node is dropped before the folder.
    node: OnceCell<Node>,
    server: OnceCell<OwnedChild>,
    folder: TempDir,
}

impl Scratch {
    /// Creates an empty folder.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn new() -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| format!("make a folder: {error}"))?;
        Ok(Self { node: OnceCell::new(), server: OnceCell::new(), folder })
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the node whose store holds the section's data; the first call starts and fills it.
    fn node(&self, section: &Section) -> Result<&Node, String> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let node = Node::start(self.path(), &section.data)?;
        Ok(self.node.get_or_init(|| node))
    }

    /// Starts Redis on a socket in this folder, and on no port; Redis writes nothing to disk.
    fn start_redis(&self) -> Result<(), String> {
        let socket = self.path().join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).arg("--dir").arg(self.path()).stdout(Stdio::null());
        let server = command.spawn().map_err(|error| format!("start redis-server: {error}"))?;
        let _ = self.server.set(OwnedChild(server));
        for _ in 0..SERVER_LOOKS {
            if socket.exists() {
                return Ok(());
            }
            thread::sleep(SERVER_PAUSE);
        }
        Err("redis-server created no socket".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    #[test]
    fn rust_worker_needs_no_peers() {
        let programs = Programs::new(PathBuf::from("/none/index"));
        let section = &plan::sections()[0];
        let scratch = Scratch::new().unwrap();
        let command = programs.command(section, &section.processes[0], &scratch).unwrap();
        let arguments: Vec<_> =
            command.get_args().map(|argument| argument.to_string_lossy()).collect();
        assert_eq!(arguments, ["worker", "1M x 50 B", "reads", "1000000"]);
        let huge = command.get_envs().any(|(name, _)| name == MALLOC.0);
        assert!(huge && programs.peers.get().is_none());
    }

    #[test]
    fn older_jdk_is_the_java_on_the_path() {
        let folder = PathBuf::from("/peers");
        let peers = Peers { folder: folder.clone(), worker: folder, newer_jdk: None };
        assert!(peers.java(Runtime::Java25).unwrap_err().contains("JDK 25"));
        let command = peers.java(Runtime::Java17).unwrap();
        assert_eq!(command.get_program(), "java");
        assert!(command.get_args().any(|argument| argument == "/peers/jars/*"));
    }
}
