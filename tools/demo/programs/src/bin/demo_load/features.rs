//! The values of a view as they arrive in embedded readers of this process.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay::reads::FieldHandle;
use forebay::schema::FieldType;
use forebay::writes::Token;
use forebay::{Client, Reader, ReaderOptions};
use forebay_demo::Failure;
use tokio::time::Instant;

const READY_WAIT: Duration = Duration::from_secs(30);
/// Longest time from the last acknowledgement until all values must have arrived.
const VALUES_WAIT: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A store that a view materializes to, with the handle of one of its counts.
pub struct Features {
    reader: Reader,
    count: FieldHandle,
}

impl Features {
    /// Follows a store; returns once the reader is ready.
    pub async fn open(client: &Client, store: &str, count: &str) -> Result<Self, Failure> {
        let reader = client.reader(ReaderOptions::new(store)).await?;
        reader.await_ready(READY_WAIT).await?;
        let count = reader.field_as(count, FieldType::INT64)?;
        Ok(Self { reader, count })
    }

    /// Returns the number of events in the value of a group, as far as this reader knows.
    pub fn count(&self, key: i64) -> Result<i64, Failure> {
        Ok(self.reader.get_i64(&self.count, key, 0)?)
    }

    /// Waits until the values of these groups cover `events` events in all.
    pub async fn await_events(&self, keys: &BTreeSet<i64>, events: i64) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let mut events_counted = 0;
            for key in keys {
                events_counted += self.count(*key)?;
            }
            // Too many events are for the oracle to find.
            if events_counted >= events {
                return Ok(());
            }
            if began.elapsed() > VALUES_WAIT {
                let store = self.reader.store();
                let message =
                    format!("{store} has {events_counted} of {events} events after a long wait");
                return Err(message.into());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Returns a token of everything that this reader has applied.
    pub fn token(&self) -> Result<Token, Failure> {
        let mut token = Token::new(self.reader.definition().store);
        for partition in self.reader.status().partitions {
            if let (Some(log), Some(position)) = (partition.log_id, partition.position) {
                token.advance(partition.partition, log, position)?;
            }
        }
        Ok(token)
    }
}
