//! Versions of a store's documents: the first version, and the versions that pushes added later.
//!
//! All versions with the same partition count follow the same logs; a pushed version follows them
//! from the moment of its push on. Reads answer from the live version. The definition names the
//! live version, so every replica switches at the same entry of its log.
//!
//! A version with another partition count has logs of its own. The repartition has these steps:
//!
//! 1. Entries that are written to the old logs are forwarded to the new ones.
//! 2. Once little is left to forward, writes are paused.
//! 3. Once nothing is left, the new version becomes live and writes go to its logs. A rollback to
//!    the old logs is impossible.

use crate::error::{Error, Result};
use crate::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use crate::limits::STORE_VERSIONS_MAX;

/// Number of a version, from 1, never used again in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionNumber(pub u32);

impl std::fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The logs of a store's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLogs {
    /// Id under which the log stores them.
    pub store: StoreId,
    /// Number of partitions.
    pub partitions: PartitionCount,
    /// Number of repartitions of the store before these logs.
    pub repartition_count: u8,
}

impl StoreLogs {
    /// Creates the logs that a new store starts with.
    pub fn first(store: StoreId, partitions: PartitionCount) -> Self {
        Self { store, partitions, repartition_count: 0 }
    }

    /// Returns one partition of these logs.
    pub fn at(self, partition: PartitionId) -> PartitionRef {
        PartitionRef { store: self.store, partition }
    }

    /// Returns all partitions of these logs.
    pub fn all(self) -> impl Iterator<Item = PartitionRef> {
        self.partitions.partitions().map(move |partition| self.at(partition))
    }
}

/// Logs from which entries are forwarded to a version, and the offsets at which that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepartitionSource {
    /// The old logs.
    pub from: StoreLogs,
    /// For each of their partitions, the first offset that is not in the push.
    pub start_offsets: Vec<Offset>,
}

/// A version of a store's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreVersion {
    /// Number of the version.
    pub number: VersionNumber,
    /// Storage id: the copies, shards and snapshots of the version are stored under it, as those of
    /// a store. The first version has the store's own id.
    pub storage_id: StoreId,
    /// For each partition, the first offset that is not in the push. Empty for the first version,
    /// which has all entries, and for a version with logs of its own.
    pub start_offsets: Vec<Offset>,
    /// The logs that the version follows.
    pub logs: StoreLogs,
    /// Forwarding to the version's logs, as long as entries may come.
    pub repartition_source: Option<RepartitionSource>,
}

impl StoreVersion {
    /// Returns the first offset of a partition's log that the version follows.
    pub fn start_offset(&self, partition: PartitionId) -> Offset {
        self.start_offsets.get(partition.0 as usize).copied().unwrap_or_default()
    }
}

/// The versions of a store's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreVersions {
    /// The store.
    home: StoreId,
    /// The versions, by ascending number.
    all: Vec<StoreVersion>,
    /// The live version, from which reads answer.
    live: VersionNumber,
    /// Number of the next version.
    next: VersionNumber,
    /// The logs to which writes go.
    write_logs: StoreLogs,
}

impl StoreVersions {
    /// Creates the versions of a new store with this partition count.
    pub fn first(store: StoreId, partitions: PartitionCount) -> Self {
        let (number, logs) = (VersionNumber(1), StoreLogs::first(store, partitions));
        let first = StoreVersion {
            number,
            storage_id: store,
            start_offsets: Vec::new(),
            logs,
            repartition_source: None,
        };
        let (all, next) = (vec![first], VersionNumber(2));
        Self { home: store, all, live: number, next, write_logs: logs }
    }

    /// Creates the versions of a store from their parts.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the parts contradict each other; `LimitExceeded` for too many
    /// versions.
    pub fn new(
        home: StoreId,
        all: Vec<StoreVersion>,
        live: VersionNumber,
        next: VersionNumber,
        write_logs: StoreLogs,
    ) -> Result<Self> {
        let versions = Self { home, all, live, next, write_logs };
        versions.check()?;
        Ok(versions)
    }

    /// Returns the store.
    pub fn home(&self) -> StoreId {
        self.home
    }

    /// Returns all versions, by ascending number.
    pub fn all(&self) -> &[StoreVersion] {
        &self.all
    }

    /// Returns the live version, from which reads answer.
    pub fn live(&self) -> &StoreVersion {
        // `check` ensures that the version exists.
        self.get(self.live).unwrap_or(&self.all[0])
    }

    /// Returns the version with the highest number.
    pub fn newest(&self) -> &StoreVersion {
        // `check` ensures that there is a version.
        self.all.last().unwrap_or_else(|| self.live())
    }

    /// Returns the logs to which writes go.
    pub fn write_logs(&self) -> StoreLogs {
        self.write_logs
    }

    /// Returns whether writes are paused: entries of the old logs are not all forwarded yet, and
    /// would follow newer writes in the new logs.
    pub fn writes_paused(&self) -> bool {
        self.write_logs.store != self.live().logs.store
    }

    /// Returns whether the store was ever repartitioned, or has a version of a repartition.
    pub fn have_repartitions(&self) -> bool {
        self.write_logs.repartition_count > 0
            || self.all.iter().any(|version| version.logs.repartition_count > 0)
    }

    /// Returns whether a repartition is in progress: a version with other logs exists and is not
    /// live.
    pub fn is_repartitioning(&self) -> bool {
        let live = self.live();
        let has_other_logs = |version: &StoreVersion| {
            version.number > live.number && version.logs.store != live.logs.store
        };
        self.writes_paused() || self.all.iter().any(has_other_logs)
    }

    /// Returns the number of the next version.
    pub fn next(&self) -> VersionNumber {
        self.next
    }

    /// Returns the version with this number.
    pub fn get(&self, number: VersionNumber) -> Option<&StoreVersion> {
        self.all.iter().find(|version| version.number == number)
    }

    /// Returns the version with this storage id.
    pub fn by_storage_id(&self, id: StoreId) -> Option<&StoreVersion> {
        self.all.iter().find(|version| version.storage_id == id)
    }

    /// Returns whether the store never had another version than the first.
    pub fn have_only_the_first(&self) -> bool {
        self.next == VersionNumber(2)
    }

    /// Adds a version, which is not live yet; returns its number.
    ///
    /// # Errors
    /// Returns `Conflict` during a repartition. [`StoreVersions::check`] enforces the limit.
    pub(crate) fn add(
        &mut self,
        storage_id: StoreId,
        start_offsets: Vec<Offset>,
    ) -> Result<VersionNumber> {
        self.check_not_repartitioning()?;
        Ok(self.push(storage_id, start_offsets, self.write_logs, None))
    }

    /// Adds a version with logs of its own, to which entries of the present write logs from these
    /// offsets on are forwarded; returns its number.
    ///
    /// # Errors
    /// Returns `LimitExceeded` after too many repartitions; `Conflict` if the documents are being
    /// repartitioned, or were a short time ago. [`StoreVersions::check`] enforces the limit of
    /// versions.
    pub(crate) fn add_repartitioned(
        &mut self,
        storage_id: StoreId,
        partitions: PartitionCount,
        start_offsets: Vec<Offset>,
    ) -> Result<VersionNumber> {
        self.check_not_repartitioning()?;
        if self.all.iter().any(|version| version.repartition_source.is_some()) {
            let message = "writes to the partitions of the previous version may still arrive; \
                repartition again after the roll-back window";
            return Err(Error::conflict(message));
        }
        let repartition_count =
            self.write_logs.repartition_count.checked_add(1).ok_or_else(|| {
                let advice =
                    "the store has used up its repartitions; push the files as another store";
                Error::limit_exceeded(advice, u8::MAX.into(), u64::from(u8::MAX) + 1)
            })?;
        let logs = StoreLogs { store: storage_id, partitions, repartition_count };
        let source = RepartitionSource { from: self.write_logs, start_offsets };
        Ok(self.push(storage_id, Vec::new(), logs, Some(source)))
    }

    fn push(
        &mut self,
        storage_id: StoreId,
        start_offsets: Vec<Offset>,
        logs: StoreLogs,
        repartition_source: Option<RepartitionSource>,
    ) -> VersionNumber {
        let number = self.next;
        self.next = VersionNumber(number.0.saturating_add(1));
        self.all.push(StoreVersion { number, storage_id, start_offsets, logs, repartition_source });
        number
    }

    /// Refuses an operation that is impossible during a repartition.
    pub(crate) fn check_not_repartitioning(&self) -> Result<()> {
        if !self.is_repartitioning() {
            return Ok(());
        }
        let message = "a repartition of the store is under way; wait until its version is live, or \
            drop that version";
        Err(Error::conflict(message))
    }

    /// Redirects writes to the logs of this version; writes are paused until it is live.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version.
    pub(crate) fn write_to(&mut self, number: VersionNumber) -> Result<()> {
        self.write_logs = self.get(number).ok_or_else(|| no_version(number))?.logs;
        Ok(())
    }

    /// Activates a version: makes it the live one.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version, `InvalidArgument` if writes do not go to its
    /// logs.
    pub(crate) fn activate(&mut self, number: VersionNumber) -> Result<()> {
        let version = self.get(number).ok_or_else(|| no_version(number))?;
        if version.logs != self.write_logs {
            let message = "the version has another partition count and lacks the newest writes; \
                push the files again with that count";
            return Err(Error::invalid_argument(message));
        }
        self.live = number;
        Ok(())
    }

    /// Ends the forwarding to the logs of this version.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version.
    pub(crate) fn end_forwarding(&mut self, number: VersionNumber) -> Result<()> {
        let version = self.all.iter_mut().find(|version| version.number == number);
        version.ok_or_else(|| no_version(number))?.repartition_source = None;
        Ok(())
    }

    /// Removes this version.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such version, `InvalidArgument` for the live one,
    /// `Conflict` for the one to which writes were redirected.
    pub(crate) fn remove(&mut self, number: VersionNumber) -> Result<()> {
        let version = self.get(number).ok_or_else(|| no_version(number))?;
        if number == self.live {
            let message = "the live version cannot be dropped; activate another version first";
            return Err(Error::invalid_argument(message));
        }
        if version.logs == self.write_logs && self.live().logs != self.write_logs {
            let message =
                "writes already go to the version's partitions; wait until that version is live";
            return Err(Error::conflict(message));
        }
        self.all.retain(|version| version.number != number);
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::invalid_argument(message));
        let (limit, count) = (STORE_VERSIONS_MAX as u64, self.all.len() as u64);
        if count > limit {
            let advice = "the store has too many versions; drop a version that you no longer need";
            return Err(Error::limit_exceeded(advice, limit, count));
        }
        if !self.all.windows(2).all(|pair| pair[0].number < pair[1].number) {
            return refuse("the versions of a store must be in ascending order");
        }
        if self.all.last().is_none_or(|last| last.number >= self.next) {
            return refuse("the number of a version was never given out");
        }
        if self.get(self.live).is_none() {
            return refuse("the live version is not among the versions");
        }
        let is_whole = |version: &StoreVersion| {
            let has_own_logs =
                version.logs.repartition_count > 0 && version.storage_id == version.logs.store;
            match version.number == VersionNumber(1) || has_own_logs {
                true => version.start_offsets.is_empty(),
                false => version.start_offsets.len() == version.logs.partitions.0 as usize,
            }
        };
        if !self.all.iter().all(is_whole) {
            return refuse("a version must have one starting offset for each partition");
        }
        for version in &self.all {
            PartitionCount::new(version.logs.partitions.0)?;
            let is_first =
                |logs: StoreLogs| (logs.store == self.home) == (logs.repartition_count == 0);
            let is_source_valid = version.repartition_source.as_ref().is_none_or(|source| {
                let next_count = source.from.repartition_count.checked_add(1);
                source.start_offsets.len() == source.from.partitions.0 as usize
                    && next_count == Some(version.logs.repartition_count)
                    && is_first(source.from)
            });
            if !is_first(version.logs) || !is_source_valid {
                return refuse(
                    "the logs of a version must be the store's logs, or continue other logs",
                );
            }
        }
        match self.all.iter().any(|version| version.logs == self.write_logs) {
            true => Ok(()),
            false => refuse("the store's writes must go to logs that a version follows"),
        }
    }

    /// Refuses versions that cannot directly follow `previous`.
    pub(crate) fn check_follows(&self, previous: &Self) -> Result<()> {
        let refuse = |message: &str| Err(Error::invalid_argument(message));
        if self.next < previous.next {
            return refuse("the number of a version cannot be used again");
        }
        let is_known = |version: &&StoreVersion| version.number < previous.next;
        let is_unchanged = |version: &StoreVersion| {
            let previous_version = previous.all.iter().find(|other| other.number == version.number);
            previous_version.is_some_and(|other| {
                let ended_version = StoreVersion { repartition_source: None, ..other.clone() };
                version == other || *version == ended_version
            })
        };
        if !self.all.iter().filter(is_known).all(is_unchanged) {
            return refuse("a version cannot change");
        }
        if self.write_logs.repartition_count < previous.write_logs.repartition_count {
            return refuse("the store's writes cannot go back to earlier logs");
        }
        Ok(())
    }
}

fn no_version(number: VersionNumber) -> Error {
    Error::not_found(format!("the store has no version {number}; list the versions of the store"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    const ONE: VersionNumber = VersionNumber(1);
    const TWO: VersionNumber = VersionNumber(2);
    const PARTITIONS: PartitionCount = PartitionCount(2);
    const LOGS: StoreLogs =
        StoreLogs { store: StoreId(7), partitions: PARTITIONS, repartition_count: 0 };

    fn two_versions() -> StoreVersions {
        let mut versions = StoreVersions::first(StoreId(7), PARTITIONS);
        let start_offsets = vec![Offset(4), Offset(5)];
        assert_eq!(versions.add(StoreId(8), start_offsets), Ok(TWO));
        versions
    }

    #[test]
    fn version_is_added_activated_rolled_back_and_dropped() {
        let mut versions = two_versions();
        versions.check().unwrap();
        assert_eq!(versions.live().storage_id, StoreId(7));
        assert_eq!(versions.get(TWO).unwrap().start_offset(PartitionId(1)), Offset(5));
        for number in [TWO, ONE, TWO] {
            versions.activate(number).unwrap();
            assert_eq!(versions.live().number, number);
        }
        assert_eq!(versions.remove(TWO).unwrap_err().code(), ErrorCode::InvalidArgument);
        versions.remove(ONE).unwrap();
        assert_eq!(versions.activate(ONE).unwrap_err().code(), ErrorCode::NotFound);
        assert_eq!(versions.next(), VersionNumber(3));
        versions.check().unwrap();
    }

    #[test]
    fn invalid_version_sets_are_refused() {
        let all = two_versions().all;
        let new = |all: &[StoreVersion], live, next| {
            let (live, next) = (VersionNumber(live), VersionNumber(next));
            StoreVersions::new(StoreId(7), all.to_vec(), live, next, LOGS)
        };
        assert_eq!(new(&all, 1, 3), Ok(two_versions()));
        assert!(new(&all, 3, 3).is_err(), "a live one that is not there");
        assert!(new(&all, 1, 2).is_err(), "a number that was never given");
        assert!(new(&[], 1, 2).is_err(), "none at all");
        assert!(new(&[all[1].clone(), all[0].clone()], 1, 3).is_err(), "out of their order");
        let short_version = StoreVersion { start_offsets: vec![Offset(1)], ..all[1].clone() };
        assert!(new(&[all[0].clone(), short_version], 1, 3).is_err(), "of too few partitions");
        let version_numbered =
            |number| StoreVersion { number: VersionNumber(number), ..all[1].clone() };
        let many_versions: Vec<_> =
            (2..STORE_VERSIONS_MAX as u32 + 3).map(version_numbered).collect();
        assert_eq!(new(&many_versions, 2, 99).unwrap_err().code(), ErrorCode::LimitExceeded);
    }

    #[test]
    fn successor_cannot_change_a_version() {
        let (first, both_versions) = (StoreVersions::first(StoreId(7), PARTITIONS), two_versions());
        both_versions.check_follows(&first).unwrap();
        assert!(first.check_follows(&both_versions).is_err(), "a number that was given");
        let mut other = both_versions.clone();
        other.all[1].start_offsets[0] = Offset(9);
        assert!(other.check_follows(&both_versions).is_err(), "another beginning");
        let mut without_second = both_versions.clone();
        without_second.remove(TWO).unwrap();
        without_second.check_follows(&both_versions).unwrap();
        assert!(both_versions.check_follows(&without_second).is_err(), "one that was dropped");
    }

    #[test]
    fn repartition_switches_writes_before_reads_and_happens_once() {
        const THREE: PartitionCount = PartitionCount(3);
        let mut versions = StoreVersions::first(StoreId(7), PARTITIONS);
        let start_offsets = vec![Offset(4), Offset(5)];
        assert_eq!(versions.add_repartitioned(StoreId(9), THREE, start_offsets.clone()), Ok(TWO));
        let is = |code| move |error: Error| assert_eq!(error.code(), code);
        let repartitioned = versions.get(TWO).unwrap();
        let logs = StoreLogs { store: StoreId(9), partitions: THREE, repartition_count: 1 };
        assert_eq!(
            (repartitioned.logs, repartitioned.start_offset(PartitionId(2))),
            (logs, Offset(0))
        );
        assert!(versions.is_repartitioning() && versions.write_logs() == LOGS);
        versions
            .add(StoreId(8), start_offsets.clone())
            .map_err(is(ErrorCode::Conflict))
            .unwrap_err();
        versions.activate(TWO).map_err(is(ErrorCode::InvalidArgument)).unwrap_err();
        let before = versions.clone();

        versions.write_to(TWO).unwrap();
        versions.check().unwrap();
        versions.check_follows(&before).unwrap();
        assert!(before.check_follows(&versions).is_err(), "writes never go back");
        versions.remove(TWO).map_err(is(ErrorCode::Conflict)).unwrap_err();
        assert!(versions.is_repartitioning());
        versions.activate(TWO).unwrap();
        assert!(!versions.is_repartitioning());
        versions.activate(ONE).map_err(is(ErrorCode::InvalidArgument)).unwrap_err();
        let result = versions.add_repartitioned(StoreId(10), PARTITIONS, vec![Offset(1); 3]);
        result.map_err(is(ErrorCode::Conflict)).unwrap_err();

        let forwarding = versions.clone();
        versions.remove(ONE).unwrap();
        versions.end_forwarding(TWO).unwrap();
        versions.check_follows(&forwarding).unwrap();
        assert!(forwarding.check_follows(&versions).is_err(), "what has ended stays so");
        assert_eq!(versions.add(StoreId(8), vec![Offset(1); 3]), Ok(VersionNumber(3)));
        versions.check().unwrap();
        assert_eq!(versions.get(VersionNumber(3)).unwrap().logs, logs);
    }
}
