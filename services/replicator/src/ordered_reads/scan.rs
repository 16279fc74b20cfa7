//! Scans of a partition: each reads a retained view, page by page.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::entropy::Entropy;
use forebay_core::id::PartitionId;
use forebay_core::key::Key;
use forebay_core::{Error, Result};
use forebay_replica::{ReadOptions, Storage};
use forebay_tasks::run_blocking;
use forebay_wire::document::ScanCursor;
use forebay_wire::v1;

use super::local_store::LocalStore;
use super::scan_sessions::ScanSessions;
use super::scan_spec::{Page, ScanSpec};

/// A scan between two of its pages.
pub(super) struct PagedScan {
    store: LocalStore,
    partition: PartitionId,
    spec: Arc<ScanSpec>,
    digest: u64,
    view: u64,
    last_key: Option<Key>,
    /// Whether the view is retained after the end of the scan.
    is_held: bool,
    /// Number of documents that may still be returned.
    documents_left: u64,
}

impl PagedScan {
    /// Begins or resumes a scan.
    ///
    /// # Errors
    /// - `InvalidArgument` for a range that the store does not have, and for a cursor of another
    ///   request.
    /// - `TokenLost` for a cursor whose view is no longer retained.
    /// - `LimitExceeded` if too many scans are in progress.
    /// - As [`LocalStore::view`].
    pub async fn begin(
        store: LocalStore,
        request: &v1::ScanDocumentsRequest,
        read: &ReadOptions,
        entropy: &dyn Entropy,
    ) -> Result<Self> {
        let definition = &store.schema.definition;
        let partition = PartitionId(request.partition);
        let (count, asked_of) = (definition.partitions.0, request.partitions);
        if asked_of != 0 && asked_of != count {
            let message = format!(
                "the store has {count} partitions here, not {asked_of}, because a repartition is \
                 under way; describe the store again, and restart the scan"
            );
            return Err(Error::unavailable(message));
        }
        if partition.0 >= count {
            let message = format!(
                "the store has {} partitions, from 0; name one of these",
                definition.partitions
            );
            return Err(Error::invalid_argument(message));
        }
        let spec = Arc::new(ScanSpec::of(request, definition)?);
        let digest = ScanCursor::digest(request);
        let cursor = cursor_of(request, digest)?;
        let sessions = store.shards.materializer().scan_sessions();
        let held_view = cursor.as_ref().map(|cursor| cursor.view);
        let held_view = held_view.filter(|number| sessions.get(*number).is_some());
        let view = match (held_view, &cursor) {
            (Some(number), _) => number,
            (None, Some(_)) if !request.allow_snapshot_change => return Err(snapshot_lost()),
            (None, _) => {
                let view = Arc::new(store.view(read, partition).await?);
                let number = entropy.next_u64()?;
                sessions.begin(number, view)?;
                number
            }
        };
        let last_key = cursor.and_then(|cursor| cursor.key);
        let documents_left = match request.documents_max {
            0 => u64::MAX,
            documents => documents,
        };
        let is_held = request.is_held;
        Ok(Self { store, partition, spec, digest, view, last_key, is_held, documents_left })
    }

    /// Returns the next page, and the rest of the scan unless it has ended.
    ///
    /// # Errors
    /// `TokenLost` if the view is no longer retained, else as [`ScanSpec::read_page`].
    pub async fn next(
        mut self,
        clock: Timestamp,
    ) -> Result<(v1::ScanDocumentsResponse, Option<Self>)> {
        let view = self.scan_sessions().get(self.view).ok_or_else(snapshot_lost)?;
        let (spec, documents_left) = (Arc::clone(&self.spec), self.documents_left);
        let (shards, last_key) = (self.store.shards.clone(), self.last_key.clone());
        let reading = {
            let view = Arc::clone(&view);
            move || {
                let (view, last_key) = (view.view(), last_key.as_ref());
                spec.read_page(view, shards.schemas(), last_key, documents_left, clock)
            }
        };
        let Page { documents, last, is_end } = run_blocking(reading).await?;
        self.documents_left -= documents.len() as u64;
        self.last_key = last.or(self.last_key);
        let view = view.view();
        let answer = v1::ScanDocumentsResponse {
            documents,
            cursor: self.cursor(is_end),
            token: self.store.token(self.partition, view)?.encode(),
            schema_version: view.schema_version().0,
            is_end,
        };
        let goes_on = !is_end && self.documents_left > 0;
        Ok((answer, goes_on.then_some(self)))
    }

    fn scan_sessions(&self) -> &ScanSessions {
        self.store.shards.materializer().scan_sessions()
    }

    /// Returns the cursor of the next page; drops the view if the scan cannot be resumed.
    fn cursor(&self, is_end: bool) -> Bytes {
        if is_end && !self.is_held {
            self.scan_sessions().end(self.view);
            return Bytes::new();
        }
        ScanCursor { view: self.view, asked: self.digest, key: self.last_key.clone() }.encode()
    }
}

/// Decodes the cursor of a request, if there is one.
///
/// # Errors
/// `InvalidArgument` for a cursor of another request.
fn cursor_of(request: &v1::ScanDocumentsRequest, digest: u64) -> Result<Option<ScanCursor>> {
    if request.cursor.is_empty() {
        return Ok(None);
    }
    let cursor = ScanCursor::decode(&request.cursor)?;
    if cursor.asked != digest {
        let message = "the cursor is of a scan with another request; pass the cursor on with the \
            same request, or begin without one";
        return Err(Error::invalid_argument(message));
    }
    Ok(Some(cursor))
}

fn snapshot_lost() -> Error {
    let message = "the position of the scan is no longer held; continue with \
        `allow_snapshot_change` at a later position, or restart the scan";
    Error::token_lost(message)
}
