//! Builds a pushed version of a store's documents. Each partition gets a snapshot at the log
//! position that the live version had when the push read it; replicas load the snapshot and replay
//! the store's log from there. A version with another number of partitions has its own logs, to
//! which the later entries of the store's log are forwarded.
//!
//! The version enters the store's definition only after all of its snapshots are published, and
//! becomes live only after its replicas have caught up.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use forebay_core::clock::Timestamp;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, Position, StoreId};
use forebay_core::outcome::{Outcome, OutcomeTable, Verdict};
use forebay_core::schema::Definition;
use forebay_core::state_rows::Resumed;
use forebay_core::versions::{StoreVersion, StoreVersions, VersionNumber};
use forebay_core::{Error, ErrorCode, Result};
use forebay_snapshot::{ImageBuilder, ImageState, LoadBase, PartitionSnapshots};
use futures::future::try_join_all;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::build::publish_first;
use crate::define::{alter_versions, delete_unused_logs};
use crate::keeper::SnapshotParts;
use crate::moves::{carried_client, catch_up, holds_from};
use crate::new_store::{Begun, Made, NewStore};
use crate::push::{Began, Place};
use crate::standing::{Standing, standing};

/// Longest wait for a version to become live while nothing is forwarded to its logs.
const LIVE_WAIT: Duration = Duration::from_secs(150);
/// Time between two checks of the version.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A version under construction.
pub(crate) struct NewVersion<'p> {
    pub parts: &'p SnapshotParts,
    /// The newest definition of the store.
    pub definition: Definition,
    /// Storage id of the version.
    pub kept_as: StoreId,
    /// Number of partitions of the version.
    pub partitions: PartitionCount,
    /// The store's position for a repartition, once it is known.
    pub moving: OnceLock<Moving>,
}

/// A version with another number of partitions.
pub(crate) struct Moving {
    /// All versions of the store, including this one.
    versions: StoreVersions,
    /// Entries after this position are forwarded.
    began: Began,
}

/// A version that is live.
pub(crate) struct LiveVersion {
    pub number: VersionNumber,
    pub flipped: Vec<FlippedChange>,
}

/// A conditional change whose outcome in a pushed version differs from the outcome in the previous
/// version, which clients have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlippedChange {
    /// Partition of the change.
    pub partition: PartitionId,
    /// Outcome in the pushed version.
    pub outcome: Outcome,
}

/// Existing parts of a partition.
pub(crate) enum VersionBegun {
    /// The finished partition.
    Made(Made),
    /// The position of the live version.
    Base(LoadBase),
}

impl NewVersion<'_> {
    /// Returns the version's definitions: the definition by which its rows are encoded, the newest
    /// one at the start of the push, and later ones up to the position of the live version.
    pub(crate) fn definitions(&self, stands_at: &PartitionState) -> Vec<Definition> {
        let mut definitions = vec![self.definition_of_rows(), self.own(&self.definition)];
        definitions.dedup();
        let catalog = self.parts.catalog.catalog();
        let history = catalog.store(self.definition.store);
        let all = history.into_iter().flat_map(|history| history.versions());
        let later = all.map(|at| &at.definition).filter(|definition| {
            (self.definition.version < definition.version)
                && (definition.version <= stands_at.schema_version)
        });
        definitions.extend(later.map(|definition| self.own(definition)));
        definitions
    }

    /// Returns the oldest definition that describes documents as the newest one does, in the
    /// version's form. A row names its definition, so rows that are encoded by this definition
    /// equal those of unchanged documents byte by byte, and readers store them once. Each push
    /// appends definitions that do not change the description of documents.
    fn definition_of_rows(&self) -> Definition {
        let alike = |it: &Definition| Definition {
            version: self.definition.version,
            versions: self.definition.versions.clone(),
            ..it.clone()
        };
        let catalog = self.parts.catalog.catalog();
        let history = catalog.store(self.definition.store);
        let all = history.into_iter().flat_map(|history| history.versions());
        let alike = all.map(|at| &at.definition).find(|it| alike(it) == self.definition);
        self.own(alike.unwrap_or(&self.definition))
    }

    /// Converts a definition of the store into the version's form.
    fn own(&self, definition: &Definition) -> Definition {
        let own =
            Definition { store: self.kept_as, partitions: self.partitions, ..definition.clone() };
        match self.moving.get() {
            None => own,
            Some(moving) => Definition { versions: moving.versions.clone(), ..own },
        }
    }

    fn at(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.kept_as, partition }
    }

    fn snapshots(&self, partition: PartitionId) -> PartitionSnapshots {
        self.parts.snapshots.partition(self.at(partition))
    }

    /// Returns whether the version has another number of partitions than the live version. If an
    /// interrupted push is resumed, writes may already be held for this version.
    fn moves(&self) -> bool {
        self.partitions != self.definition.versions.live().logs.partitions
    }

    /// Returns the version's own logs, if it has any.
    fn new_logs(&self) -> Option<NewStore<'_>> {
        self.moves().then(|| NewStore {
            parts: self.parts,
            id: self.kept_as,
            name: &self.definition.name,
            partitions: self.partitions,
            like: &[],
        })
    }

    /// Determines the store's position for a repartition: later entries are forwarded to the new
    /// partitions. An earlier attempt may have stored the position.
    ///
    /// # Errors
    /// `Conflict` if another repartition is in progress; `Unavailable` if no replicator has reached
    /// the end of the log; else as the disk.
    pub(crate) async fn prepare(&self, place: &Place) -> Result<()> {
        let Some(logs) = self.new_logs() else { return Ok(()) };
        let began = match place.began()? {
            Some(began) => began,
            None => {
                let began = self.stands_at().await?;
                place.keep_began(&began)?;
                began
            }
        };
        let offsets = began.offsets.iter().map(|offset| Offset(*offset)).collect();
        let with = match self.definition.versions.kept_as(self.kept_as) {
            Some(_) => self.definition.clone(),
            None => self.definition.with_moved_version(self.kept_as, self.partitions, offsets)?,
        };
        drop(self.moving.set(Moving { versions: with.versions, began }));
        logs.create_logs().await
    }

    /// Returns the position of all partitions of the live version.
    async fn stands_at(&self) -> Result<Began> {
        let mut began = Began::default();
        for partition in self.definition.versions.live().logs.partitions.partitions() {
            let found = self.live_stands(partition).await?;
            began.offsets.push(found.state.offset_applied.0);
            let time_us = found.state.partition_time.as_micros();
            began.time_us = Some(began.time_us.map_or(time_us, |before| before.max(time_us)));
        }
        Ok(began)
    }

    /// Returns the existing parts of a partition.
    ///
    /// # Errors
    /// `Unavailable` if no replicator has reached the end of the log.
    pub(crate) async fn begin(&self, partition: PartitionId) -> Result<VersionBegun> {
        if let Some(logs) = self.new_logs() {
            return Ok(match logs.begin(partition).await? {
                Begun::Made(made) => VersionBegun::Made(made),
                Begun::Log(log) => {
                    let time_us = self.moving.get().and_then(|moving| moving.began.time_us);
                    let time = time_us.map_or(Timestamp::MIN, Timestamp::from_micros);
                    VersionBegun::Base(log.begins(&self.own(&self.definition), time))
                }
            });
        }
        if let Some(made) = self.snapshots(partition).newest(None).await? {
            return Ok(VersionBegun::Made(Made::of(&made)));
        }
        let Resumed { state, followed, .. } = self.live_stands(partition).await?;
        if state.schema_version > self.definition.version {
            self.parts.catch_up().await?;
        }
        let last = Position { place: u16::MAX, ..state.position };
        let version = self.own(&self.definition).document_version(last);
        let state = PartitionState { partition: self.at(partition), ..state };
        let state = ImageState::unopened(state, followed.append_time);
        Ok(VersionBegun::Base(LoadBase { state, version }))
    }

    /// Returns the state of a partition of the live version, once it includes all entries that the
    /// log holds at the call: these writes are acknowledged, and the push must replace them.
    async fn live_stands(&self, partition: PartitionId) -> Result<Resumed> {
        let live = self.definition.versions.live();
        let end = self.parts.log.bounds(live.logs.at(partition)).await?.end;
        let is_wanted = |Resumed { state, .. }: &Resumed| {
            state.schema_version >= self.definition.version && state.offset_applied >= end
        };
        self.standing(live, partition, is_wanted).await
    }

    /// Returns the state of a version at its replicator, once the state is as wanted.
    async fn standing(
        &self,
        version: &StoreVersion,
        partition: PartitionId,
        is_wanted: impl Fn(&Resumed) -> bool,
    ) -> Result<Resumed> {
        let (name, logs, kept_as) = (&*self.definition.name, version.logs, version.kept_as);
        standing(self.parts, Standing { name, logs, kept_as, partition }, is_wanted).await
    }

    /// Publishes an image as the first snapshot of a partition of the version.
    pub(crate) async fn publish(&self, builder: ImageBuilder, state: &ImageState) -> Result<Made> {
        let (store, definitions) = (&self.definition.name, self.definitions(&state.state));
        let manifest = publish_first(self.parts, builder, state, store, definitions).await?;
        if self.moves() {
            let at = self.at(state.state.partition.partition);
            self.parts.log.trim(at, state.state.offset_applied).await?;
        }
        Ok(Made::of(&manifest))
    }

    /// Adds the version of these partitions to the store's definition. Makes the version live once
    /// the replicators have caught up; for a repartition, waits until it is live. Then drops the
    /// versions before the previous live one.
    ///
    /// # Errors
    /// `Conflict` if the log was trimmed or the store's documents were dropped in the meantime;
    /// `Unavailable` if no process completes a repartition; else as the log and the replicators.
    pub(crate) async fn go_live(&self, made: &[Made]) -> Result<LiveVersion> {
        let moving = self.moving.get();
        let began: Vec<Offset> = match moving {
            Some(moving) => moving.began.offsets.iter().map(|offset| Offset(*offset)).collect(),
            None => made.iter().map(|made| made.progress.offset_applied).collect(),
        };
        let added = self
            .define(|definition| match definition.versions.kept_as(self.kept_as) {
                Some(_) => Ok(None),
                None if moving.is_none() => {
                    definition.with_version(self.kept_as, began.clone()).map(Some)
                }
                None if definition.drop_all_count != self.definition.drop_all_count => {
                    let message = "the store's documents were dropped during the push; push again";
                    Err(Error::conflict(message))
                }
                None => definition
                    .with_moved_version(self.kept_as, self.partitions, began.clone())
                    .map(Some),
            })
            .await?;
        let own = self.in_definition(&added)?;
        let from = own.carried.as_ref().map_or(own.logs, |carried| carried.from);
        let mut before = added.versions.live();
        if own.number > before.number {
            holds_from(self.parts, from, &began).await?;
        } else if own.number == before.number {
            // Another process has made the version live in the meantime.
            before = self.definition.versions.live();
        }
        let number = own.number;
        match moving {
            None => {
                catch_up(self.parts, &self.definition.name, own).await?;
                self.define(|definition| {
                    let number = self.in_definition(definition)?.number;
                    let is_live = definition.versions.live().number == number;
                    if is_live { Ok(None) } else { definition.with_live(number).map(Some) }
                })
                .await?;
            }
            Some(_) => self.wait_live(own).await?,
        }
        info!(store = self.definition.name, version = %number, "pushed version live");
        let flipped = match moving {
            None => self.flipped(before, own, &began).await,
            Some(_) => self.flipped_on_the_way(before, own).await,
        };
        self.drop_older(before.number, number).await;
        Ok(LiveVersion { number, flipped })
    }

    /// Returns this version in a definition of its store.
    fn in_definition<'d>(&self, definition: &'d Definition) -> Result<&'d StoreVersion> {
        let gone = || Error::conflict("the version was dropped during the push; push again");
        definition.versions.kept_as(self.kept_as).ok_or_else(gone)
    }

    /// Waits until the version is live. The process that maintains the store's snapshots completes
    /// the repartition.
    async fn wait_live(&self, own: &StoreVersion) -> Result<()> {
        let name = &self.definition.name;
        let (mut stood, mut since) = (None, Instant::now());
        while since.elapsed() < LIVE_WAIT {
            let catalog = self.parts.catalog.catalog();
            let definition = &catalog.by_name(name)?.definition;
            if self.in_definition(definition)?.number <= definition.versions.live().number {
                return Ok(());
            }
            let stands = (definition.version, self.carried_to(own).await?);
            if stood != Some(stands) {
                (stood, since) = (Some(stands), Instant::now());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let message = "the writes since the start of the push were not forwarded to the new \
            partitions; run a snapshot service for the store, and push again";
        Err(Error::unavailable(message).with_store(name))
    }

    /// Returns the number of entries in the version's logs.
    async fn carried_to(&self, own: &StoreVersion) -> Result<u64> {
        let bounds = try_join_all(own.logs.all().map(|at| self.parts.log.bounds(at))).await?;
        Ok(bounds.into_iter().map(|bounds| bounds.end.0).sum())
    }

    /// Returns the conditional changes after the push whose outcomes in this version and in the
    /// previous one differ, as far as both versions still have the outcomes. Missing outcomes do
    /// not prevent the push.
    async fn flipped(
        &self,
        before: &StoreVersion,
        own: &StoreVersion,
        began: &[Offset],
    ) -> Vec<FlippedChange> {
        let mut flipped = Vec::new();
        for (partition, began) in own.logs.partitions.partitions().zip(began) {
            let outcomes = async {
                let ours = self.outcomes(own, partition).await?;
                Ok::<_, Error>((ours, self.outcomes(before, partition).await?))
            };
            match outcomes.await {
                Ok((ours, theirs)) => {
                    let behind = ours.all().filter(|outcome| outcome.position.offset >= *began);
                    let differ = behind.filter(|own| {
                        let other = theirs.get(own.client, own.sequence);
                        other.is_some_and(|other| has_happened(own) != has_happened(&other))
                    });
                    let change = |outcome: &Outcome| FlippedChange { partition, outcome: *outcome };
                    flipped.extend(differ.map(change));
                }
                Err(error) => self.untold(partition, &error),
            }
        }
        flipped
    }

    /// Returns the same as [`NewVersion::flipped`] for forwarded changes, which are reported as
    /// clients sent them to the old partitions.
    async fn flipped_on_the_way(
        &self,
        before: &StoreVersion,
        own: &StoreVersion,
    ) -> Vec<FlippedChange> {
        let mut came = BTreeMap::new();
        for partition in own.logs.partitions.partitions() {
            match self.outcomes(own, partition).await {
                Ok(ours) => {
                    came.extend(ours.all().map(|own| ((own.client, own.sequence), *own)));
                }
                Err(error) => self.untold(partition, &error),
            }
        }
        let mut flipped = Vec::new();
        for partition in before.logs.partitions.partitions() {
            match self.outcomes(before, partition).await {
                Ok(theirs) => flipped.extend(theirs.all().filter_map(|other| {
                    let client = carried_client(other.client, before.logs, partition);
                    let own = came.get(&(client, other.sequence))?;
                    let outcome = Outcome { client: other.client, ..*own };
                    let is_flipped = has_happened(own) != has_happened(other);
                    is_flipped.then_some(FlippedChange { partition, outcome })
                })),
                Err(error) => self.untold(partition, &error),
            }
        }
        flipped
    }

    fn untold(&self, partition: PartitionId, error: &Error) {
        let store = &self.definition.name;
        warn!(store, %partition, %error, "changed outcomes not reported");
    }

    /// Returns the outcomes that a version retains, after it has applied all entries that a
    /// partition's log holds at the call.
    async fn outcomes(
        &self,
        version: &StoreVersion,
        partition: PartitionId,
    ) -> Result<OutcomeTable> {
        let end = self.parts.log.bounds(version.logs.at(partition)).await?.end;
        let wanted = |found: &Resumed| found.state.offset_applied >= end;
        Ok(self.standing(version, partition, wanted).await?.outcomes)
    }

    /// Drops all versions except these two.
    async fn drop_older(&self, before: VersionNumber, live: VersionNumber) {
        let others: Vec<_> = self.definition.versions.all().iter().map(|it| it.number).collect();
        for number in others.into_iter().filter(|number| ![before, live].contains(number)) {
            let store = &self.definition.name;
            match drop_version(self.parts, store, number).await {
                Err(error) if error.code() != ErrorCode::NotFound => {
                    warn!(store, version = %number, %error, "older version not dropped");
                }
                _ => {}
            }
        }
    }

    /// Alters the newest definition; `None` leaves it unchanged.
    async fn define(
        &self,
        alter: impl Fn(&Definition) -> Result<Option<Definition>>,
    ) -> Result<Definition> {
        alter_versions(self.parts, &self.definition.name, alter).await
    }

    /// Removes all parts of the version.
    pub(crate) async fn give_up(&self) {
        let kept_as = self.kept_as;
        let dropped = self.define(|definition| match definition.versions.kept_as(kept_as) {
            Some(version) => definition.without_version(version.number).map(Some),
            None => Ok(None),
        });
        if let Err(error) = dropped.await {
            warn!(store = self.definition.name, %error, "abandoned version not dropped");
            return;
        }
        for partition in self.partitions.partitions() {
            if let Err(error) = self.snapshots(partition).remove_all().await {
                warn!(%error, "snapshot of abandoned version not removed");
            }
        }
        if self.moves()
            && let Err(error) = self.parts.log.delete(kept_as).await
        {
            warn!(%error, "logs of abandoned version not removed");
        }
    }
}

/// Drops a version of a store's documents that is not live, and its snapshots.
///
/// # Errors
/// `NotFound` for an unknown version, `InvalidArgument` for the live one; else as the log and the
/// object store.
pub(crate) async fn drop_version(
    parts: &SnapshotParts,
    store: &str,
    number: VersionNumber,
) -> Result<Definition> {
    parts.catch_up().await?;
    let before = parts.catalog.catalog().by_name(store)?.definition.clone();
    let drop = |definition: &Definition| definition.without_version(number).map(Some);
    let without = alter_versions(parts, store, drop).await?;
    if let Some(version) = before.versions.get(number) {
        for partition in version.logs.partitions.partitions() {
            let at = PartitionRef { store: version.kept_as, partition };
            parts.snapshots.partition(at).remove_all().await?;
        }
        delete_unused_logs(parts, before.store).await?;
    }
    Ok(without)
}

fn has_happened(outcome: &Outcome) -> bool {
    outcome.verdict == Verdict::Applied
}
