//! Server processes that tests start on loopback: their ports, their logs, the waits for them, and
//! the guard that ends them with the test process, in whatever way that ends.
//!
//! Servers may be in a static, which Rust never drops, and a test process may be killed. A guard
//! process therefore holds the other end of a pipe and receives the ids of the running servers.
//! When the pipe closes, the guard kills the servers and removes their folder.

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

/// The result of these functions; the text of an error gives the remedy.
pub type Result<T> = std::result::Result<T, String>;

/// Bound of an orderly stop; a broker that lost its quorum never ends by itself.
const STOP_WAIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// Range of ports; below the system's range for outgoing connections, so that a restarted server
/// finds its port free.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const PORT_TRIES_MAX: usize = 200;
/// Text, in any case, that a server logs if another process has taken its port.
const PORT_TAKEN: &str = "address already in use";
/// Number of attempts to start a server on a port that another process may take.
const STARTS_MAX: usize = 3;
const LOG_LINES_SHOWN: usize = 30;
/// Java options: the serial collector and only the first compiler start fastest; out of memory, a
/// server must exit instead of hanging.
const JAVA: [&str; 5] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+ExitOnOutOfMemoryError",
];
/// Script of the guard: each line lists the running servers, which are killed at the end of input.
const GUARD: &str = "trap '' HUP INT TERM
now=
while read -r line; do now=$line; done
[ -z \"$now\" ] || kill -KILL $now
rm -rf -- \"$1\"";

/// The guard process, which outlives this process by a moment.
pub(crate) struct Guard {
    child: Child,
    /// Input of the guard; closing it lets the guard do its work.
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard of a folder, without servers yet.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "forebay-servers-guard"]).arg(folder).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own: a signal to the test's group must not end the guard first.
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|error| format!("start the guard of servers: {error}"))?;
        Ok(Self { input: child.stdin.take(), child })
    }

    /// Sends the guard the ids of all running servers. A server must leave the list before it is
    /// waited for: after the wait another process may have its id.
    pub(crate) fn tell(&mut self, ids: &str) -> Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let result = input.write_all(format!("{ids}\n").as_bytes());
        result.map_err(|error| format!("tell the guard of servers: {error}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Creates an empty folder for servers of this name.
pub(crate) fn folder(name: &str) -> Result<tempfile::TempDir> {
    let result = tempfile::Builder::new().prefix(&format!("forebay-{name}-")).tempdir();
    result.map_err(|error| format!("make a folder for {name}: {error}"))
}

/// Returns the class path of a server's jars: declared by a Bazel target in this variable, or
/// fetched by set-up into this folder of cargo's target folder.
pub(crate) fn class_path(variable: &str, folder_name: &str) -> Result<String> {
    match env::var(variable) {
        Ok(jars) => {
            let jars = tree::declared_paths(&jars)?;
            let jars: Vec<String> = jars.iter().map(|jar| jar.display().to_string()).collect();
            Ok(jars.join(":"))
        }
        Err(_) if tree::is_bazel_test() => Err(format!("this test declares no jars in {variable}")),
        Err(_) => Ok(tree::fetched(folder_name)?.join("*").display().to_string()),
    }
}

/// Returns the command of a Java program on this class path.
pub(crate) fn java(class_path: &str) -> Command {
    let mut command = Command::new("java");
    command.args(JAVA).arg("-cp").arg(class_path);
    command
}

/// Appends a program's output to a log.
pub(crate) fn log_into(command: &mut Command, path: &Path) -> Result<()> {
    let open_error = |error| format!("open {}: {error}", path.display());
    let log = File::options().create(true).append(true).open(path).map_err(open_error)?;
    let twin = log.try_clone().map_err(open_error)?;
    command.stdin(Stdio::null()).stdout(log).stderr(twin);
    Ok(())
}

/// Returns the content of a log so far.
pub(crate) fn log_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Returns the message that a server failed, with the last lines of its log.
pub(crate) fn failure_message(server: &str, failure: &str, log: &Path) -> String {
    let log = log_of(log);
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
    format!("{server} {failure}; it logged last:\n{last}")
}

/// Sends a signal to a server.
pub(crate) fn signal(child: &Child, signal: &str) -> Result<()> {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).stderr(Stdio::null()).status();
    sent.map(drop).map_err(|error| format!("send {signal} to a server: {error}"))
}

/// Sends SIGTERM to a server, and waits at most about 20 s for its end.
pub(crate) fn ask_to_stop(child: &mut Child) -> Result<()> {
    signal(child, "-TERM")?;
    wait(STOP_WAIT, || exit_status(child)).map(drop)
}

/// Kills a server, and waits for its end.
pub(crate) fn kill(server: &str, child: &mut Child) -> Result<()> {
    child.kill().map_err(|error| format!("kill {server}: {error}"))?;
    child.wait().map_err(|error| format!("wait for {server}: {error}"))?;
    Ok(())
}

/// Returns the exit status of a server, if it has ended.
pub(crate) fn exit_status(child: &mut Child) -> Result<Option<ExitStatus>> {
    child.try_wait().map_err(|error| format!("wait for a server: {error}"))
}

/// Polls until `look` returns a value; `None` if the bound is reached first.
pub(crate) fn wait<T>(
    bound: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    for _ in 0..bound.as_millis() / LOOK.as_millis() {
        if let Some(value) = look()? {
            return Ok(Some(value));
        }
        thread::sleep(LOOK);
    }
    Ok(None)
}

/// Returns ports on which no process listens now. Another process may take one before the server
/// does. The range is large, so this is rare; the start then fails with the server's own message,
/// and the caller may repeat the start.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let mut ports: Vec<(u16, TcpListener)> = Vec::new();
    for _ in 0..PORT_TRIES_MAX {
        if ports.len() == count {
            break;
        }
        let random = u64::from_str_radix(&random_hex()?[..8], 16)
            .map_err(|error| format!("read a random number: {error}"))?;
        let port = PORTS.start + (random % PORTS.len() as u64) as u16;
        ports.extend(TcpListener::bind(("127.0.0.1", port)).ok().map(|listener| (port, listener)));
    }
    if ports.len() < count {
        return Err(format!("no {count} free ports from {} to {}", PORTS.start, PORTS.end));
    }
    Ok(ports.into_iter().map(|(port, _)| port).collect())
}

/// Repeats a start if another process has taken a port between the choice of the port and the start
/// of the server.
pub(crate) fn retry_taken_ports<T>(mut start: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..STARTS_MAX {
        match start() {
            Err(problem) if problem.to_lowercase().contains(PORT_TAKEN) => {}
            result => return result,
        }
    }
    start()
}

/// Returns 32 hexadecimal digits from the kernel; no run of these servers is ever replayed.
pub(crate) fn random_hex() -> Result<String> {
    const SOURCE: &str = "/proc/sys/kernel/random/uuid";
    let id = fs::read_to_string(SOURCE).map_err(|error| format!("read {SOURCE}: {error}"))?;
    Ok(id.chars().filter(char::is_ascii_hexdigit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_repeated_only_for_a_taken_port() {
        let run = |problems: &[&str]| {
            let (mut starts, mut problems) = (0, problems.iter());
            let result = retry_taken_ports(|| {
                starts += 1;
                problems.next().map_or(Ok(()), |problem| Err((*problem).to_owned()))
            });
            (result.is_ok(), starts)
        };
        let taken = "broker 1 ended: Address already in use";
        assert_eq!(run(&[]), (true, 1));
        assert_eq!(run(&[taken, taken]), (true, 3));
        assert_eq!(run(&[taken; 4]), (false, 3));
        assert_eq!(run(&["there is no Java"]), (false, 1));
    }

    #[test]
    fn guard_kills_its_latest_processes_and_removes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut guarded_child, mut free_child) = (sleeper(), sleeper());
        let mut guard = Guard::start(folder.path()).unwrap();
        guard.tell(&format!("{} {}", guarded_child.id(), free_child.id())).unwrap();
        guard.tell(&guarded_child.id().to_string()).unwrap();
        drop(guard);
        assert!(!guarded_child.wait().unwrap().success());
        assert!(free_child.try_wait().unwrap().is_none());
        free_child.kill().unwrap();
        free_child.wait().unwrap();
        assert!(!folder.path().exists());
    }
}
