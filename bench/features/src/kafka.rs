//! Inserts on Kafka through a writer, singly and in batches, compared with a raw producer that
//! knows nothing of Forebay: as many clients, and in each call as many records of as many bytes.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay::Store;
use forebay_bench_micro::latency::{self, Latency};
use forebay_bench_micro::raw_kafka::RawProducer;
use forebay_bench_micro::server::Server;
use forebay_bench_report::{Contender, Row, Unit, Values, interleave};
use forebay_testkit::brokers::Brokers;
use forebay_testkit::random::SeededRng;
use tokio::runtime::Runtime;

use crate::clients::{insert, insert_all};
use crate::data::{Order, PARTITIONS};
use crate::node::{connect, make_stream};

/// Approximate bytes of an order in an entry of the log.
const ORDER_BYTES: usize = 1_100;
const UNIT: Unit = Unit::Milliseconds;

/// Duration and width of the comparison.
#[derive(Clone, Debug)]
pub struct KafkaPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Duration of each contender in a round.
    pub turn: Duration,
    /// Clients that insert orders one by one.
    pub clients: usize,
    /// Clients that insert orders in batches.
    pub batch_clients: usize,
    /// Orders of a batch.
    pub batch: u64,
    /// Numbers of brokers to compare, each one or three.
    pub brokers: Vec<usize>,
}

/// The size of an insert, and the number of clients.
#[derive(Clone, Copy)]
struct Shape {
    clients: usize,
    orders: u64,
}

impl Shape {
    fn name(self) -> String {
        match self.orders {
            1 => format!("unary, {} clients", self.clients),
            orders => format!("batches of {orders}, {} clients", self.clients),
        }
    }

    /// Returns the records of a call, as the writer produces them: an entry for each partition.
    fn records(self) -> u64 {
        self.orders.min(PARTITIONS.into())
    }
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a contender fails.
pub fn run(plan: &KafkaPlan, runtime: &Runtime) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for count in &plan.brokers {
        rows.extend(run_on(plan, runtime, *count)?);
    }
    Ok(rows)
}

fn run_on(plan: &KafkaPlan, runtime: &Runtime, count: usize) -> Result<Vec<Row>, String> {
    let brokers = Brokers::start(count)?;
    let bootstrap = brokers.bootstrap();
    let log = if count == 1 { "one broker" } else { "three brokers" };
    let writer = Server::start_writer(&bootstrap, count == 1)?;
    let stream_result = runtime.block_on(make_stream(writer.address()));
    stream_result.map_err(|failure| format!("kafka: {failure}"))?;
    let next = AtomicU64::new(0);
    let shapes = [
        Shape { clients: plan.clients, orders: 1 },
        Shape { clients: plan.batch_clients, orders: plan.batch },
    ];
    let mut sides = Vec::new();
    for shape in shapes {
        let store = runtime.block_on(connect(writer.address()));
        let store = store.map_err(|failure| format!("kafka: {failure}"))?;
        let bytes = ORDER_BYTES * (shape.orders / shape.records()) as usize;
        let (topic, record) = (format!("raw-{}", shape.orders), SeededRng::new(1).noise(bytes));
        let raw = RawProducer::start_on(&bootstrap, (&topic, count as i32), &record);
        sides.push((shape, store, runtime.block_on(raw)?));
    }
    let mut contenders = Vec::new();
    for (shape, store, raw) in &sides {
        let (own_name, peer) = names(log, *shape);
        let next = &next;
        contenders.push(Contender::several(&own_name.clone(), move || {
            let (rate, latency) = runtime.block_on(calls(store, *shape, next, plan.turn))?;
            values(&own_name, rate * shape.orders as f64, &latency)
        }));
        contenders.push(Contender::several(&peer.clone(), move || {
            let called = raw.calls(shape.clients, shape.records(), plan.turn);
            let (rate, latency) = runtime.block_on(called)?;
            values(&peer, rate * shape.orders as f64, &latency)
        }));
    }
    let rounds = interleave(plan.rounds, &mut contenders)?;
    let mut rows = Vec::new();
    for shape in shapes {
        let (own_name, peer) = names(log, shape);
        let rates = (rate_measure(&own_name), rate_measure(&peer));
        rows.push(Row::against(&rates.0, Unit::PerSecond, &rounds, &rates.0, &rates.1)?);
        rows.push(Row::alone(&rates.1, Unit::PerSecond, &rounds, &rates.1)?);
        rows.extend(latency::rows(&own_name, Some(&peer), UNIT, &rounds)?);
    }
    Ok(rows)
}

fn names(log: &str, shape: Shape) -> (String, String) {
    let shape = shape.name();
    (format!("kafka ({log}), {shape}"), format!("raw Kafka producer ({log}), {shape}"))
}

fn rate_measure(name: &str) -> String {
    format!("{name}, rows, 1/s")
}

fn values(name: &str, rate: f64, latency: &Latency) -> Result<Values, String> {
    let mut values = latency.values(name, UNIT)?;
    values.push((rate_measure(name), rate));
    Ok(values)
}

async fn calls(
    store: &Store,
    shape: Shape,
    next: &AtomicU64,
    turn: Duration,
) -> Result<(f64, Latency), String> {
    Latency::of_clients(shape.clients as u64, turn, async |_, _| {
        let inserted = match Order::next(next, shape.orders).as_slice() {
            [order] => insert(store, *order).await,
            orders => insert_all(store, orders).await,
        };
        inserted.map_err(|failure| format!("insert: {failure}"))
    })
    .await
}
