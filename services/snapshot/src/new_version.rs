//! A version of a store's documents that is pushed: of its partitions each has a snapshot of the
//! documents, which stands where the live version stood at one moment, and the store's log goes on
//! from there.
//!
//! Nobody knows of the version before all of its snapshots count; then its replicas begin with them
//! and catch up, and only when they have it is made live.

use std::time::Duration;

use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionId, PartitionRef, Position, StoreId};
use forebay_core::outcome::{Outcome, Verdict};
use forebay_core::schema::Definition;
use forebay_core::state_rows::Resumed;
use forebay_core::versions::VersionNumber;
use forebay_core::{Error, ErrorCode, Result};
use forebay_snapshot::{FrozenShard, ImageBuilder, ImageState, LoadBase, PartitionSnapshots};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::build::{connect, publish_first};
use crate::define::{announce, define};
use crate::keeper::SnapshotParts;
use crate::new_store::Made;

/// Longest wait for a replicator: to have a shard, and to catch up with the log.
const REPLICATOR_WAIT: Duration = Duration::from_secs(120);
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Times that a definition is tried which others alter at the same time.
const DEFINE_ATTEMPTS: usize = 8;

/// A version on its way.
pub(crate) struct NewVersion<'p> {
    pub parts: &'p SnapshotParts,
    /// The newest definition of its store.
    pub definition: Definition,
    /// What it is kept as.
    pub kept_as: StoreId,
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
    /// made by, and the newest.
    pub(crate) fn definitions(&self) -> Vec<Definition> {
        let newest = Definition { store: self.kept_as, ..self.definition.clone() };
        let mut definitions = vec![self.definition_of_rows(), newest];
        definitions.dedup();
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
        let oldest = alike.unwrap_or(&self.definition);
        Definition { store: self.kept_as, ..oldest.clone() }
    }

    fn at(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.kept_as, partition }
    }

    fn snapshots(&self, partition: PartitionId) -> PartitionSnapshots {
        self.parts.snapshots.partition(self.at(partition))
    }

    /// What there is of a partition.
    ///
    /// # Errors
    /// `Unavailable` without a replicator that has come to the newest definition.
    pub(crate) async fn begin(&self, partition: PartitionId) -> Result<VersionBegun> {
        if let Some(made) = self.snapshots(partition).newest(None).await? {
            return Ok(VersionBegun::Made(Made::of(&made)));
        }
        let live = self.definition.versions.live().kept_as;
        let is_wanted = |found: &Resumed| found.state.schema_version >= self.definition.version;
        let Resumed { state, followed, .. } = self.standing(live, partition, is_wanted).await?;
        let version = Position { place: u16::MAX, ..state.position }.document_version();
        let state = PartitionState { partition: self.at(partition), ..state };
        let state = ImageState::unopened(state, followed.append_time);
        Ok(VersionBegun::Base(LoadBase { state, version }))
    }

    /// Where a version of the documents stands at its replicator, once that is as wanted.
    async fn standing(
        &self,
        kept_as: StoreId,
        partition: PartitionId,
        is_wanted: impl Fn(&Resumed) -> bool,
    ) -> Result<Resumed> {
        let began = Instant::now();
        loop {
            let error = match self.frozen_state(kept_as, partition).await {
                Ok(found) if is_wanted(&found) => return Ok(found),
                Ok(_) => {
                    let message = "the replicator has not applied what is in the log; look at its \
                                   lag, and push again";
                    Error::unavailable(message).with_partition(partition)
                }
                Err(error) if is_for_now(&error) => error,
                Err(error) => return Err(error),
            };
            if began.elapsed() > REPLICATOR_WAIT {
                return Err(
                    Error::unavailable(error.message()).with_context(error.context().clone())
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn frozen_state(&self, kept_as: StoreId, partition: PartitionId) -> Result<Resumed> {
        let home = PartitionRef { store: self.definition.versions.home(), partition };
        let channel = connect(&self.parts.replicators.address(home).await?)?;
        let name = &self.definition.name;
        let mut shard = FrozenShard::freeze(channel, name, Some(kept_as), partition, 0).await?;
        let state = shard.state().await;
        shard.end().await;
        state
    }

    /// Makes an image the snapshot that a partition of the version begins with.
    pub(crate) async fn publish(&self, builder: ImageBuilder, state: &ImageState) -> Result<Made> {
        let (store, definitions) = (&self.definition.name, self.definitions());
        let manifest = publish_first(self.parts, builder, state, store, definitions).await?;
        Ok(Made::of(&manifest))
    }

    /// Lets everybody follow the version, whose partitions begin at these offsets, and makes it
    /// live once the replicators have caught up; the versions before the one that was live go.
    ///
    /// # Errors
    /// `Conflict` where the log was trimmed meanwhile; those of the log and of replicators.
    pub(crate) async fn go_live(&self, began: Vec<Offset>) -> Result<LiveVersion> {
        let added = self
            .define(|definition| match definition.versions.kept_as(self.kept_as) {
                Some(_) => Ok(None),
                None => definition.with_version(self.kept_as, began.clone()).map(Some),
            })
            .await?;
        for (partition, began) in added.partitions.partitions().zip(&began) {
            let at = PartitionRef { store: added.versions.home(), partition };
            if self.parts.log.bounds(at).await?.start > *began {
                let message = "the log was trimmed while files were pushed; push again, or keep \
                               more of the log (log_window)";
                return Err(Error::conflict(message).with_partition(partition));
            }
        }
        for partition in added.partitions.partitions() {
            let at = PartitionRef { store: added.versions.home(), partition };
            let end = self.parts.log.bounds(at).await?.end;
            let wanted = |found: &Resumed| found.state.offset_applied >= end;
            self.standing(self.kept_as, partition, wanted).await?;
        }
        let own = |definition: &Definition| {
            definition.versions.kept_as(self.kept_as).map(|version| version.number)
        };
        let gone = || Error::conflict("the version was dropped while it was pushed; push again");
        let live = self
            .define(|definition| {
                let number = own(definition).ok_or_else(gone)?;
                let is_live = definition.versions.live().number == number;
                if is_live { Ok(None) } else { definition.with_live(number).map(Some) }
            })
            .await?;
        let number = own(&live).ok_or_else(gone)?;
        info!(store = live.name, version = %number, "a pushed version is live");
        let before = added.versions.live();
        let mut flipped = Vec::new();
        for (partition, began) in live.partitions.partitions().zip(began) {
            // What cannot be told any more keeps nobody from the version.
            match self.flipped(before.kept_as, partition, began).await {
                Ok(found) => flipped.extend(found),
                Err(error) => {
                    warn!(store = live.name, %partition, %error, "flipped changes are not told");
                }
            }
        }
        self.drop_older(before.number, number).await;
        Ok(LiveVersion { number, flipped })
    }

    /// The conditional changes that ended differently in this version and in another one, of those
    /// behind the push that both still know.
    async fn flipped(
        &self,
        before: StoreId,
        partition: PartitionId,
        began: Offset,
    ) -> Result<Vec<FlippedChange>> {
        let at = PartitionRef { store: self.definition.versions.home(), partition };
        let end = self.parts.log.bounds(at).await?.end;
        let wanted = |found: &Resumed| found.state.offset_applied >= end;
        let ours = self.standing(self.kept_as, partition, wanted).await?.outcomes;
        let theirs = self.standing(before, partition, wanted).await?.outcomes;
        let has_happened = |outcome: &Outcome| outcome.verdict == Verdict::Applied;
        let flipped = ours.all().filter_map(|own| {
            let other = theirs.get(own.client, own.sequence)?;
            let is_flipped =
                own.position.offset >= began && has_happened(own) != has_happened(&other);
            is_flipped.then_some(FlippedChange { partition, outcome: *own })
        });
        Ok(flipped.collect())
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
        for partition in self.definition.partitions.partitions() {
            if let Err(error) = self.snapshots(partition).remove_all().await {
                warn!(%error, "a snapshot of a version that is given up stays");
            }
        }
    }
}

/// Whether a replicator that refuses a shard may give it soon: it has not heard of the version yet,
/// or others copy from it.
fn is_for_now(error: &Error) -> bool {
    use ErrorCode::{LimitExceeded, NotFound, Unavailable};
    matches!(error.code(), LimitExceeded | NotFound | Unavailable)
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
        for partition in before.partitions.partitions() {
            let at = PartitionRef { store: version.kept_as, partition };
            parts.snapshots.partition(at).remove_all().await?;
        }
    }
    Ok(without)
}

/// Alters the newest definition of a store, and puts it into its partitions; `None` leaves it as it
/// is.
///
/// # Errors
/// Those of `alter`; `Unavailable` where others alter it all the time.
pub(crate) async fn alter_versions(
    parts: &SnapshotParts,
    store: &str,
    alter: impl Fn(&Definition) -> Result<Option<Definition>>,
) -> Result<Definition> {
    for _ in 0..DEFINE_ATTEMPTS {
        parts.catch_up().await?;
        let newest = parts.catalog.catalog().by_name(store)?.definition.clone();
        let Some(next) = alter(&newest)? else { return Ok(newest) };
        if define(parts, &next).await? {
            announce(parts, &next).await?;
            return Ok(next);
        }
    }
    Err(Error::unavailable("the store is altered all the time; try again").with_store(store))
}
