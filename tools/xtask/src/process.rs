//! Child processes with a time bound. A child writes its output to a file, never to a pipe, so a
//! grandchild that keeps the handle open cannot block the build tool. Children stay in the process
//! group of the build tool, so that Ctrl-C reaches all of them. After a time-out the tool finds all
//! descendants by their parents and ends them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::clock::Stopwatch;

/// Interval at which a waiting parent polls its child.
const POLL: Duration = Duration::from_millis(10);
/// Time that a child has to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The end of a child process.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code 0, within the bound.
    pub ok: bool,
    /// The bound was reached and the child was ended.
    pub timed_out: bool,
    /// The exit status or the exceeded bound, in words.
    pub ending: String,
    /// Standard output and error as written; empty if they were inherited.
    pub output: String,
}

/// Runs a command with its output captured in `log`, and ends it after `bound`.
///
/// # Errors
/// Returns an error if the log cannot be written, or the command cannot be started.
pub fn capture(command: &mut Command, log: &Path, bound: Duration) -> Result<Outcome, String> {
    let file = create(log)?;
    let twin = file.try_clone().map_err(|error| format!("clone {}: {error}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file).stderr(twin);
    let mut outcome = wait(command, bound)?;
    let bytes = fs::read(log).map_err(|error| format!("read {}: {error}", log.display()))?;
    outcome.output = String::from_utf8_lossy(&bytes).into_owned();
    Ok(outcome)
}

/// Runs a command on this terminal, and ends it after `bound`.
///
/// # Errors
/// Returns an error if the command cannot be started.
pub fn inherit(command: &mut Command, bound: Duration) -> Result<Outcome, String> {
    wait(command, bound)
}

/// Runs a command as [`inherit`] does, and requires success.
///
/// # Errors
/// Returns an error if the command cannot be started, fails, or reaches its bound.
pub fn must(command: &mut Command, bound: Duration) -> Result<(), String> {
    let outcome = inherit(command, bound)?;
    if outcome.ok { Ok(()) } else { Err(format!("{}: {}", words(command), outcome.ending)) }
}

/// Returns the standard output of a short command.
///
/// # Errors
/// Returns an error, with the standard error, if the command cannot be started or fails.
pub fn read(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("start {}: {error}", words(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}: {}", words(command), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns the standard output of a longer command. Standard output is written to `log`, and
/// standard error to a file of the same name with the extension `.err`.
///
/// # Errors
/// Returns an error, with the standard error, if the command cannot be started, fails, or reaches
/// its bound.
pub fn read_bounded(command: &mut Command, log: &Path, bound: Duration) -> Result<String, String> {
    let beside = log.with_extension("err");
    command.stdin(Stdio::null()).stdout(create(log)?).stderr(create(&beside)?);
    let outcome = wait(command, bound)?;
    let text = |path: &Path| {
        let bytes = fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))?;
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    if outcome.ok {
        return text(log);
    }
    Err(format!("{}: {}\n{}", words(command), outcome.ending, text(&beside)?.trim_end()))
}

/// Returns the command as a user would type it.
#[must_use]
pub fn words(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut words = vec![program];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

fn create(log: &Path) -> Result<File, String> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)
            .map_err(|error| format!("create {}: {error}", folder.display()))?;
    }
    File::create(log).map_err(|error| format!("create {}: {error}", log.display()))
}

fn wait(command: &mut Command, bound: Duration) -> Result<Outcome, String> {
    let mut child =
        command.spawn().map_err(|error| format!("start {}: {error}", words(command)))?;
    let watch = Stopwatch::start();
    while watch.elapsed() < bound {
        if let Some(status) = poll(&mut child)? {
            return Ok(outcome(status, false, status.to_string()));
        }
        thread::sleep(POLL);
    }
    let status = end(&mut child)?;
    Ok(outcome(status, true, format!("ended after its bound of {} s", bound.as_secs())))
}

fn outcome(status: ExitStatus, timed_out: bool, ending: String) -> Outcome {
    Outcome { ok: status.success() && !timed_out, timed_out, ending, output: String::new() }
}

fn poll(child: &mut Child) -> Result<Option<ExitStatus>, String> {
    child.try_wait().map_err(|error| format!("wait for process {}: {error}", child.id()))
}

/// Ends a child and all its descendants: SIGTERM, a grace period, then SIGKILL for the rest.
fn end(child: &mut Child) -> Result<ExitStatus, String> {
    let family = family_of(child.id());
    signal("-TERM", &family);
    let watch = Stopwatch::start();
    while watch.elapsed() < GRACE {
        if poll(child)?.is_some() && family.iter().all(|id| !alive(*id)) {
            break;
        }
        thread::sleep(POLL);
    }
    signal("-KILL", &family);
    child.wait().map_err(|error| format!("wait for process {}: {error}", child.id()))
}

fn signal(name: &str, family: &[u32]) {
    let ids: Vec<u32> = family.iter().copied().filter(|id| alive(*id)).collect();
    if ids.is_empty() {
        return;
    }
    let arguments = ids.iter().map(u32::to_string);
    // If a process ended in between, kill fails, which is harmless.
    let _ = Command::new("kill").arg(name).args(arguments).stderr(Stdio::null()).status();
}

fn alive(id: u32) -> bool {
    parent_of(id).is_some_and(|(_, state)| state != 'Z')
}

/// Returns a process and its descendants, as /proc shows them now.
fn family_of(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some((parent, _)) = parent_of(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while next < family.len() {
        family.extend(children.remove(&family[next]).unwrap_or_default());
        next += 1;
    }
    family
}

/// Reads parent and state from /proc/ID/stat, whose second word may contain spaces and brackets.
fn parent_of(id: u32) -> Option<(u32, char)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((words.next()?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_output_streams_are_captured_in_written_order() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("deep/out.log");
        let bound = Duration::from_secs(20);
        let outcome = capture(&mut shell("echo one; echo two >&2; echo three"), &log, bound);
        let outcome = outcome.unwrap();
        assert!(outcome.ok);
        assert_eq!(outcome.output, "one\ntwo\nthree\n");
    }

    #[test]
    fn failed_command_is_not_ok() {
        let outcome = inherit(&mut shell("exit 3"), Duration::from_secs(20)).unwrap();
        assert!(!outcome.ok && !outcome.timed_out);
        assert!(outcome.ending.contains('3'), "{}", outcome.ending);
    }

    #[test]
    fn time_limit_ends_the_child_and_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("out.log");
        let script = "sleep 300 & echo $!; wait";
        let outcome = capture(&mut shell(script), &log, Duration::from_millis(300)).unwrap();
        assert!(outcome.timed_out && !outcome.ok);
        let grandchild: u32 = outcome.output.trim().parse().unwrap();
        let watch = Stopwatch::start();
        while alive(grandchild) && watch.elapsed() < Duration::from_secs(10) {
            thread::sleep(POLL);
        }
        assert!(!alive(grandchild), "the grandchild {grandchild} outlived its bound");
    }

    #[test]
    fn read_returns_the_standard_error_of_a_failure() {
        assert_eq!(read(&mut shell("echo fine")).unwrap(), "fine\n");
        let problem = read(&mut shell("echo broken >&2; exit 1")).unwrap_err();
        assert!(problem.contains("broken"), "{problem}");
        let folder = tempfile::tempdir().unwrap();
        let (log, bound) = (folder.path().join("out.log"), Duration::from_secs(20));
        let fine = read_bounded(&mut shell("echo chatter >&2; echo fine"), &log, bound);
        assert_eq!(fine.unwrap(), "fine\n");
        let failed_read = read_bounded(&mut shell("echo no; echo broken >&2; exit 1"), &log, bound);
        assert!(failed_read.unwrap_err().contains("broken"));
    }
}
