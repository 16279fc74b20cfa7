//! What goes of a partition's snapshots: manifests that expired, and chunks that none names. The
//! rules, and why nobody's own clock matters: `proto/spec/snapshot.md`.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use forebay_core::{ErrorCode, Result};

use crate::chunk::ChunkId;
use crate::manifest::SnapshotName;
use crate::partition::{Listed, PartitionSnapshots};

/// What a collection has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Snapshots that expired now, since nobody has verified them.
    pub given_up: u64,
    /// Snapshots of which nothing is left.
    pub snapshots: u64,
    /// Chunks.
    pub chunks: u64,
    /// Files that a builder had begun to put into a folder of this machine when it was killed.
    pub staged: u64,
}

impl PartitionSnapshots {
    /// Removes what nobody may need any more. Others may build and collect meanwhile.
    ///
    /// # Errors
    /// Those of the object store; `Unsupported` for the manifest of a newer build, and `Corrupt`
    /// for one that is damaged, or was on its way here: nothing is removed then that it may name.
    /// It goes unread once it has expired for the grace.
    pub async fn collect(&self, grace: Duration) -> Result<Collected> {
        self.collect_beside(grace, &mut HashSet::new(), []).await
    }

    /// As [`PartitionSnapshots::collect`], where these snapshots are needed whatever a list of the
    /// object store says of them, and chunks that no snapshot names. A snapshot that is gone is
    /// needed no more.
    ///
    /// # Errors
    /// As [`PartitionSnapshots::collect`].
    pub async fn collect_beside(
        &self,
        grace: Duration,
        snapshots: &mut HashSet<SnapshotName>,
        chunks: impl IntoIterator<Item = ChunkId>,
    ) -> Result<Collected> {
        let now = self.now().await?;
        let is_past = move |time: SystemTime| {
            // A store whose clock goes back keeps all a while longer.
            now.duration_since(time).is_ok_and(|past| past > grace)
        };
        let mut collected = Collected::default();
        // Before the manifests: what is published behind the look at those names no chunk that may
        // go, since its builder would have given up by now.
        let stored = self.stored_chunks().await?;
        let mut kept: HashSet<_> = chunks.into_iter().map(|id| id.name()).collect();
        let mut gone = Vec::new();
        for listed in self.list().await? {
            let Listed { name, published, is_verified, expired } = listed;
            if snapshots.contains(&name) {
                continue;
            }
            if expired.is_some_and(is_past) {
                gone.push(name);
                continue;
            }
            if expired.is_none() && !is_verified && is_past(published) {
                self.expire(name).await?;
                collected.given_up += 1;
            }
            match self.read(name).await {
                Ok(manifest) => kept.extend(manifest.chunks().map(ChunkId::name)),
                // Another collector was first.
                Err(error) if error.code() == ErrorCode::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        // By their names, since a list may miss them.
        for name in snapshots.clone() {
            match self.read(name).await {
                Ok(manifest) => kept.extend(manifest.chunks().map(ChunkId::name)),
                Err(error) if error.code() == ErrorCode::NotFound => {
                    snapshots.remove(&name);
                }
                Err(error) => return Err(error),
            }
        }
        let to_go = |(name, written): (_, SystemTime)| {
            (!kept.contains(&name) && is_past(written)).then_some(name)
        };
        let chunks: Vec<_> = stored.into_iter().filter_map(to_go).collect();
        collected.chunks = chunks.len() as u64;
        self.remove_chunks(chunks).await?;
        for name in gone {
            self.remove_manifest(name).await?;
            collected.snapshots += 1;
        }
        collected.staged = self.remove_staged(is_past).await?;
        Ok(collected)
    }

    /// Removes all that there is, of a partition that nobody knows of.
    ///
    /// # Errors
    /// Those of the object store; some of it is gone then.
    pub async fn remove_all(&self) -> Result<()> {
        for listed in self.list().await? {
            self.remove_manifest(listed.name).await?;
        }
        let chunks = self.stored_chunks().await?.into_iter().map(|(name, _)| name).collect();
        self.remove_chunks(chunks).await
    }

    /// Lets all snapshots but these expire, and but the newest and those that are younger than the
    /// grace: somebody may be about to name them. Answers how many.
    ///
    /// # Errors
    /// Those of the object store.
    pub async fn expire_others(
        &self,
        named: &HashSet<SnapshotName>,
        grace: Duration,
    ) -> Result<u64> {
        let (now, mut expired) = (self.now().await?, 0);
        let mut listed = self.list().await?;
        Listed::sort_oldest_first(&mut listed);
        listed.pop();
        for Listed { name, published, .. } in listed.into_iter().filter(Listed::counts) {
            let is_old = now.duration_since(published).is_ok_and(|past| past > grace);
            if is_old && !named.contains(&name) {
                self.expire(name).await?;
                expired += 1;
            }
        }
        Ok(expired)
    }
}
