//! The other side of the process that watches: it is started, and what it sees is paired with what
//! was written.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_testkit::child::OwnedChild;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::Failure;
use crate::watch::{self, Sighting, Watched};

/// Longest wait for what was acknowledged to become visible.
const PATIENCE: Duration = Duration::from_secs(60);

/// One timed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the watched key.
    pub key: u64,
    /// The value; those of a key only grow.
    pub value: u64,
    /// When it was to be sent.
    pub due: u64,
    /// When it was acknowledged.
    pub acknowledged: u64,
}

/// When each probe was seen: with the first sighting of its value, or of a later one of its key,
/// for one look may come after two writes.
///
/// # Errors
/// One was not.
pub fn seen(probes: &[Probe], sightings: &[Sighting]) -> Result<Vec<u64>, String> {
    let mut of_keys: BTreeMap<u64, Vec<Sighting>> = BTreeMap::new();
    for sighting in sightings {
        of_keys.entry(sighting.key).or_default().push(*sighting);
    }
    let seen = |probe: &Probe| {
        let of_key = of_keys.get(&probe.key).map(Vec::as_slice).unwrap_or_default();
        // A partition is in order, so the values of a key only grow.
        let first = of_key.partition_point(|sighting| sighting.value < probe.value);
        let seen = of_key.get(first).map(|sighting| sighting.nanos);
        seen.ok_or_else(|| format!("write {} was never visible", probe.value))
    };
    probes.iter().map(seen).collect()
}

/// The other process; killed when it goes.
pub struct Watcher {
    _child: OwnedChild,
    seen: UnboundedReceiver<Sighting>,
}

impl Watcher {
    /// Starts it and waits until its reader is ready.
    ///
    /// # Errors
    /// It does not get ready.
    pub fn start(program: &Path, address: &str, watched: Watched<'_>) -> Result<Self, Failure> {
        let child = Command::new(program)
            .arg(watch::WATCH)
            .args(watched.arguments(address))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {}: {error}", program.display()))?;
        let mut child = OwnedChild(child);
        let said = child.stdout.take().ok_or("the watcher has no standard output")?;
        let (sender, seen) = mpsc::unbounded_channel();
        let watcher = Self { _child: child, seen };
        let mut said = BufReader::new(said);
        let mut first = String::new();
        said.read_line(&mut first)?;
        if first != "ready\n" {
            return Err(format!("the watcher did not get ready; it said {first:?}").into());
        }
        tokio::task::spawn_blocking(move || {
            // Ends with the watcher, or when nobody asks for sightings any more.
            for line in said.lines().map_while(Result::ok) {
                if Sighting::parse(&line).is_none_or(|sighting| sender.send(sighting).is_err()) {
                    return;
                }
            }
        });
        Ok(watcher)
    }

    /// What is seen until every probe's key has shown the last of its values.
    ///
    /// # Errors
    /// One does not in time.
    pub async fn sightings(&mut self, probes: &[Probe]) -> Result<Vec<Sighting>, Failure> {
        let mut missing: BTreeMap<u64, u64> = BTreeMap::new();
        for probe in probes {
            let last = missing.entry(probe.key).or_default();
            *last = probe.value.max(*last);
        }
        let mut seen = Vec::new();
        while !missing.is_empty() {
            let next = tokio::time::timeout(PATIENCE, self.seen.recv()).await;
            let next = next.map_err(|_| "an acknowledged write did not become visible")?;
            let sighting = next.ok_or("the watcher has ended")?;
            if missing.get(&sighting.key).is_some_and(|last| sighting.value >= *last) {
                missing.remove(&sighting.key);
            }
            seen.push(sighting);
        }
        Ok(seen)
    }
}
