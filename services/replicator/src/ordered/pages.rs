//! Reads documents out of a view: by their keys, and page by page in their order. Blocks on the
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

/// How rows are seen: at a schema version, at a time.
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

/// Some documents of a scan.
pub(super) struct Page {
    pub documents: Vec<v1::Document>,
    /// The last document that was looked at, also one that has expired.
    pub last: Option<Key>,
    /// Whether nothing is behind it.
    pub is_end: bool,
}

/// The page of a scan behind a document, of this many documents at most.
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

/// What lies under these keys, in their order, with the bytes of its row; `None` where no document
/// is.
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
