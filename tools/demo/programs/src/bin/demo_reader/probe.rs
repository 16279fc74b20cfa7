//! Freshness: the time from the acknowledgement of a write until the write is visible in this
//! process.

use std::time::Duration;

use forebay::reads::FieldHandle;
use forebay::schema::FieldType;
use forebay::{Client, Reader, Store};
use forebay_demo::{Failure, Times, say};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Keys of one language's probes; together they cover all partitions.
const KEYS: i64 = 16;
/// Pause between two probes, so that they add little to the load.
const REST: Duration = Duration::from_millis(2);
/// Time after which a write that is still not visible is a failure.
const VISIBLE_WAIT: Duration = Duration::from_secs(30);
const SAY_INTERVAL: Duration = Duration::from_millis(500);

/// Writes probes and polls until each is visible.
pub struct Probe {
    store: Store,
    reader: Reader,
    value: FieldHandle,
    first_key: i64,
    written: i64,
    times: Times,
}

impl Probe {
    /// Creates a probe with its own keys.
    pub async fn new(client: Client, reader: Reader, number: i64) -> Result<Self, Failure> {
        let store = client.store("probes").await?;
        let value = reader.field_as("value", FieldType::INT64)?;
        let times = Times::new()?;
        Ok(Self { store, reader, value, first_key: number * KEYS, written: 0, times })
    }

    /// Probes until a probe fails; prints the figures from time to time.
    pub async fn run(&mut self) -> Failure {
        let mut said_at = Instant::now();
        loop {
            if let Err(failure) = self.probe().await {
                return failure;
            }
            if said_at.elapsed() >= SAY_INTERVAL {
                said_at = Instant::now();
                if let Err(failure) = say("freshness", self.figures()) {
                    return failure.into();
                }
            }
            tokio::time::sleep(REST).await;
        }
    }

    async fn probe(&mut self) -> Result<(), Failure> {
        self.written += 1;
        let (key, number) = (self.first_key + self.written % KEYS, self.written);
        self.store.upsert(key).set("value", number).send().await?;
        let acknowledged = Instant::now();
        while !self.sees(key, number)? {
            if acknowledged.elapsed() > VISIBLE_WAIT {
                return Err("an acknowledged write did not become visible in time".into());
            }
            tokio::task::yield_now().await;
        }
        self.times.record(acknowledged.elapsed());
        Ok(())
    }

    fn sees(&self, key: i64, number: i64) -> Result<bool, Failure> {
        let read = self.reader.get_scalar::<i64>(&self.value, key)?;
        Ok(read.value() == Some(number))
    }

    /// Returns the freshness of the reader so far.
    pub fn figures(&self) -> Value {
        json!({
            "samples": self.times.count(),
            "p50_us": self.times.micros(0.5),
            "p99_us": self.times.micros(0.99),
        })
    }
}
