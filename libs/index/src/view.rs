//! Views: the reads of one call, all at one time, over all partitions.

use std::cell::Cell;

use forebay_core::Result;
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::id::PartitionId;
use forebay_core::row::{Document, Presence};
use forebay_core::value::{ScalarType, Value};

use crate::handle::FieldHandle;
use crate::inner::Inner;
use crate::key::DocumentKey;
use crate::lookup::Lookup;
use crate::number::FieldScalar;
use crate::reclaim::Pin;
use crate::row_ref::{FieldRead, RowRef};
use crate::table::Scratch;

/// The decision of the layer above about a partition, at the time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The partition may be read.
    Serve,
    /// The partition is not reachable or not ready.
    Unavailable,
    /// The partition is older than the caller's bound.
    Stale,
}

/// The options of one view's reads.
#[derive(Clone, Copy)]
pub struct ReadAt<'a> {
    time: Time<'a>,
    pub(crate) serve_partial: bool,
    /// Whether reads are limited to documents in memory.
    is_for_memory: bool,
    pub(crate) admission: Option<&'a dyn Fn(PartitionId) -> Admission>,
}

/// The time of one view's reads.
#[derive(Clone, Copy)]
enum Time<'a> {
    At(Timestamp),
    Of(&'a dyn Clock),
}

impl<'a> ReadAt<'a> {
    /// Reads at this time; a partition with a later partition time is read at that time.
    #[inline]
    pub fn new(now: Timestamp) -> Self {
        Self { time: Time::At(now), serve_partial: false, is_for_memory: false, admission: None }
    }

    /// Reads at the time that this clock shows when the view finds the first document that may
    /// expire: in a store where no document expires, no read pays for the clock.
    #[inline]
    pub fn by(clock: &'a dyn Clock) -> Self {
        Self { time: Time::Of(clock), serve_partial: false, is_for_memory: false, admission: None }
    }

    /// Reads partitions that are still bootstrapping, too: *absent* then means *not seen yet*.
    #[must_use]
    #[inline]
    pub fn serve_partial(mut self, serve_partial: bool) -> Self {
        self.serve_partial = serve_partial;
        self
    }

    /// Reads only documents in memory: a spilled document is `Unavailable`, and no read waits for
    /// the disk.
    #[must_use]
    #[inline]
    pub fn only_memory(mut self) -> Self {
        self.is_for_memory = true;
        self
    }

    /// Calls this function before each key is read, with the key's partition.
    #[must_use]
    pub fn admission(mut self, admission: &'a dyn Fn(PartitionId) -> Admission) -> Self {
        self.admission = Some(admission);
        self
    }
}

/// The status of one key of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyStatus {
    /// The key has no live document.
    #[default]
    Absent = 0,
    /// The key has a document.
    Found = 1,
    /// The key's partition is still bootstrapping or not reachable, or the document is in a damaged
    /// part of an image.
    Unavailable = 2,
    /// The key's partition is older than the caller's bound.
    Stale = 3,
    /// The key's partition is not followed by this reader.
    NotFollowed = 4,
}

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

/// The reads of one call. A view belongs to the thread that opened it; keep it for one call, not
/// longer.
///
/// A view is no snapshot: each read finds the newest document, whole.
pub struct View<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) at: ReadAt<'a>,
    /// The time of the view's reads, once a read has needed it.
    now: Cell<Option<Timestamp>>,
    /// Copies of records that were found in live copies.
    pub(crate) scratch: Scratch,
    /// Keeps all other memory that a read finds until the view ends.
    _pin: Pin<'a>,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn open(inner: &'a Inner, at: ReadAt<'a>) -> Self {
        let (now, scratch) = (Cell::new(None), Scratch::new(at.is_for_memory));
        Self { inner, at, now, scratch, _pin: inner.resources.reclaim.enter() }
    }

    /// Returns new scratch memory, for the record copies of one batch.
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::new(self.at.is_for_memory)
    }

    /// Returns the time of this view's reads.
    pub(crate) fn now(&self) -> Timestamp {
        self.now.get().unwrap_or_else(|| {
            let now = match self.at.time {
                Time::At(now) => now,
                Time::Of(clock) => clock.now(),
            };
            self.now.set(Some(now));
            now
        })
    }

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
        let mut found = Lookup::Absent;
        self.look_up(&key.into(), &mut found)?;
        match found {
            Lookup::Found(row) => {
                self.inner.counters.add(1, 0);
                Ok(Some(row))
            }
            Lookup::Absent => {
                self.inner.counters.add(0, 1);
                Ok(None)
            }
            Lookup::Refused(id, status) => Err(self.refused(id, status)),
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
        handle.check_asked(T::SCALAR)?;
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
        self.with_str(handle, key, |text| copy_out(text.as_bytes(), buffer)).map(copied)
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
        self.with_bytes(handle, key, |bytes| copy_out(bytes, buffer)).map(copied)
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
        with: impl FnOnce(&str) -> T,
    ) -> Result<FieldRead<T>> {
        handle.check_store(self.inner.store)?;
        handle.check_asked(ScalarType::String)?;
        let Some(row) = self.get(key)? else { return Ok(FieldRead::Absent) };
        row.str(handle)?.try_map(|text| Ok(with(text)))
    }

    #[inline]
    fn with_bytes<'k, T>(
        &self,
        handle: &FieldHandle,
        key: impl Into<DocumentKey<'k>>,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<FieldRead<T>> {
        handle.check_store(self.inner.store)?;
        handle.check_asked(ScalarType::Bytes)?;
        let Some(row) = self.get(key)? else { return Ok(FieldRead::Absent) };
        row.bytes(handle)?.try_map(|bytes| Ok(with(bytes)))
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
fn copied(read: FieldRead<CopyOut>) -> CopyOut {
    match read {
        FieldRead::Absent => CopyOut::Absent,
        FieldRead::Null => CopyOut::Null,
        FieldRead::Value(copied) => copied,
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("now", &self.now.get()).finish_non_exhaustive()
    }
}
