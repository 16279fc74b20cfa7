//! Retention of one partition's snapshots and log: expires old snapshots, collects garbage, and
//! trims the log up to the snapshots.

use std::collections::HashSet;

use forebay_core::catalog::Catalog;
use forebay_core::id::{LogId, Offset, PartitionRef};
use forebay_core::versions::StoreVersion;
use forebay_core::{ErrorCode, Result};
use forebay_entries::find_log_id;
use forebay_log::Bounds;
use forebay_snapshot::{ListedSnapshot, PartitionSnapshots, SnapshotName};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

use crate::build::is_lost;
use crate::context::SnapshotParts;
use crate::counts::SnapshotCounts;

/// Retention of one partition, with its state between two cleanups.
pub(crate) struct Retention<'r> {
    parts: &'r SnapshotParts,
    snapshots: &'r PartitionSnapshots,
    counts: &'r Mutex<SnapshotCounts>,
    next_collection: Instant,
    /// Snapshots that any listing has shown as counting: the next listing may miss some.
    listed_before: HashSet<SnapshotName>,
}

impl<'r> Retention<'r> {
    /// Creates the retention of the partition of these snapshots; the first collection is due at
    /// once.
    pub(crate) fn new(
        parts: &'r SnapshotParts,
        snapshots: &'r PartitionSnapshots,
        counts: &'r Mutex<SnapshotCounts>,
    ) -> Self {
        let (next_collection, listed_before) = (Instant::now(), HashSet::new());
        Self { parts, snapshots, counts, next_collection, listed_before }
    }

    /// Expires old snapshots, trims the log and collects garbage.
    pub(crate) async fn enforce(&mut self) -> Result<()> {
        self.expire_surplus().await?;
        self.trim().await?;
        if Instant::now() >= self.next_collection {
            let options = &self.parts.options;
            let snapshots = &mut self.listed_before;
            let stats = self.snapshots.collect_beside(options.grace, snapshots, []).await?;
            self.counts.lock().note_collection(&stats);
            self.next_collection = Instant::now() + options.collect_interval;
        }
        Ok(())
    }

    /// Expires the oldest snapshots beyond the number of retained ones.
    async fn expire_surplus(&mut self) -> Result<()> {
        let mut counting = self.snapshots.list().await?;
        ListedSnapshot::remember(&counting, &mut self.listed_before);
        counting.retain(ListedSnapshot::counts);
        ListedSnapshot::sort_oldest_first(&mut counting);
        let surplus = counting.len().saturating_sub(self.parts.options.retention.max(1));
        if surplus > 0 {
            // The newest readable snapshot is retained, even if the listing names newer ones.
            let newest = self.snapshots.newest(None).await?.map(|newest| newest.name());
            let old = counting[..surplus].iter().filter(|listed| Some(listed.name) != newest);
            for listed in old {
                self.snapshots.expire(listed.name).await?;
                self.listed_before.remove(&listed.name);
                self.counts.lock().snapshots_expired += 1;
            }
        }
        Ok(())
    }

    /// Trims the log up to the newest snapshots of all versions of the documents, as far as the
    /// store's retention permits.
    async fn trim(&self) -> Result<()> {
        let catalog = self.parts.context.catalog.catalog();
        let at = log_of(&catalog, self.snapshots.partition());
        let Some(newest) = catalog.store_by_logs(at.store) else { return Ok(()) };
        let definition = newest.definition.clone();
        let is_needed = |version: &StoreVersion| {
            // A restarted forwarder reads the source and target logs from their start.
            let is_end = version.logs.store == at.store;
            let source = version.repartition_source.as_ref();
            source.is_some_and(|source| is_end || source.from.store == at.store)
        };
        if definition.versions.all().iter().any(is_needed) {
            return Ok(());
        }
        let Some(retention_us) = definition.options.log_retention_us else { return Ok(()) };
        let bounds = self.parts.context.log.bounds(at).await?;
        let mut all = Vec::new();
        let follows = |version: &&StoreVersion| version.logs.store == at.store;
        for version in definition.versions.all().iter().filter(follows) {
            let stored_at = PartitionRef { store: version.storage_id, ..at };
            let of_version = self.parts.snapshots.partition(stored_at);
            let Some(trim_limit) = self.trims_until(&of_version, bounds, retention_us).await?
            else {
                return Ok(());
            };
            all.push(trim_limit);
        }
        let Some((before, log_id)) = all.into_iter().min() else { return Ok(()) };
        if before <= bounds.start {
            return Ok(());
        }
        let retained_bounds = Bounds { start: before, ..bounds };
        if find_log_id(&*self.parts.context.log, at, retained_bounds).await? != Some(log_id) {
            return Ok(());
        }
        match self.parts.context.log.trim(at, before).await {
            Err(error) if error.code() == ErrorCode::Unsupported => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                info!(%at, %before, "log trimmed up to its snapshots");
                self.counts.lock().log_trims += 1;
                Ok(())
            }
        }
    }

    /// Returns the offset up to which these snapshots permit a trim, and the id of their log.
    async fn trims_until(
        &self,
        snapshots: &PartitionSnapshots,
        bounds: Bounds,
        retention_us: i64,
    ) -> Result<Option<(Offset, LogId)>> {
        let Some(newest) = snapshots.newest(None).await? else { return Ok(None) };
        if newest.progress.offset_applied > bounds.end {
            return Ok(None);
        }
        // The retained span starts at a snapshot, so this snapshot and the log reproduce every
        // later state.
        let from = newest.progress.partition_time.as_micros().saturating_sub(retention_us);
        let mut before = None;
        for listed in snapshots.list().await?.into_iter().filter(ListedSnapshot::counts) {
            if listed.name.log_id != newest.log_id {
                continue;
            }
            let manifest = match snapshots.read(listed.name).await {
                // An unreadable snapshot retains the log; another snapshot may be readable.
                Err(error) if is_lost(&error) => continue,
                read => read?,
            };
            if manifest.progress.partition_time.as_micros() <= from {
                before = before.max(Some(manifest.progress.offset_applied));
            }
        }
        // The entry before the snapshot's end stays, because it identifies the log.
        Ok(before.map(|before| (Offset(before.0.saturating_sub(1)), newest.log_id)))
    }
}

/// Returns the partition's log that a version of a store's documents follows.
pub(crate) fn log_of(catalog: &Catalog, at: PartitionRef) -> PartitionRef {
    let newest = catalog.store(at.store).and_then(|history| history.newest());
    newest.map_or(at, |schema| schema.definition.logs().at(at.partition))
}
