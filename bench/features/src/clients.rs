//! Clients that block: each is a thread with a connection of its own, and waits for every answer.

use std::thread;
use std::time::Duration;

use forebay::{Store, Timestamp, Value};
use forebay_bench_micro::Failure;
use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use tokio::runtime::{Builder, Runtime};

use crate::data::Order;
use crate::node::connect;

/// One of them.
pub struct BlockingClient {
    runtime: Runtime,
    store: Store,
}

impl BlockingClient {
    /// Connects.
    ///
    /// # Errors
    /// Those of the client.
    pub fn connect(address: &str) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let store = runtime.block_on(connect(address))?;
        Ok(Self { runtime, store })
    }

    /// So many.
    ///
    /// # Errors
    /// Those of the client.
    pub fn several(address: &str, count: usize) -> Result<Vec<Self>, Failure> {
        (0..count).map(|_| Self::connect(address)).collect()
    }

    /// Inserts an order by itself.
    ///
    /// # Errors
    /// It is not acknowledged.
    pub fn insert(&self, order: Order) -> Result<(), Failure> {
        self.runtime.block_on(order.insert(&self.store).send())?;
        Ok(())
    }

    /// Inserts orders together.
    ///
    /// # Errors
    /// One of them is not acknowledged.
    pub fn insert_all(&self, orders: &[Order]) -> Result<(), Failure> {
        let mut batch = self.store.batch();
        orders.iter().try_for_each(|order| batch.add(order.insert(&self.store)).map(drop))?;
        self.runtime.block_on(batch.send())?.into_complete()?;
        Ok(())
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
