//! The parent's side of the watcher process: starts the process, and pairs its sightings with
//! writes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_testkit::child::OwnedChild;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::Failure;
use crate::watch::{self, Sighting, WatchTarget};

/// Longest wait for acknowledged writes to become visible.
const PATIENCE: Duration = Duration::from_secs(60);

/// A timed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the watched key.
    pub key: u64,
    /// Value; the values of a key only grow.
    pub value: u64,
    /// Due time.
    pub due: u64,
    /// Time of the acknowledgement.
    pub acknowledged: u64,
}

/// Returns the time at which each probe was seen: the first sighting of its value, or of a later
/// value of its key, because one poll may come after two writes.
///
/// # Errors
/// Fails if a probe was never seen.
pub fn seen(probes: &[Probe], sightings: &[Sighting]) -> Result<Vec<u64>, String> {
    let mut of_keys: BTreeMap<u64, Vec<Sighting>> = BTreeMap::new();
    for sighting in sightings {
        of_keys.entry(sighting.key).or_default().push(*sighting);
    }
    let seen_at = |probe: &Probe| {
        let of_key = of_keys.get(&probe.key).map(Vec::as_slice).unwrap_or_default();
        // A partition is in order, so the values of a key only grow.
        let first = of_key.partition_point(|sighting| sighting.value < probe.value);
        let seen_nanos = of_key.get(first).map(|sighting| sighting.nanos);
        seen_nanos.ok_or_else(|| format!("write {} was never visible", probe.value))
    };
    probes.iter().map(seen_at).collect()
}

/// The watcher process; killed on drop.
pub struct Watcher {
    _child: OwnedChild,
    seen: UnboundedReceiver<Sighting>,
}

impl Watcher {
    /// Starts the process and waits until its reader is ready.
    ///
    /// # Errors
    /// Fails if the reader does not become ready.
    pub fn start(
        program: &Path,
        address: &str,
        watch_target: WatchTarget<'_>,
    ) -> Result<Self, Failure> {
        let child = Command::new(program)
            .arg(watch::WATCH)
            .args(watch_target.arguments(address))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {}: {error}", program.display()))?;
        let mut child = OwnedChild(child);
        let stdout = child.stdout.take().ok_or("the watcher has no standard output")?;
        let (sender, sightings) = mpsc::unbounded_channel();
        let watcher = Self { _child: child, seen: sightings };
        let mut stdout = BufReader::new(stdout);
        let mut first = String::new();
        stdout.read_line(&mut first)?;
        if first != "ready\n" {
            return Err(format!("the watcher did not get ready; it printed {first:?}").into());
        }
        tokio::task::spawn_blocking(move || {
            // The task ends with the watcher, or when the receiver is dropped.
            for line in stdout.lines().map_while(Result::ok) {
                if Sighting::parse(&line).is_none_or(|sighting| sender.send(sighting).is_err()) {
                    return;
                }
            }
        });
        Ok(watcher)
    }

    /// Returns the sightings until every probe's key has shown its last value.
    ///
    /// # Errors
    /// Fails if a value is not seen in time.
    pub async fn sightings(&mut self, probes: &[Probe]) -> Result<Vec<Sighting>, Failure> {
        let mut missing: BTreeMap<u64, u64> = BTreeMap::new();
        for probe in probes {
            let last = missing.entry(probe.key).or_default();
            *last = probe.value.max(*last);
        }
        let mut sightings = Vec::new();
        while !missing.is_empty() {
            let next = tokio::time::timeout(PATIENCE, self.seen.recv()).await;
            let next = next.map_err(|_| "an acknowledged write did not become visible")?;
            let sighting = next.ok_or("the watcher has ended")?;
            if missing.get(&sighting.key).is_some_and(|last| sighting.value >= *last) {
                missing.remove(&sighting.key);
            }
            sightings.push(sighting);
        }
        Ok(sightings)
    }
}
