//! The scan of one partition: page after page, over broken connections; and the merge of the scans
//! of several partitions into one order.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::key::Key;
use forebay_core::key_order::KeyOrder;
use forebay_core::row::Document;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::document::{ScanCursor, document_of};
use forebay_wire::status::error_of_status;
use forebay_wire::token::Token;
use forebay_wire::v1;
use forebay_wire::v1::shards_client::ShardsClient;
use futures::future::{BoxFuture, try_join_all};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::connection::Connection;

/// The generated client of the shards' service.
pub(super) type Shards = ShardsClient<Channel>;

/// A received document that waits for its turn in the merge.
pub(super) struct WaitingDocument {
    /// Bytes that the document is ordered by.
    pub stored: Vec<u8>,
    pub key: Key,
    pub document: Document,
}

/// The state of one partition's scan.
pub(super) struct PartitionScan {
    order: KeyOrder,
    /// Request of the scan, with the cursor after the last page.
    request: v1::ScanDocumentsRequest,
    pages: Option<Streaming<v1::ScanDocumentsResponse>>,
    waiting: VecDeque<WaitingDocument>,
    /// Last document that was taken; before the first, the document of the cursor that the scan
    /// starts from.
    last_taken: Option<Key>,
    /// Position of the documents, once a page has come.
    pub token: Option<Token>,
    /// Whether no further page comes: at the end, or once the limit is reached.
    is_over: bool,
    /// Whether no document follows the received ones.
    is_end: bool,
}

impl PartitionScan {
    /// Creates a scan that starts with this request.
    ///
    /// # Errors
    /// `InvalidArgument` for a cursor that no scan has returned.
    pub fn new(order: KeyOrder, request: v1::ScanDocumentsRequest) -> Result<Self> {
        let last_key = match request.cursor.is_empty() {
            true => None,
            false => ScanCursor::decode(&request.cursor)?.key,
        };
        Ok(Self {
            order,
            request,
            pages: None,
            waiting: VecDeque::new(),
            last_taken: last_key,
            token: None,
            is_over: false,
            is_end: false,
        })
    }

    /// Returns the same scan, with no documents left.
    #[must_use]
    pub fn ended(mut self) -> Self {
        (self.is_over, self.is_end) = (true, true);
        self
    }

    pub fn partition(&self) -> u32 {
        self.request.partition
    }

    /// Returns the bytes that the next document is ordered by; `None` if there is no next document,
    /// or none has come yet.
    pub fn next_stored(&self) -> Option<&[u8]> {
        self.waiting.front().map(|waiting| &waiting.stored[..])
    }

    /// Returns the next document, if one has come.
    pub fn take(&mut self) -> Option<WaitingDocument> {
        let document = self.waiting.pop_front()?;
        self.last_taken = Some(document.key.clone());
        Some(document)
    }

    /// Returns the cursor after the last document that was taken; empty if no document follows.
    ///
    /// # Errors
    /// `InvalidArgument` before the first page.
    pub fn cursor(&self) -> Result<Bytes> {
        if self.is_end && self.waiting.is_empty() {
            return Ok(Bytes::new());
        }
        let cursor = ScanCursor::decode(&self.request.cursor)?;
        Ok(ScanCursor { key: self.last_taken.clone(), ..cursor }.encode())
    }

    /// Waits until a document has come, or none is left.
    ///
    /// # Errors
    /// The reason why the scan cannot continue; `Unavailable` if no node answers in time.
    pub fn fill<'a>(
        &'a mut self,
        connection: &'a Connection,
        shards: &'a Shards,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let wait_ms = self.request.read.as_ref().map_or(0, |read| read.wait_ms);
            let deadline = connection.deadline() + Duration::from_millis(wait_ms.into());
            let mut last = None;
            let filling = async {
                let mut backoff = connection.backoff();
                while self.waiting.is_empty() && !self.is_over {
                    let Err(error) = self.page(shards).await else { continue };
                    if error.code() != ErrorCode::Unavailable {
                        return Err(error);
                    }
                    self.pages = None;
                    last = Some(error);
                    tokio::time::sleep(backoff.next_wait(connection.entropy())).await;
                }
                Ok(())
            };
            let outcome = tokio::time::timeout(deadline, filling).await;
            outcome.unwrap_or_else(|_| Err(connection.no_answer(last)))
        })
    }

    /// Processes one page.
    async fn page(&mut self, shards: &Shards) -> Result<()> {
        let status_error = |status: tonic::Status| error_of_status(&status);
        let pages = match &mut self.pages {
            Some(pages) => pages,
            None => {
                let response = shards
                    .clone()
                    .scan_documents(self.request.clone())
                    .await
                    .map_err(status_error)?;
                self.pages.insert(response.into_inner())
            }
        };
        let Some(page) = pages.message().await.map_err(status_error)? else {
            return Err(Error::unavailable("the node ended the scan early; try again"));
        };
        self.token = Some(Token::decode(&page.token)?);
        if !page.cursor.is_empty() {
            self.request.cursor = page.cursor;
        }
        let document_count = page.documents.len() as u64;
        for document in page.documents {
            let (key, document) = document_of(document)?;
            let ordered_by = self.order.stored(key.as_bytes())?;
            self.waiting.push_back(WaitingDocument { stored: ordered_by, key, document });
        }
        (self.is_over, self.is_end) = (page.is_end, page.is_end);
        if self.request.documents_max > 0 {
            self.request.documents_max = self.request.documents_max.saturating_sub(document_count);
            self.is_over |= self.request.documents_max == 0;
        }
        Ok(())
    }
}

/// The scans of some partitions, merged in the order of the keys.
pub(super) struct Merge {
    scans: Vec<PartitionScan>,
    is_reverse: bool,
}

impl Merge {
    pub fn new(scans: Vec<PartitionScan>, is_reverse: bool) -> Self {
        Self { scans, is_reverse }
    }

    pub fn scans(&self) -> impl Iterator<Item = &PartitionScan> {
        self.scans.iter()
    }

    /// Returns the next document of all partitions.
    ///
    /// # Errors
    /// Errors of [`PartitionScan::fill`]; no document is lost then.
    pub async fn next(
        &mut self,
        connection: &Connection,
        shards: &Shards,
    ) -> Result<Option<WaitingDocument>> {
        let empty = self.scans.iter_mut().filter(|scan| scan.next_stored().is_none());
        try_join_all(empty.map(|scan| scan.fill(connection, shards))).await?;
        let heads = self.scans.iter_mut().filter(|scan| scan.next_stored().is_some());
        let next = match self.is_reverse {
            false => heads.min_by(|a, b| a.next_stored().cmp(&b.next_stored())),
            true => heads.max_by(|a, b| a.next_stored().cmp(&b.next_stored())),
        };
        Ok(next.and_then(PartitionScan::take))
    }
}
