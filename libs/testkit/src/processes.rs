//! Server processes that tests start on loopback: their ports, their logs, the waits for them, and
//! the guard that ends them with the test process, however that ends.
//!
//! Servers may live in a static, which Rust never drops, and a test process may be killed. So a
//! guard process holds the other end of a pipe, is told which servers run, and when the pipe closes
//! it kills them and removes their folder.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::tree;

/// What these functions answer; the text says what to do next.
pub type Result<T> = std::result::Result<T, String>;

/// Bound of an orderly stop; a broker that lost its quorum never ends by itself.
const STOP_WAIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// Ports are taken below those that outgoing connections get, so that a server that is started
/// again finds its own free.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const PORT_TRIES_MAX: usize = 200;
const LOG_LINES_SHOWN: usize = 30;
/// Serial collection and the first compiler alone start fastest; out of memory, a server must die
/// instead of hanging.
const JAVA: [&str; 5] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+ExitOnOutOfMemoryError",
];
/// Each line names the servers that run now; at the end of input they are killed.
const GUARD: &str = "trap '' HUP INT TERM
now=
while read -r line; do now=$line; done
[ -z \"$now\" ] || kill -KILL $now
rm -rf -- \"$1\"";

/// The process that outlives ours by a moment.
pub(crate) struct Guard {
    child: Child,
    /// Closed to let the guard do its work.
    input: Option<ChildStdin>,
}

impl Guard {
    /// Guards a folder, and no server yet.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "forebay-servers-guard"]).arg(folder).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: what ends our group must not end the guard before us.
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|error| format!("start the guard of servers: {error}"))?;
        Ok(Self { input: child.stdin.take(), child })
    }

    /// Tells it the ids of all servers that run now. A server goes from its list before it is
    /// waited for: behind that its id may be somebody else's.
    pub(crate) fn tell(&mut self, ids: &str) -> Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let told = input.write_all(format!("{ids}\n").as_bytes());
        told.map_err(|error| format!("tell the guard of servers: {error}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// An empty folder for servers of this name.
pub(crate) fn folder(name: &str) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix(&format!("forebay-{name}-")).tempdir();
    made.map_err(|error| format!("make a folder for {name}: {error}"))
}

/// The class path of a server's jars: those that a Bazel target declares in this variable, or those
/// that set-up fetched into this folder of cargo's target folder.
pub(crate) fn class_path(declared: &str, fetched: &str) -> Result<String> {
    match env::var(declared) {
        Ok(jars) => {
            let jars = tree::declared_paths(&jars)?;
            let jars: Vec<String> = jars.iter().map(|jar| jar.display().to_string()).collect();
            Ok(jars.join(":"))
        }
        Err(_) if tree::is_bazel_test() => Err(format!("this test declares no jars in {declared}")),
        Err(_) => Ok(tree::fetched(fetched)?.join("*").display().to_string()),
    }
}

/// A Java program on this class path.
pub(crate) fn java(class_path: &str) -> Command {
    let mut command = Command::new("java");
    command.args(JAVA).arg("-cp").arg(class_path);
    command
}

/// Lets a program write into a log, behind what is there.
pub(crate) fn log_into(command: &mut Command, path: &Path) -> Result<()> {
    let refused = |error| format!("open {}: {error}", path.display());
    let log = File::options().create(true).append(true).open(path).map_err(refused)?;
    let twin = log.try_clone().map_err(refused)?;
    command.stdin(Stdio::null()).stdout(log).stderr(twin);
    Ok(())
}

/// What a log holds so far.
pub(crate) fn log_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// That a server failed, with the last lines of its log.
pub(crate) fn failed(who: &str, how: &str, log: &Path) -> String {
    let log = log_of(log);
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
    format!("{who} {how}; it logged last:\n{last}")
}

/// Sends a signal to a server.
pub(crate) fn signal(child: &Child, signal: &str) -> Result<()> {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).stderr(Stdio::null()).status();
    sent.map(drop).map_err(|error| format!("send {signal} to a server: {error}"))
}

/// Asks a server to stop, and waits for it no longer than some 20 s.
pub(crate) fn ask_to_stop(child: &mut Child) -> Result<()> {
    signal(child, "-TERM")?;
    wait(STOP_WAIT, || ended(child)).map(drop)
}

/// Kills a server, and waits for its end.
pub(crate) fn kill(who: &str, child: &mut Child) -> Result<()> {
    child.kill().map_err(|error| format!("kill {who}: {error}"))?;
    child.wait().map_err(|error| format!("wait for {who}: {error}"))?;
    Ok(())
}

/// How a server ended, if it did.
pub(crate) fn ended(child: &mut Child) -> Result<Option<ExitStatus>> {
    child.try_wait().map_err(|error| format!("wait for a server: {error}"))
}

/// Looks until there is something to see; `None` when the bound is reached first.
pub(crate) fn wait<T>(
    bound: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    for _ in 0..bound.as_millis() / LOOK.as_millis() {
        if let Some(seen) = look()? {
            return Ok(Some(seen));
        }
        thread::sleep(LOOK);
    }
    Ok(None)
}

/// Ports that nobody listens on now. Another process may take one before the server does; the
/// range is large, so that this is rare, and the start then fails with the server's own words.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
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

/// 32 hexadecimal digits from the kernel: nothing here is ever replayed.
pub(crate) fn random_hex() -> Result<String> {
    const SOURCE: &str = "/proc/sys/kernel/random/uuid";
    let id = fs::read_to_string(SOURCE).map_err(|error| format!("read {SOURCE}: {error}"))?;
    Ok(id.chars().filter(char::is_ascii_hexdigit).collect())
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
}
