//! Requests of ordered reads, validated against the store.

use std::collections::BTreeSet;
use std::ops::Bound;

use forebay_core::id::{FieldId, PartitionId};
use forebay_core::key::Key;
use forebay_core::key_order::{Direction, KeyOrder, KeyRange};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_wire::v1;

/// The fields that are returned of each document.
pub(super) struct Fields(BTreeSet<FieldId>);

impl Fields {
    /// Creates the set of these field ids; an empty list selects all fields.
    pub fn new(ids: &[u32]) -> Self {
        Self(ids.iter().copied().map(FieldId).collect())
    }

    pub fn wants(&self, field: FieldId) -> bool {
        self.0.is_empty() || self.0.contains(&field)
    }
}

/// Range and order of the documents that a scan of a partition returns.
pub(super) struct Asked {
    pub order: KeyOrder,
    pub range: KeyRange,
    pub direction: Direction,
    pub fields: Fields,
}

impl Asked {
    /// Validates a request.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that the store does not have.
    pub fn of(request: &v1::ScanRequest, definition: &Definition) -> Result<Self> {
        use v1::scan_request::Keys;
        let order = KeyOrder::of(definition);
        let partition_key = request.partition_key.as_deref();
        let range = match &request.keys {
            None => order.range(partition_key, Bound::Unbounded, Bound::Unbounded)?,
            Some(Keys::Range(range)) => {
                order.range(partition_key, bound(range.from.as_ref()), bound(range.to.as_ref()))?
            }
            Some(Keys::Prefix(prefix)) => order.prefixed(partition_key, prefix)?,
        };
        let direction = if request.is_backward { Direction::Backward } else { Direction::Forward };
        Ok(Self { order, range, direction, fields: Fields::new(&request.fields) })
    }
}

fn bound(wire: Option<&v1::Bound>) -> Bound<&[u8]> {
    match wire {
        None => Bound::Unbounded,
        Some(bound) if bound.is_included => Bound::Included(&bound.key),
        Some(bound) => Bound::Excluded(&bound.key),
    }
}

/// Returns the partition of a document.
///
/// # Errors
/// `InvalidArgument` for bytes that are not a key of the store.
pub(super) fn partition_of_key(key: &[u8], definition: &Definition) -> Result<PartitionId> {
    let refused = |error: Error| {
        let message = format!("the key is not a key of the store: {}", error.message());
        Error::invalid_argument(message)
    };
    KeyOrder::of(definition).stored(key).map_err(refused)?;
    let split = Key::split(key, definition.partition_key.is_some()).map_err(refused)?;
    let (partition_key, primary) = split;
    Ok(partition_of(partition_key.unwrap_or(primary), definition.partitions))
}
