//! The plan of the orders, and the operations that one contender runs in one round.

use forebay_bench_micro::latency::Latency;

use super::data;

/// Sizes of the run.
#[derive(Clone, Debug)]
pub struct OrdersPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Documents, and operations of one order.
    pub operations: u64,
    /// Operations of one order in which each operation has its own connection.
    pub connecting: u64,
    /// Bytes of a value; each size has a store.
    pub values: Vec<usize>,
    /// Concurrent clients of a server.
    pub clients: usize,
}

/// The operation of an order, and its choice of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) is_write: bool,
    pub(super) is_random: bool,
}

/// Operations of one contender in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) order: Order,
    pub(super) value_bytes: usize,
    /// Number of existing documents.
    pub(super) documents: u64,
    pub(super) operations: u64,
    pub(super) clients: usize,
    pub(super) is_connecting: bool,
}

impl Job {
    /// Returns the document of an operation.
    pub(super) fn document(&self, operation: u64) -> u64 {
        match self.order.is_random {
            true => data::mix(operation) % self.documents,
            false => operation % self.documents,
        }
    }

    /// Returns the operations of one client: every n-th operation, so that all clients together
    /// keep the order.
    pub(super) fn operations_of(&self, client: usize) -> impl Iterator<Item = u64> + use<> {
        (client as u64..self.operations).step_by(self.clients)
    }

    /// Checks that a document has its expected value.
    pub(super) fn check(&self, document: u64, value: Option<&[u8]>) -> Result<(), String> {
        match value == Some(data::value(document, self.value_bytes)) {
            true => Ok(()),
            false => Err(format!("document {document} has another value, or none")),
        }
    }
}

/// A contender that runs orders.
pub(super) trait Side {
    /// Runs the operations; returns the time of each.
    fn run(&self, job: &Job) -> Result<Latency, String>;
}
