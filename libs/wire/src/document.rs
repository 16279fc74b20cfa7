//! Conversion of documents of ordered reads, and of the cursors of scans, to and from the messages
//! of `shard.proto`.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::id::{DocumentVersion, FieldId, PartitionId};
use forebay_core::key::Key;
use forebay_core::row::Document;
use forebay_core::{Error, Result};
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::v1;
use crate::value::{nullable_value, nullable_value_message};

/// Creates the message of a document, with the fields for which `is_wanted` returns true.
pub fn document_message(
    key: &[u8],
    document: &Document,
    is_wanted: impl Fn(FieldId) -> bool,
) -> v1::Document {
    v1::Document {
        key: Bytes::copy_from_slice(key),
        fields: fields_message(document, is_wanted),
        version: document.version.map(|version| version.0),
        expires_at_us: document.expires_at.map(Timestamp::as_micros),
    }
}

/// Creates the messages of a document's fields for which `is_wanted` returns true.
pub fn fields_message(
    document: &Document,
    is_wanted: impl Fn(FieldId) -> bool,
) -> Vec<v1::DocumentField> {
    let cells = document.cells().iter().filter(|cell| is_wanted(cell.field));
    let fields = cells.map(|cell| v1::DocumentField {
        field: cell.field.0,
        value: Some(nullable_value_message(cell.value.as_ref())),
    });
    fields.collect()
}

/// Sets the fields of the messages in a document.
///
/// # Errors
/// Returns the errors of [`document_of`].
pub fn set_fields(document: &mut Document, fields: Vec<v1::DocumentField>) -> Result<()> {
    for field in fields {
        let value = field.value.map(nullable_value).transpose()?.flatten();
        document.set(FieldId(field.field), value, None);
    }
    Ok(())
}

/// Decodes a message into identity bytes and a document. The function does not check whether the
/// identity is a key of the store.
///
/// # Errors
/// Returns `InvalidArgument`, `LimitExceeded` or `UpgradeNeeded` for a message that is not a
/// document.
pub fn document_of(wire: v1::Document) -> Result<(Key, Document)> {
    let expires_at = wire.expires_at_us.map(Timestamp::from_micros);
    let mut document = Document::new(expires_at, wire.version.map(DocumentVersion));
    set_fields(&mut document, wire.fields)?;
    Ok((Key::from_identity_bytes(&wire.key), document))
}

/// Cursor at which a scan continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// Id of the snapshot that the scan reads, if the replicator still holds it.
    pub view: u64,
    /// Digest of the scan's request; see [`ScanCursor::digest`].
    pub asked: u64,
    /// The document after which the scan continues; `None` at the start.
    pub key: Option<Key>,
}

impl ScanCursor {
    /// Returns the digest of the request's selection: documents, order and fields. Scans that
    /// differ only in how they read or continue may use each other's cursors.
    pub fn digest(request: &v1::ScanDocumentsRequest) -> u64 {
        let question = v1::ScanDocumentsRequest {
            documents_max: 0,
            cursor: Bytes::new(),
            allow_snapshot_change: false,
            is_held: false,
            read: None,
            ..request.clone()
        };
        xxh3_64(&question.encode_to_vec())
    }

    /// Encodes the cursor.
    pub fn encode(&self) -> Bytes {
        let key = self.key.as_ref().map(|key| Bytes::copy_from_slice(key.as_bytes()));
        v1::ScanCursor { view: self.view, asked: self.asked, key }.encode_to_vec().into()
    }

    /// Decodes a cursor that a scan returned.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for any other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let wire = v1::ScanCursor::decode(bytes).map_err(|_| no_cursor())?;
        let key = wire.key.as_deref().map(Key::from_identity_bytes);
        Ok(Self { view: wire.view, asked: wire.asked, key })
    }
}

/// Cursor at which a scan over several partitions continues: one cursor for each partition, empty
/// if the partition is exhausted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCursor(pub BTreeMap<PartitionId, Bytes>);

impl StoreCursor {
    /// Returns the cursor of a partition.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the partition has no cursor: the cursor belongs to another
    /// scan.
    pub fn of(&self, partition: PartitionId) -> Result<Bytes> {
        let cursor = self.0.get(&partition).cloned();
        cursor.ok_or_else(|| {
            let message = "the cursor is of a scan of other partitions; pass the cursor on with \
                the same scan, or begin without one";
            Error::invalid_argument(message).with_partition(partition)
        })
    }

    /// Encodes the cursor.
    pub fn encode(&self) -> Bytes {
        let partition = |(partition, cursor): (&PartitionId, &Bytes)| v1::PartitionCursor {
            partition: partition.0,
            cursor: cursor.clone(),
        };
        let partitions = self.0.iter().map(partition).collect();
        v1::StoreScanCursor { partitions }.encode_to_vec().into()
    }

    /// Decodes a cursor that a stream returned.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for any other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let wire = v1::StoreScanCursor::decode(bytes).map_err(|_| no_cursor())?;
        let partitions = wire.partitions.into_iter();
        Ok(Self(partitions.map(|at| (PartitionId(at.partition), at.cursor)).collect()))
    }
}

fn no_cursor() -> Error {
    let message = "the cursor is not a cursor of a scan; pass its bytes on unchanged, or begin \
        without a cursor";
    Error::invalid_argument(message)
}

#[cfg(test)]
mod tests {
    use forebay_core::value::Value;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn document_round_trips_with_its_wanted_fields() {
        let expires_at = Some(Timestamp::from_micros(7));
        let mut document = Document::new(expires_at, Some(DocumentVersion(3)));
        document.set(FieldId(1), Some(Value::Int64(-1)), None);
        document.set(FieldId(2), None, None);
        document.set(FieldId(9), Some(Value::String("nine".into())), None);
        let key = Key::plain(b"k").unwrap();
        let all = document_message(key.as_bytes(), &document, |_| true);
        assert_eq!(document_of(all).unwrap(), (key.clone(), document.clone()));
        let message = document_message(key.as_bytes(), &document, |field| field != FieldId(9));
        document.remove(FieldId(9));
        assert_eq!(document_of(message).unwrap(), (key, document));
    }

    #[test]
    fn cursor_digest_covers_the_requested_scan() {
        let request = v1::ScanDocumentsRequest {
            store: "users".into(),
            ..v1::ScanDocumentsRequest::default()
        };
        let same_request = v1::ScanDocumentsRequest {
            documents_max: 7,
            allow_snapshot_change: true,
            ..request.clone()
        };
        let other = v1::ScanDocumentsRequest { is_reverse: true, ..request.clone() };
        assert_eq!(ScanCursor::digest(&request), ScanCursor::digest(&same_request));
        assert_ne!(ScanCursor::digest(&request), ScanCursor::digest(&other));
    }

    proptest! {
        #[test]
        fn cursors_round_trip_and_other_bytes_are_refused(
            view: u64,
            asked: u64,
            key: Option<Vec<u8>>,
            bytes: Vec<u8>,
        ) {
            let key = key.as_deref().map(Key::from_identity_bytes);
            let cursor = ScanCursor { view, asked, key };
            prop_assert_eq!(ScanCursor::decode(&cursor.encode()).unwrap(), cursor);
            let errors = [ScanCursor::decode(&bytes).err(), StoreCursor::decode(&bytes).err()];
            for error in errors.into_iter().flatten() {
                prop_assert_eq!(error.code(), forebay_core::ErrorCode::InvalidArgument);
            }
        }
    }
}
