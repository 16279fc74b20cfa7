//! Clients that block: threads that wait for every answer, and share the connection of their
//! process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay::{Store, Timestamp, Value};
use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use tokio::runtime::{Builder, Runtime};

use crate::data::Order;
use crate::node::connect;

/// One of them: a thread of an application, whose threads share a client, as it is told to do.
pub struct BlockingClient {
    runtime: Arc<Runtime>,
    store: Store,
}

impl BlockingClient {
    /// So many threads' worth, of one application.
    ///
    /// # Errors
    /// Those of the client.
    pub fn several(address: &str, count: usize) -> Result<Vec<Self>, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let store = runtime.block_on(connect(address))?;
        let runtime = Arc::new(runtime);
        let one = |_| Self { runtime: Arc::clone(&runtime), store: store.clone() };
        Ok((0..count).map(one).collect())
    }

    /// Inserts an order by itself.
    ///
    /// # Errors
    /// It is not acknowledged.
    pub fn insert(&self, order: Order) -> Result<(), Failure> {
        self.runtime.block_on(insert(&self.store, order))
    }

    /// Inserts orders together.
    ///
    /// # Errors
    /// One of them is not acknowledged.
    pub fn insert_all(&self, orders: &[Order]) -> Result<(), Failure> {
        self.runtime.block_on(insert_all(&self.store, orders))
    }

    /// Selects an order whole, by its key and its time.
    ///
    /// # Errors
    /// It is not among what is selected.
    pub fn select(&self, order: Order) -> Result<(), Failure> {
        let behind = Timestamp::from_micros(order.at.as_micros() + 1);
        let select = self.store.select().key(order.user()).from(order.at).to(behind);
        let selected = self.runtime.block_on(select.send())?;
        let is_it = |value: Option<&Value>| value == Some(&Value::Int64(order.number as i64));
        if selected.events.iter().any(|event| is_it(event.value("n"))) {
            return Ok(());
        }
        Err(format!("{order:?} was acknowledged and is not selected: {selected:?}").into())
    }
}

/// Inserts an order by itself.
///
/// # Errors
/// It is not acknowledged.
pub async fn insert(store: &Store, order: Order) -> Result<(), Failure> {
    order.insert(store).send().await?;
    Ok(())
}

/// Inserts orders together.
///
/// # Errors
/// One of them is not acknowledged.
pub async fn insert_all(store: &Store, orders: &[Order]) -> Result<(), Failure> {
    let mut batch = store.batch();
    orders.iter().try_for_each(|order| batch.add(order.insert(store)).map(drop))?;
    batch.send().await?.into_complete()?;
    Ok(())
}

/// Clients that call one after the other for so long, at least once each; calls in a second.
///
/// # Errors
/// A call fails.
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

/// What each client does on its thread, told which it is; all of them at once.
///
/// # Errors
/// That of one, when all have ended.
pub fn on_each<T: Send>(
    clients: &[BlockingClient],
    run: impl Fn(usize, &BlockingClient) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    thread::scope(|scope| {
        let run = &run;
        let start = |(place, client)| scope.spawn(move || run(place, client));
        let threads: Vec<_> = clients.iter().enumerate().map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.map_err(|_| "a client panicked".to_owned())?).collect()
    })
}

/// Waits until this moment of the clock.
pub fn wait_until(moment: u64) {
    let left = moment.saturating_sub(nanos());
    if left > 0 {
        thread::sleep(Duration::from_nanos(left));
    }
}
