//! Views: the reads of one call, all at one time, over all partitions.

use std::cell::Cell;

use forebay_core::Result;
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::id::PartitionId;
use forebay_core::row::{Document, Presence};
use forebay_core::value::{ScalarType, Value};

use crate::handle::FieldHandle;
use crate::index::Inner;
use crate::key::DocumentKey;
use crate::lookup::Lookup;
use crate::number::FieldScalar;
use crate::reclaim::Pin;
use crate::row_ref::{FieldRead, RowRef};
use crate::table::Scratch;

/// What the layer above says of a partition at the time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Read it.
    Serve,
    /// It is not reachable or not ready.
    Unavailable,
    /// It is older than the caller's bound.
    Stale,
}

/// How the reads of one view are made.
#[derive(Clone, Copy)]
pub struct ReadAt<'a> {
    time: Time<'a>,
    pub(crate) serve_partial: bool,
    /// Whether only what lies in memory is read.
    is_for_memory: bool,
    pub(crate) admission: Option<&'a dyn Fn(PartitionId) -> Admission>,
}

/// When the reads of one view are made.
#[derive(Clone, Copy)]
enum Time<'a> {
    At(Timestamp),
    Of(&'a dyn Clock),
}

impl<'a> ReadAt<'a> {
    /// Reads at this time; a partition whose own time is later is read at that.
    #[inline]
    pub fn new(now: Timestamp) -> Self {
        Self { time: Time::At(now), serve_partial: false, is_for_memory: false, admission: None }
    }

    /// Reads at the time that this clock shows when the view finds the first document that may
    /// expire: in a store where none does, nobody pays for the time.
    #[inline]
    pub fn by(clock: &'a dyn Clock) -> Self {
        Self { time: Time::Of(clock), serve_partial: false, is_for_memory: false, admission: None }
    }

    /// Also reads partitions that are still bootstrapping: *absent* then means *not seen yet*.
    #[must_use]
    #[inline]
    pub fn serve_partial(mut self, serve_partial: bool) -> Self {
        self.serve_partial = serve_partial;
        self
    }

    /// Reads only what lies in memory: a document that was spilled is `Unavailable`, and nothing
    /// ever waits for the disk.
    #[must_use]
    #[inline]
    pub fn only_memory(mut self) -> Self {
        self.is_for_memory = true;
        self
    }

    /// Asks this before each key is read, with the key's partition.
    #[must_use]
    pub fn admission(mut self, admission: &'a dyn Fn(PartitionId) -> Admission) -> Self {
        self.admission = Some(admission);
        self
    }
}

/// What became of one key of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyStatus {
    /// There is no live document under it.
    #[default]
    Absent = 0,
    /// There is one.
    Found = 1,
    /// Its partition is still bootstrapping or not reachable, or it lies where an image is damaged.
    Unavailable = 2,
    /// Its partition is older than the caller's bound.
    Stale = 3,
    /// Its partition is not followed by this reader.
    NotFollowed = 4,
}

/// What a read into a caller's buffer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOut {
    /// There is no document, or it has no such field; the buffer is as it was.
    Absent,
    /// The field was set to null; the buffer is as it was.
    Null,
    /// This many bytes were copied to the start of the buffer.
    Length(usize),
    /// The value needs a buffer of this many bytes; this one is as it was.
    SizeNeeded(usize),
}

/// The reads of one call. Belongs to the thread that opened it; keep it for one call, not longer.
///
/// It is no snapshot: each read finds the newest document, whole.
pub struct View<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) at: ReadAt<'a>,
    /// The time of its reads, once it was asked for.
    now: Cell<Option<Timestamp>>,
    /// Copies of what is found in live copies.
    pub(crate) scratch: Scratch,
    /// Keeps the memory of all else that is found until the view ends.
    _pin: Pin<'a>,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn open(inner: &'a Inner, at: ReadAt<'a>) -> Self {
        let (now, scratch) = (Cell::new(None), Scratch::new(at.is_for_memory));
        Self { inner, at, now, scratch, _pin: inner.reclaim.enter() }
    }

    /// Scratch memory for the copies of a turn.
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::new(self.at.is_for_memory)
    }

    /// The time of this view's reads.
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

    /// The document under a key, in place, or `None`. No lock, no allocation, no write to memory
    /// that another reader touches; a key with a partition key allocates its identity bytes.
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

    /// Whether a field of a document is absent, null or a value.
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

    /// A number, bool or timestamp.
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

    /// A string, copied into a buffer.
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

    /// Bytes, copied into a buffer; with the field `value` this is the get of a key-value store.
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

    /// A string of its own.
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

    /// Bytes of their own.
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

    /// A value of any type, decoded: lists and vectors too.
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

    /// The whole document, decoded, or `None`: live fields only, by field id.
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
