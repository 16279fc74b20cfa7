//! The source that an empty replica starts from: a snapshot of its log; else a shard, if the log is
//! long or its start was removed by retention; else the log itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::{Offset, SchemaVersion};
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::{
    READER_BESIDE_CHUNKS_AT_ONCE, READER_DEFINITION_WAIT_MS, READER_FETCHES_AT_ONCE,
    READER_RECORDS_FOLDED_MAX, READER_SNAPSHOT_ATTEMPTS, SNAPSHOT_CHUNKS_AT_ONCE,
};
use forebay_core::replica_state::Progress;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::Image;
use forebay_log::Bounds;
use forebay_snapshot::{ImageBuilder, ImageState, Manifest, PartitionSnapshots, RemoteShardExport};
use forebay_tasks::block_in_place;
use tonic::transport::Channel;

use super::{SessionEnd, Tail};
use crate::bootstrap::{Bootstrap, image_of_shard};
use crate::connect::{LogConnection, in_time};
use crate::progress::SnapshotDownload;

impl Tail {
    /// Starts an empty replica from the newest snapshot of its log, or from a shard. If neither is
    /// available, the tail retries, and finally starts from the log, if the log is complete.
    ///
    /// Returns whether the replica has started.
    pub(super) async fn bootstrap(
        &mut self,
        connected: &LogConnection,
    ) -> Result<bool, SessionEnd> {
        let start = connected.bounds.start;
        if connected.log_id.is_none() && start == Offset(0) {
            // The log has no log header entry yet.
            return Ok(false);
        }
        match self.try_bootstrap(connected).await {
            Ok(is_begun) => {
                self.counts.bootstraps += u64::from(is_begun);
                self.bootstrap_attempts = 0;
                Ok(is_begun)
            }
            Err(error) => {
                self.counts.bootstraps_failed += 1;
                self.bootstrap_attempts += 1;
                let may_come = error.code() != ErrorCode::Unsupported
                    && self.bootstrap_attempts < READER_SNAPSHOT_ATTEMPTS;
                if start > Offset(0) || may_come {
                    return Err(SessionEnd::Retry(error));
                }
                let (at, name) = (self.partition.at, &self.context.name);
                tracing::warn!(
                    store = %name, partition = %at.partition, %error,
                    "no snapshot available; bootstrapping from the log"
                );
                Ok(false)
            }
        }
    }

    async fn try_bootstrap(&mut self, connected: &LogConnection) -> Result<bool> {
        if let Some(snapshots) = &self.context.options.snapshots {
            let snapshots = snapshots.partition(self.partition.at);
            match self.bootstrap_from_newest(&snapshots, connected).await {
                Err(error) if self.does_without(&error) => {
                    let at = self.partition.at;
                    tracing::warn!(%at, %error, "no snapshot available; loading a shard");
                }
                Ok(false) => {}
                outcome => return outcome,
            }
        }
        let Bounds { start, end, .. } = connected.bounds;
        let is_long = end.0.saturating_sub(start.0) > READER_RECORDS_FOLDED_MAX;
        match &self.context.parts.replicator {
            Some(replicator) if start > Offset(0) || is_long => {
                self.bootstrap_from_shard(connected, replicator.clone()).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether further attempts to get a snapshot are useless, and a shard may replace it.
    fn does_without(&self, error: &Error) -> bool {
        let is_final = match error.code() {
            ErrorCode::Unsupported => true,
            ErrorCode::Corrupt | ErrorCode::NotFound => {
                self.bootstrap_attempts + 1 >= READER_SNAPSHOT_ATTEMPTS
            }
            _ => false,
        };
        is_final && self.context.parts.replicator.is_some()
    }

    /// Starts from the newest usable snapshot, if there is one.
    async fn bootstrap_from_newest(
        &mut self,
        snapshots: &PartitionSnapshots,
        connected: &LogConnection,
    ) -> Result<bool> {
        // A log whose entries were all removed reports no id; its end must identify it then.
        let newest = snapshots.newest(connected.log_id).await?;
        // A snapshot below the log's start is useless.
        let is_of_use = |found: &Manifest| found.progress.offset_applied >= connected.bounds.start;
        let Some(manifest) = newest.filter(is_of_use) else { return Ok(false) };
        match self.bootstrap_from_snapshot(snapshots, &manifest).await {
            Ok(()) => Ok(true),
            Err(error) => {
                Err(error.while_doing(&format!("loading the snapshot {}", manifest.name())))
            }
        }
    }

    async fn bootstrap_from_snapshot(
        &mut self,
        snapshots: &PartitionSnapshots,
        manifest: &Manifest,
    ) -> Result<()> {
        self.check_start(&manifest.progress).await?;
        let is_beside = self.context.options.beside.is_some();
        let chunks_at_once =
            if is_beside { READER_BESIDE_CHUNKS_AT_ONCE } else { SNAPSHOT_CHUNKS_AT_ONCE };
        let bootstrap = Bootstrap { snapshots, manifest, chunks_at_once };
        let partition = Arc::clone(&self.partition);
        let tell = move |download| {
            partition.board.publish(|progress| progress.snapshot_download = Some(download))
        };
        tell(SnapshotDownload { bytes: 0, bytes_in_all: manifest.base.bytes() });
        // The semaphore never closes; an error would mean no permit, and no reason not to fetch.
        // The permit is held until the replica is built.
        let turns = if is_beside { READER_FETCHES_AT_ONCE as u32 } else { 1 };
        let context = Arc::clone(&self.context);
        let turn = context.fetches.acquire_many(turns).await.ok();
        let start = async {
            let mut fetch = bootstrap.fetch(&self.checkpoints, tell)?;
            fetch.begin(&mut self.replica).await.map(|state| (fetch, state))
        };
        let start = start.await;
        self.partition.board.publish(|progress| progress.snapshot_download = None);
        let (fetch, state) = start?;
        bootstrap.take_over(&mut self.replica, state).await?;
        drop(turn);
        // Reads use the image by now. If the sync fails, a restart bootstraps again.
        let file = fetch.keep().await.unwrap_or_else(|error| {
            tracing::warn!(at = %self.partition.at, %error, "fetched image not stored");
            None
        });
        self.note_bootstrap(file, &manifest.name().to_string());
        Ok(())
    }

    async fn bootstrap_from_shard(
        &mut self,
        connected: &LogConnection,
        from: Channel,
    ) -> Result<()> {
        let (name, at) = (&self.context.name, self.partition.at);
        let mut shard =
            RemoteShardExport::freeze(from, name, Some(at.store), at.partition, 0).await?;
        let image_result = self.image_of(&mut shard).await;
        shard.end().await;
        let (image, state, file) = image_result?;
        let is_of_log = connected.log_id.is_none_or(|log_id| state.state.log_id == Some(log_id));
        if state.state.partition != at || !is_of_log {
            return Err(Error::unavailable(
                "the replicator's shard is of another log now; try again",
            ));
        }
        self.check_start(&image.metadata().progress).await?;
        block_in_place(|| self.replica.restore(state, &image))?;
        self.note_bootstrap(file, "a replicator's shard");
        Ok(())
    }

    async fn image_of(
        &mut self,
        shard: &mut RemoteShardExport,
    ) -> Result<(Image, ImageState, Option<PathBuf>)> {
        // The control log has delivered the definitions that the shard's rows name by now.
        self.context.learn_definitions(SchemaVersion(0))?;
        let definitions = self.context.storage.schemas().all();
        let definitions: Vec<_> = definitions.map(|schema| (*schema.definition).clone()).collect();
        let order = KeyOrder::of(&self.context.storage.schemas().newest().definition);
        let (seed, memory) =
            (self.context.parts.entropy.next_u64()?, self.context.options.memory_limit);
        let (at, count) = (self.partition.at, self.context.count);
        let memory = memory.unwrap_or(u64::MAX);
        let builder = ImageBuilder::new(&definitions, at, count, seed, memory)?;
        image_of_shard(shard, builder, order, &self.checkpoints).await
    }

    /// Refuses a snapshot after the log's end, and waits for the schema definition of its position.
    async fn check_start(&self, progress: &Progress) -> Result<()> {
        let (offset, version) = (progress.offset_applied, progress.schema_version);
        // Queried again, because the log may have advanced since the connect.
        let bounds = self.context.parts.log.bounds(self.partition.at);
        if offset > in_time(Duration::ZERO, bounds).await?.end {
            let message =
                format!("the newest snapshot is at offset {offset}, after the end of the log");
            return Err(Error::corrupt(format!("{message}; restore the log")));
        }
        if version != SchemaVersion(0) && !self.context.learn_definitions(version)? {
            let wait_max = Duration::from_millis(READER_DEFINITION_WAIT_MS);
            self.context.await_definition(version, wait_max).await?;
        }
        Ok(())
    }

    fn note_bootstrap(&mut self, file: Option<PathBuf>, source: &str) {
        if let Some(checkpoints) = &mut self.checkpoints {
            file.iter().for_each(|file| block_in_place(|| checkpoints.take_fetched(file)));
            // A checkpoint would hold nothing that is not on disk or in the log, and catching up
            // comes first.
            checkpoints.rest(0);
        }
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::info!(store = %name, partition = %at.partition, with = source, "bootstrap loaded");
    }
}
