//! The writer's view of one partition's log: the log's id, the schema version that the log has
//! seen, and the append that keeps both valid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::change::{Entry, EntryBody};
use forebay_core::entropy::Entropy;
use forebay_core::id::{LogId, Offset, PartitionRef, SchemaVersion};
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::{append_log_header, find_log_id};
use forebay_log::{AppendReceipt, ChangeLog, ReadLimit};
use forebay_wire::entry::{decode_entry, encode_entry};
use tokio::sync::Mutex;

const LAST_READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };
const ATTEMPTS_MAX: usize = 4;

/// Cached state of the log; the writer discards it after any failed or doubtful append.
#[derive(Clone, Copy)]
struct LogState {
    log_id: LogId,
    schema_version: SchemaVersion,
    last: Offset,
}

/// Appender to one partition; runs one append at a time, in the order of the calls.
pub(crate) struct PartitionLog {
    at: PartitionRef,
    log: Arc<dyn ChangeLog>,
    entropy: Arc<dyn Entropy>,
    state: Mutex<Option<LogState>>,
    was_there: AtomicBool,
}

impl PartitionLog {
    pub(crate) fn new(
        at: PartitionRef,
        log: Arc<dyn ChangeLog>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { at, log, entropy, state: Mutex::new(None), was_there: AtomicBool::new(false) }
    }

    /// Returns whether this writer has ever seen the log.
    pub(crate) fn was_there(&self) -> bool {
        self.was_there.load(Ordering::Relaxed)
    }

    /// Returns the log's id; appends the log header entry if the log has none.
    pub(crate) async fn log_id(&self) -> Result<LogId> {
        let mut state = self.state.lock().await;
        Ok(self.load_log_state(&mut state).await?.log_id)
    }

    /// Ensures that the partition has seen this schema version.
    pub(crate) async fn announce(&self, version: SchemaVersion) -> Result<()> {
        let mut state = self.state.lock().await;
        self.announce_locked(&mut state, version).await
    }

    /// Appends an entry with this body, after the announcement of its schema version.
    ///
    /// # Errors
    /// As [`ChangeLog::append`]; after an error the next append first reads the log's state again.
    pub(crate) async fn append(
        &self,
        version: SchemaVersion,
        body: EntryBody,
    ) -> Result<(LogId, AppendReceipt)> {
        let mut state = self.state.lock().await;
        if version > SchemaVersion(0) {
            self.announce_locked(&mut state, version).await?;
        }
        let log_id = self.load_log_state(&mut state).await?.log_id;
        let receipt = self.append_locked(&mut state, version, body).await?;
        Ok((log_id, receipt))
    }

    /// Appends an entry that another process built, if the entry names this log.
    pub(crate) async fn append_finished(&self, entry: &Entry) -> Result<AppendReceipt> {
        let mut state = self.state.lock().await;
        let found = self.load_log_state(&mut state).await?.log_id;
        if entry.log_id != found {
            let message = "the entry was encoded for another log; look up the log's id again";
            return Err(Error::token_lost(message).with_partition(self.at.partition));
        }
        self.append_entry(&mut state, entry).await
    }

    async fn announce_locked(
        &self,
        state: &mut Option<LogState>,
        version: SchemaVersion,
    ) -> Result<()> {
        if self.load_log_state(state).await?.schema_version >= version {
            return Ok(());
        }
        self.append_locked(state, version, EntryBody::Definition).await.map(|_| ())
    }

    async fn append_locked(
        &self,
        state: &mut Option<LogState>,
        version: SchemaVersion,
        body: EntryBody,
    ) -> Result<AppendReceipt> {
        let log_id = self.load_log_state(state).await?.log_id;
        let entry = Entry::original(log_id, version, body);
        self.append_entry(state, &entry).await
    }

    async fn append_entry(
        &self,
        state: &mut Option<LogState>,
        entry: &Entry,
    ) -> Result<AppendReceipt> {
        let bytes = encode_entry(entry)?;
        let before = state.take();
        let receipt = self
            .log
            .append(self.at, bytes)
            .await
            .map_err(|error| error.with_partition(self.at.partition))?;
        let Some(mut now) = before else { return Ok(receipt) };
        if receipt.offset <= now.last {
            // Offsets only grow, so the log was replaced between two appends. A follower of the new
            // log skips an entry that carries the old log's id.
            let message = "the log was replaced during the append; retry the same write";
            return Err(Error::unknown_outcome(message).with_partition(self.at.partition));
        }
        now.last = receipt.offset;
        now.schema_version = now.schema_version.max(entry.schema_version);
        *state = Some(now);
        Ok(receipt)
    }

    /// Returns the cached state of the log. If there is none, reads the state and opens the log if
    /// necessary.
    async fn load_log_state(&self, state: &mut Option<LogState>) -> Result<LogState> {
        if let Some(state) = *state {
            return Ok(state);
        }
        let mut trimmed = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.look_up().await {
                Ok(Some(found)) => return Ok(*state.insert(found)),
                Ok(None) => append_log_header(&*self.log, &*self.entropy, self.at).await?,
                // A snapshot service has trimmed the log between two reads.
                Err(error) if error.code() == ErrorCode::TokenLost => trimmed = Some(error),
                Err(error) => return Err(error),
            }
        }
        let error = match trimmed {
            Some(error) => Error::unavailable(format!("{}; try again", error.message())),
            None => Error::corrupt(
                "the log has no log header entry; check which other programs write to the log",
            ),
        };
        Err(error.with_partition(self.at.partition))
    }

    async fn look_up(&self) -> Result<Option<LogState>> {
        let bounds = self.log.bounds(self.at).await?;
        self.was_there.store(true, Ordering::Relaxed);
        let Some(log_id) = find_log_id(&*self.log, self.at, bounds).await? else {
            return Ok(None);
        };
        let schema_version = self.last_schema_version(log_id, bounds.end).await?;
        let last = Offset(bounds.end.0.saturating_sub(1));
        Ok(Some(LogState { log_id, schema_version, last }))
    }

    /// Returns the schema version that the log's last entry names, or 0 if that entry names none. A
    /// 0 costs one more announcement and has no other effect.
    async fn last_schema_version(&self, log_id: LogId, end: Offset) -> Result<SchemaVersion> {
        let Some(last) = end.0.checked_sub(1) else { return Ok(SchemaVersion(0)) };
        let read = self.log.read(self.at, Offset(last), LAST_READ).await?;
        let entry = read.records.first().and_then(|record| decode_entry(&record.entry).ok());
        Ok(entry
            .filter(|entry| entry.log_id == log_id)
            .map_or(SchemaVersion(0), |entry| entry.schema_version))
    }
}
