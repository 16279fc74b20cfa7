//! The ordered server by Simple-KV's four orders: writes and reads of keys of 25 bytes, in order
//! and at random. The contenders are the engine in this process, and a node over the network from
//! many clients, over persistent connections and over a new connection for each operation. The peer
//! of the node, in the same rounds, is Redis.

mod data;
mod engine;
mod job;
mod node;
mod redis_server;

use forebay_bench_micro::latency::{self, Latency};
use forebay_bench_micro::runtime;
use forebay_bench_report::{Contender, Rounds, Row, Unit, Values, interleave};

use self::engine::Engine;
pub use self::job::OrdersPlan;
use self::job::{Job, Order, Side};
use self::node::Node;
use self::redis_server::RedisServer;

/// The orders, in the source's sequence.
const ORDERS: [(Order, &str); 4] = [
    (Order { is_write: true, is_random: true }, "random put"),
    (Order { is_write: true, is_random: false }, "sequential put"),
    (Order { is_write: false, is_random: true }, "random get"),
    (Order { is_write: false, is_random: false }, "sequential get"),
];

const ENGINE: &str = "engine in process";
const FSYNC: &str = "forebay, synced";
const BUFFERED: &str = "forebay, buffered";
const REDIS_FSYNC: &str = "redis, synced";
const REDIS_BUFFERED: &str = "redis, nothing on disk";

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a contender fails; the message has its name and the round.
pub fn run(plan: &OrdersPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let engine = Engine::open(&plan.values)?;
    let node = |is_synced| Node::start(&runtime, is_synced, plan);
    let (synced, buffered) = (node(true)?, node(false)?);
    let (redis_synced, redis) = (RedisServer::start(true)?, RedisServer::start(false)?);
    let sides: [(&str, &dyn Side); 5] = [
        (ENGINE, &engine),
        (FSYNC, &synced),
        (BUFFERED, &buffered),
        (REDIS_FSYNC, &redis_synced),
        (REDIS_BUFFERED, &redis),
    ];
    let mut contenders = Vec::new();
    for (side_name, side) in sides {
        let clients = if side_name == ENGINE { 1 } else { plan.clients };
        for value_bytes in &plan.values {
            let operations = plan.operations;
            let order = ORDERS[1].0;
            let fill = Job {
                order,
                value_bytes: *value_bytes,
                documents: operations,
                operations,
                clients,
                is_connecting: false,
            };
            // Untimed preparation: connections, and the documents of the reads.
            side.run(&fill).map_err(|problem| format!("{side_name}: {problem}"))?;
            for (job, name) in jobs(plan, side_name, *value_bytes) {
                contenders.push(Contender::several(&name.clone(), move || {
                    let (seconds, ran) = forebay_bench_micro::clock::seconds(|| side.run(&job));
                    values(&name, &ran?, seconds)
                }));
            }
        }
    }
    let rounds = interleave(plan.rounds, &mut contenders)?;
    rows(plan, &rounds)
}

/// Returns all jobs of a contender, with their names.
fn jobs(plan: &OrdersPlan, side: &str, value_bytes: usize) -> Vec<(Job, String)> {
    let mut jobs = Vec::new();
    for is_connecting in [false, true] {
        if side == ENGINE && is_connecting {
            continue;
        }
        for (order, name) in ORDERS {
            let documents = plan.operations;
            let operations = if is_connecting { plan.connecting } else { plan.operations };
            let clients = if side == ENGINE { 1 } else { plan.clients };
            let job = Job { order, value_bytes, documents, operations, clients, is_connecting };
            jobs.push((job, name_of(side, name, value_bytes, is_connecting)));
        }
    }
    jobs
}

fn name_of(side: &str, order: &str, value_bytes: usize, is_connecting: bool) -> String {
    let suffix = match (side, is_connecting) {
        (ENGINE, _) => "",
        (_, false) => ", connections stay",
        (_, true) => ", one connection each",
    };
    format!("{side}, {order}, {value_bytes} B{suffix}")
}

fn values(name: &str, latency: &Latency, seconds: f64) -> Result<Values, String> {
    let mut values = latency.values(name, Unit::Microseconds)?;
    values.push((rate_measure(name), latency.count() as f64 / seconds));
    Ok(values)
}

fn rate_measure(name: &str) -> String {
    format!("{name}, 1/s")
}

fn rows(plan: &OrdersPlan, rounds: &Rounds) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let sides = [(ENGINE, None), (FSYNC, Some(REDIS_FSYNC)), (BUFFERED, Some(REDIS_BUFFERED))];
    for (side, peer) in sides {
        for value_bytes in &plan.values {
            let names = jobs(plan, side, *value_bytes).into_iter().map(|(_, name)| name);
            let peers = jobs(plan, peer.unwrap_or(side), *value_bytes).into_iter();
            for (name, (_, peer_name)) in names.zip(peers) {
                let peer_name = peer.map(|_| peer_name);
                let rate = rate_measure(&name);
                rows.push(match peer_name.as_deref().map(rate_measure) {
                    Some(peer) => Row::against(&rate, Unit::PerSecond, rounds, &rate, &peer)?,
                    None => Row::alone(&rate, Unit::PerSecond, rounds, &rate)?,
                });
                let unit = Unit::Microseconds;
                rows.extend(latency::rows(&name, peer_name.as_deref(), unit, rounds)?);
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_the_operations() {
        let order = Order { is_write: false, is_random: false };
        let (documents, operations, clients) = (100, 250, 16);
        let job =
            Job { order, value_bytes: 9, documents, operations, clients, is_connecting: true };
        let mut all: Vec<u64> = (0..16).flat_map(|client| job.operations_of(client)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..250).collect::<Vec<_>>());
        assert_eq!(job.document(105), 5);
        let random = Job { order: Order { is_random: true, ..order }, ..job };
        assert!((0..250).all(|operation| random.document(operation) < 100));
        assert!(job.check(3, Some(data::value(3, 9))).is_ok());
        assert!(job.check(3, Some(data::value(4, 9))).is_err() && job.check(3, None).is_err());
    }
}
