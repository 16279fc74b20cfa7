//! Reads of one document or of one of its fields.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::row::{Document, Presence};
use forebay_core::value::{ScalarType, Value};

use crate::handle::FieldHandle;
use crate::key::DocumentKey;
use crate::lookup::Lookup;
use crate::number::FieldScalar;
use crate::row_ref::{FieldRead, RowRef};
use crate::view::View;

/// The result of a read into a caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOut {
    /// There is no document, or the document has no such field; the buffer is unchanged.
    Absent,
    /// The field was set to null; the buffer is unchanged.
    Null,
    /// This many bytes were copied to the start of the buffer.
    Length(usize),
    /// The value needs a buffer of this many bytes; the buffer is unchanged.
    SizeNeeded(usize),
}

impl View<'_> {
    /// Returns the document under a key, in place, or `None`. The read takes no lock, allocates
    /// nothing, and writes no memory that another reader touches; a key with a partition key
    /// allocates its identity bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another type, never converted, or of a partition that is not
    /// followed; `Unavailable` while its partition is bootstrapping; `Stale` and `Unavailable` as
    /// the admission says; `Internal` from a poisoned partition; `Corrupt` where an image is
    /// damaged.
    #[inline]
    pub fn get<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<Option<RowRef<'_>>> {
        let mut answer = Lookup::Absent;
        self.look_up(&key.into(), &mut answer)?;
        match answer {
            Lookup::Found(row) => {
                self.inner.counters.add(1, 0);
                Ok(Some(row))
            }
            Lookup::Absent => {
                self.inner.counters.add(0, 1);
                Ok(None)
            }
            Lookup::Refused(id, status) => Err(self.refusal_error(id, status)),
        }
    }

    /// Reads whether a field of a document is absent, null or a value.
    ///
    /// # Errors
    /// As [`View::get`], and `InvalidArgument` for a handle of another store.
    pub fn presence<'k>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<Presence> {
        handle.check_store(self.inner.store)?;
        self.get(key)?.map_or(Ok(Presence::Absent), |row| row.presence(handle))
    }

    /// Reads a number, bool or timestamp.
    ///
    /// # Errors
    /// As [`View::get`] and [`RowRef::scalar`].
    pub fn get_scalar<'k, T: FieldScalar>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<FieldRead<T>> {
        handle.check_store(self.inner.store)?;
        handle.check_read_type(T::SCALAR)?;
        self.get(key)?.map_or(Ok(FieldRead::Absent), |row| row.scalar(handle))
    }

    /// Copies a string into a buffer.
    ///
    /// # Errors
    /// As [`View::get`] and [`RowRef::str`].
    pub fn get_str<'k>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
        buffer: &mut [u8],
    ) -> Result<CopyOut> {
        self.with_str(handle, key, |text| copy_out(text.as_bytes(), buffer)).map(into_copy_out)
    }

    /// Copies bytes into a buffer; with the field `value` this is the get of a key-value store.
    ///
    /// # Errors
    /// As [`View::get`] and [`RowRef::bytes`].
    pub fn get_bytes<'k>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
        buffer: &mut [u8],
    ) -> Result<CopyOut> {
        self.with_bytes(handle, key, |bytes| copy_out(bytes, buffer)).map(into_copy_out)
    }

    /// Returns a string as an owned copy.
    ///
    /// # Errors
    /// As [`View::get`] and [`RowRef::str`].
    pub fn get_str_owned<'k>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<FieldRead<String>> {
        self.with_str(handle, key, str::to_owned)
    }

    /// Returns bytes as an owned copy.
    ///
    /// # Errors
    /// As [`View::get`] and [`RowRef::bytes`].
    pub fn get_bytes_owned<'k>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<FieldRead<Vec<u8>>> {
        self.with_bytes(handle, key, <[u8]>::to_vec)
    }

    #[inline]
    fn with_str<'k, T>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
        convert: impl FnOnce(&str) -> T,
    ) -> Result<FieldRead<T>> {
        handle.check_store(self.inner.store)?;
        handle.check_read_type(ScalarType::String)?;
        let Some(row) = self.get(key)? else { return Ok(FieldRead::Absent) };
        row.str(handle)?.try_map(|text| Ok(convert(text)))
    }

    #[inline]
    fn with_bytes<'k, T>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
        convert: impl FnOnce(&[u8]) -> T,
    ) -> Result<FieldRead<T>> {
        handle.check_store(self.inner.store)?;
        handle.check_read_type(ScalarType::Bytes)?;
        let Some(row) = self.get(key)? else { return Ok(FieldRead::Absent) };
        row.bytes(handle)?.try_map(|bytes| Ok(convert(bytes)))
    }

    /// Decodes a value of any type, including lists and vectors.
    ///
    /// # Errors
    /// As [`View::get`] and [`RowRef::value`].
    pub fn get_value<'k>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
    ) -> Result<FieldRead<Value>> {
        handle.check_store(self.inner.store)?;
        self.get(key)?.map_or(Ok(FieldRead::Absent), |row| row.value(handle))
    }

    /// Decodes the whole document, or returns `None`: live fields only, by field id.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn get_document<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<Option<Document>> {
        self.get(key)?.map(|row| row.document()).transpose()
    }
}

macro_rules! getters {
    ($($name:ident($type:ty), $what:literal;)*) => {
        impl View<'_> {
            $(
                #[doc = concat!("Reads ", $what, "; `default` when the field is absent or null.")]
                ///
                /// # Errors
                /// As [`View::get`] and [`RowRef::scalar`].
                pub fn $name<'k>(
                    &self,
                    handle: &FieldHandle,
                    key: impl Into<DocumentKey<'k>>,
                    default: $type,
                ) -> Result<$type> {
                    Ok(self.get_scalar::<$type>(handle, key)?.value().unwrap_or(default))
                }
            )*
        }
    };
}

getters! {
    get_bool(bool), "a bool";
    get_i32(i32), "an int32";
    get_i64(i64), "an int64";
    get_f32(f32), "a float32";
    get_f64(f64), "a float64";
    get_timestamp(Timestamp), "a timestamp";
}

#[inline]
fn copy_out(bytes: &[u8], buffer: &mut [u8]) -> CopyOut {
    match buffer.get_mut(..bytes.len()) {
        Some(start) => {
            start.copy_from_slice(bytes);
            CopyOut::Length(bytes.len())
        }
        None => CopyOut::SizeNeeded(bytes.len()),
    }
}

#[inline]
fn into_copy_out(read: FieldRead<CopyOut>) -> CopyOut {
    match read {
        FieldRead::Absent => CopyOut::Absent,
        FieldRead::Null => CopyOut::Null,
        FieldRead::Value(copy) => copy,
    }
}
