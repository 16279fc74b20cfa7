//! Records on their way from the log into the replica: decode, fold, flush, and the report of those
//! that every replica skips.

use std::time::Duration;

use forebay_core::change::Entry;
use forebay_core::fold::Record;
use forebay_core::id::{LogId, SchemaVersion};
use forebay_core::limits::READER_DEFINITION_WAIT_MS;
use forebay_core::outcome::Outcome;
use forebay_core::state_rows::SkippedRecord;
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::LogRecord;
use forebay_wire::entry::decode_entry;

use super::{SessionEnd, Tail};
use crate::connect::read_one;
use crate::context::call_back;
use crate::options::SkippedLogRecord;
use crate::partition_replica::{ApplyError, ApplyResult};

impl Tail {
    /// Replays records in order. Before the first record of another log id, the tail queries the
    /// log's id: if the log was replaced, later records with the replica's id (such as the reader's
    /// own barriers) do not belong to the replica's log.
    pub(super) async fn replay(&mut self, records: &[LogRecord]) -> Result<(), SessionEnd> {
        let replayed = self.replay_until_error(records).await;
        // Write the records before the failing one. If that write fails permanently, report that
        // error: otherwise the tail would keep following with a replica that can no longer write.
        let write_result = self.write_buffered();
        write_result.and(replayed)
    }

    async fn replay_until_error(&mut self, records: &[LogRecord]) -> Result<(), SessionEnd> {
        let mut is_checked = false;
        for record in records {
            let (record, entry) = self.decode(record.clone()).await?;
            if !is_checked && self.is_suspect(&entry) {
                self.write_buffered()?;
                self.connect().await?;
                is_checked = true;
            }
            self.apply_record(record, entry).await?;
        }
        Ok(())
    }

    /// Decodes a record. Reads a damaged record once more, because the damage may have happened in
    /// transit.
    async fn decode(&self, record: LogRecord) -> Result<(LogRecord, Result<Entry>), SessionEnd> {
        let entry = decode_entry(&record.entry);
        if !entry.as_ref().is_err_and(|error| error.code() == ErrorCode::Corrupt) {
            return Ok((record, entry));
        }
        let log = &*self.context.parts.log;
        let second_read = read_one(log, self.partition.at, record.offset).await;
        let record = second_read.map_err(SessionEnd::Retry)?.unwrap_or(record);
        let entry = decode_entry(&record.entry);
        Ok((record, entry))
    }

    fn is_suspect(&self, entry: &Result<Entry>) -> bool {
        let Some(local_log_id) = self.replica.state().log_id else { return false };
        match entry {
            Ok(entry) => entry.log_id != local_log_id,
            Err(error) => error.code() == ErrorCode::UpgradeNeeded,
        }
    }

    async fn apply_record(
        &mut self,
        record: LogRecord,
        entry: Result<Entry>,
    ) -> Result<(), SessionEnd> {
        let outcome = match self.apply(&record, entry) {
            Err(ApplyError::NeedsDefinition(version)) => {
                self.write_buffered()?;
                self.await_definition_of(version).await?;
                self.apply(&record, decode_entry(&record.entry))
            }
            outcome => outcome,
        };
        let result = outcome.map_err(|error| self.session_end(error))?;
        self.counts.log_bytes_read += record.entry.len() as u64;
        self.counts.duplicates_skipped += result.duplicates_skipped;
        self.counts.oversized_skipped += result.oversized_skipped;
        match result.skipped {
            None => self.counts.records_applied += 1,
            Some(reason) => self.note_skipped(record, reason),
        }
        Ok(())
    }

    fn write_buffered(&mut self) -> Result<(), SessionEnd> {
        self.replica.write_buffered().map_err(|error| self.session_end(error))
    }

    /// Returns how a session goes on from a record that was not applied.
    pub(super) fn session_end(&self, error: ApplyError) -> SessionEnd {
        match error {
            ApplyError::NeedsDefinition(version) => SessionEnd::Retry(unknown_definition(version)),
            ApplyError::UpgradeNeeded(error) => SessionEnd::Halt(error),
            ApplyError::Full(error) => SessionEnd::Retry(error),
            ApplyError::NeedsRoom(error) => SessionEnd::Rebuild(error),
            ApplyError::Broken(error) => match self.replica.writer().check_integrity() {
                Ok(()) => SessionEnd::Poison(error),
                Err(damage) => SessionEnd::Rebuild(damage),
            },
        }
    }

    fn apply(
        &mut self,
        record: &LogRecord,
        entry: Result<Entry>,
    ) -> Result<ApplyResult, ApplyError> {
        let partition = &self.partition;
        let keep = |outcomes: &[Outcome]| partition.keep_outcomes(outcomes);
        let fold = Record { offset: record.offset, append_time: record.append_time, entry };
        self.replica.apply(fold, self.context.storage.schemas(), keep)
    }

    fn note_skipped(&mut self, record: LogRecord, reason: Error) {
        self.counts.records_skipped += 1;
        let (at, offset) = (self.partition.at, record.offset);
        tracing::warn!(
            store = %self.context.name, partition = %at.partition, %offset, %reason,
            "record skipped by every replica"
        );
        self.report_skipped(record, self.replica.state().log_id, reason);
    }

    /// Reports the records that were skipped before the replica was opened here, if the log still
    /// holds them.
    pub(super) async fn report_skipped_before(&mut self) -> Result<(), SessionEnd> {
        if self.context.options.on_skipped.is_none() {
            self.skipped_before.clear();
        }
        while let Some((offset, _)) = self.skipped_before.first_key_value() {
            let log = &*self.context.parts.log;
            let record = match read_one(log, self.partition.at, *offset).await {
                // Retention has removed the record since.
                Err(error) if error.code() == ErrorCode::TokenLost => None,
                record => record.map_err(SessionEnd::Retry)?,
            };
            let skipped = self.skipped_before.pop_first();
            if let Some((record, (_, SkippedRecord { log_id, reason }))) = record.zip(skipped) {
                self.report_skipped(record, log_id, reason);
            }
        }
        Ok(())
    }

    fn report_skipped(&self, record: LogRecord, log_id: Option<LogId>, reason: Error) {
        let Some(on_skipped) = &self.context.options.on_skipped else { return };
        let (at, offset) = (self.partition.at, record.offset);
        let (append_time, entry) = (record.append_time, record.entry);
        let skipped = SkippedLogRecord { at, offset, log_id, append_time, entry, reason };
        call_back("on_skipped", || on_skipped(&skipped));
    }

    async fn await_definition_of(&mut self, version: SchemaVersion) -> Result<(), SessionEnd> {
        if self.context.learn_definitions(version).map_err(SessionEnd::Retry)? {
            return Ok(());
        }
        self.publish(|progress| progress.last_error = Some(unknown_definition(version)));
        let wait_max = Duration::from_millis(READER_DEFINITION_WAIT_MS);
        self.context.await_definition(version, wait_max).await.map_err(SessionEnd::Retry)
    }
}

fn unknown_definition(version: SchemaVersion) -> Error {
    Error::unavailable(format!(
        "the log names schema version {version}, which is not in the control log yet"
    ))
}
