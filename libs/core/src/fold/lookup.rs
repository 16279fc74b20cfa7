//! The lookups through which the fold reads rows and definitions, and the reasons why it cannot
//! apply a record.

use std::borrow::Cow;
use std::sync::Arc;

use crate::catalog::SchemaAt;
use crate::error::{Error, Result};
use crate::id::{PartitionId, SchemaVersion};

/// Lookup of the rows of one partition, for the fold.
pub trait RowLookup {
    /// Returns the row under a key, or `None`.
    ///
    /// # Errors
    /// Returns an error if the row cannot be read, for example after a disk error; the record is
    /// then not applied.
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>>;

    /// Announces the next keys, a few dozen at most, so that an implementation can prefetch their
    /// memory in parallel.
    fn prefetch(&self, keys: &[&[u8]]) {
        let _ = keys;
    }
}

/// Lookup of the definitions of one store for the fold.
pub trait Schemas {
    /// Returns the definition of this version, or `None` if this process does not know it yet.
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>>;
}

/// Reason why a record cannot be applied now.
#[derive(Debug, PartialEq)]
pub enum FoldError {
    /// The definition of this version is unknown; fetch it, then apply the record again.
    NeedsDefinition(SchemaVersion),
    /// This build does not know the record's format; the partition stays at its offset.
    UpgradeNeeded(Error),
    /// A document that the record changes could not be read.
    Unreadable(Error),
    /// An invariant is broken; the state is poisoned.
    Internal(Error),
}

impl FoldError {
    /// Converts to an error, for callers that cannot wait. `unknown` creates the error for an
    /// unknown definition.
    pub fn into_error(self, unknown_version_error: impl FnOnce(SchemaVersion) -> Error) -> Error {
        match self {
            Self::NeedsDefinition(version) => unknown_version_error(version),
            Self::UpgradeNeeded(error) | Self::Unreadable(error) | Self::Internal(error) => error,
        }
    }

    /// Adds the partition to the error.
    pub(super) fn with_partition(self, partition: PartitionId) -> Self {
        match self {
            Self::NeedsDefinition(version) => Self::NeedsDefinition(version),
            Self::UpgradeNeeded(error) => Self::UpgradeNeeded(error.with_partition(partition)),
            Self::Unreadable(error) => Self::Unreadable(error.with_partition(partition)),
            Self::Internal(error) => Self::Internal(error.with_partition(partition)),
        }
    }
}

/// Returns the definition of this version; `Ok(None)` for version 0, before the first definition.
pub(super) fn find_definition(
    schemas: &impl Schemas,
    version: SchemaVersion,
) -> std::result::Result<Option<Arc<SchemaAt>>, FoldError> {
    if version == SchemaVersion(0) {
        return Ok(None);
    }
    schemas.at(version).map(Some).ok_or(FoldError::NeedsDefinition(version))
}
