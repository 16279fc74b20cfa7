//! Reads of a view: documents by their keys, and pages in the order of the keys. Blocks on the
//! disk.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::SchemaVersion;
use forebay_core::key::Key;
use forebay_core::limits::{SCAN_PAGE_BYTES, SCAN_PAGE_ROWS_MAX};
use forebay_index::SchemaSet;
use forebay_shard::View;
use forebay_wire::document::document_message;
use forebay_wire::v1;

use super::asked::{Asked, Fields};

/// Schema version and time at which rows are decoded.
pub(super) struct Seen<'s> {
    pub schemas: &'s SchemaSet,
    pub reached: SchemaVersion,
    pub now: Timestamp,
}

impl Seen<'_> {
    fn document(&self, fields: &Fields, key: &[u8], row: &[u8]) -> Result<Option<v1::Document>> {
        let row = self.schemas.document_row(row, self.reached, self.now)?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(document_message(key, &row.document()?, |field| fields.wants(field))))
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

/// Returns the page of a scan that follows a document, with at most `documents_max` documents.
///
/// # Errors
/// As [`View::rows`].
pub(super) fn read_page(
    view: &View<'_>,
    schemas: &SchemaSet,
    asked: &Asked,
    behind: Option<&Key>,
    documents_max: u64,
    clock: Timestamp,
) -> Result<Page> {
    let range = match behind {
        None => asked.range.clone(),
        Some(key) => asked.order.rest(&asked.range, key, asked.direction)?,
    };
    let seen = Seen { schemas, reached: view.schema_version(), now: view.read_time(clock) };
    let mut scan = view.scan(&range, asked.direction);
    let (mut documents, mut bytes, mut last) = (Vec::new(), 0, None);
    for _ in 0..SCAN_PAGE_ROWS_MAX {
        if documents.len() as u64 >= documents_max || bytes >= SCAN_PAGE_BYTES {
            break;
        }
        let Some((key, row)) = scan.next()? else {
            return Ok(Page { documents, last, is_end: true });
        };
        if let Some(document) = seen.document(&asked.fields, key.as_bytes(), row)? {
            bytes += row.len();
            documents.push(document);
        }
        last = Some(key);
    }
    Ok(Page { documents, last, is_end: false })
}

/// Returns the documents under these keys, in the order of the keys, with the bytes of their rows;
/// `None` for an absent document.
///
/// # Errors
/// As [`View::rows`].
pub(super) fn read_documents(
    view: &View<'_>,
    seen: &Seen<'_>,
    fields: &Fields,
    keys: &[&[u8]],
) -> Result<Vec<Option<(v1::Document, usize)>>> {
    let rows = view.rows(keys.iter().copied())?;
    let found = rows.iter().zip(keys).map(|(row, key)| {
        let Some(row) = row else { return Ok(None) };
        Ok(seen.document(fields, key, row)?.map(|document| (document, row.len())))
    });
    found.collect()
}
