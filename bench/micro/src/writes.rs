//! Acknowledged writes: rate and latency, from a single client, from many clients, in batches and
//! as a stream; on the embedded log with and without sync, and on Kafka.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay::writes::StreamOptions;
use forebay::{Client, ClientOptions, Store};
use forebay_bench_report::{Contender, Rounds, Row, Unit, Values, interleave};
use forebay_testkit::brokers::Brokers;
use futures::future::try_join_all;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::clock::nanos;
use crate::latency::{self, Latency};
use crate::raw_kafka::RawProducer;
use crate::server::{Log, Server, scratch};
use crate::{Failure, data, disk_baseline, runtime};

/// Number of writes of a stream for each timed write.
const TIMED_ONE_IN: u64 = 16;
/// Time limit of one call, after which the benchmark fails.
const DEADLINE: Duration = Duration::from_secs(60);

const FLOOR: &str = "raw append and fdatasync";
const RPC_ONE: &str = "an RPC that writes nothing, 1 client";
const RPC_MANY: &str = "an RPC that writes nothing, all clients";
const RAW_ONE: &str = "raw Kafka producer, one in flight";
const RAW_MANY: &str = "raw Kafka producer, a stream's number in flight";

/// Duration and width of the comparison.
#[derive(Clone, Debug)]
pub struct WritesPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Duration of each contender in a round.
    pub turn: Duration,
    /// Concurrent clients in the shapes with many clients; each has its own connection.
    pub clients: usize,
    /// Concurrent clients that send batches.
    pub batch_clients: usize,
    /// Changes of a batch.
    pub batch: usize,
    /// Whether Kafka takes part.
    pub kafka: bool,
}

impl WritesPlan {
    fn shapes(&self) -> [(RequestShape, String); 5] {
        let (clients, batch_clients, batch) = (self.clients, self.batch_clients, self.batch);
        [
            (RequestShape::Unary(1), "unary, 1 client".to_owned()),
            (RequestShape::Unary(clients), format!("unary, {clients} clients")),
            (RequestShape::Shared(clients), format!("unary, {clients} callers of 1 client")),
            (RequestShape::Batched, format!("batches of {batch}, {batch_clients} clients")),
            (RequestShape::Streamed, "stream, 1 client".to_owned()),
        ]
    }

    fn logs(&self) -> &'static [&'static str] {
        let all = &["embedded fsync", "embedded buffered", "kafka (one broker)"];
        if self.kafka { all } else { &all[..2] }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestShape {
    /// Requests of one change from this many clients, each with one request in flight.
    Unary(usize),
    /// Calls of one change from this many callers that share one client, which coalesces them.
    Shared(usize),
    /// Many changes per request.
    Batched,
    /// A single stream with its usual number of changes in flight.
    Streamed,
}

/// A server, and clients that are connected to it.
struct WritesSide {
    stores: Vec<Store>,
    plan: WritesPlan,
    _server: Server,
}

/// The measurements of one contender in one round.
type RoundResult = Result<(f64, Latency), Failure>;

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a contender fails; the message has its name and the round.
pub fn run(plan: &WritesPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let record = data::record().map_err(|error| error.to_string())?;
    let folder = scratch()?;
    let brokers = if plan.kafka { Some(Brokers::start(1)?) } else { None };
    let bootstrap = brokers.as_ref().map(Brokers::bootstrap).unwrap_or_default();
    let logs = [Log::Fsync, Log::Buffered, Log::Kafka(&bootstrap)];
    let mut sides = Vec::new();
    for (log, name) in logs.into_iter().zip(plan.logs()) {
        let side = runtime.block_on(WritesSide::start(log, plan));
        sides.push((*name, side.map_err(|failure| format!("{name}: {failure}"))?));
    }
    let raw = match &brokers {
        Some(_) => Some(runtime.block_on(RawProducer::start(&bootstrap, &record))?),
        None => None,
    };
    let mut contenders = Vec::new();
    contenders.push(floor_contender(&folder, &record, plan.turn));
    for (log, side) in &sides {
        for (shape, name) in plan.shapes() {
            contenders.push(side.contender(&runtime, &format!("{log}, {name}"), shape));
        }
    }
    contenders.push(sides[1].1.rpc_contender(&runtime, RPC_ONE, 1));
    contenders.push(sides[1].1.rpc_contender(&runtime, RPC_MANY, plan.clients));
    if let Some(raw) = &raw {
        contenders.extend(raw_contenders(&runtime, raw, plan.turn));
    }
    let rounds = interleave(plan.rounds, &mut contenders)?;
    rows(plan, &rounds)
}

fn floor_contender<'a>(folder: &'a TempDir, record: &'a [u8], turn: Duration) -> Contender<'a> {
    Contender::several(FLOOR, move || {
        let (rate, latency) = disk_baseline::fdatasync(folder.path(), record, turn)?;
        values(FLOOR, rate, &latency)
    })
}

fn raw_contenders<'a>(
    runtime: &'a Runtime,
    raw: &'a RawProducer,
    turn: Duration,
) -> [Contender<'a>; 2] {
    let in_flight = StreamOptions::default().changes_max;
    [
        Contender::several(RAW_ONE, move || {
            let (rate, latency) = runtime.block_on(raw.one_by_one(turn))?;
            values(RAW_ONE, rate, &latency)
        }),
        Contender::several(RAW_MANY, move || {
            let (rate, latency) = runtime.block_on(raw.many(in_flight, turn))?;
            values(RAW_MANY, rate, &latency)
        }),
    ]
}

fn values(name: &str, rate: f64, latency: &Latency) -> Result<Values, String> {
    let mut values = latency.values(name, Unit::Microseconds)?;
    values.push((rate_measure(name), rate));
    Ok(values)
}

fn rate_measure(name: &str) -> String {
    format!("{name}, 1/s")
}

impl WritesSide {
    async fn start(log: Log<'_>, plan: &WritesPlan) -> Result<Self, Failure> {
        let server = Server::start(log)?;
        let options = ClientOptions::default().deadline(DEADLINE);
        let mut stores = Vec::new();
        for _ in 0..plan.clients.max(plan.batch_clients).max(1) {
            let client = Client::connect(server.address(), options.clone()).await?;
            stores.push(data::open_store(&client, "users").await?);
        }
        let side = Self { stores, plan: plan.clone(), _server: server };
        // Untimed preparation: connections, the first segment, the keys.
        side.batched(Duration::ZERO).await?;
        Ok(side)
    }

    fn contender<'a>(
        &'a self,
        runtime: &'a Runtime,
        name: &str,
        shape: RequestShape,
    ) -> Contender<'a> {
        let name = name.to_owned();
        Contender::several(&name.clone(), move || {
            let turn = self.plan.turn;
            let measured = runtime.block_on(async {
                match shape {
                    RequestShape::Unary(clients) => {
                        self.unary(self.stores.iter().take(clients), turn).await
                    }
                    RequestShape::Shared(callers) => {
                        self.unary(self.stores.iter().take(1).cycle().take(callers), turn).await
                    }
                    RequestShape::Batched => self.batched(turn).await,
                    RequestShape::Streamed => self.streamed(turn).await,
                }
            });
            let (rate, latency) = measured.map_err(|failure| failure.to_string())?;
            values(&name, rate, &latency)
        })
    }

    fn rpc_contender<'a>(
        &'a self,
        runtime: &'a Runtime,
        name: &'static str,
        clients: usize,
    ) -> Contender<'a> {
        Contender::several(name, move || {
            let call = |store: Store, _| async move {
                store.refresh().await?;
                Ok(1)
            };
            let measured = runtime.block_on(closed_loop(
                self.stores.iter().take(clients),
                self.plan.turn,
                call,
            ));
            let (rate, latency) = measured.map_err(|failure| failure.to_string())?;
            values(name, rate, &latency)
        })
    }

    async fn unary(&self, stores: impl Iterator<Item = &Store>, turn: Duration) -> RoundResult {
        let call = |store: Store, number| async move {
            data::write(&store, number).send().await?;
            Ok(1)
        };
        closed_loop(stores, turn, call).await
    }

    async fn batched(&self, turn: Duration) -> RoundResult {
        let changes = self.plan.batch as u64;
        let call = move |store: Store, number: u64| async move {
            let mut batch = store.batch();
            for place in 0..changes {
                batch.add(data::write(&store, number * changes + place))?;
            }
            batch.send().await?.require_complete()?;
            Ok(changes)
        };
        closed_loop(self.stores.iter().take(self.plan.batch_clients), turn, call).await
    }

    /// Fills one stream continuously, until its last write is acknowledged. A timed write waits for
    /// all earlier ones, so its latency shows how much a stream holds.
    async fn streamed(&self, turn: Duration) -> RoundResult {
        let store = &self.stores[0];
        let mut stream = store.write_stream(StreamOptions::default())?.deadline(DEADLINE);
        let latency = Arc::new(Mutex::new(Latency::new()?));
        let (began, turn_nanos) = (nanos(), turn.as_nanos() as u64);
        let (mut count, mut timed) = (0, Vec::new());
        while count == 0 || nanos() - began < turn_nanos {
            let sent_at = nanos();
            let acknowledgement = stream.send(data::write(store, count)).await?;
            if count % TIMED_ONE_IN == 0 {
                let latency = Arc::clone(&latency);
                timed.push(flat(tokio::spawn(async move {
                    acknowledgement.await?;
                    latency.lock().record(nanos() - sent_at);
                    Ok(())
                })));
            }
            count += 1;
        }
        stream.close().await?;
        let rate = count as f64 * 1e9 / (nanos() - began).max(1) as f64;
        try_join_all(timed).await?;
        let latency = latency.lock().clone();
        Ok((rate, latency))
    }
}

/// Returns the result of a task; a panic in it is a failure.
async fn flat<T>(task: JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    task.await?
}

/// Runs clients that each make one call after the other for `turn`, at least one; the rate
/// counts the results of the calls, the latency is of each call.
async fn closed_loop<'a, F>(
    stores: impl Iterator<Item = &'a Store>,
    turn: Duration,
    call: impl Fn(Store, u64) -> F + Clone + Send + 'static,
) -> RoundResult
where
    F: Future<Output = Result<u64, Failure>> + Send,
{
    let (began, turn_nanos) = (nanos(), turn.as_nanos() as u64);
    let client = |(place, store): (usize, &Store)| {
        let (store, call) = (store.clone(), call.clone());
        flat(tokio::spawn(async move {
            let mut latency = Latency::new()?;
            let (mut writes_done, mut last) = (0, nanos());
            while latency.count() == 0 || last - began < turn_nanos {
                let number = place as u64 * 10_007 + latency.count();
                writes_done += call(store.clone(), number).await?;
                let now = nanos();
                latency.record(now - last);
                last = now;
            }
            Ok((writes_done, latency))
        }))
    };
    let clients = stores.enumerate().map(client);
    let mut latency = Latency::new()?;
    let mut count = 0;
    for (client_writes, of_client) in try_join_all(clients).await? {
        count += client_writes;
        latency.add(&of_client)?;
    }
    Ok((count as f64 * 1e9 / (nanos() - began).max(1) as f64, latency))
}

fn rows(plan: &WritesPlan, rounds: &Rounds) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for log in plan.logs() {
        for (shape, name) in plan.shapes() {
            let peer = peer(log, shape);
            add(&mut rows, &format!("{log}, {name}"), peer, rounds)?;
        }
    }
    let mut peers = vec![FLOOR, RPC_ONE, RPC_MANY];
    if plan.kafka {
        peers.extend([RAW_ONE, RAW_MANY]);
    }
    for peer in peers {
        add(&mut rows, peer, None, rounds)?;
    }
    Ok(rows)
}

/// Returns the lower bound of a contender.
fn peer(log: &str, shape: RequestShape) -> Option<&'static str> {
    match (log, shape) {
        ("embedded fsync", RequestShape::Unary(1)) => Some(FLOOR),
        ("embedded buffered", RequestShape::Unary(1)) => Some(RPC_ONE),
        ("embedded buffered", RequestShape::Unary(_)) => Some(RPC_MANY),
        ("kafka (one broker)", RequestShape::Unary(1)) => Some(RAW_ONE),
        ("kafka (one broker)", _) => Some(RAW_MANY),
        _ => None,
    }
}

fn add(rows: &mut Vec<Row>, name: &str, peer: Option<&str>, rounds: &Rounds) -> Result<(), String> {
    let own_measure = rate_measure(name);
    rows.push(match peer.map(rate_measure) {
        Some(peer) => Row::against(&own_measure, Unit::PerSecond, rounds, &own_measure, &peer)?,
        None => Row::alone(&own_measure, Unit::PerSecond, rounds, &own_measure)?,
    });
    rows.extend(latency::rows(name, peer, Unit::Microseconds, rounds)?);
    Ok(())
}
