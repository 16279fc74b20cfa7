//! A scan's request, validated against the store, and the pages that it yields. Blocks on the disk.

use std::ops::Bound;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::key::Key;
use forebay_core::key_order::{Direction, KeyOrder, KeyRange};
use forebay_core::limits::{SCAN_PAGE_BYTES, SCAN_PAGE_ROWS_MAX};
use forebay_core::schema::Definition;
use forebay_core::schema_set::SchemaSet;
use forebay_shard::View;
use forebay_wire::v1;

use super::documents::{FieldSelection, RowDecoder};

/// Range and order of the documents that a scan of a partition returns.
pub(super) struct ScanSpec {
    order: KeyOrder,
    range: KeyRange,
    direction: Direction,
    fields: FieldSelection,
}

impl ScanSpec {
    /// Validates a request.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that the store does not have.
    pub fn of(request: &v1::ScanDocumentsRequest, definition: &Definition) -> Result<Self> {
        use v1::scan_documents_request::Keys;
        let order = KeyOrder::of(definition);
        let partition_key = request.partition_key.as_deref();
        let range = match &request.keys {
            None => order.range(partition_key, Bound::Unbounded, Bound::Unbounded)?,
            Some(Keys::Range(range)) => order.range(
                partition_key,
                bound(range.start.as_ref()),
                bound(range.end.as_ref()),
            )?,
            Some(Keys::Prefix(prefix)) => order.prefixed(partition_key, prefix)?,
        };
        let direction = if request.is_reverse { Direction::Backward } else { Direction::Forward };
        Ok(Self { order, range, direction, fields: FieldSelection::new(&request.fields) })
    }

    /// Returns the page of a scan that follows a document, with at most `documents_max` documents.
    ///
    /// # Errors
    /// As the shard.
    pub fn read_page(
        &self,
        view: &View<'_>,
        schemas: &SchemaSet,
        last_key: Option<&Key>,
        documents_max: u64,
        clock: Timestamp,
    ) -> Result<Page> {
        let range = match last_key {
            None => self.range.clone(),
            Some(key) => self.order.rest(&self.range, key, self.direction)?,
        };
        let decoder =
            RowDecoder { schemas, reached: view.schema_version(), now: view.read_time(clock) };
        let mut scan = view.scan(&range, self.direction);
        let (mut documents, mut bytes, mut last) = (Vec::new(), 0, None);
        for _ in 0..SCAN_PAGE_ROWS_MAX {
            if documents.len() as u64 >= documents_max || bytes >= SCAN_PAGE_BYTES {
                break;
            }
            let Some((key, row)) = scan.next()? else {
                return Ok(Page { documents, last, is_end: true });
            };
            if let Some(document) = decoder.decode(&self.fields, key.as_bytes(), row)? {
                bytes += row.len();
                documents.push(document);
            }
            last = Some(key);
        }
        Ok(Page { documents, last, is_end: false })
    }
}

/// A page of a scan.
pub(super) struct Page {
    pub documents: Vec<v1::Document>,
    /// Key of the last document that was read, even if it has expired.
    pub last: Option<Key>,
    /// Whether no document follows.
    pub is_end: bool,
}

fn bound(wire: Option<&v1::Bound>) -> Bound<&[u8]> {
    match wire {
        None => Bound::Unbounded,
        Some(bound) if bound.is_included => Bound::Included(&bound.key),
        Some(bound) => Bound::Excluded(&bound.key),
    }
}
