//! Versions of a store's documents: what it began with, and what was pushed in its place since.
//!
//! All versions follow the same logs, each from the moment on of which its push was made. One of
//! them is live: it is what reads answer from. The definition says which, so every replica comes to
//! the change at the same entry of its log.

use crate::error::{Error, Result};
use crate::id::{Offset, PartitionCount, PartitionId, StoreId};
use crate::limits::STORE_VERSIONS_MAX;

/// Number of a version, from 1, never given twice in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionNumber(pub u32);

impl std::fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One version of a store's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreVersion {
    /// Its number.
    pub number: VersionNumber,
    /// The id under which its copies, shards and snapshots are kept, as those of a store. The first
    /// version has the store's own.
    pub kept_as: StoreId,
    /// Of each partition the first offset that is not in the push; empty for the first version,
    /// which has all.
    pub began: Vec<Offset>,
}

impl StoreVersion {
    /// The first offset of a partition's log that it follows.
    pub fn began_at(&self, partition: PartitionId) -> Offset {
        self.began.get(partition.0 as usize).copied().unwrap_or_default()
    }
}

/// The versions that a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreVersions {
    /// The store whose documents they are, and whose logs they follow.
    home: StoreId,
    /// By ascending number.
    kept: Vec<StoreVersion>,
    /// The one that reads answer from.
    live: VersionNumber,
    /// The number that the next one gets.
    next: VersionNumber,
}

impl StoreVersions {
    /// Those of a store that began just now.
    pub fn first(store: StoreId) -> Self {
        let number = VersionNumber(1);
        let kept = vec![StoreVersion { number, kept_as: store, began: Vec::new() }];
        Self { home: store, kept, live: number, next: VersionNumber(2) }
    }

    /// These versions of a store.
    ///
    /// # Errors
    /// `InvalidArgument` where they contradict each other or the partition count; `LimitExceeded`
    /// for too many.
    pub fn new(
        home: StoreId,
        kept: Vec<StoreVersion>,
        live: VersionNumber,
        next: VersionNumber,
        partitions: PartitionCount,
    ) -> Result<Self> {
        let versions = Self { home, kept, live, next };
        versions.check(partitions)?;
        Ok(versions)
    }

    /// The store whose documents they are, and whose logs they follow.
    pub fn home(&self) -> StoreId {
        self.home
    }

    /// All of them, by ascending number.
    pub fn all(&self) -> &[StoreVersion] {
        &self.kept
    }

    /// The one that reads answer from.
    pub fn live(&self) -> &StoreVersion {
        // Checked to be there.
        self.get(self.live).unwrap_or(&self.kept[0])
    }

    /// The number that the next one gets.
    pub fn next(&self) -> VersionNumber {
        self.next
    }

    /// The version of a number.
    pub fn get(&self, number: VersionNumber) -> Option<&StoreVersion> {
        self.kept.iter().find(|version| version.number == number)
    }

    /// The version that is kept under this id.
    pub fn kept_as(&self, id: StoreId) -> Option<&StoreVersion> {
        self.kept.iter().find(|version| version.kept_as == id)
    }

    /// Whether there was never another one than the first.
    pub fn is_first_alone(&self) -> bool {
        self.next == VersionNumber(2)
    }

    /// With one more, which is not live yet; answers its number.
    ///
    /// # Errors
    /// `LimitExceeded` beside too many.
    pub(crate) fn add(&mut self, kept_as: StoreId, began: Vec<Offset>) -> Result<VersionNumber> {
        let number = self.next;
        self.next = VersionNumber(number.0.saturating_add(1));
        self.kept.push(StoreVersion { number, kept_as, began });
        Ok(number)
    }

    /// With another one live.
    ///
    /// # Errors
    /// `NotFound` for one that is not there.
    pub(crate) fn make_live(&mut self, number: VersionNumber) -> Result<()> {
        self.live = self.get(number).ok_or_else(|| no_version(number))?.number;
        Ok(())
    }

    /// Without this one.
    ///
    /// # Errors
    /// `NotFound` for one that is not there, `InvalidArgument` for the one that is live.
    pub(crate) fn remove(&mut self, number: VersionNumber) -> Result<()> {
        self.get(number).ok_or_else(|| no_version(number))?;
        if number == self.live {
            let message = "the live version stays; make another one live first";
            return Err(Error::invalid_argument(message));
        }
        self.kept.retain(|version| version.number != number);
        Ok(())
    }

    pub(crate) fn check(&self, partitions: PartitionCount) -> Result<()> {
        let wrong = |message: &str| Err(Error::invalid_argument(message));
        let (limit, count) = (STORE_VERSIONS_MAX as u64, self.kept.len() as u64);
        if count > limit {
            let advice = "drop a version that is no longer needed";
            return Err(Error::limit_exceeded(advice, limit, count));
        }
        if !self.kept.windows(2).all(|pair| pair[0].number < pair[1].number) {
            return wrong("the versions of a store ascend");
        }
        if self.kept.last().is_none_or(|last| last.number >= self.next) {
            return wrong("the number of a version was never given");
        }
        if self.get(self.live).is_none() {
            return wrong("the live version is not there");
        }
        let is_whole = |version: &StoreVersion| {
            version.number == VersionNumber(1) || version.began.len() == partitions.0 as usize
        };
        match self.kept.iter().all(is_whole) {
            true => Ok(()),
            false => wrong("a version begins somewhere in each partition"),
        }
    }

    /// Refuses versions that cannot come right after `previous`.
    pub(crate) fn check_follows(&self, previous: &Self) -> Result<()> {
        let wrong = |message: &str| Err(Error::invalid_argument(message));
        if self.next < previous.next {
            return wrong("the number of a version is never used again");
        }
        let is_known = |version: &&StoreVersion| version.number < previous.next;
        if self.kept.iter().filter(is_known).any(|version| !previous.kept.contains(version)) {
            return wrong("a version never changes");
        }
        Ok(())
    }
}

fn no_version(number: VersionNumber) -> Error {
    Error::not_found(format!("there is no version {number}; list the versions of the store"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    const ONE: VersionNumber = VersionNumber(1);
    const TWO: VersionNumber = VersionNumber(2);
    const PARTITIONS: PartitionCount = PartitionCount(2);

    fn two() -> StoreVersions {
        let mut versions = StoreVersions::first(StoreId(7));
        let began = vec![Offset(4), Offset(5)];
        assert_eq!(versions.add(StoreId(8), began), Ok(TWO));
        versions
    }

    #[test]
    fn a_version_is_added_made_live_rolled_back_and_dropped() {
        let mut versions = two();
        versions.check(PARTITIONS).unwrap();
        assert_eq!(versions.live().kept_as, StoreId(7));
        assert_eq!(versions.get(TWO).unwrap().began_at(PartitionId(1)), Offset(5));
        for number in [TWO, ONE, TWO] {
            versions.make_live(number).unwrap();
            assert_eq!(versions.live().number, number);
        }
        assert_eq!(versions.remove(TWO).unwrap_err().code(), ErrorCode::InvalidArgument);
        versions.remove(ONE).unwrap();
        assert_eq!(versions.make_live(ONE).unwrap_err().code(), ErrorCode::NotFound);
        assert_eq!(versions.next(), VersionNumber(3));
        versions.check(PARTITIONS).unwrap();
    }

    #[test]
    fn versions_that_cannot_be_are_refused() {
        let kept = two().kept;
        let new = |kept: &[StoreVersion], live, next| {
            let (live, next) = (VersionNumber(live), VersionNumber(next));
            StoreVersions::new(StoreId(7), kept.to_vec(), live, next, PARTITIONS)
        };
        assert_eq!(new(&kept, 1, 3), Ok(two()));
        assert!(new(&kept, 3, 3).is_err(), "a live one that is not there");
        assert!(new(&kept, 1, 2).is_err(), "a number that was never given");
        assert!(new(&[], 1, 2).is_err(), "none at all");
        assert!(new(&[kept[1].clone(), kept[0].clone()], 1, 3).is_err(), "out of their order");
        let short = StoreVersion { began: vec![Offset(1)], ..kept[1].clone() };
        assert!(new(&[kept[0].clone(), short], 1, 3).is_err(), "of too few partitions");
        let one = |number| StoreVersion { number: VersionNumber(number), ..kept[1].clone() };
        let many: Vec<_> = (2..STORE_VERSIONS_MAX as u32 + 3).map(one).collect();
        assert_eq!(new(&many, 2, 99).unwrap_err().code(), ErrorCode::LimitExceeded);
    }

    #[test]
    fn what_a_version_is_never_changes() {
        let (first, both) = (StoreVersions::first(StoreId(7)), two());
        both.check_follows(&first).unwrap();
        assert!(first.check_follows(&both).is_err(), "a number that was given");
        let mut other = both.clone();
        other.kept[1].began[0] = Offset(9);
        assert!(other.check_follows(&both).is_err(), "another beginning");
        let mut without = both.clone();
        without.remove(TWO).unwrap();
        without.check_follows(&both).unwrap();
        assert!(both.check_follows(&without).is_err(), "one that was dropped");
    }
}
