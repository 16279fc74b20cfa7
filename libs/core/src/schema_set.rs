//! Every version of one store's definition that this process knows; only grows.
//!
//! The follower of the control log adds versions; any thread reads them. A version is written once
//! (`OnceLock`) and stays at its address for the life of the set, so a reader needs no guard and no
//! count to hold it. No reader finds a row before its version: the writer of a partition adds
//! the version first.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::catalog::SchemaAt;
use crate::clock::Timestamp;
use crate::fold::Schemas;
use crate::id::SchemaVersion;
use crate::limits::SCHEMA_VERSION_MAX;
use crate::row::{Document, Row, row_schema_version};
use crate::{Error, Result};

const VERSIONS_PER_BLOCK: usize = 256;
const BLOCKS: usize = (SCHEMA_VERSION_MAX as usize + 1).div_ceil(VERSIONS_PER_BLOCK);

type Block = Box<[OnceLock<Arc<SchemaAt>>]>;

/// All known versions of one store's definition.
#[derive(Debug)]
pub struct SchemaSet {
    first: Arc<SchemaAt>,
    blocks: Box<[OnceLock<Block>]>,
    newest: AtomicU32,
}

impl SchemaSet {
    /// Creates a set of these versions.
    ///
    /// # Errors
    /// `InvalidArgument` without any version, or when the versions are of different stores.
    pub fn new(versions: impl IntoIterator<Item = Arc<SchemaAt>>) -> Result<Self> {
        let mut versions = versions.into_iter();
        let first = versions.next().ok_or_else(|| {
            Error::invalid_argument("an index needs a definition; fetch the store's first")
        })?;
        let blocks = (0..BLOCKS).map(|_| OnceLock::new()).collect();
        let set = Self { first: first.clone(), blocks, newest: AtomicU32::new(0) };
        set.add(first)?;
        for version in versions {
            set.add(version)?;
        }
        Ok(set)
    }

    /// Adds a version; a version that is already known stays unchanged.
    ///
    /// # Errors
    /// `InvalidArgument` for another store or another partitioning, `LimitExceeded` for a version
    /// beyond the limit.
    pub fn add(&self, schema: Arc<SchemaAt>) -> Result<()> {
        let (first, new) = (&self.first.definition, &schema.definition);
        let same_shape = (first.store, first.partitions, first.key_type, first.partition_key)
            == (new.store, new.partitions, new.key_type, new.partition_key);
        if !same_shape {
            let message = "the definition is of another store; open an index of its own for it";
            return Err(Error::invalid_argument(message).with_store(&new.name));
        }
        let version = new.version;
        let place = self.place(version).ok_or_else(|| {
            let (limit, actual) = (SCHEMA_VERSION_MAX.into(), version.0.into());
            Error::limit_exceeded(
                "the schema version is above the limit; move the store into a new one",
                limit,
                actual,
            )
        })?;
        let block = self.blocks[place.0]
            .get_or_init(|| (0..VERSIONS_PER_BLOCK).map(|_| OnceLock::new()).collect());
        block[place.1].get_or_init(|| schema);
        self.newest.fetch_max(version.0, Ordering::Release);
        // Pairs with `get`: ThreadSanitizer does not understand `fetch_max` either.
        #[cfg(forebay_sanitize = "thread")]
        self.newest.fetch_add(0, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn place(&self, version: SchemaVersion) -> Option<(usize, usize)> {
        let number = version.0 as usize;
        let is_valid = (1..=SCHEMA_VERSION_MAX).contains(&version.0);
        is_valid.then_some((number / VERSIONS_PER_BLOCK, number % VERSIONS_PER_BLOCK))
    }

    /// Returns one version, or `None` if it is not known here. Two loads, no lock.
    #[inline]
    pub fn get(&self, version: SchemaVersion) -> Option<&Arc<SchemaAt>> {
        // ThreadSanitizer does not see the stores of the standard library; this load expresses the
        // same order, also for a reader of a shared copy, which loads other words than the writer's
        // `OnceLock`.
        #[cfg(forebay_sanitize = "thread")]
        self.newest.load(Ordering::Acquire);
        let (block, place) = self.place(version)?;
        self.blocks.get(block)?.get()?.get(place)?.get()
    }

    /// All versions that are known, in ascending order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        let newest = self.newest.load(Ordering::Acquire);
        (1..=newest).filter_map(|version| self.get(SchemaVersion(version)))
    }

    /// The newest version known; a partition may not have reached it yet.
    pub fn newest(&self) -> &Arc<SchemaAt> {
        let newest = SchemaVersion(self.newest.load(Ordering::Acquire));
        self.get(newest).unwrap_or(&self.first)
    }

    /// Returns the definition that a row of this version was written under, and the definition by
    /// which a partition sees the row that has reached `reached`, whose definition is `known` if it
    /// is known here.
    ///
    /// # Errors
    /// Returns `Internal` for a version that is not known here.
    pub fn definitions_of<'s>(
        &'s self,
        version: SchemaVersion,
        version_reached: SchemaVersion,
        reached_schema: Option<&'s SchemaAt>,
    ) -> Result<(&'s SchemaAt, &'s SchemaAt)> {
        let unknown_error =
            |version| Error::internal(format!("schema version {version} is unknown"));
        let written_schema = self.get(version).ok_or_else(|| unknown_error(version))?;
        if version_reached <= version {
            return Ok((written_schema, written_schema));
        }
        let current = reached_schema.ok_or_else(|| unknown_error(version_reached))?;
        Ok((written_schema, current))
    }

    /// Decodes the document of a row as a partition sees it that has reached this version; returns
    /// `None` if the document has expired at this time.
    ///
    /// # Errors
    /// Returns `Internal` for a version that is not known here, `Corrupt` for bytes that are no row
    /// of their version.
    pub fn document(
        &self,
        row: &[u8],
        version_reached: SchemaVersion,
        now: Timestamp,
    ) -> Result<Option<Document>> {
        let version = row_schema_version(row).unwrap_or_default();
        let schema = self.get(version_reached).map(|schema| &**schema);
        let (written_schema, current) = self.definitions_of(version, version_reached, schema)?;
        let row = Row::new(row, &written_schema.layout)?;
        if row.is_expired(now) {
            return Ok(None);
        }
        Document::seen(&row, &written_schema.layout, &current.layout, now).map(Some)
    }
}

impl Schemas for SchemaSet {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        self.get(version).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;
    use crate::id::StoreId;
    use crate::key::KeyType;
    use crate::schema::{Definition, StoreSpec};

    fn schema(store: u64, version: u32) -> Arc<SchemaAt> {
        let mut definition: Definition = StoreSpec::documents("users", KeyType::String)
            .partitions(4)
            .define(StoreId(store))
            .unwrap();
        definition.version = SchemaVersion(version);
        SchemaAt::of(definition)
    }

    #[test]
    fn schema_set_finds_versions_and_its_newest_is_the_highest() {
        let set = SchemaSet::new([schema(1, 3)]).unwrap();
        for version in [700, 1, SCHEMA_VERSION_MAX, 2] {
            set.add(schema(1, version)).unwrap();
            let found = set.get(SchemaVersion(version)).unwrap();
            assert_eq!(found.definition.version.0, version);
        }
        assert_eq!(set.newest().definition.version.0, SCHEMA_VERSION_MAX);
        assert!(set.get(SchemaVersion(0)).is_none());
        assert!(set.get(SchemaVersion(4)).is_none());
        assert!(set.get(SchemaVersion(u32::MAX)).is_none());
    }

    #[test]
    fn schema_set_refuses_another_store_and_a_version_over_the_limit() {
        let set = SchemaSet::new([schema(1, 1)]).unwrap();
        assert_eq!(set.add(schema(2, 1)).unwrap_err().code(), ErrorCode::InvalidArgument);
        let excess_schema = schema(1, SCHEMA_VERSION_MAX + 1);
        assert_eq!(set.add(excess_schema).unwrap_err().code(), ErrorCode::LimitExceeded);
        assert_eq!(SchemaSet::new([]).unwrap_err().code(), ErrorCode::InvalidArgument);
    }
}
