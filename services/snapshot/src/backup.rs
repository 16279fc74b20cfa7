//! Takes backups: a snapshot of each partition in the folder of the backups, and the log since the
//! one before.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::id::{Offset, PartitionRef};
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::{ChangeLog, LogRecord, RecordRange, follow_version};
use forebay_snapshot::{
    Backup, BackupName, ChunkUpload, KeptRecord, LogBlocks, LogSegment, Manifest, PartitionBackup,
    PartitionSnapshots, SnapshotStore,
};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::build::{Build, Built, definitions_of};
use crate::keeper::SnapshotParts;

/// Longest wait for a replicator to apply what is in the log when a backup begins.
const BEHIND_WAIT: Duration = Duration::from_secs(60);
/// How long a build that could not be is tried again.
const RETRY_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks at a replicator that is behind.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What backups are taken and restored with.
#[derive(Clone)]
pub struct BackupParts {
    /// What snapshots are kept with: where replicators are, and where a restored store's lie.
    pub kept: SnapshotParts,
    /// Where backups go: a folder of their own.
    pub backups: SnapshotStore,
    /// When a backup is taken.
    pub clock: Arc<dyn Clock>,
    /// A folder for images while they are restored.
    pub scratch: PathBuf,
}

/// The folder of the backups, if there is one.
///
/// # Errors
/// `InvalidArgument` for a URL that names no folder, without a folder of snapshots, which restored
/// stores begin with, and where it is that folder: backups would expire there.
pub fn backup_store(
    backups: Option<&str>,
    snapshots: Option<&str>,
) -> Result<Option<SnapshotStore>> {
    let Some(url) = backups else { return Ok(None) };
    let folder = |url: &str| url.trim_end_matches('/').to_owned();
    let wrong = match snapshots {
        None => "backups are restored by snapshots; set --snapshots too",
        Some(snapshots) if folder(snapshots) == folder(url) => {
            "backups need a folder of their own: snapshots expire; set another --backups"
        }
        Some(_) => return SnapshotStore::open(url).map(Some),
    };
    Err(Error::invalid_argument(wrong))
}

impl BackupParts {
    /// Takes a backup of all that the store's log held when this was called; tells how many
    /// partitions of how many are done.
    ///
    /// # Errors
    /// `NotFound` for a store that is not there; those of replicators, of the log and of the object
    /// store. No backup counts then that did not before, and another one goes on with what is
    /// stored.
    pub async fn take(&self, store: &str, tell: impl Fn(u32, u32)) -> Result<Backup> {
        self.kept.catch_up().await?;
        let definition = self.kept.catalog.catalog().of_documents(store)?.definition.clone();
        // What is pushed between two backups is not in the log between them.
        let live = definition.versions.live().kept_as;
        let partitions = definition.versions.live().logs.partitions;
        let own = Definition { store: live, partitions, ..definition.clone() };
        let log = follow_version(Arc::clone(&self.kept.log), &own);
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
            let since = last.and_then(|last| last.partitions.get(partitions.len()));
            partitions.push(self.partition(&*log, *at, *end, since, name.id).await?);
            tell(partitions.len() as u32, ends.len() as u32);
        }
        let definitions = definitions_of(&self.kept, live);
        let backup = Backup { name, before, store: live, definitions, partitions };
        self.backups.publish_backup(&backup).await?;
        info!(store, backup = %name, "a backup counts");
        Ok(backup)
    }

    /// The name of a backup that is behind another one, also where the clock was set back since:
    /// the last one is the newest, and the one that stays.
    fn name_behind(&self, last: Option<BackupName>) -> Result<BackupName> {
        let earliest = last.map_or(Timestamp::MIN, |last| last.taken_at.plus_micros(1));
        let taken_at = self.clock.now().max(earliest);
        Ok(BackupName { taken_at, id: self.kept.entropy.next_u64()? })
    }

    /// Removes the backups of the same store but for so many of the newest, and, a grace later,
    /// what they alone needed; answers how many.
    ///
    /// # Errors
    /// As [`SnapshotStore::expire_backups`].
    pub async fn expire(&self, newest: &Backup, keep: usize) -> Result<usize> {
        self.backups.expire_backups(newest, keep, self.kept.options.grace).await
    }

    async fn partition(
        &self,
        log: &dyn ChangeLog,
        at: PartitionRef,
        end: Offset,
        since: Option<&PartitionBackup>,
        id: u64,
    ) -> Result<PartitionBackup> {
        let to = self.backups.partition(at);
        let manifest = self.snapshot(&to, end).await?;
        let (snapshot, progress) = (manifest.name(), manifest.progress);
        let since = since.filter(|since| since.snapshot.log_id == snapshot.log_id);
        let log = match since.map(|since| since.progress.offset_applied) {
            Some(from) => self.log(log, &to, from..progress.offset_applied, id).await?,
            None => Vec::new(),
        };
        Ok(PartitionBackup { snapshot, progress, log })
    }

    /// A snapshot of a partition that has at least what is before an offset: the newest one, where
    /// nothing has come since.
    async fn snapshot(&self, to: &PartitionSnapshots, end: Offset) -> Result<Manifest> {
        let began = Instant::now();
        loop {
            let definitions = definitions_of(&self.kept, to.partition().store);
            let build = Build { parts: &self.kept, to: to.clone(), definitions, at_least: end };
            let (error, wait_max) = match build.run().await {
                Ok(Built::New(manifest) | Built::Same(manifest)) => return Ok(manifest),
                Ok(Built::Behind) => (behind(to.partition()), BEHIND_WAIT),
                // Another replicator gets the partition, say.
                Err(error) if error.code() == ErrorCode::Unavailable => (error, RETRY_WAIT),
                Err(error) => return Err(error),
            };
            if began.elapsed() > wait_max {
                return Err(error);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Keeps what a log holds between two offsets; nothing, where that is no longer all there.
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

/// Stores what a log holds between two offsets; nothing, where that is no longer all there.
async fn segments(mut range: RecordRange<'_>, upload: &mut ChunkUpload) -> Result<Vec<LogSegment>> {
    let (at, mut begun, end) = (range.at, range.offsets.start, range.offsets.end);
    let (mut blocks, mut segments) = (LogBlocks::default(), Vec::<LogSegment>::new());
    loop {
        let records = match range.next().await {
            Ok(records) => records,
            Err(error) if error.code() == ErrorCode::TokenLost => {
                warn!(%at, %error, "the log since the last backup was trimmed; let the store \
                       keep it for longer than backups are apart (log_window)");
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        if records.is_empty() {
            break;
        }
        for LogRecord { offset, append_time, entry } in &records {
            let kept = KeptRecord { offset: *offset, append_time: *append_time, entry };
            if let Some(full) = blocks.push(kept) {
                let end = offset.next();
                segments.push(segment(upload, begun..end, full).await?);
                begun = end;
            }
        }
    }
    match (blocks.take(), segments.last_mut()) {
        (Some(rest), _) => segments.push(segment(upload, begun..end, rest).await?),
        (None, Some(last)) => last.offsets.end = end,
        (None, None) => {}
    }
    Ok(segments)
}

fn behind(at: PartitionRef) -> Error {
    let message = "the replicator has not applied all that the log held when the backup was begun; \
                   look at its lag, and take the backup again";
    Error::unavailable(message).with_partition(at.partition)
}

async fn segment(
    upload: &mut ChunkUpload,
    offsets: Range<Offset>,
    bytes: Bytes,
) -> Result<LogSegment> {
    Ok(LogSegment { offsets, chunk: upload.put(bytes).await? })
}
