//! Bytes as rows of a shard, which may expire.

use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, StoreId};
use forebay_core::key::KeyType;
use forebay_core::layout::Layout;
use forebay_core::row::{Document, Row};
use forebay_core::schema::StoreSpec;
use forebay_core::value::Value;
use forebay_core::{Error, Result};

/// Codec of the rows, in the format of a key-value store.
#[derive(Debug)]
pub(crate) struct ValueRows {
    layout: Layout,
    field: FieldId,
}

impl ValueRows {
    pub(crate) fn new() -> Result<Self> {
        let definition =
            StoreSpec::key_value("rows", KeyType::Bytes).partitions(1).define(StoreId(1))?;
        let layout = Layout::of(&definition);
        let field = layout.slots().first().map(|slot| slot.field);
        Ok(Self { layout, field: field.ok_or_else(without_field)? })
    }

    /// Encodes bytes as a row that expires at this partition time.
    ///
    /// # Errors
    /// `LimitExceeded` for too many bytes.
    pub(crate) fn row(&self, bytes: Vec<u8>, expires_at: Option<Timestamp>) -> Result<Vec<u8>> {
        let mut document = Document::new(expires_at, None);
        document.set(self.field, Some(Value::Bytes(bytes)), None);
        document.encode(&self.layout)
    }

    /// Decodes the bytes of a row.
    ///
    /// # Errors
    /// `Corrupt`, `UpgradeNeeded`.
    pub(crate) fn bytes<'r>(&'r self, row: &'r [u8]) -> Result<&'r [u8]> {
        let slot = self.layout.slot(self.field).ok_or_else(without_field)?;
        Row::new(row, &self.layout)?.bytes(slot)
    }
}

fn without_field() -> Error {
    Error::internal("the rows lack a field")
}
