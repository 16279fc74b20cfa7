//! Reads of documents in a view of a shard. Blocks on the disk.

use std::collections::BTreeSet;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, SchemaVersion};
use forebay_core::schema_set::SchemaSet;
use forebay_shard::View;
use forebay_wire::document::document_message;
use forebay_wire::v1;

/// The fields that are returned of each document.
pub(super) struct FieldSelection(BTreeSet<FieldId>);

impl FieldSelection {
    /// Creates the set of these field ids; an empty list selects all fields.
    pub fn new(ids: &[u32]) -> Self {
        Self(ids.iter().copied().map(FieldId).collect())
    }

    pub fn wants(&self, field: FieldId) -> bool {
        self.0.is_empty() || self.0.contains(&field)
    }
}

/// Decoder of rows as documents of one schema version, at one time.
pub(super) struct RowDecoder<'s> {
    pub schemas: &'s SchemaSet,
    pub reached: SchemaVersion,
    pub now: Timestamp,
}

impl RowDecoder<'_> {
    /// Returns the selected fields of a document; `None` if the document has expired.
    ///
    /// # Errors
    /// As [`SchemaSet::document`].
    pub fn decode(
        &self,
        fields: &FieldSelection,
        key: &[u8],
        row: &[u8],
    ) -> Result<Option<v1::Document>> {
        let document = self.schemas.document(row, self.reached, self.now)?;
        Ok(document.map(|document| document_message(key, &document, |field| fields.wants(field))))
    }
}

/// Returns the documents under these keys, in the order of the keys, with the bytes of their rows;
/// `None` for an absent document.
///
/// # Errors
/// As [`View::rows`].
pub(super) fn read_documents(
    view: &View<'_>,
    decoder: &RowDecoder<'_>,
    fields: &FieldSelection,
    keys: &[&[u8]],
) -> Result<Vec<Option<(v1::Document, usize)>>> {
    let rows = view.rows(keys.iter().copied())?;
    let found = rows.iter().zip(keys).map(|(row, key)| {
        let Some(row) = row else { return Ok(None) };
        Ok(decoder.decode(fields, key, row)?.map(|document| (document, row.len())))
    });
    found.collect()
}
