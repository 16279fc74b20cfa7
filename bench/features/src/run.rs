//! The whole run: the limits of the disk, rows before the load, selects alone, the load at several
//! rates with the freshness of materialized values, batches, the refold, Kafka.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::schema::Timestamp;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use forebay_bench_micro::rusage::ProcessUsage;
use forebay_bench_micro::server::scratch;
use forebay_bench_micro::watch::WatchTarget;
use forebay_bench_micro::watcher::{Watcher, seen};
use forebay_bench_micro::{Failure, disk_baseline, runtime};
use forebay_bench_report::{Row, Unit};
use forebay_testkit::random::SeededRng;
use tokio::runtime::Runtime;

use crate::clients::{BlockingClient, closed_loop, on_each};
use crate::data::{self, Order};
use crate::figures::Figures;
use crate::kafka;
use crate::load::{Load, LoadResults};
use crate::node::Node;
use crate::selects::Older;

/// Pause between two polls of the materialized values: a millisecond is exact enough.
const WATCH_REST: Duration = Duration::from_millis(1);
/// Bi(OS)' own p99 of inserts and selects, in milliseconds.
const P99_ALLOWED: (f64, f64) = (1.46, 2.94);
/// Multiples of the disk's own latency, which are allowed instead if they are larger.
const P99_TIMES_DISK: (f64, f64) = (6.0, 12.0);

/// Durations and sizes of the run.
#[derive(Clone, Debug)]
pub struct FeaturesPlan {
    /// Rows that are inserted before the load.
    pub rows: u64,
    /// Clients that make the load, and insert one by one.
    pub clients: usize,
    /// Clients that insert batches.
    pub batch_clients: usize,
    /// Rows of a batch.
    pub batch: u64,
    /// Idle time of the node before selects alone are measured.
    pub rest: Duration,
    /// Rows due in a second, and the duration of each rate.
    pub rates: Vec<(u64, Duration)>,
    /// Length of the windows whose worst is reported.
    pub window: Duration,
    /// Duration of each other timed measurement.
    pub turn: Duration,
    /// Bytes of the file whose pages are read directly.
    pub pages_bytes: u64,
    /// Whether to measure on an embedded log.
    pub embedded: bool,
    /// Measurements on Kafka.
    pub kafka: Option<kafka::KafkaPlan>,
    /// Program of the watcher process.
    pub watcher: PathBuf,
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a measurement fails, or an acknowledged row is not selected, not folded or not
/// materialized.
pub fn run(plan: &FeaturesPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let mut figures = Figures::default();
    if plan.embedded {
        embedded(plan, &runtime, &mut figures).map_err(|failure| format!("embedded: {failure}"))?;
    }
    let mut rows = figures.rows()?;
    if let Some(kafka) = &plan.kafka {
        rows.extend(kafka::run(kafka, &runtime)?);
    }
    Ok(rows)
}

fn embedded(plan: &FeaturesPlan, runtime: &Runtime, figures: &mut Figures) -> Result<(), Failure> {
    let allowed = disk(plan, figures)?;
    let node = runtime.block_on(Node::start())?;
    let next = AtomicU64::new(0);
    let older_events = fill(plan, runtime, &node, &next, figures)?;
    runtime.block_on(node.await_rest(plan.rest))?;
    selects_alone(plan, &node, &older_events, figures)?;
    let watch_target = WatchTarget {
        store: data::MATERIALIZED,
        field: data::NEWEST,
        keys: data::WATCHED,
        rest: WATCH_REST,
    };
    let clients = BlockingClient::several(node.address(), plan.clients)?;
    for (rate, turn) in &plan.rates {
        let mut watcher = {
            let _entered = runtime.enter();
            Watcher::start(&plan.watcher, node.address(), watch_target)?
        };
        let load = Load {
            clients: &clients,
            node: &node,
            older: &older_events,
            next: &next,
            rate: *rate,
            turn: *turn,
            window: plan.window,
        };
        let measured = load.run()?;
        let fold_lag = runtime.block_on(node.await_folded(next.load(Ordering::Relaxed)))?;
        let name = name(*rate);
        figures.add_load(&name, &measured, allowed)?;
        figures.add(&format!("{name}, folded behind its end"), Unit::Seconds, fold_lag);
        let visible = runtime.block_on(visible(&mut watcher, &measured))?;
        figures.add_latency(&format!("{name}, acknowledged to visible"), &visible)?;
    }
    batches(plan, runtime, &node, &next, figures)?;
    runtime.block_on(refold(node, next.load(Ordering::Relaxed), figures))?;
    Ok(())
}

/// Resources that the node and this process have taken.
struct UsageSample {
    node: ProcessUsage,
    own: ProcessUsage,
}

impl UsageSample {
    fn now(node: &Node) -> Result<Self, String> {
        Ok(Self { node: node.usage()?, own: ProcessUsage::by(std::process::id())? })
    }

    /// Adds the processor time of each of `calls` calls since; returns the bytes that the node has
    /// read from the device.
    fn add_since(
        &self,
        node: &Node,
        (name, calls): (&str, u64),
        figures: &mut Figures,
    ) -> Result<f64, String> {
        let now = Self::now(node)?;
        let micros_per_call = |before: &ProcessUsage, after: &ProcessUsage| {
            (after.cpu_seconds - before.cpu_seconds) * 1e6 / calls as f64
        };
        let of_node = micros_per_call(&self.node, &now.node);
        figures.add(&format!("{name} on the node's processors"), Unit::Microseconds, of_node);
        let own_micros = micros_per_call(&self.own, &now.own);
        figures.add(&format!("{name} on the clients' processors"), Unit::Microseconds, own_micros);
        Ok(now.node.disk_bytes - self.node.disk_bytes)
    }
}

/// Returns the name of a load of `rate` rows in a second.
fn name(rate: u64) -> String {
    format!("unary, {rate} rows/s due")
}

/// Measures the disk's latency, and returns the allowed p99 of inserts and selects.
fn disk(plan: &FeaturesPlan, figures: &mut Figures) -> Result<(f64, f64), Failure> {
    let folder = scratch()?;
    let record = SeededRng::new(1).noise(4_096);
    let (_, append) = disk_baseline::fdatasync(folder.path(), &record, plan.turn)?;
    let (_, read) = disk_baseline::direct_reads(folder.path(), plan.pages_bytes, plan.turn)?;
    figures.add_latency("append of 4 KiB and fdatasync", &append)?;
    figures.add_latency("direct read of 4 KiB", &read)?;
    let p99 = |latency: &Latency| latency.at(0.99, Unit::Milliseconds);
    Ok((
        P99_ALLOWED.0.max(P99_TIMES_DISK.0 * p99(&append)),
        P99_ALLOWED.1.max(P99_TIMES_DISK.1 * p99(&read)),
    ))
}

/// Inserts the rows that are selected later, and waits until all are folded.
fn fill(
    plan: &FeaturesPlan,
    runtime: &Runtime,
    node: &Node,
    next: &AtomicU64,
    figures: &mut Figures,
) -> Result<Older, Failure> {
    let clients = BlockingClient::several(node.address(), plan.batch_clients)?;
    let began = nanos();
    let mut times: Vec<Timestamp> = Vec::with_capacity(plan.rows as usize);
    while (times.len() as u64) < plan.rows {
        let orders: Vec<_> = clients.iter().map(|_| Order::next(next, plan.batch)).collect();
        times.extend(orders.iter().flatten().map(|order| order.at));
        on_each(&clients, |place, client| {
            client.insert_all(&orders[place]).map_err(|failure| format!("fill: {failure}"))
        })?;
    }
    runtime.block_on(node.await_folded(times.len() as u64))?;
    let seconds = (nanos() - began) as f64 / 1e9;
    figures.add("filled and folded, rows", Unit::PerSecond, times.len() as f64 / seconds);
    Ok(Older::new(times))
}

/// Selects on an otherwise idle node, so that all reads from the device are those of selects.
fn selects_alone(
    plan: &FeaturesPlan,
    node: &Node,
    older_events: &Older,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let clients = BlockingClient::several(node.address(), 1)?;
    let before = UsageSample::now(node)?;
    let select = |client: &BlockingClient| client.select(older_events.one()?);
    let (rate, latency) = closed_loop(&clients, plan.turn, select)?;
    let read = before.add_since(node, ("selects alone, select", latency.count()), figures)?;
    figures.add("selects alone, 1 client", Unit::PerSecond, rate);
    figures.add_latency("selects alone, 1 client", &latency)?;
    let read = read / latency.count() as f64;
    figures.add("selects alone, read from the device by each", Unit::Bytes, read);
    Ok(())
}

/// Returns the times from acknowledgements of inserts until they were visible in an embedded reader
/// of another process.
async fn visible(watcher: &mut Watcher, load: &LoadResults) -> Result<Latency, Failure> {
    let sightings = watcher.sightings(&load.probes).await?;
    let mut visible = Latency::new()?;
    for (probe, visible_at) in load.probes.iter().zip(seen(&load.probes, &sightings)?) {
        // A reader may see an insert before its client receives the acknowledgement.
        visible.record(visible_at.saturating_sub(probe.acknowledged));
    }
    Ok(visible)
}

/// Inserts in batches, as many as fit into the duration.
fn batches(
    plan: &FeaturesPlan,
    runtime: &Runtime,
    node: &Node,
    next: &AtomicU64,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let clients = BlockingClient::several(node.address(), plan.batch_clients)?;
    let insert = |client: &BlockingClient| client.insert_all(&Order::next(next, plan.batch));
    let before = UsageSample::now(node)?;
    let (rate, latency) = closed_loop(&clients, plan.turn, insert)?;
    runtime.block_on(node.await_folded(next.load(Ordering::Relaxed)))?;
    let name = format!("batches of {}, {} clients", plan.batch, plan.batch_clients);
    before.add_since(node, (&format!("{name}, row"), latency.count() * plan.batch), figures)?;
    figures.add(&format!("{name}, rows"), Unit::PerSecond, rate * plan.batch as f64);
    Ok(figures.add_latency(&name, &latency)?)
}

/// Measures the fold alone: a node that has the views' logs and none of their tiles rebuilds all
/// tiles for `events` events, in its process and with its usual threads. The node is unchanged
/// afterwards.
///
/// # Errors
/// Fails if the fold does not end.
async fn refold(node: Node, events: u64, figures: &mut Figures) -> Result<Node, Failure> {
    let data = node.stop_without_tiles()?;
    let began = nanos();
    let node = Node::start_again(data)?;
    node.await_folded(events).await?;
    let seconds = (nanos() - began) as f64 / 1e9;
    let usage = node.usage()?;
    figures.add("fold, events", Unit::PerSecond, events as f64 / seconds);
    figures.add("fold, events of one core", Unit::PerSecond, events as f64 / usage.cpu_seconds);
    figures.add("fold, node's own memory at its end", Unit::Bytes, usage.own_bytes);
    figures.add("fold, node's memory at its peak", Unit::Bytes, usage.memory_bytes);
    Ok(node)
}
