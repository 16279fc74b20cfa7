//! Builds a pushed version of a store's documents. Each partition gets a snapshot at the log
//! position that the live version had when the push read it; replicas load the snapshot and replay
//! the store's log from there. A version with another number of partitions has its own logs, to
//! which the later entries of the store's log are forwarded.
//!
//! The version enters the store's definition only after all of its snapshots are published, and
//! becomes live only after its replicas have caught up.

use std::sync::OnceLock;

use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, Position, StoreId};
use forebay_core::schema::Definition;
use forebay_core::state_rows::RestoredState;
use forebay_core::versions::{StoreVersion, StoreVersions};
use forebay_core::{Error, Result};
use forebay_snapshot::{ImageBuilder, ImageState, LoadBase, PartitionSnapshots};
use tracing::warn;

use super::workspace::{PushWorkspace, StartOffsets};
use crate::await_replica::{VersionPartition, await_replica_state};
use crate::build::publish_first;
use crate::context::SnapshotParts;
use crate::definitions::alter_versions;
use crate::new_store::{FinishedPartition, NewStore, PartitionParts};

/// A version under construction.
pub(super) struct NewVersion<'p> {
    pub(super) parts: &'p SnapshotParts,
    /// The newest definition of the store.
    pub(super) definition: Definition,
    /// Storage id of the version.
    pub(super) storage_id: StoreId,
    /// Number of partitions of the version.
    pub(super) partitions: PartitionCount,
    /// Start of the repartition, once it is known.
    pub(super) repartition: OnceLock<RepartitionStart>,
}

/// Start of a repartition: of a version with another number of partitions.
pub(super) struct RepartitionStart {
    /// All versions of the store, including this one.
    versions: StoreVersions,
    /// Entries from these offsets on are forwarded.
    start: StartOffsets,
}

/// Existing parts of a partition of the version.
pub(super) enum VersionParts {
    /// The finished partition.
    Finished(FinishedPartition),
    /// Only the position of the live version.
    Base(LoadBase),
}

/// The definitions of the version.
impl NewVersion<'_> {
    /// Returns the version's definitions: the definition by which its rows are encoded, the newest
    /// one at the start of the push, and later ones up to the position of the live version.
    pub(super) fn definitions(&self, state: &PartitionState) -> Vec<Definition> {
        let mut definitions = vec![self.definition_of_rows(), self.to_own_form(&self.definition)];
        definitions.dedup();
        let catalog = self.parts.context.catalog.catalog();
        let all = catalog.definitions(self.definition.store);
        let later_definitions = all.map(|schema| &*schema.definition).filter(|definition| {
            (self.definition.version < definition.version)
                && (definition.version <= state.schema_version)
        });
        definitions.extend(later_definitions.map(|definition| self.to_own_form(definition)));
        definitions
    }

    /// Returns the oldest definition that describes documents as the newest one does, in the
    /// version's form. A row names its definition, so rows that are encoded by this definition
    /// equal those of unchanged documents byte by byte, and readers store them once. Each push
    /// appends definitions that do not change the description of documents.
    fn definition_of_rows(&self) -> Definition {
        let with_own_version = |definition: &Definition| Definition {
            version: self.definition.version,
            versions: self.definition.versions.clone(),
            ..definition.clone()
        };
        let catalog = self.parts.context.catalog.catalog();
        let all = catalog.definitions(self.definition.store);
        let oldest = all
            .map(|schema| &*schema.definition)
            .find(|definition| with_own_version(definition) == self.definition);
        self.to_own_form(oldest.unwrap_or(&self.definition))
    }

    /// Converts a definition of the store into the version's form.
    fn to_own_form(&self, definition: &Definition) -> Definition {
        let definition = Definition {
            store: self.storage_id,
            partitions: self.partitions,
            ..definition.clone()
        };
        match self.repartition.get() {
            None => definition,
            Some(repartition) => {
                Definition { versions: repartition.versions.clone(), ..definition }
            }
        }
    }

    /// Returns this version in a definition of its store.
    pub(super) fn find_in<'d>(&self, definition: &'d Definition) -> Result<&'d StoreVersion> {
        let dropped_error =
            || Error::conflict("the version was dropped during the push; push again");
        definition.versions.by_storage_id(self.storage_id).ok_or_else(dropped_error)
    }

    /// Alters the newest definition; `None` leaves it unchanged.
    pub(super) async fn alter(
        &self,
        alter: impl Fn(&Definition) -> Result<Option<Definition>>,
    ) -> Result<Definition> {
        alter_versions(self.parts, &self.definition.name, alter).await
    }
}

/// The parts of the version.
impl NewVersion<'_> {
    fn partition_ref(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.storage_id, partition }
    }

    fn snapshots(&self, partition: PartitionId) -> PartitionSnapshots {
        self.parts.snapshots.partition(self.partition_ref(partition))
    }

    /// Returns whether the version has another number of partitions than the live version. If an
    /// interrupted push is resumed, writes may already be held for this version.
    fn is_repartition(&self) -> bool {
        self.partitions != self.definition.versions.live().logs.partitions
    }

    /// Returns the version's own logs, if it has any.
    fn new_logs(&self) -> Option<NewStore<'_>> {
        self.is_repartition().then(|| NewStore {
            parts: self.parts,
            id: self.storage_id,
            name: &self.definition.name,
            partitions: self.partitions,
            like: &[],
        })
    }

    /// Returns the offsets from which entries are forwarded; `None` for a version that follows the
    /// store's own log.
    pub(super) fn repartition_offsets(&self) -> Option<Vec<Offset>> {
        self.repartition.get().map(|repartition| repartition.start.offsets())
    }

    /// Determines the store's position for a repartition: later entries are forwarded to the new
    /// partitions. An earlier attempt may have stored the position.
    ///
    /// # Errors
    /// `Conflict` if another repartition is in progress; `Unavailable` if no replicator has reached
    /// the end of the log; else as the disk.
    pub(super) async fn prepare(&self, workspace: &PushWorkspace) -> Result<()> {
        let Some(logs) = self.new_logs() else { return Ok(()) };
        let start = match workspace.start_offsets()? {
            Some(start) => start,
            None => {
                let start = self.live_start_offsets().await?;
                workspace.save_start_offsets(&start)?;
                start
            }
        };
        let definition = match self.definition.versions.by_storage_id(self.storage_id) {
            Some(_) => self.definition.clone(),
            None => self.definition.with_repartitioned_version(
                self.storage_id,
                self.partitions,
                start.offsets(),
            )?,
        };
        drop(self.repartition.set(RepartitionStart { versions: definition.versions, start }));
        logs.create_logs().await
    }

    /// Returns the position of all partitions of the live version.
    async fn live_start_offsets(&self) -> Result<StartOffsets> {
        let mut start = StartOffsets::default();
        for partition in self.definition.versions.live().logs.partitions.partitions() {
            let found = self.live_state(partition).await?;
            start.offsets.push(found.state.offset_applied.0);
            let time_us = found.state.partition_time.as_micros();
            start.time_us = Some(start.time_us.map_or(time_us, |before| before.max(time_us)));
        }
        Ok(start)
    }

    /// Returns the existing parts of a partition.
    ///
    /// # Errors
    /// `Unavailable` if no replicator has reached the end of the log.
    pub(super) async fn begin(&self, partition: PartitionId) -> Result<VersionParts> {
        if let Some(logs) = self.new_logs() {
            return Ok(match logs.begin(partition).await? {
                PartitionParts::Finished(finished_partition) => {
                    VersionParts::Finished(finished_partition)
                }
                PartitionParts::Log(log) => {
                    let time_us = self.repartition.get().and_then(|it| it.start.time_us);
                    let time = time_us.map_or(Timestamp::MIN, Timestamp::from_micros);
                    VersionParts::Base(log.begins(&self.to_own_form(&self.definition), time))
                }
            });
        }
        if let Some(manifest) = self.snapshots(partition).newest(None).await? {
            return Ok(VersionParts::Finished(FinishedPartition::of(&manifest)));
        }
        let RestoredState { state, follow_state, .. } = self.live_state(partition).await?;
        if state.schema_version > self.definition.version {
            self.parts.catch_up().await?;
        }
        let last = Position { index_in_entry: u16::MAX, ..state.position };
        let version = self.to_own_form(&self.definition).document_version(last);
        let state = PartitionState { partition: self.partition_ref(partition), ..state };
        let state = ImageState::unopened(state, follow_state.append_time);
        Ok(VersionParts::Base(LoadBase { state, version }))
    }

    /// Returns the state of a partition of the live version, once it includes all entries that the
    /// log holds at the call: these writes are acknowledged, and the push must replace them.
    async fn live_state(&self, partition: PartitionId) -> Result<RestoredState> {
        let live = self.definition.versions.live();
        let end = self.parts.context.log.bounds(live.logs.at(partition)).await?.end;
        let is_wanted = |RestoredState { state, .. }: &RestoredState| {
            state.schema_version >= self.definition.version && state.offset_applied >= end
        };
        let (name, logs, storage_id) = (&*self.definition.name, live.logs, live.storage_id);
        let version_partition = VersionPartition { name, logs, storage_id, partition };
        await_replica_state(self.parts, version_partition, is_wanted).await
    }

    /// Publishes an image as the first snapshot of a partition of the version.
    pub(super) async fn publish(
        &self,
        builder: ImageBuilder,
        state: &ImageState,
    ) -> Result<FinishedPartition> {
        let (store, definitions) = (&self.definition.name, self.definitions(&state.state));
        let manifest = publish_first(self.parts, builder, state, store, definitions).await?;
        if self.is_repartition() {
            let at = self.partition_ref(state.state.partition.partition);
            self.parts.context.log.trim(at, state.state.offset_applied).await?;
        }
        Ok(FinishedPartition::of(&manifest))
    }

    /// Removes all parts of the version.
    pub(super) async fn abandon(&self) {
        let storage_id = self.storage_id;
        let drop_attempt =
            self.alter(|definition| match definition.versions.by_storage_id(storage_id) {
                Some(version) => definition.without_version(version.number).map(Some),
                None => Ok(None),
            });
        if let Err(error) = drop_attempt.await {
            warn!(store = self.definition.name, %error, "abandoned version not dropped");
            return;
        }
        for partition in self.partitions.partitions() {
            if let Err(error) = self.snapshots(partition).remove_all().await {
                warn!(%error, "snapshot of abandoned version not removed");
            }
        }
        if self.is_repartition()
            && let Err(error) = self.parts.context.log.delete(storage_id).await
        {
            warn!(%error, "logs of abandoned version not removed");
        }
    }
}
