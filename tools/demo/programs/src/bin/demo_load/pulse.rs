//! Freshness of features: the time from the acknowledgement of an event until an embedded reader
//! shows the value that counts the event.

use std::time::Duration;

use forebay::{Client, Store};
use forebay_demo::{Failure, Times};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use crate::features::Features;

/// Keys of the pulses; together they cover all partitions.
const KEYS: i64 = 16;
/// Pause between two polls. The pause is part of the measured time, and leaves the processor to
/// other tasks.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Time after which a value that is still not visible is a failure.
const VISIBLE_WAIT: Duration = Duration::from_secs(30);

/// Inserts pulses and polls for the values that count them.
pub struct Pulse {
    store: Store,
    values: Features,
    sent: i64,
    times: Times,
}

impl Pulse {
    /// Opens the stream of pulses, which has no other writer.
    pub async fn open(client: &Client) -> Result<Self, Failure> {
        let store = client.store("pulses").await?;
        let values = Features::open(client, "pulse_values", "pulse_count").await?;
        Ok(Self { store, values, sent: 0, times: Times::new()? })
    }

    /// Inserts pulses, one after the other, until `stop` fires; returns the times.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Result<Times, Failure> {
        while stop.try_recv() == Err(TryRecvError::Empty) {
            self.pulse().await?;
        }
        Ok(self.times)
    }

    async fn pulse(&mut self) -> Result<(), Failure> {
        let (key, count) = (self.sent % KEYS, self.sent / KEYS + 1);
        self.sent += 1;
        self.store.insert(key).send().await?;
        let acknowledged = Instant::now();
        while self.values.count(key)? < count {
            if acknowledged.elapsed() > VISIBLE_WAIT {
                return Err("the value of an acknowledged event did not become visible".into());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        self.times.record(acknowledged.elapsed());
        Ok(())
    }
}
