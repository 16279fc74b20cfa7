//! Views: the reads of one call, all at one time, over all partitions.
//!
//! For each key the phase is loaded first, then partition time, schema version, root and record:
//! the opposite of the order in which a writer publishes them, so whatever a later load finds is at
//! least as new as what the earlier ones said.

use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, SchemaVersion};
use forebay_core::row::{Document, Presence};
use forebay_core::value::{ScalarType, Value};
use forebay_core::{Error, ErrorCode, Result};

use crate::handle::FieldHandle;
use crate::header::PartitionPhase;
use crate::index::Inner;
use crate::key::{DocumentKey, Identity, KeyList};
use crate::number::FieldScalar;
use crate::reclaim::Pin;
use crate::row_ref::{FieldRead, RowRef};
use crate::storage::{KeyListing, Space};
use crate::table::{self, Root};

/// Keys whose lines are asked for at the same time: about as many as a core can wait for.
const SOUGHT_AT_ONCE: usize = 32;
/// Lines of one record that are asked for ahead; the rest of a long one is read in order anyway.
const LINES_AT_ONCE: usize = 8;

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
    now: Timestamp,
    serve_partial: bool,
    admission: Option<&'a dyn Fn(PartitionId) -> Admission>,
}

impl<'a> ReadAt<'a> {
    /// Reads at this time; a partition whose own time is later is read at that.
    pub fn new(now: Timestamp) -> Self {
        Self { now, serve_partial: false, admission: None }
    }

    /// Also reads partitions that are still bootstrapping: *absent* then means *not seen yet*.
    #[must_use]
    pub fn serve_partial(mut self, serve_partial: bool) -> Self {
        self.serve_partial = serve_partial;
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

/// The answer about one key, before it becomes an error or a status.
pub(crate) enum Lookup<'v> {
    Found(RowRef<'v>),
    Absent,
    Refused(PartitionId, KeyStatus),
}

impl Lookup<'_> {
    pub(crate) fn status(&self) -> KeyStatus {
        match self {
            Self::Found(_) => KeyStatus::Found,
            Self::Absent => KeyStatus::Absent,
            Self::Refused(_, status) => *status,
        }
    }
}

/// A key on its way: its partition, and where in there.
struct Sought<'k, 'v> {
    id: PartitionId,
    identity: Identity<'k>,
    place: std::result::Result<Place<'v>, KeyStatus>,
}

/// What was loaded of a partition's header, in the order in which it must be loaded.
struct Place<'v> {
    now: Timestamp,
    version: SchemaVersion,
    space: &'v Space,
    root: Root,
    hash: u64,
}

/// The reads of one call. Belongs to the thread that opened it; keep it for one call, not longer.
///
/// It is no snapshot: each read finds the newest document, whole.
pub struct View<'a> {
    pub(crate) inner: &'a Inner,
    at: ReadAt<'a>,
    /// Keeps the memory of all that is found until the view ends.
    _pin: Pin<'a>,
}

impl<'a> View<'a> {
    pub(crate) fn open(inner: &'a Inner, at: ReadAt<'a>) -> Self {
        Self { inner, at, _pin: inner.reclaim.enter() }
    }

    /// Looks a key up; counts nothing.
    pub(crate) fn look_up(&self, key: &DocumentKey<'_>) -> Result<Lookup<'_>> {
        let sought = self.seek(key)?;
        self.find(&sought)
    }

    /// Looks keys up in their order and hands each answer to `visit`; counts nothing.
    ///
    /// In turns of [`SOUGHT_AT_ONCE`]: a turn asks for the buckets of all its keys, then for the
    /// records, and only then reads the first one, so their lines arrive at the same time.
    pub(crate) fn look_up_all<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        mut visit: impl FnMut(usize, Lookup<'_>) -> Result<()>,
    ) -> Result<()> {
        let count = keys.count();
        let mut turn = Vec::with_capacity(count.min(SOUGHT_AT_ONCE));
        for first in (0..count).step_by(SOUGHT_AT_ONCE) {
            for place in first..count.min(first + SOUGHT_AT_ONCE) {
                let sought = self.seek(&keys.key(place))?;
                if let Ok(place) = &sought.place {
                    place.root.prefetch(&place.space.memory, place.hash);
                }
                turn.push(sought);
            }
            for place in turn.iter().filter_map(|sought| sought.place.as_ref().ok()) {
                let Place { space, root, hash, .. } = *place;
                // SAFETY: the root was loaded while this view has held its guard.
                unsafe { table::prefetch_bucket(&space.memory, root, hash) };
            }
            for place in turn.iter().filter_map(|sought| sought.place.as_ref().ok()) {
                let Place { space, root, hash, .. } = *place;
                // SAFETY: as above.
                unsafe { table::prefetch_record(&space.memory, root, hash, LINES_AT_ONCE) };
            }
            for (place, sought) in turn.drain(..).enumerate() {
                let found = match self.find(&sought) {
                    // Of many keys those that lie in damaged blocks have a status.
                    Err(error) if error.code() == ErrorCode::Corrupt => {
                        Lookup::Refused(sought.id, KeyStatus::Unavailable)
                    }
                    found => found?,
                };
                visit(first + place, found)?;
            }
        }
        Ok(())
    }

    /// Where a key's record would be.
    fn seek<'k>(&self, key: &DocumentKey<'k>) -> Result<Sought<'k, '_>> {
        let (id, identity) = self.inner.shape.locate(key)?;
        let Some(partition) = self.inner.partition(id) else {
            return Ok(Sought { id, identity, place: Err(KeyStatus::NotFollowed) });
        };
        let header = &partition.header;
        if let Some(status) = self.refusal(id, header.load_phase_acquire())? {
            return Ok(Sought { id, identity, place: Err(status) });
        }
        let now = self.at.now.max(header.load_partition_time_acquire());
        let version = header.load_schema_version_acquire();
        // SAFETY: this view holds a guard, and what is found is borrowed from the view.
        let space = unsafe { header.load_space() };
        let (root, hash) = (Root::load(&space.root), space.hash.of(identity.as_bytes()));
        Ok(Sought { id, identity, place: Ok(Place { now, version, space, root, hash }) })
    }

    fn find<'v>(&'v self, sought: &Sought<'_, 'v>) -> Result<Lookup<'v>> {
        let place = match &sought.place {
            Ok(place) => place,
            Err(status) => return Ok(Lookup::Refused(sought.id, *status)),
        };
        let (memory, key) = (&place.space.memory, sought.identity.as_bytes());
        // SAFETY: the root was loaded while this view has held its guard, and what is found is
        // borrowed from the view.
        let found = unsafe { table::find(memory, place.root, place.hash, key) };
        let found = found.map_err(|error| error.with_partition(sought.id))?;
        let Some(found) = found else { return Ok(Lookup::Absent) };
        let row = RowRef::open(found.row, &self.inner.schemas, place.version, place.now)
            .map_err(|error| error.with_partition(sought.id))?;
        Ok(row.map_or(Lookup::Absent, Lookup::Found))
    }

    fn refusal(&self, id: PartitionId, phase: PartitionPhase) -> Result<Option<KeyStatus>> {
        match phase {
            PartitionPhase::Serving => {}
            PartitionPhase::Bootstrapping if self.at.serve_partial => {}
            PartitionPhase::Bootstrapping => return Ok(Some(KeyStatus::Unavailable)),
            PartitionPhase::Poisoned => {
                let message = "an invariant of this partition broke; it answers once it is rebuilt";
                return Err(Error::internal(message).with_partition(id));
            }
        }
        let admission = self.at.admission.map_or(Admission::Serve, |admission| admission(id));
        Ok(match admission {
            Admission::Serve => None,
            Admission::Unavailable => Some(KeyStatus::Unavailable),
            Admission::Stale => Some(KeyStatus::Stale),
        })
    }

    /// Refuses what a partition's scan must not show, as a read of one of its keys would.
    pub(crate) fn check_partition(&self, id: PartitionId) -> Result<()> {
        let phase = self.inner.followed(id)?.header.load_phase_acquire();
        match self.refusal(id, phase)? {
            Some(status) => Err(self.refused(id, status)),
            None => Ok(()),
        }
    }

    /// Lists keys of a partition from this hash on, once it may answer; answers the hash to go on
    /// from, or `None` at the end.
    pub(crate) fn list(
        &self,
        id: PartitionId,
        from: u64,
        keys: &mut KeyListing,
    ) -> Result<Option<u64>> {
        self.check_partition(id)?;
        // SAFETY: this view holds a guard, and the space is not kept.
        let space = unsafe { self.inner.followed(id)?.header.load_space() };
        let (root, hash) = (Root::load(&space.root), space.hash);
        // SAFETY: the root was loaded while this view has held its guard.
        let listed =
            unsafe { table::keys_from(&space.memory, root, hash, from, |key| keys.push(key)) };
        listed.map_err(|error| error.with_partition(id))
    }

    /// The error that a refused key is, outside batches.
    pub(crate) fn refused(&self, id: PartitionId, status: KeyStatus) -> Error {
        match status {
            KeyStatus::NotFollowed => self.inner.not_followed(id),
            KeyStatus::Stale => {
                let message = "older than the bound; retry, or read with a larger bound";
                Error::stale(message).with_partition(id)
            }
            _ => {
                let message =
                    "not caught up yet; wait with await_ready, or open with serve_partial";
                Error::unavailable(message).with_partition(id)
            }
        }
    }

    /// The document under a key, in place, or `None`. No lock, no allocation, no write to memory
    /// that another reader touches; a key with a partition key allocates its identity bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another type, never converted, or of a partition that is not
    /// followed; `Unavailable` while its partition is bootstrapping; `Stale` and `Unavailable` as
    /// the admission says; `Internal` from a poisoned partition; `Corrupt` where an image is
    /// damaged.
    pub fn get<'k>(&self, key: impl Into<DocumentKey<'k>>) -> Result<Option<RowRef<'_>>> {
        match self.look_up(&key.into())? {
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

fn copy_out(bytes: &[u8], buffer: &mut [u8]) -> CopyOut {
    match buffer.get_mut(..bytes.len()) {
        Some(start) => {
            start.copy_from_slice(bytes);
            CopyOut::Length(bytes.len())
        }
        None => CopyOut::SizeNeeded(bytes.len()),
    }
}

fn copied(read: FieldRead<CopyOut>) -> CopyOut {
    match read {
        FieldRead::Absent => CopyOut::Absent,
        FieldRead::Null => CopyOut::Null,
        FieldRead::Value(copied) => copied,
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("now", &self.at.now).finish_non_exhaustive()
    }
}
