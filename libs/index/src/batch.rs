//! Reads of many keys in one call, answered in the caller's order.

use forebay_core::limits::BATCH_KEYS_MAX;
use forebay_core::row::{Document, Presence};
use forebay_core::value::{FieldType, ScalarType};
use forebay_core::{Error, Result};

use crate::handle::FieldHandle;
use crate::key::KeyList;
use crate::lookup::Lookup;
use crate::row_ref::{FieldRead, RowRef};
use crate::view::{KeyStatus, View};

/// The answer about one key of a batch.
#[derive(Clone, Copy, Debug)]
pub enum KeyAnswer<'v> {
    /// The key's document.
    Found(RowRef<'v>),
    /// The key has no document, or its partition does not answer now; never `Found`.
    None(KeyStatus),
}

impl KeyAnswer<'_> {
    /// The key's status.
    pub fn status(&self) -> KeyStatus {
        match self {
            Self::Found(_) => KeyStatus::Found,
            Self::None(status) => *status,
        }
    }
}

/// Strings or bytes of many documents, concatenated; reuse it to save its allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedValues {
    /// The concatenated values; the value of key `n` ends at `ends[n]`, where that of key `n + 1`
    /// starts.
    pub bytes: Vec<u8>,
    /// The end of each key's value; a key without a value has no bytes.
    pub ends: Vec<u64>,
    /// The status of each key.
    pub statuses: Vec<KeyStatus>,
    /// Whether each field is absent, null or a value.
    pub presences: Vec<Presence>,
}

impl PackedValues {
    /// Returns the value of the key at a position, or `None` when it is absent or null.
    pub fn value(&self, place: usize) -> Option<&[u8]> {
        if *self.presences.get(place)? != Presence::Value {
            return None;
        }
        let start = place.checked_sub(1).map_or(0, |previous| self.ends[previous]) as usize;
        self.bytes.get(start..*self.ends.get(place)? as usize)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.statuses.clear();
        self.presences.clear();
    }
}

impl View<'_> {
    /// Reads many keys and passes each answer to `visit`, in the caller's order. A key that occurs
    /// twice is answered twice. Each document is whole; two documents may be of different moments.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another type, `LimitExceeded` over [`BATCH_KEYS_MAX`] keys,
    /// `Internal` from a poisoned partition, and the first error of `visit`. A partition that is
    /// not followed or does not answer yields a status, not an error.
    pub fn get_many<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        mut visit: impl FnMut(usize, KeyAnswer<'_>) -> Result<()>,
    ) -> Result<()> {
        check_key_count(keys)?;
        self.look_up_all(keys, |place, answer| match answer {
            Lookup::Found(row) => visit(place, KeyAnswer::Found(*row)),
            other => visit(place, KeyAnswer::None(other.status())),
        })
    }

    /// Returns the documents of many keys, decoded, in the caller's order.
    ///
    /// # Errors
    /// As [`View::get_many`].
    pub fn get_documents<K: KeyList + ?Sized>(
        &self,
        keys: &K,
    ) -> Result<Vec<(KeyStatus, Option<Document>)>> {
        let mut documents = Vec::with_capacity(keys.count().min(BATCH_KEYS_MAX));
        self.get_many(keys, |_, answer| {
            let document = match answer {
                KeyAnswer::Found(row) => Some(row.document()?),
                KeyAnswer::None(_) => None,
            };
            documents.push((answer.status(), document));
            Ok(())
        })?;
        Ok(documents)
    }

    /// Packs a string or bytes field of many documents into `out`, replacing the content of `out`.
    ///
    /// # Errors
    /// As [`View::get_many`], and `InvalidArgument` for a handle that was resolved for another
    /// type or on another store.
    pub fn get_packed<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        handle: &FieldHandle,
        out: &mut PackedValues,
    ) -> Result<()> {
        self.get_packed_within(keys, handle, usize::MAX, out).map(drop)
    }

    /// As [`View::get_packed`], for a caller that must bound the copied bytes. Returns the
    /// total bytes of all values. If the total exceeds `bytes_max`, `out` contains only some of the
    /// values and must not be used.
    ///
    /// # Errors
    /// As [`View::get_packed`].
    #[inline]
    pub fn get_packed_within<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        handle: &FieldHandle,
        bytes_max: usize,
        out: &mut PackedValues,
    ) -> Result<usize> {
        handle.check_store(self.inner.store)?;
        if !matches!(handle.asked(), FieldType::Scalar(ScalarType::String | ScalarType::Bytes)) {
            handle.check_read_type(ScalarType::Bytes)?;
        }
        check_key_count(keys)?;
        out.clear();
        let mut length = 0;
        self.look_up_all(keys, |_, answer| {
            let read = match answer {
                Lookup::Found(row) => row.field_bytes(handle.field())?,
                _ => FieldRead::Absent,
            };
            out.statuses.push(answer.status());
            out.presences.push(read.presence());
            if let FieldRead::Value((bytes, _)) = read {
                length += bytes.len();
                if length <= bytes_max {
                    out.bytes.extend_from_slice(bytes);
                }
            }
            out.ends.push(length as u64);
            Ok(())
        })?;
        Ok(length)
    }
}

/// Refuses a batch over the limit.
pub(crate) fn check_key_count<K: KeyList + ?Sized>(keys: &K) -> Result<()> {
    if keys.count() <= BATCH_KEYS_MAX {
        return Ok(());
    }
    let (limit, actual) = (BATCH_KEYS_MAX as u64, keys.count() as u64);
    Err(Error::limit_exceeded(
        "the batch has too many keys; read the keys in several calls",
        limit,
        actual,
    ))
}
