//! Backups: a snapshot of each partition in the folder of the backups, and the log since the
//! previous backup.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionRef};
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::follow_version;
use forebay_log::{ChangeLog, LogRecord, RecordRange};
use forebay_snapshot::{
    Backup, BackupName, ChunkUpload, KeptRecord, LogBlocks, LogSegment, Manifest, PartitionBackup,
    PartitionSnapshots,
};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::build::{Build, BuildOutcome};
use crate::context::BackupParts;

/// Longest wait for a replicator to apply the entries that the log holds when a backup begins.
const BEHIND_WAIT: Duration = Duration::from_secs(60);
/// Time for which a failed build is retried.
const RETRY_WAIT: Duration = Duration::from_secs(10);
/// Time between two checks of a replicator that lags.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl BackupParts {
    /// Takes a backup of all entries that the store's log holds at the call. Calls `tell` with the
    /// number of finished partitions and the number of all partitions.
    ///
    /// # Errors
    /// `NotFound` if the store does not exist; else as the replicators, the log and the object
    /// store. In this case no backup is published, and the next backup reuses the stored chunks.
    pub async fn take(&self, store: &str, tell: impl Fn(u32, u32)) -> Result<Backup> {
        self.service.catch_up().await?;
        let catalog = self.service.context.catalog.catalog();
        let definition = catalog.document_store_by_name(store)?.definition.clone();
        // The log between two backups does not hold the documents that were pushed in between.
        let live = definition.versions.live().storage_id;
        let partitions = definition.versions.live().logs.partitions;
        let live_definition = Definition { store: live, partitions, ..(*definition).clone() };
        let log = follow_version(Arc::clone(&self.service.context.log), &live_definition);
        let mut ends = Vec::new();
        for partition in partitions.partitions() {
            let at = PartitionRef { store: live, partition };
            ends.push((at, log.bounds(at).await?.end));
        }
        let earlier = self.backups.backups(store).await?;
        let before = earlier.last().map(|last| last.name);
        let name = self.name_behind(before)?;
        let last = earlier.iter().rfind(|backup| backup.store == live);
        let mut partitions = Vec::new();
        for (at, end) in &ends {
            let last_partition = last.and_then(|last| last.partitions.get(partitions.len()));
            partitions.push(self.partition(&*log, *at, *end, last_partition, name.id).await?);
            tell(partitions.len() as u32, ends.len() as u32);
        }
        let definitions = self.service.definitions(live);
        let backup = Backup { name, before, store: live, definitions, partitions };
        self.backups.publish_backup(&backup).await?;
        info!(store, backup = %name, "backup complete");
        Ok(backup)
    }

    /// Returns a name that sorts after the last backup's, even if the clock was set back: the last
    /// backup is the newest, and the one that is retained.
    fn name_behind(&self, last: Option<BackupName>) -> Result<BackupName> {
        let earliest = last.map_or(Timestamp::MIN, |last| last.taken_at.plus_micros(1));
        let taken_at = self.service.context.clock.now().max(earliest);
        Ok(BackupName { taken_at, id: self.service.context.entropy.next_u64()? })
    }

    /// Expires all but the `keep` newest backups of the same store and, after a grace period,
    /// removes the data that only they needed; returns the number of expired backups.
    ///
    /// # Errors
    /// As [`SnapshotStore::expire_backups`](forebay_snapshot::SnapshotStore::expire_backups).
    pub async fn expire(&self, newest: &Backup, keep: usize) -> Result<usize> {
        self.backups.expire_backups(newest, keep, self.service.options.grace).await
    }

    async fn partition(
        &self,
        log: &dyn ChangeLog,
        at: PartitionRef,
        end: Offset,
        last: Option<&PartitionBackup>,
        id: u64,
    ) -> Result<PartitionBackup> {
        let to = self.backups.partition(at);
        let manifest = self.snapshot(&to, end).await?;
        let (snapshot, progress) = (manifest.name(), manifest.progress);
        let last = last.filter(|last| last.snapshot.log_id == snapshot.log_id);
        let log = match last.map(|last| last.progress.offset_applied) {
            Some(from) => self.log(log, &to, from..progress.offset_applied, id).await?,
            None => Vec::new(),
        };
        Ok(PartitionBackup { snapshot, progress, log })
    }

    /// Returns a snapshot of a partition that includes all entries before an offset; the newest
    /// existing snapshot, if the partition has not changed since.
    async fn snapshot(&self, to: &PartitionSnapshots, end: Offset) -> Result<Manifest> {
        let began = Instant::now();
        loop {
            let definitions = self.service.definitions(to.partition().store);
            let build = Build { parts: &self.service, to: to.clone(), definitions, at_least: end };
            let (error, wait_max) = match build.run().await {
                Ok(BuildOutcome::New(manifest) | BuildOutcome::Same(manifest)) => {
                    return Ok(manifest);
                }
                Ok(BuildOutcome::Behind) => (behind_error(to.partition()), BEHIND_WAIT),
                // The partition may be moving to another replicator, for example.
                Err(error) if error.code() == ErrorCode::Unavailable => (error, RETRY_WAIT),
                Err(error) => return Err(error),
            };
            if began.elapsed() > wait_max {
                return Err(error);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stores the entries of a log between two offsets; stores nothing if the log no longer holds
    /// all of them.
    async fn log(
        &self,
        log: &dyn ChangeLog,
        to: &PartitionSnapshots,
        offsets: Range<Offset>,
        id: u64,
    ) -> Result<Vec<LogSegment>> {
        let mut upload = ChunkUpload::new(to.clone(), id, Arc::default());
        let range = RecordRange { log, at: to.partition(), offsets };
        let segments = segments(range, &mut upload).await;
        let segments = upload.end(segments).await?;
        let stored = segments.iter().map(|segment| segment.chunk).collect();
        to.read_back(stored).await?;
        Ok(segments)
    }
}

/// Uploads the entries of a log between two offsets; returns no segments if the log no longer holds
/// all of them.
async fn segments(mut range: RecordRange<'_>, upload: &mut ChunkUpload) -> Result<Vec<LogSegment>> {
    let (at, mut segment_start, end) = (range.at, range.offsets.start, range.offsets.end);
    let (mut blocks, mut segments) = (LogBlocks::default(), Vec::<LogSegment>::new());
    loop {
        let records = match range.next().await {
            Ok(records) => records,
            Err(error) if error.code() == ErrorCode::TokenLost => {
                warn!(%at, %error, "log trimmed since the previous backup; raise log_retention");
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        if records.is_empty() {
            break;
        }
        for LogRecord { offset, append_time, entry } in &records {
            let record = KeptRecord { offset: *offset, append_time: *append_time, entry };
            if let Some(full) = blocks.push(record) {
                let end = offset.next();
                segments.push(segment(upload, segment_start..end, full).await?);
                segment_start = end;
            }
        }
    }
    match (blocks.take(), segments.last_mut()) {
        (Some(rest), _) => segments.push(segment(upload, segment_start..end, rest).await?),
        (None, Some(last)) => last.offsets.end = end,
        (None, None) => {}
    }
    Ok(segments)
}

fn behind_error(at: PartitionRef) -> Error {
    let message = "the replicator has not applied the log up to the start of the backup; look at \
        the replicator's lag, and take the backup again";
    Error::unavailable(message).with_partition(at.partition)
}

async fn segment(
    upload: &mut ChunkUpload,
    offsets: Range<Offset>,
    bytes: Bytes,
) -> Result<LogSegment> {
    Ok(LogSegment { offsets, chunk: upload.put(bytes).await? })
}
