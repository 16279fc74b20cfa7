//! An open load: inserts and selects that are due at fixed moments, from clients that block.
//!
//! Each client has every n-th call, and makes it when it is due or, where the one before took too
//! long, as soon as that is answered. A call counts from when it was due, so a stall costs all that
//! fell into it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::taken::Taken;
use forebay_bench_micro::watcher::Probe;

use crate::clients::{BlockingClient, on_each, wait_until};
use crate::data::{Order, WATCHED};
use crate::node::Node;
use crate::selects::Older;
use crate::stretch::Stretch;

/// One call in so many is a select, all others are inserts.
pub const SELECT_ONE_IN: u64 = 5;
/// Of the inserts of towns that are watched, one in so many is a probe of freshness.
const PROBE_ONE_IN: u64 = 4;

/// What a load is.
pub struct Load<'l> {
    /// Who calls.
    pub clients: &'l [BlockingClient],
    /// What is called.
    pub node: &'l Node,
    /// What is selected.
    pub older: &'l Older,
    /// The number of the next order.
    pub next: &'l AtomicU64,
    /// Calls due in a second.
    pub rate: u64,
    /// How long; at least one call of each client is made.
    pub turn: Duration,
    /// How long the windows are whose worst is told.
    pub window: Duration,
}

/// What a load measured.
pub struct Measured {
    /// Inserts that were acknowledged.
    pub inserts: Stretch,
    /// Selects that found their row.
    pub selects: Stretch,
    /// Calls that were due and not made: those before took too long.
    pub left_out: u64,
    /// From the first call to the last answer.
    pub seconds: f64,
    /// What the node took meanwhile, its memory at the end.
    pub node: Taken,
    /// Seconds of processors that the clients took.
    pub clients_cpu: f64,
    /// Inserts that can be seen in what is emitted, by their numbers.
    pub probes: Vec<Probe>,
}

/// What one client did.
struct OfClient {
    /// Moments since the beginning, and how long each took.
    inserts: Vec<(u64, u64)>,
    selects: Vec<(u64, u64)>,
    probes: Vec<Probe>,
    left_out: u64,
}

impl Load<'_> {
    /// Makes all its calls, or as many as fit into its time.
    ///
    /// # Errors
    /// A call fails.
    pub fn run(&self) -> Result<Measured, String> {
        let (node, own) = (self.node.taken()?, Taken::by(std::process::id())?);
        let began = nanos();
        let done = on_each(self.clients, |place, client| self.calls(place, client, began))?;
        let seconds = (nanos() - began) as f64 / 1e9;
        let (node_after, own_after) = (self.node.taken()?, Taken::by(std::process::id())?);
        let mut measured = Measured {
            inserts: Stretch::new(self.window),
            selects: Stretch::new(self.window),
            left_out: 0,
            seconds,
            node: Taken {
                cpu_seconds: node_after.cpu_seconds - node.cpu_seconds,
                disk_bytes: node_after.disk_bytes - node.disk_bytes,
                ..node_after
            },
            clients_cpu: own_after.cpu_seconds - own.cpu_seconds,
            probes: Vec::new(),
        };
        for client in done {
            let OfClient { inserts, selects, probes, left_out } = client;
            inserts.iter().try_for_each(|(due, took)| measured.inserts.record(*due, *took))?;
            selects.iter().try_for_each(|(due, took)| measured.selects.record(*due, *took))?;
            measured.probes.extend(probes);
            measured.left_out += left_out;
        }
        measured.probes.sort_by_key(|probe| probe.value);
        Ok(measured)
    }

    fn calls(&self, place: usize, client: &BlockingClient, began: u64) -> Result<OfClient, String> {
        let (turn, clients) = (self.turn.as_nanos() as u64, self.clients.len() as u64);
        let mut done =
            OfClient { inserts: Vec::new(), selects: Vec::new(), probes: Vec::new(), left_out: 0 };
        let mut call = place as u64;
        loop {
            let due_after = call * 1_000_000_000 / self.rate;
            if due_after >= turn && call >= clients {
                return Ok(done);
            }
            wait_until(began + due_after);
            // Not all can be made of a load that is too much: what is late at its end is not begun.
            if nanos() - began >= turn && call >= clients {
                let last = self.rate * turn / 1_000_000_000;
                done.left_out = last.saturating_sub(call).div_ceil(clients);
                return Ok(done);
            }
            self.call(client, call, began + due_after, &mut done, began)?;
            call += clients;
        }
    }

    fn call(
        &self,
        client: &BlockingClient,
        call: u64,
        due: u64,
        done: &mut OfClient,
        began: u64,
    ) -> Result<(), String> {
        if call.is_multiple_of(SELECT_ONE_IN) {
            let order = self.older.one()?;
            client.select(order).map_err(|failure| format!("select: {failure}"))?;
            done.selects.push((due - began, nanos() - due));
            return Ok(());
        }
        let order = Order::now(self.next.fetch_add(1, Ordering::Relaxed));
        client.insert(order).map_err(|failure| format!("insert: {failure}"))?;
        let acknowledged = nanos();
        done.inserts.push((due - began, acknowledged - due));
        let (key, value) = (order.town(), order.number);
        if key < WATCHED && call % PROBE_ONE_IN == 1 {
            done.probes.push(Probe { key, value, due, acknowledged });
        }
        Ok(())
    }
}
