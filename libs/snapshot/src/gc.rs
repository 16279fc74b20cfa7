//! Garbage collection of a partition's snapshots: removes expired manifests, and chunks that no
//! manifest names. `proto/spec/snapshot.md` states the rules, and why no process's own clock
//! matters.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use forebay_core::{ErrorCode, Result};

use crate::chunk::ChunkId;
use crate::manifest::{Manifest, SnapshotName};
use crate::partition::{ListedSnapshot, PartitionSnapshots};

/// Statistics of a garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Unverified snapshots that the collection expired.
    pub expired: u64,
    /// Snapshots that were removed.
    pub snapshots: u64,
    /// Chunks that were removed.
    pub chunks: u64,
    /// Partial files that killed builders had left in a folder of this machine.
    pub abandoned_uploads: u64,
}

impl PartitionSnapshots {
    /// Removes everything that no process may need any more. Other processes may build and collect
    /// concurrently.
    ///
    /// # Errors
    /// The errors of the object store; `Unsupported` for the manifest of a newer build; `Corrupt`
    /// for a manifest that is damaged, on the disk or in transit. In these two cases nothing that
    /// the manifest may name is removed. A manifest that expired longer ago than the grace period
    /// is not read.
    pub async fn collect(&self, grace: Duration) -> Result<GcStats> {
        self.collect_beside(grace, &mut HashSet::new(), []).await
    }

    /// Works like [`PartitionSnapshots::collect`], but retains these snapshots, regardless of the
    /// object store's lists, and these chunks, which no snapshot names. A snapshot that is gone
    /// leaves `snapshots`.
    ///
    /// # Errors
    /// As [`PartitionSnapshots::collect`].
    pub async fn collect_beside(
        &self,
        grace: Duration,
        snapshots: &mut HashSet<SnapshotName>,
        chunks: impl IntoIterator<Item = ChunkId>,
    ) -> Result<GcStats> {
        let now = self.now().await?;
        let is_past = move |time: SystemTime| {
            // If the clock of the object store goes back, everything stays for a while longer.
            now.duration_since(time).is_ok_and(|age| age > grace)
        };
        let mut stats = GcStats::default();
        // The collector lists the chunks before the manifests. A manifest that is published after
        // the list of manifests names no chunk that may go, because its builder would have given up
        // by now.
        let stored = self.stored_chunks().await?;
        let mut needed_chunks: HashSet<_> = chunks.into_iter().map(|id| id.name()).collect();
        let mut expired_names = Vec::new();
        for listed in self.list().await? {
            let ListedSnapshot { name, published, is_verified, expired } = listed;
            if snapshots.contains(&name) {
                continue;
            }
            if expired.is_some_and(is_past) {
                expired_names.push(name);
                continue;
            }
            if expired.is_none() && !is_verified && is_past(published) {
                self.expire(name).await?;
                stats.expired += 1;
            }
            // Another collector may have been faster.
            if let Some(manifest) = self.read_if_present(name).await? {
                needed_chunks.extend(manifest.chunks().map(ChunkId::name));
            }
        }
        // These snapshots are read by name, because a list may miss them.
        for name in snapshots.clone() {
            match self.read_if_present(name).await? {
                Some(manifest) => needed_chunks.extend(manifest.chunks().map(ChunkId::name)),
                None => {
                    snapshots.remove(&name);
                }
            }
        }
        let to_go = |(name, written): (_, SystemTime)| {
            (!needed_chunks.contains(&name) && is_past(written)).then_some(name)
        };
        let chunks: Vec<_> = stored.into_iter().filter_map(to_go).collect();
        stats.chunks = chunks.len() as u64;
        self.remove_chunks(chunks).await?;
        for name in expired_names {
            self.remove_manifest(name).await?;
            stats.snapshots += 1;
        }
        stats.abandoned_uploads = self.remove_abandoned_uploads(is_past).await?;
        Ok(stats)
    }

    /// Reads a manifest; `None` if another collector has removed it.
    async fn read_if_present(&self, name: SnapshotName) -> Result<Option<Manifest>> {
        match self.read(name).await {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes all objects of a partition that is no longer in use.
    ///
    /// # Errors
    /// The errors of the object store; part of the objects is gone then.
    pub async fn remove_all(&self) -> Result<()> {
        for listed in self.list().await? {
            self.remove_manifest(listed.name).await?;
        }
        let chunks = self.stored_chunks().await?.into_iter().map(|(name, _)| name).collect();
        self.remove_chunks(chunks).await
    }

    /// Expires all snapshots except the named ones, the newest, and those younger than the grace
    /// period, which a process may be about to name. Returns the number of expired snapshots.
    ///
    /// # Errors
    /// The errors of the object store.
    pub async fn expire_others(
        &self,
        named: &HashSet<SnapshotName>,
        grace: Duration,
    ) -> Result<u64> {
        let (now, mut expired) = (self.now().await?, 0);
        let mut listed = self.list().await?;
        ListedSnapshot::sort_oldest_first(&mut listed);
        listed.pop();
        for ListedSnapshot { name, published, .. } in
            listed.into_iter().filter(ListedSnapshot::counts)
        {
            let is_old = now.duration_since(published).is_ok_and(|age| age > grace);
            if is_old && !named.contains(&name) {
                self.expire(name).await?;
                expired += 1;
            }
        }
        Ok(expired)
    }
}
