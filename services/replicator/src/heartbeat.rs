//! Heartbeats: when nothing was appended to a partition for the store's interval, its replicator
//! appends an entry that says nothing, so that readers know how fresh they are.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{Epoch, LogId, PartitionRef};
use forebay_log::ChangeLog;
use forebay_reader::Reader;
use forebay_wire::entry::encode_entry;
use tracing::debug;

/// Looks per interval: a beat comes at most a quarter of an interval late.
const LOOKS_PER_INTERVAL: u32 = 4;

/// Beats for one store until it is stopped.
pub(crate) async fn beat(reader: Reader, log: Arc<dyn ChangeLog>, schema: Arc<SchemaAt>) {
    let interval = Duration::from_millis(schema.definition.options.heartbeat_ms.into());
    loop {
        tokio::time::sleep(interval / LOOKS_PER_INTERVAL).await;
        for status in reader.status().partitions {
            // Before its first entry a log has no id: whoever announces the store opens it.
            let Ok(Some(log_id)) = reader.log_id(status.partition) else { continue };
            // Behind the log's end the age says how slow this replica is, not how silent the log.
            let is_silent = status.lag_records == 0 && status.age.is_none_or(|age| age >= interval);
            let at = PartitionRef { store: schema.definition.store, partition: status.partition };
            if is_silent && let Err(error) = append(&*log, at, log_id, &schema).await {
                // The next look tries again; readers see their age rise meanwhile.
                debug!(partition = %at, %error, "a heartbeat was not appended");
            }
        }
    }
}

async fn append(
    log: &dyn ChangeLog,
    at: PartitionRef,
    log_id: LogId,
    schema: &SchemaAt,
) -> forebay_core::Result<()> {
    let entry = Entry {
        log_id,
        epoch: Epoch(0),
        schema_version: schema.definition.version,
        source: None,
        body: EntryBody::Heartbeat,
    };
    log.append(at, encode_entry(&entry)?).await.map(|_| ())
}
