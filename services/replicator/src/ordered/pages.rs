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

/// Some documents of a scan.
pub(super) struct Page {
    pub documents: Vec<v1::Document>,
    /// The last document that was looked at, also one that has expired; `None` at the scan's end.
    pub last: Option<Key>,
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
    let (reached, now) = (view.schema_version(), view.read_time(clock));
    let mut scan = view.scan(&range, asked.direction);
    let (mut documents, mut bytes, mut last) = (Vec::new(), 0, None);
    for _ in 0..SCAN_PAGE_ROWS_MAX {
        if documents.len() as u64 >= documents_max || bytes >= SCAN_PAGE_BYTES {
            return Ok(Page { documents, last });
        }
        let Some((key, row)) = scan.next()? else { return Ok(Page { documents, last: None }) };
        if let Some(document) = document(schemas, &asked.fields, reached, now, key.as_bytes(), row)?
        {
            bytes += row.len();
            documents.push(document);
        }
        last = Some(key);
    }
    Ok(Page { documents, last })
}

/// What lies under these keys, in their order; `None` where no document is.
///
/// # Errors
/// As [`View::rows`].
pub(super) fn read_documents(
    view: &View<'_>,
    schemas: &SchemaSet,
    fields: &Fields,
    reached: SchemaVersion,
    keys: &[&[u8]],
    clock: Timestamp,
) -> Result<Vec<Option<v1::Document>>> {
    let now = view.read_time(clock);
    let rows = view.rows(keys.iter().copied())?;
    let found = rows.iter().zip(keys).map(|(row, key)| {
        let Some(row) = row else { return Ok(None) };
        document(schemas, fields, reached, now, key, row)
    });
    found.collect()
}

fn document(
    schemas: &SchemaSet,
    fields: &Fields,
    reached: SchemaVersion,
    now: Timestamp,
    key: &[u8],
    row: &[u8],
) -> Result<Option<v1::Document>> {
    let Some(row) = schemas.document_row(row, reached, now)? else { return Ok(None) };
    Ok(Some(document_message(key, &row.document()?, |field| fields.wants(field))))
}
