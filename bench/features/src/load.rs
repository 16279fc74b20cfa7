//! An open load: inserts and selects that are due at fixed moments, from clients that block.
//!
//! Each client has every n-th call, and makes it at its due time or, if the previous call took too
//! long, as soon as that is answered. A call counts from its due time, so a stall costs every call
//! that was due during the stall.
//!
//! The load outlasts its duration if it has no probe of freshness by then: it ends with the first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::rusage::ProcessUsage;
use forebay_bench_micro::watcher::Probe;

use crate::clients::{BlockingClient, on_each, wait_until};
use crate::data::{Order, WATCHED};
use crate::latency_window::LatencyWindows;
use crate::node::Node;
use crate::selects::Older;

/// Number of calls for each select; all others are inserts.
pub const SELECT_ONE_IN: u64 = 5;
/// Number of inserts of watched towns for each probe of freshness.
const PROBE_ONE_IN: u64 = 4;

/// Parameters of a load.
pub struct Load<'l> {
    /// The clients.
    pub clients: &'l [BlockingClient],
    /// Node that the clients call.
    pub node: &'l Node,
    /// Rows to select.
    pub older: &'l Older,
    /// Number of the next order.
    pub next: &'l AtomicU64,
    /// Calls due in a second.
    pub rate: u64,
    /// Duration; each client makes at least one call, and all together at least one probe.
    pub turn: Duration,
    /// Length of the windows whose worst is reported.
    pub window: Duration,
}

/// Results of a load.
pub struct LoadResults {
    /// Acknowledged inserts.
    pub inserts: LatencyWindows,
    /// Selects that found their row.
    pub selects: LatencyWindows,
    /// Calls that were due and not made, because earlier calls took too long.
    pub left_out: u64,
    /// Seconds from the first call to the last answer.
    pub seconds: f64,
    /// Resources that the node took during the load, with its memory at the end.
    pub node: ProcessUsage,
    /// Processor seconds of the clients.
    pub clients_cpu: f64,
    /// Inserts that are visible in materialized values, by their numbers.
    pub probes: Vec<Probe>,
}

/// Results of one client.
struct OfClient {
    /// Due time since the beginning, and duration, of each call.
    inserts: Vec<(u64, u64)>,
    selects: Vec<(u64, u64)>,
    probes: Vec<Probe>,
    left_out: u64,
}

impl Load<'_> {
    /// Makes all calls, or as many as fit into the load's duration.
    ///
    /// # Errors
    /// Fails if a call fails.
    pub fn run(&self) -> Result<LoadResults, String> {
        let (node, own_usage) = (self.node.usage()?, ProcessUsage::by(std::process::id())?);
        // Set by the first client that has a probe, or fails.
        let may_end = AtomicBool::new(false);
        let began = nanos();
        let client_results =
            on_each(self.clients, |place, client| self.calls(place, client, began, &may_end))?;
        let seconds = (nanos() - began) as f64 / 1e9;
        let (node_after, own_after) = (self.node.usage()?, ProcessUsage::by(std::process::id())?);
        let mut measured = LoadResults {
            inserts: LatencyWindows::new(self.window),
            selects: LatencyWindows::new(self.window),
            left_out: 0,
            seconds,
            node: ProcessUsage {
                cpu_seconds: node_after.cpu_seconds - node.cpu_seconds,
                disk_bytes: node_after.disk_bytes - node.disk_bytes,
                ..node_after
            },
            clients_cpu: own_after.cpu_seconds - own_usage.cpu_seconds,
            probes: Vec::new(),
        };
        for client in client_results {
            let OfClient { inserts, selects, probes, left_out } = client;
            inserts
                .iter()
                .try_for_each(|(due, duration)| measured.inserts.record(*due, *duration))?;
            selects
                .iter()
                .try_for_each(|(due, duration)| measured.selects.record(*due, *duration))?;
            measured.probes.extend(probes);
            measured.left_out += left_out;
        }
        measured.probes.sort_by_key(|probe| probe.value);
        Ok(measured)
    }

    fn calls(
        &self,
        place: usize,
        client: &BlockingClient,
        began: u64,
        may_end: &AtomicBool,
    ) -> Result<OfClient, String> {
        let (turn, clients) = (self.turn.as_nanos() as u64, self.clients.len() as u64);
        let mut client_result =
            OfClient { inserts: Vec::new(), selects: Vec::new(), probes: Vec::new(), left_out: 0 };
        let mut call = place as u64;
        // On a slow machine, few calls fit into a short load, and perhaps no probe.
        let may_end_at = |call| call >= clients && may_end.load(Ordering::Relaxed);
        loop {
            let due_after = call * 1_000_000_000 / self.rate;
            if due_after >= turn && may_end_at(call) {
                return Ok(client_result);
            }
            wait_until(began + due_after);
            // An excessive load cannot complete: calls that are late at its end are not started.
            if nanos() - began >= turn && may_end_at(call) {
                let last = self.rate * turn / 1_000_000_000;
                client_result.left_out = last.saturating_sub(call).div_ceil(clients);
                return Ok(client_result);
            }
            let called = self.call(client, call, began + due_after, &mut client_result, began);
            if called.is_err() || !client_result.probes.is_empty() {
                may_end.store(true, Ordering::Relaxed);
            }
            called?;
            call += clients;
        }
    }

    fn call(
        &self,
        client: &BlockingClient,
        call: u64,
        due: u64,
        client_result: &mut OfClient,
        began: u64,
    ) -> Result<(), String> {
        if call.is_multiple_of(SELECT_ONE_IN) {
            let order = self.older.one()?;
            client.select(order).map_err(|failure| format!("select: {failure}"))?;
            client_result.selects.push((due - began, nanos() - due));
            return Ok(());
        }
        let order = Order::now(self.next.fetch_add(1, Ordering::Relaxed));
        client.insert(order).map_err(|failure| format!("insert: {failure}"))?;
        let acknowledged = nanos();
        client_result.inserts.push((due - began, acknowledged - due));
        let (key, value) = (order.town(), order.number);
        if key < WATCHED && call % PROBE_ONE_IN == 1 {
            client_result.probes.push(Probe { key, value, due, acknowledged });
        }
        Ok(())
    }
}
