//! Scans: their options and their documents.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::id::PartitionId;
use forebay_core::key::{Key, KeyType, KeyValue};
use forebay_core::key_order::KeyOrder;
use forebay_core::partition::partition_of;
use forebay_core::row::Document;
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::DocumentKey;
use forebay_reader::ReadOptions;
use forebay_wire::document::StoreCursor;
use forebay_wire::v1;
use forebay_wire::v1::scan_documents_request::Keys;

use super::partition::{Merge, PartitionScan, Shards};
use crate::change_spec::{OwnedKey, field_named};
use crate::store_state::StoreState;

/// A scan before it is opened: which documents, and which fields.
#[must_use = "a scan does nothing before it is opened"]
pub struct OrderedScan {
    state: Arc<StoreState>,
    shards: Shards,
    partition_key: Option<OwnedKey>,
    range: (Bound<OwnedKey>, Bound<OwnedKey>),
    prefix: Option<Vec<u8>>,
    fields: Vec<String>,
    is_reverse: bool,
    limit: Option<u64>,
    read: ReadOptions,
    cursor: Vec<u8>,
    allow_snapshot_change: bool,
}

impl OrderedScan {
    pub(super) fn new(state: Arc<StoreState>, shards: Shards) -> Self {
        Self {
            state,
            shards,
            partition_key: None,
            range: (Bound::Unbounded, Bound::Unbounded),
            prefix: None,
            fields: Vec::new(),
            is_reverse: false,
            limit: None,
            read: ReadOptions::local(),
            cursor: Vec::new(),
            allow_snapshot_change: false,
        }
    }

    /// Scans only documents of this partition key, in a store that declares one. Keys are ordered
    /// inside each partition key, so a range or a prefix needs a partition key.
    pub fn partition_key<'k>(mut self, partition_key: impl Into<KeyValue<'k>>) -> Self {
        self.partition_key = Some(partition_key.into().into());
        self
    }

    /// Scans only documents whose primary keys are in this range.
    pub fn range<'k, K>(mut self, range: impl RangeBounds<K>) -> Self
    where
        K: Into<KeyValue<'k>> + Clone,
    {
        let owned_bound = |bound: Bound<&K>| bound.map(|key| OwnedKey::from(key.clone().into()));
        self.range = (owned_bound(range.start_bound()), owned_bound(range.end_bound()));
        self
    }

    /// Scans only documents whose primary keys, of text or bytes, have this prefix.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = Some(prefix.as_ref().to_vec());
        self
    }

    /// Returns only these fields of each document.
    pub fn fields<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.fields = names.into_iter().map(Into::into).collect();
        self
    }

    /// Reverses the order: the largest key first.
    pub fn reverse(mut self) -> Self {
        self.is_reverse = true;
        self
    }

    /// Limits the number of documents.
    pub fn limit(mut self, documents: u64) -> Self {
        self.limit = Some(documents);
        self
    }

    /// Sets the wait before the scan starts, and the staleness bound of its data.
    pub fn read(mut self, read: ReadOptions) -> Self {
        self.read = read;
        self
    }

    /// Continues an earlier stream of the same scan after the document of this cursor, at the
    /// cursor's position, which nodes hold for a minute.
    pub fn cursor(mut self, cursor: impl Into<Vec<u8>>) -> Self {
        self.cursor = cursor.into();
        self
    }

    /// Lets the scan continue at a later position if the position of the cursor or of a broken
    /// connection is no longer held. Otherwise that is `TokenLost`.
    pub fn allow_snapshot_change(mut self) -> Self {
        self.allow_snapshot_change = true;
        self
    }

    /// Opens the scan. Each partition is read at one position, while the store changes.
    ///
    /// In a store with several partitions, a scan without a partition key reads all partitions at
    /// once, and merges them in the order of the keys.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is invalid in the store, and for a cursor of another
    /// scan; `NotFound` for a field that the store does not have; the error of the fetch if the
    /// definition has to be fetched for an unknown field. Nothing of the scan is sent yet: an error
    /// of the node comes with the first document.
    pub async fn open(self) -> Result<OrderedStream> {
        let mut definition = self.state.definition();
        let mut scans = self.partitions(&definition);
        // A field that this client does not know may be new.
        if scans.as_ref().is_err_and(|error| error.code() == ErrorCode::NotFound) {
            definition = self.state.refresh().await?;
            scans = self.partitions(&definition);
        }
        let scans = scans.map_err(|error| error.with_store(&definition.name))?;
        let merge = Merge::new(scans, self.is_reverse);
        Ok(OrderedStream {
            state: self.state,
            shards: self.shards,
            definition,
            merge,
            remaining: self.limit,
        })
    }

    fn partitions(&self, definition: &Definition) -> Result<Vec<PartitionScan>> {
        let order = KeyOrder::of(definition);
        let partition = self.partition_key.as_ref().map(|partition_key| -> Result<PartitionId> {
            let Some(key_type) = definition.partition_key_type() else {
                let message = "the store has no partition key; name none";
                return Err(Error::invalid_argument(message));
            };
            partition_key.check(key_type, "partition key")?;
            Ok(partition_of(&partition_key.bytes, definition.write_logs().partitions))
        });
        let partitions: Vec<_> = match partition.transpose()? {
            Some(partition) => vec![partition],
            None => definition.write_logs().partitions.partitions().collect(),
        };
        let is_held = self.limit.is_some() && partitions.len() > 1;
        let request = v1::ScanDocumentsRequest { is_held, ..self.request(definition)? };
        let cursors = match self.cursor.is_empty() {
            true => None,
            false => Some(StoreCursor::decode(&self.cursor)?),
        };
        let scans = partitions.into_iter().map(|partition| {
            let request = v1::ScanDocumentsRequest { partition: partition.0, ..request.clone() };
            match cursors.as_ref().map(|cursors| cursors.of(partition)).transpose()? {
                None => PartitionScan::new(order, request),
                Some(cursor) if cursor.is_empty() => {
                    PartitionScan::new(order, request).map(PartitionScan::ended)
                }
                Some(cursor) => {
                    PartitionScan::new(order, v1::ScanDocumentsRequest { cursor, ..request })
                }
            }
        });
        scans.collect()
    }

    fn request(&self, definition: &Definition) -> Result<v1::ScanDocumentsRequest> {
        let bytes = |key: &OwnedKey| Bytes::copy_from_slice(&key.bytes);
        let keys = match (&self.prefix, &self.range) {
            (None, (Bound::Unbounded, Bound::Unbounded)) => None,
            (Some(prefix), (Bound::Unbounded, Bound::Unbounded)) => {
                Some(Keys::Prefix(Bytes::copy_from_slice(prefix)))
            }
            (None, (start, end)) => {
                let (start, end) =
                    (bound(start, definition.key_type)?, bound(end, definition.key_type)?);
                Some(Keys::Range(v1::KeyRange { start, end }))
            }
            (Some(_), _) => {
                let message = "the scan has a prefix and a range; leave one of the two out";
                return Err(Error::invalid_argument(message));
            }
        };
        let fields = self.fields.iter().map(|name| {
            let field = field_named(definition, name)?;
            Ok(field.id.0)
        });
        Ok(v1::ScanDocumentsRequest {
            partitions: definition.write_logs().partitions.0,
            store: definition.name.clone(),
            partition: 0,
            partition_key: self.partition_key.as_ref().map(bytes),
            keys,
            is_reverse: self.is_reverse,
            documents_max: self.limit.unwrap_or(0),
            fields: fields.collect::<Result<_>>()?,
            cursor: Bytes::new(),
            allow_snapshot_change: self.allow_snapshot_change,
            read: Some((&self.read).into()),
            is_held: false,
        })
    }
}

fn bound(key_bound: &Bound<OwnedKey>, key_type: KeyType) -> Result<Option<v1::Bound>> {
    let (key, is_included) = match key_bound {
        Bound::Unbounded => return Ok(None),
        Bound::Included(key) => (key, true),
        Bound::Excluded(key) => (key, false),
    };
    key.check(key_type, "key")?;
    Ok(Some(v1::Bound { key: Bytes::copy_from_slice(&key.bytes), is_included }))
}

/// A document of a scan.
#[derive(Clone, PartialEq)]
pub struct OrderedDocument {
    identity: Key,
    definition: Arc<Definition>,
    /// The document.
    pub document: Document,
}

impl OrderedDocument {
    /// Returns the document's key.
    ///
    /// # Errors
    /// `Corrupt` if the node has returned a key that is invalid in the store.
    pub fn key(&self) -> Result<DocumentKey<'_>> {
        DocumentKey::of_identity(self.identity.as_bytes(), &self.definition)
    }
}

impl fmt::Debug for OrderedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedDocument").field("document", &self.document).finish_non_exhaustive()
    }
}

/// The documents of a scan, one after the other.
pub struct OrderedStream {
    state: Arc<StoreState>,
    shards: Shards,
    definition: Arc<Definition>,
    merge: Merge,
    remaining: Option<u64>,
}

impl OrderedStream {
    /// Returns the next document; `None` after the last one. The stream replaces a broken
    /// connection and continues after the last document, until the client's deadline.
    ///
    /// # Errors
    /// `TokenLost` if the scan's position is no longer held and the scan allows no other; `Stale`;
    /// `Unavailable` if no node answers in time. The caller may call again after an error.
    pub async fn next(&mut self) -> Result<Option<OrderedDocument>> {
        if self.remaining == Some(0) {
            return Ok(None);
        }
        let connection = self.state.connection();
        let next = self.merge.next(connection, &self.shards).await;
        let next = next.map_err(|error| error.with_store(&self.definition.name))?;
        let Some(waiting) = next else { return Ok(None) };
        self.remaining = self.remaining.map(|remaining| remaining - 1);
        let (identity, definition) = (waiting.key, Arc::clone(&self.definition));
        Ok(Some(OrderedDocument { identity, definition, document: waiting.document }))
    }

    /// Returns the cursor after the last document; for [`OrderedScan::cursor`].
    ///
    /// # Errors
    /// `InvalidArgument` before the first document was requested.
    pub fn cursor(&self) -> Result<Vec<u8>> {
        let cursors =
            self.merge.scans().map(|scan| Ok((PartitionId(scan.partition()), scan.cursor()?)));
        Ok(StoreCursor(cursors.collect::<Result<_>>()?).encode().into())
    }
}
