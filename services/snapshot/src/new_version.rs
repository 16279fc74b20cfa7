//! A version of a store's documents that is pushed: of its partitions each has a snapshot of the
//! documents, which stands where the live version stood at one moment, and the store's log goes on
//! from there. With another number of partitions it has logs of its own, to which what the store's
//! log goes on with is carried.
//!
//! Nobody knows of the version before all of its snapshots count; then its replicas begin with them
//! and catch up, and only when they have it is made live.

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

/// Longest wait for a version to be live to whose logs nothing comes.
const LIVE_WAIT: Duration = Duration::from_secs(150);
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A version on its way.
pub(crate) struct NewVersion<'p> {
    pub parts: &'p SnapshotParts,
    /// The newest definition of its store.
    pub definition: Definition,
    /// What it is kept as.
    pub kept_as: StoreId,
    /// How many partitions it has.
    pub partitions: PartitionCount,
    /// Where the store stood, once that is known, of a version that has other partitions.
    pub moving: OnceLock<Moving>,
}

/// A version on its way to other partitions.
pub(crate) struct Moving {
    /// All versions, with it.
    versions: StoreVersions,
    /// What is behind is carried.
    began: Began,
}

/// A version that is live.
pub(crate) struct LiveVersion {
    pub number: VersionNumber,
    pub flipped: Vec<FlippedChange>,
}

/// A conditional change that ends differently in a pushed version than in the one before: clients
/// were told how it ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlippedChange {
    /// Its partition.
    pub partition: PartitionId,
    /// How it ended in the pushed version.
    pub outcome: Outcome,
}

/// What there is of a partition.
pub(crate) enum VersionBegun {
    /// All of it.
    Made(Made),
    /// Where the live version stands.
    Base(LoadBase),
}

impl NewVersion<'_> {
    /// The definitions that it is made with, as the version has them: the one that its rows are
    /// made by, the one that was the newest, and those that the store was altered to meanwhile, up
    /// to where the live version stands.
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

    /// The oldest definition that says the same of documents as the newest, as the version has it:
    /// a row names its definition, and one that is made by it is that of an unchanged document byte
    /// by byte, so readers need it once. Each push adds definitions that say nothing of documents.
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

    /// A definition of its store as the version has it.
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

    /// Whether it has another number of partitions than the version that is live. Writes may be
    /// held for its own already, where the same push goes on.
    fn moves(&self) -> bool {
        self.partitions != self.definition.versions.live().logs.partitions
    }

    /// Its logs, if it has some of its own.
    fn new_logs(&self) -> Option<NewStore<'_>> {
        self.moves().then(|| NewStore {
            parts: self.parts,
            id: self.kept_as,
            name: &self.definition.name,
            partitions: self.partitions,
            like: &[],
        })
    }

    /// Finds out where the store stands, of a version that has other partitions: what is written
    /// from there on is carried to them. An attempt before this one may have found out.
    ///
    /// # Errors
    /// `Conflict` where the documents move already; `Unavailable` without a replicator that has
    /// come to the end of the log; those of the disk.
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

    /// Where all partitions of the live version stand.
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

    /// What there is of a partition.
    ///
    /// # Errors
    /// `Unavailable` without a replicator that has come to the end of the log.
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

    /// Where a partition of the live version stands, once that is behind all that its log holds
    /// now: whoever pushes has been told that it is written, and means to replace it.
    async fn live_stands(&self, partition: PartitionId) -> Result<Resumed> {
        let live = self.definition.versions.live();
        let end = self.parts.log.bounds(live.logs.at(partition)).await?.end;
        let is_wanted = |Resumed { state, .. }: &Resumed| {
            state.schema_version >= self.definition.version && state.offset_applied >= end
        };
        self.standing(live, partition, is_wanted).await
    }

    /// Where a version of the documents stands at its replicator, once that is as wanted.
    async fn standing(
        &self,
        version: &StoreVersion,
        partition: PartitionId,
        is_wanted: impl Fn(&Resumed) -> bool,
    ) -> Result<Resumed> {
        let (name, logs, kept_as) = (&*self.definition.name, version.logs, version.kept_as);
        standing(self.parts, Standing { name, logs, kept_as, partition }, is_wanted).await
    }

    /// Makes an image the snapshot that a partition of the version begins with.
    pub(crate) async fn publish(&self, builder: ImageBuilder, state: &ImageState) -> Result<Made> {
        let (store, definitions) = (&self.definition.name, self.definitions(&state.state));
        let manifest = publish_first(self.parts, builder, state, store, definitions).await?;
        if self.moves() {
            let at = self.at(state.state.partition.partition);
            self.parts.log.trim(at, state.state.offset_applied).await?;
        }
        Ok(Made::of(&manifest))
    }

    /// Lets everybody follow the version, of which this was made, and makes it live once the
    /// replicators have caught up, or waits for that where it moves; the versions before the one
    /// that was live go.
    ///
    /// # Errors
    /// `Conflict` where the log was trimmed meanwhile, or its documents dropped; `Unavailable`
    /// where nobody sees to a move; those of the log and of replicators.
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
                    let message = "the store's documents were dropped meanwhile; push again";
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
            // Others have made it live meanwhile.
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
        info!(store = self.definition.name, version = %number, "a pushed version is live");
        let flipped = match moving {
            None => self.flipped(before, own, &began).await,
            Some(_) => self.flipped_on_the_way(before, own).await,
        };
        self.drop_older(before.number, number).await;
        Ok(LiveVersion { number, flipped })
    }

    /// This version in a definition of its store.
    fn in_definition<'d>(&self, definition: &'d Definition) -> Result<&'d StoreVersion> {
        let gone = || Error::conflict("the version was dropped while it was pushed; push again");
        definition.versions.kept_as(self.kept_as).ok_or_else(gone)
    }

    /// Waits until the version is live, which whoever keeps the store's snapshots sees to.
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
        let message = "nobody has carried to the new partitions what was written meanwhile; run a \
                       snapshot service for the store, and push again";
        Err(Error::unavailable(message).with_store(name))
    }

    /// How much its logs hold.
    async fn carried_to(&self, own: &StoreVersion) -> Result<u64> {
        let bounds = try_join_all(own.logs.all().map(|at| self.parts.log.bounds(at))).await?;
        Ok(bounds.into_iter().map(|bounds| bounds.end.0).sum())
    }

    /// The conditional changes that ended differently in this version and in the one before, of
    /// those behind the push that both still know. What cannot be told any more keeps nobody from
    /// the version.
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

    /// As [`NewVersion::flipped`], of changes that were carried: they are told as clients sent them
    /// to the partitions from before.
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
        warn!(store, %partition, %error, "flipped changes are not told");
    }

    /// The outcomes that a version knows of what a partition's log holds now.
    async fn outcomes(
        &self,
        version: &StoreVersion,
        partition: PartitionId,
    ) -> Result<OutcomeTable> {
        let end = self.parts.log.bounds(version.logs.at(partition)).await?.end;
        let wanted = |found: &Resumed| found.state.offset_applied >= end;
        Ok(self.standing(version, partition, wanted).await?.outcomes)
    }

    /// Drops all versions but these two.
    async fn drop_older(&self, before: VersionNumber, live: VersionNumber) {
        let others: Vec<_> = self.definition.versions.all().iter().map(|it| it.number).collect();
        for number in others.into_iter().filter(|number| ![before, live].contains(number)) {
            let store = &self.definition.name;
            match drop_version(self.parts, store, number).await {
                Err(error) if error.code() != ErrorCode::NotFound => {
                    warn!(store, version = %number, %error, "an older version stays");
                }
                _ => {}
            }
        }
    }

    /// Alters the newest definition; `None` leaves it as it is.
    async fn define(
        &self,
        alter: impl Fn(&Definition) -> Result<Option<Definition>>,
    ) -> Result<Definition> {
        alter_versions(self.parts, &self.definition.name, alter).await
    }

    /// Lets go of all that there is of it.
    pub(crate) async fn give_up(&self) {
        let kept_as = self.kept_as;
        let dropped = self.define(|definition| match definition.versions.kept_as(kept_as) {
            Some(version) => definition.without_version(version.number).map(Some),
            None => Ok(None),
        });
        if let Err(error) = dropped.await {
            warn!(store = self.definition.name, %error, "a version that is given up stays");
            return;
        }
        for partition in self.partitions.partitions() {
            if let Err(error) = self.snapshots(partition).remove_all().await {
                warn!(%error, "a snapshot of a version that is given up stays");
            }
        }
        if self.moves()
            && let Err(error) = self.parts.log.delete(kept_as).await
        {
            warn!(%error, "the logs of a version that is given up stay");
        }
    }
}

/// Drops a version of a store's documents that is not live, and its snapshots.
///
/// # Errors
/// `NotFound` for one that is not there, `InvalidArgument` for the live one; those of the log and
/// of the object store.
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
