//! Blocking clients: threads that wait for every answer, and share the connection of their process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay::Store;
use forebay::schema::{Timestamp, Value};
use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use tokio::runtime::{Builder, Runtime};

use crate::data::Order;
use crate::node::connect;

/// A blocking client: a thread of an application whose threads share a client, as recommended.
pub struct BlockingClient {
    runtime: Arc<Runtime>,
    store: Store,
}

impl BlockingClient {
    /// Creates the clients of `count` threads of one application.
    ///
    /// # Errors
    /// Errors of the client.
    pub fn several(address: &str, count: usize) -> Result<Vec<Self>, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let store = runtime.block_on(connect(address))?;
        let runtime = Arc::new(runtime);
        let make_client = |_| Self { runtime: Arc::clone(&runtime), store: store.clone() };
        Ok((0..count).map(make_client).collect())
    }

    /// Inserts one order.
    ///
    /// # Errors
    /// Fails if the order is not acknowledged.
    pub fn insert(&self, order: Order) -> Result<(), Failure> {
        self.runtime.block_on(insert(&self.store, order))
    }

    /// Inserts orders together.
    ///
    /// # Errors
    /// Fails if an order is not acknowledged.
    pub fn insert_all(&self, orders: &[Order]) -> Result<(), Failure> {
        self.runtime.block_on(insert_all(&self.store, orders))
    }

    /// Selects a whole order by its key and its time.
    ///
    /// # Errors
    /// Fails if the order is not among the selected events.
    pub fn select(&self, order: Order) -> Result<(), Failure> {
        let after_event = Timestamp::from_micros(order.at.as_micros() + 1);
        let select = self.store.select().key(order.user()).start(order.at).end(after_event);
        let selected = self.runtime.block_on(select.send())?;
        let is_it = |value: Option<&Value>| value == Some(&Value::Int64(order.number as i64));
        if selected.events.iter().any(|event| is_it(event.value("n"))) {
            return Ok(());
        }
        Err(format!("{order:?} was acknowledged, but a select does not find it: {selected:?}")
            .into())
    }
}

/// Inserts one order.
///
/// # Errors
/// Fails if the order is not acknowledged.
pub async fn insert(store: &Store, order: Order) -> Result<(), Failure> {
    order.insert(store).send().await?;
    Ok(())
}

/// Inserts orders together.
///
/// # Errors
/// Fails if an order is not acknowledged.
pub async fn insert_all(store: &Store, orders: &[Order]) -> Result<(), Failure> {
    let mut batch = store.batch();
    orders.iter().try_for_each(|order| batch.add(order.insert(store)).map(drop))?;
    batch.send().await?.require_complete()?;
    Ok(())
}

/// Runs clients that call one after the other for `turn`, at least once each; returns calls per
/// second.
///
/// # Errors
/// Fails if a call fails.
pub fn closed_loop(
    clients: &[BlockingClient],
    turn: Duration,
    call: impl Fn(&BlockingClient) -> Result<(), Failure> + Sync,
) -> Result<(f64, Latency), String> {
    let began = nanos();
    let of_clients = on_each(clients, |_, client| {
        let step = || call(client).map_err(|failure| failure.to_string());
        Latency::of_steps(began, turn, step)
    })?;
    let mut latency = Latency::new()?;
    of_clients.iter().try_for_each(|of_client| latency.add(of_client))?;
    Ok((latency.rate_since(began), latency))
}

/// Runs a function for each client on the client's thread, all at once, with the client's index.
///
/// # Errors
/// The error of one client, when all have ended.
pub fn on_each<T: Send>(
    clients: &[BlockingClient],
    run: impl Fn(usize, &BlockingClient) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    thread::scope(|scope| {
        let run = &run;
        let start = |(place, client)| scope.spawn(move || run(place, client));
        let threads: Vec<_> = clients.iter().enumerate().map(start).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|result| result.map_err(|_| "a client panicked".to_owned())?).collect()
    })
}

/// Waits until a time of the clock.
pub fn wait_until(moment: u64) {
    let remaining = moment.saturating_sub(nanos());
    if remaining > 0 {
        thread::sleep(Duration::from_nanos(remaining));
    }
}
