//! The target of a push: a new store, or a new version of a store's documents.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::schema::Definition;
use forebay_core::versions::VersionNumber;
use forebay_snapshot::{LoadBase, LoadedPartition};
use forebay_tasks::block_in_place;

use super::activation::{LiveVersion, go_live};
use super::new_version::{NewVersion, VersionParts};
use super::workspace::PushWorkspace;
use crate::new_store::{FinishedPartition, NewStore, PartitionParts};

/// The version or the store that a push builds.
pub(super) enum PushTarget<'p> {
    Store(NewStore<'p>),
    Version(Box<NewVersion<'p>>),
}

impl PushTarget<'_> {
    /// Creates what the partitions need before they are built.
    ///
    /// # Errors
    /// As [`NewVersion::prepare`]; else as the log.
    pub(super) async fn prepare(&self, workspace: &PushWorkspace) -> Result<()> {
        match self {
            Self::Store(store) => store.create_logs().await,
            Self::Version(version) => version.prepare(workspace).await,
        }
    }

    /// Builds a partition, unless it is finished. `load` folds the partition's rows on a base, with
    /// these definitions; the first one encodes the rows. `like` is the definition of the pushed
    /// documents, and `time` their time.
    ///
    /// # Errors
    /// The errors of `load`; `Unavailable` if no replicator has reached the end of the log; else as
    /// the log and the object store.
    pub(super) async fn build(
        &self,
        partition: PartitionId,
        like: &Definition,
        time: Timestamp,
        load: impl Fn(&[Definition], LoadBase) -> Result<LoadedPartition>,
    ) -> Result<FinishedPartition> {
        match self {
            Self::Store(store) => {
                let log = match store.begin(partition).await? {
                    PartitionParts::Finished(finished) => return Ok(finished),
                    PartitionParts::Log(log) => log,
                };
                let own = Definition { store: store.id, ..like.clone() };
                let base = log.begins(&own, time);
                let (builder, state) = block_in_place(|| load(&[own], base))?.finish();
                store.publish(log, builder, &state).await
            }
            Self::Version(version) => {
                let base = match version.begin(partition).await? {
                    VersionParts::Finished(finished) => return Ok(finished),
                    VersionParts::Base(base) => base,
                };
                let own = version.definitions(&base.state.state);
                let (builder, state) = block_in_place(|| load(&own, base))?.finish();
                version.publish(builder, &state).await
            }
        }
    }

    /// Publishes the target, all of whose partitions are finished, in the catalog.
    ///
    /// # Errors
    /// `Conflict` if the name was taken, the log was trimmed, or the store's documents were dropped
    /// in the meantime; else as the log and the replicators.
    pub(super) async fn go_live(
        &self,
        like: &Definition,
        finished: &[FinishedPartition],
    ) -> Result<LiveVersion> {
        match self {
            Self::Store(store) => {
                store.define(like.version).await?;
                Ok(LiveVersion { number: VersionNumber(1), changed_outcomes: Vec::new() })
            }
            Self::Version(version) => go_live(version, finished).await,
        }
    }

    /// Removes all parts of the target.
    pub(super) async fn abandon(&self) {
        match self {
            Self::Store(store) => store.abandon().await,
            Self::Version(version) => version.abandon().await,
        }
    }
}
