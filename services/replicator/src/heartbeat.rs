//! Heartbeats: if nothing was appended to a partition for the store's interval, its replicator
//! appends an empty entry, so that readers know how fresh they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionRef, SchemaVersion};
use forebay_entries::{CatalogFollower, open_log};
use forebay_log::ChangeLog;
use forebay_replica::StoreReplica;
use forebay_runtime::ServiceContext;
use forebay_wire::entry::encode_entry;
use parking_lot::Mutex;
use tracing::debug;

/// Number of checks per interval: a heartbeat is at most a quarter of an interval late.
const LOOKS_PER_INTERVAL: u32 = 4;

/// Appender of heartbeats. In a process that writes, heartbeats take the same path as all writes,
/// so that the writer's cached state of each log stays valid.
#[async_trait]
pub trait Heartbeats: Send + Sync + 'static {
    /// Appends one heartbeat to a partition, even if its log was recreated.
    ///
    /// # Errors
    /// As the log's append.
    async fn append(&self, at: PartitionRef, version: SchemaVersion) -> Result<()>;
}

/// Cached state of a log; discarded after any failed append.
#[derive(Clone, Copy)]
struct KnownLog {
    log_id: LogId,
    /// Offset of the last heartbeat in the log.
    last: Option<Offset>,
}

/// Heartbeats that are appended directly to the log, for a process that writes nothing else to it.
pub struct LogHeartbeats {
    log: Arc<dyn ChangeLog>,
    entropy: Arc<dyn Entropy>,
    known_logs: Mutex<BTreeMap<PartitionRef, KnownLog>>,
}

impl LogHeartbeats {
    /// Creates an appender to the log of this context, whose randomness supplies the id of a log
    /// that must be opened.
    pub fn new(context: &ServiceContext) -> Self {
        let (log, entropy) = (Arc::clone(&context.log), Arc::clone(&context.entropy));
        Self { log, entropy, known_logs: Mutex::default() }
    }
}

#[async_trait]
impl Heartbeats for LogHeartbeats {
    async fn append(&self, at: PartitionRef, version: SchemaVersion) -> Result<()> {
        let known_log = self.known_logs.lock().remove(&at);
        let known_log = match known_log {
            Some(known_log) => known_log,
            None => {
                let log_id = open_log(&*self.log, &*self.entropy, at).await?;
                KnownLog { log_id, last: None }
            }
        };
        let entry = Entry::original(known_log.log_id, version, EntryBody::Heartbeat);
        let appended = self.log.append(at, encode_entry(&entry)?).await?;
        // Offsets only grow; otherwise the log was replaced, and its id must be read again.
        if known_log.last.is_none_or(|last| appended.offset > last) {
            let known_log = KnownLog { last: Some(appended.offset), ..known_log };
            self.known_logs.lock().insert(at, known_log);
        }
        Ok(())
    }
}

/// Appends heartbeats for one store until it is aborted.
pub(crate) async fn append_heartbeats(
    follower: StoreReplica,
    heartbeats: Arc<dyn Heartbeats>,
    catalog: Arc<CatalogFollower>,
    schema: Arc<SchemaAt>,
) {
    let definition = &schema.definition;
    let (logs, interval) = (definition.logs(), definition.options.heartbeat_ms.into());
    let interval = Duration::from_millis(interval);
    loop {
        tokio::time::sleep(interval / LOOKS_PER_INTERVAL).await;
        // Entries that a repartition forwards to the logs of a version that is not live yet have
        // their own time.
        let now = catalog.catalog();
        let live = |newest: &Arc<SchemaAt>| newest.definition.versions.live().logs;
        if now.store_by_logs(logs.store).map(live) != Some(logs) {
            continue;
        }
        for status in follower.status().partitions {
            // Before the log's end, the age shows how slow this replica is, not how silent the log.
            let is_silent = status.lag_records == 0 && status.age.is_none_or(|age| age >= interval);
            let at = logs.at(status.partition);
            if is_silent && let Err(error) = heartbeats.append(at, definition.version).await {
                // The next check tries again; until then, readers see their age rise.
                debug!(partition = %at, %error, "heartbeat append failed");
            }
        }
    }
}
