//! Freshness: time from the acknowledgement of a write until the write is visible in an embedded
//! reader of another process, under writes at a fixed rate.
//!
//! The load is open: each write is due at a moment that depends on no answer, and times from that
//! moment include every delay before the write was sent. A stall therefore costs all the writes
//! that were due during the stall, not one.

use std::path::PathBuf;
use std::time::Duration;

use forebay::writes::StreamOptions;
use forebay::{Client, ClientOptions, Store};
use forebay_bench_report::{Contender, Rounds, Row, Unit, Values, interleave};
use forebay_testkit::brokers::Brokers;
use tokio::task::JoinSet;

use crate::clock::nanos;
use crate::latency::{self, Latency};
use crate::server::{Log, Server};
use crate::watch::{self, Sighting, WatchTarget};
use crate::watcher::{Probe, Watcher, seen};
use crate::{Failure, data, runtime};

const STORE: &str = "users";
const UNIT: Unit = Unit::Milliseconds;
/// Interval at which due writes are sent.
const TICK: Duration = Duration::from_millis(1);
/// Longest wait for acknowledged writes to become visible, and for a flush.
const PATIENCE: Duration = Duration::from_secs(60);

const ACKNOWLEDGED_TO_VISIBLE: &str = "acknowledged to visible";
const DUE_TO_ACKNOWLEDGED: &str = "due to acknowledged";
const DUE_TO_VISIBLE: &str = "due to visible";

/// Durations and sizes of the run.
#[derive(Clone, Debug)]
pub struct FreshnessPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Writes of one round.
    pub writes: u64,
    /// Writes due in a second.
    pub rate: u64,
    /// Number of writes for each timed write, which goes to a watched document.
    pub timed_one_in: u64,
    /// Number of watched documents.
    pub watched: u64,
    /// Whether Kafka takes part.
    pub kafka: bool,
    /// Program of the watcher process.
    pub watcher: PathBuf,
}

impl FreshnessPlan {
    fn logs(&self) -> &'static [&'static str] {
        let all = &["embedded", "kafka (one broker)"];
        if self.kafka { all } else { &all[..1] }
    }

    fn name(&self, log: &str, quantity: &str) -> String {
        let rate = match (self.rate / 1_000, self.rate % 1_000) {
            (thousands, 0) => format!("{thousands}K"),
            _ => self.rate.to_string(),
        };
        format!("{log}, {rate} writes/s, {quantity}")
    }
}

/// The measurements of one round.
struct FreshnessRound {
    rate: f64,
    acknowledged_to_visible: Latency,
    due_to_acknowledged: Latency,
    due_to_visible: Latency,
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a round fails, or an acknowledged write does not become visible.
pub fn run(plan: &FreshnessPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let brokers = if plan.kafka { Some(Brokers::start(1)?) } else { None };
    let bootstrap = brokers.as_ref().map(Brokers::bootstrap).unwrap_or_default();
    let mut sides = Vec::new();
    for (log, name) in [Log::Fsync, Log::Kafka(&bootstrap)].into_iter().zip(plan.logs()) {
        let side = runtime.block_on(FreshnessSide::start(log, plan));
        sides.push((*name, side.map_err(|failure| format!("{name}: {failure}"))?));
    }
    let mut contenders: Vec<Contender<'_>> = sides
        .iter_mut()
        .map(|(name, side)| {
            let runtime = &runtime;
            Contender::several(name, move || {
                let measured = runtime.block_on(side.round(plan));
                values(plan, name, &measured.map_err(|failure| failure.to_string())?)
            })
        })
        .collect();
    let rounds = interleave(plan.rounds, &mut contenders)?;
    rows(plan, &rounds)
}

fn values(plan: &FreshnessPlan, log: &str, measured: &FreshnessRound) -> Result<Values, String> {
    let mut values = vec![(rate_measure(plan, log), measured.rate)];
    for (quantity, latency) in [
        (ACKNOWLEDGED_TO_VISIBLE, &measured.acknowledged_to_visible),
        (DUE_TO_ACKNOWLEDGED, &measured.due_to_acknowledged),
        (DUE_TO_VISIBLE, &measured.due_to_visible),
    ] {
        values.extend(latency.values(&plan.name(log, quantity), UNIT)?);
    }
    Ok(values)
}

fn rows(plan: &FreshnessPlan, rounds: &Rounds) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for log in plan.logs() {
        let rate = rate_measure(plan, log);
        rows.push(Row::alone(&rate, Unit::PerSecond, rounds, &rate)?);
        for quantity in [ACKNOWLEDGED_TO_VISIBLE, DUE_TO_ACKNOWLEDGED, DUE_TO_VISIBLE] {
            rows.extend(latency::rows(&plan.name(log, quantity), None, UNIT, rounds)?);
        }
    }
    Ok(rows)
}

/// Returns the measure of the achieved rate; below the requested rate, the machine could not
/// follow.
fn rate_measure(plan: &FreshnessPlan, log: &str) -> String {
    plan.name(log, "acknowledged, 1/s")
}

/// A server, a client of it in this process, and a watcher in another.
struct FreshnessSide {
    store: Store,
    watcher: Watcher,
    written: u64,
    _server: Server,
}

impl FreshnessSide {
    async fn start(log: Log<'_>, plan: &FreshnessPlan) -> Result<Self, Failure> {
        let server = Server::start(log)?;
        let client = Client::connect(server.address(), ClientOptions::default()).await?;
        let store = data::open_store(&client, STORE).await?;
        let watch_target =
            WatchTarget { store: STORE, field: "visits", keys: plan.watched, rest: watch::REST };
        let watcher = Watcher::start(&plan.watcher, server.address(), watch_target)?;
        Ok(Self { store, watcher, written: 0, _server: server })
    }

    async fn round(&mut self, plan: &FreshnessPlan) -> Result<FreshnessRound, Failure> {
        let (rate, mut probes) = self.load(plan).await?;
        probes.sort_by_key(|probe| probe.value);
        let sightings = self.watcher.sightings(&probes).await?;
        measure(rate, &probes, &sightings)
    }

    /// Sends every write when it is due, or as soon after as there is space.
    async fn load(&mut self, plan: &FreshnessPlan) -> Result<(f64, Vec<Probe>), Failure> {
        let stream = self.store.write_stream(StreamOptions::default())?;
        let mut stream = stream.deadline(PATIENCE);
        let (began, first) = (nanos(), self.written);
        let due_at = |sent: u64| began + sent * 1_000_000_000 / plan.rate;
        let (mut sent, mut probes) = (0, JoinSet::new());
        while sent < plan.writes {
            if due_at(sent) > nanos() {
                tokio::time::sleep(TICK).await;
                continue;
            }
            let number = first + sent;
            if sent % plan.timed_one_in == 0 {
                let key = number / plan.timed_one_in % plan.watched;
                let write = data::write_to(&self.store, &watch::key(key), number);
                let (acknowledgement, due_at) = (stream.send(write).await?, due_at(sent));
                probes.spawn(async move {
                    acknowledgement.await?;
                    let acknowledged = nanos();
                    Ok::<_, forebay::Error>(Probe { key, value: number, due: due_at, acknowledged })
                });
            } else {
                stream.send(data::write(&self.store, number)).await?;
            }
            sent += 1;
        }
        stream.close().await?;
        let rate = sent as f64 * 1e9 / (nanos() - began).max(1) as f64;
        self.written += sent;
        let mut acknowledgements_known = Vec::new();
        while let Some(probe) = probes.join_next().await {
            acknowledgements_known.push(probe??);
        }
        Ok((rate, acknowledgements_known))
    }
}

fn measure(rate: f64, probes: &[Probe], sightings: &[Sighting]) -> Result<FreshnessRound, Failure> {
    let mut measured = FreshnessRound {
        rate,
        acknowledged_to_visible: Latency::new()?,
        due_to_acknowledged: Latency::new()?,
        due_to_visible: Latency::new()?,
    };
    for (probe, visible_at) in probes.iter().zip(seen(probes, sightings)?) {
        // A reader may see a write before its writer receives the acknowledgement.
        measured.acknowledged_to_visible.record(visible_at.saturating_sub(probe.acknowledged));
        measured.due_to_acknowledged.record(probe.acknowledged.saturating_sub(probe.due));
        measured.due_to_visible.record(visible_at.saturating_sub(probe.due));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use forebay_bench_report::Goals;
    use forebay_testkit::tree;

    use super::*;

    fn probe(key: u64, value: u64, acknowledged: u64) -> Probe {
        Probe { key, value, due: 1_000_000, acknowledged }
    }

    #[test]
    fn probe_becomes_visible_at_the_first_sighting_of_its_value_or_later() {
        let sighting = |key, value, nanos| Sighting { key, value, nanos };
        let sightings =
            [sighting(0, 0, 3_000_000), sighting(1, 5, 4_000_000), sighting(0, 8, 9_000_000)];
        // Value 4 of key 0 was overwritten before the next poll; key 1 was seen before its
        // acknowledgement.
        let probes = [probe(0, 0, 2_000_000), probe(0, 4, 2_000_000), probe(1, 5, 6_000_000)];
        let measured = measure(9.0, &probes, &sightings).unwrap();
        let worst = |latency: &Latency| latency.at(1.0, UNIT).round();
        assert_eq!(worst(&measured.acknowledged_to_visible), 7.0);
        assert_eq!(measured.acknowledged_to_visible.at(0.0, Unit::Nanoseconds), 1.0);
        assert_eq!(worst(&measured.due_to_acknowledged), 5.0);
        assert_eq!(worst(&measured.due_to_visible), 8.0);
        let unseen = [probe(0, 9, 2_000_000)];
        let failure = measure(9.0, &unseen, &sightings).err().unwrap();
        assert!(failure.to_string().contains("write 9"), "{failure}");
    }

    #[test]
    fn goals_name_the_freshness_rows() {
        let plan = FreshnessPlan {
            rounds: 1,
            writes: 1,
            rate: 10_000,
            timed_one_in: 1,
            watched: 1,
            kafka: true,
            watcher: PathBuf::new(),
        };
        let root = tree::root_of(Goals::FILE).unwrap();
        let goals = Goals::load(&root).unwrap();
        let mut measures: Vec<String> = Vec::new();
        for log in plan.logs() {
            let name = plan.name(log, ACKNOWLEDGED_TO_VISIBLE);
            measures.push(latency::measure(&name, "p99", UNIT));
        }
        let of_goals: Vec<_> = goals.of("freshness").iter().map(|g| g.measure.clone()).collect();
        assert_eq!(measures, of_goals);
    }
}
