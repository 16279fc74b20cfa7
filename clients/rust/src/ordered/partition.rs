//! The scan of one partition: page after page, over broken connections.

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
use tonic::Streaming;

use super::Shards;
use crate::client::ClientInner;

/// A document that waits for its turn.
pub(super) struct Waiting {
    /// What it is ordered by.
    pub stored: Vec<u8>,
    pub key: Key,
    pub document: Document,
}

/// What is read of one partition.
pub(super) struct PartitionScan {
    order: KeyOrder,
    /// What is asked for, with the cursor behind the last page.
    request: v1::ScanRequest,
    pages: Option<Streaming<v1::ScanResponse>>,
    waiting: VecDeque<Waiting>,
    /// The last document that was taken; before the first one, that of the cursor that the scan
    /// began with.
    taken: Option<Key>,
    /// The position of the documents, once a page has come.
    pub token: Option<Token>,
    /// Whether no page comes any more: at the end, or where enough were asked for.
    is_over: bool,
    /// Whether nothing is behind what has come.
    is_end: bool,
}

impl PartitionScan {
    /// A scan that begins with this request.
    ///
    /// # Errors
    /// `InvalidArgument` for a cursor that no scan has answered.
    pub fn new(order: KeyOrder, request: v1::ScanRequest) -> Result<Self> {
        let taken = match request.cursor.is_empty() {
            true => None,
            false => ScanCursor::decode(&request.cursor)?.key,
        };
        Ok(Self {
            order,
            request,
            pages: None,
            waiting: VecDeque::new(),
            taken,
            token: None,
            is_over: false,
            is_end: false,
        })
    }

    /// The same scan, of which nothing is left.
    #[must_use]
    pub fn ended(mut self) -> Self {
        (self.is_over, self.is_end) = (true, true);
        self
    }

    pub fn partition(&self) -> u32 {
        self.request.partition
    }

    /// What the next document is ordered by; `None` where there is none, or none has come yet.
    pub fn next_stored(&self) -> Option<&[u8]> {
        self.waiting.front().map(|waiting| &waiting.stored[..])
    }

    /// The next document, if one has come.
    pub fn take(&mut self) -> Option<Waiting> {
        let taken = self.waiting.pop_front()?;
        self.taken = Some(taken.key.clone());
        Some(taken)
    }

    /// Where it goes on behind what was taken; empty where nothing is left of it.
    ///
    /// # Errors
    /// `InvalidArgument` before its first page.
    pub fn cursor(&self) -> Result<Bytes> {
        if self.is_end && self.waiting.is_empty() {
            return Ok(Bytes::new());
        }
        let behind = ScanCursor::decode(&self.request.cursor)?;
        Ok(ScanCursor { key: self.taken.clone(), ..behind }.encode())
    }

    /// Waits until a document has come, or none is left.
    ///
    /// # Errors
    /// Why that cannot be known, `Unavailable` when nobody answers in time.
    pub async fn fill(&mut self, client: &ClientInner, shards: &Shards) -> Result<()> {
        let wait_ms = self.request.read.as_ref().map_or(0, |read| read.wait_ms);
        let deadline = client.deadline() + Duration::from_millis(wait_ms.into());
        let mut last = None;
        let filling = async {
            let mut backoff = client.backoff();
            while self.waiting.is_empty() && !self.is_over {
                let Err(error) = self.page(shards).await else { continue };
                if error.code() != ErrorCode::Unavailable {
                    return Err(error);
                }
                self.pages = None;
                last = Some(error);
                tokio::time::sleep(backoff.next_wait(client.entropy())).await;
            }
            Ok(())
        };
        let filled = tokio::time::timeout(deadline, filling).await;
        filled.unwrap_or_else(|_| Err(client.no_answer(last)))
    }

    /// Takes in one page.
    async fn page(&mut self, shards: &Shards) -> Result<()> {
        let told = |status: tonic::Status| error_of_status(&status);
        let pages = match &mut self.pages {
            Some(pages) => pages,
            None => {
                let opened = shards.clone().scan(self.request.clone()).await.map_err(told)?;
                self.pages.insert(opened.into_inner())
            }
        };
        let Some(page) = pages.message().await.map_err(told)? else {
            return Err(Error::unavailable("the node has ended the scan; try again"));
        };
        self.token = Some(Token::decode(&page.token)?);
        if !page.cursor.is_empty() {
            self.request.cursor = page.cursor;
        }
        let told = page.documents.len() as u64;
        for document in page.documents {
            let (key, document) = document_of(document)?;
            let stored = self.order.stored(key.as_bytes())?;
            self.waiting.push_back(Waiting { stored, key, document });
        }
        (self.is_over, self.is_end) = (page.is_end, page.is_end);
        if self.request.documents_max > 0 {
            self.request.documents_max = self.request.documents_max.saturating_sub(told);
            self.is_over |= self.request.documents_max == 0;
        }
        Ok(())
    }
}
