//! Lookups: the path from a key to its document, for one key or for many keys at the same time.
//!
//! For each key a reader loads the phase first, then partition time, schema version, root and
//! record. This is the opposite of the order in which a writer publishes them, so the result of
//! each load is at least as new as the results of the loads before it.
//!
//! Each step writes its result to memory that the next step reads, and never returns it by value: a
//! result is as large as two cache lines, and a copy of just-written memory makes a processor wait
//! for each of them.

use forebay_core::clock::Timestamp;
use forebay_core::id::PartitionId;
use forebay_core::replica_state::Phase;
use forebay_core::{Error, ErrorCode, Result};

use crate::header::Header;
use crate::key::{DocumentKey, Identity, KeyList};
use crate::row_ref::{ReachedSchema, RowRef};
use crate::space::Space;
use crate::table::{self, Record, ReuseCount, Root, Scratch, Search};
use crate::view::{KeyStatus, ReadAdmission, View};

/// Keys whose cache lines are prefetched at the same time: about as many as a core can wait for.
const KEYS_AT_ONCE: usize = 32;
/// Number of copies of one record before a read gives up. A copy fails only if it meets a reuse of
/// memory, and there are some hundred reuses a second at most.
const SHARED_TRIES_MAX: usize = 1_000;

/// The answer about one key, before it becomes an error or a status.
pub(crate) enum Lookup<'v> {
    Absent,
    Found(RowRef<'v>),
    Refused(PartitionId, KeyStatus),
}

impl Lookup<'_> {
    #[inline]
    pub(crate) fn status(&self) -> KeyStatus {
        match self {
            Self::Found(_) => KeyStatus::Found,
            Self::Absent => KeyStatus::Absent,
            Self::Refused(_, status) => *status,
        }
    }
}

/// Concatenated keys; key `n` ends at `ends[n]`.
#[derive(Debug, Default)]
pub(crate) struct KeyListing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
}

impl KeyListing {
    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// A key during its lookup: its partition, and its position there.
#[derive(Default)]
struct KeyLookup<'k, 'v> {
    id: PartitionId,
    identity: Identity<'k>,
    /// The values loaded from the partition's header, in the order in which they must be loaded.
    partition_time: Timestamp,
    reached: ReachedSchema<'v>,
    /// The space that is searched.
    space: SearchSpace<'v>,
    reused: ReuseCount,
    search: Search,
}

/// The space that is searched for a key.
#[derive(Clone, Copy)]
enum SearchSpace<'v> {
    Space(&'v Space),
    /// There is no space to search: this is the answer.
    Nothing(KeyStatus),
}

impl Default for SearchSpace<'_> {
    fn default() -> Self {
        Self::Nothing(KeyStatus::Absent)
    }
}

impl KeyLookup<'_, '_> {
    #[inline(always)]
    fn prefetch_bucket(&mut self) {
        if let SearchSpace::Space(space) = self.space {
            // SAFETY: the search began in this space, under the guard of its view; in a shared
            // space the result is validated.
            unsafe { self.search.prefetch_bucket(&space.memory) };
        }
    }

    #[inline(always)]
    fn prefetch_record(&mut self) {
        if let SearchSpace::Space(space) = self.space {
            // SAFETY: as above.
            unsafe { self.search.prefetch_record(&space.memory) };
        }
    }
}

impl<'a> View<'a> {
    /// Looks a key up; counts nothing.
    #[inline]
    pub(crate) fn look_up<'v>(
        &'v self,
        key: &DocumentKey<'_>,
        answer: &mut Lookup<'v>,
    ) -> Result<()> {
        let mut lookup = KeyLookup::default();
        self.seek(key, &mut lookup)?;
        lookup.prefetch_bucket();
        lookup.prefetch_record();
        self.find(&lookup, &self.scratch, answer)
    }

    /// Looks keys up in their order and passes each answer to `visit`; counts them.
    ///
    /// The lookup works in turns of [`KEYS_AT_ONCE`] keys: a turn prefetches the buckets of all
    /// its keys, then the records, and only then reads the first record, so the cache lines arrive
    /// at the same time.
    #[inline]
    pub(crate) fn look_up_all<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        visit: impl FnMut(usize, &Lookup<'_>) -> Result<()>,
    ) -> Result<()> {
        let (mut hits, mut misses) = (0, 0);
        let result = self.look_up_counted(keys, &mut hits, &mut misses, visit);
        self.inner.counters.add(hits, misses);
        result
    }

    #[inline]
    fn look_up_counted<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        hits: &mut u64,
        misses: &mut u64,
        mut visit: impl FnMut(usize, &Lookup<'_>) -> Result<()>,
    ) -> Result<()> {
        let count = keys.count();
        let mut turn = Vec::new();
        turn.resize_with(count.min(KEYS_AT_ONCE), KeyLookup::default);
        let mut scratch = self.scratch();
        for first in (0..count).step_by(KEYS_AT_ONCE) {
            let turn = &mut turn[..KEYS_AT_ONCE.min(count - first)];
            for (place, lookup) in turn.iter_mut().enumerate() {
                self.seek(&keys.key(first + place), lookup)?;
            }
            turn.iter_mut().for_each(KeyLookup::prefetch_bucket);
            turn.iter_mut().for_each(KeyLookup::prefetch_record);
            for (place, lookup) in turn.iter().enumerate() {
                let mut answer = Lookup::Absent;
                if let Err(error) = self.find(lookup, &scratch, &mut answer) {
                    // In a batch a key whose document is in a damaged block gets a status, not an
                    // error.
                    if error.code() != ErrorCode::Corrupt {
                        return Err(error);
                    }
                    answer = Lookup::Refused(lookup.id, KeyStatus::Unavailable);
                }
                match answer {
                    Lookup::Found(_) => *hits += 1,
                    Lookup::Absent => *misses += 1,
                    Lookup::Refused(..) => {}
                }
                visit(first + place, &answer)?;
            }
            scratch.clear();
        }
        Ok(())
    }

    /// Computes where a key's record would be.
    #[inline(always)]
    fn seek<'k, 'v>(&'v self, key: &DocumentKey<'k>, lookup: &mut KeyLookup<'k, 'v>) -> Result<()> {
        let id = self.inner.shape.locate(key, &mut lookup.identity)?;
        lookup.id = id;
        let Some(partition) = self.inner.partition(id) else {
            lookup.space = SearchSpace::Nothing(KeyStatus::NotFollowed);
            return Ok(());
        };
        let header = &partition.header;
        if let Some(status) = self.refusal(id, header.load_phase_acquire())? {
            lookup.space = SearchSpace::Nothing(status);
            return Ok(());
        }
        lookup.partition_time = header.load_partition_time_acquire();
        let version = header.load_schema_version_acquire();
        lookup.reached = ReachedSchema::as_known(version, &self.inner.schemas);
        let (space, reused, root) = match self.place(header) {
            Ok(place) => place,
            Err(error) if error.code() == ErrorCode::Unavailable => {
                lookup.space = SearchSpace::Nothing(KeyStatus::Unavailable);
                return Ok(());
            }
            Err(error) => return Err(error.with_partition(id)),
        };
        lookup.space = SearchSpace::Space(space);
        lookup.reused = reused;
        let hash = space.hash.of(lookup.identity.as_bytes());
        lookup.search = Search::begin(&space.memory, root, hash);
        Ok(())
    }

    /// Returns the space, the reuse counter and the root that readers begin with at this moment.
    #[inline(always)]
    fn place(&self, header: &Header) -> Result<(&Space, ReuseCount, Root)> {
        // SAFETY: this view holds a guard, and the result is borrowed from the view.
        let space = unsafe { header.load_space(&self.inner.resources.reclaim) }?;
        let reused = ReuseCount::load(&space.memory);
        Ok((space, reused, Root::load(space.root())))
    }

    /// Reads the document that was sought.
    #[inline(always)]
    fn find<'v>(
        &'v self,
        lookup: &KeyLookup<'_, 'v>,
        scratch: &'v Scratch,
        answer: &mut Lookup<'v>,
    ) -> Result<()> {
        let space = match lookup.space {
            SearchSpace::Space(space) => space,
            SearchSpace::Nothing(status) => {
                *answer = Lookup::Refused(lookup.id, status);
                return Ok(());
            }
        };
        let (memory, key) = (&space.memory, lookup.identity.as_bytes());
        let likely = if memory.is_shared() {
            // SAFETY: the memory is live; the copy is used only if none of its memory was reused.
            let copy = unsafe { lookup.search.likely_copied(memory, key, scratch) };
            copy.filter(|_| lookup.reused.is_unchanged(memory))
        } else {
            // SAFETY: the root was loaded while this view has held its guard, and the result is
            // borrowed from the view.
            unsafe { lookup.search.likely_row(memory, key) }
        };
        let row = match likely {
            Some(row) => row,
            None => match self.find_slowly(lookup, space, scratch)? {
                Some(row) => row,
                None => return Ok(()),
            },
        };
        let now = || self.now().max(lookup.partition_time);
        match RowRef::open(row, &self.inner.schemas, lookup.reached, now) {
            Ok(Some(row)) => *answer = Lookup::Found(row),
            Ok(None) => {}
            Err(error) => return Err(unreadable(error, space).with_partition(lookup.id)),
        }
        Ok(())
    }

    /// Finds the row if it is not that of the likely slot: the key is absent, or is in another
    /// slot, or the copy changed during the read, or is damaged.
    #[inline(never)]
    fn find_slowly<'v>(
        &'v self,
        lookup: &KeyLookup<'_, 'v>,
        space: &'v Space,
        scratch: &'v Scratch,
    ) -> Result<Option<&'v [u8]>> {
        let record = if space.memory.is_shared() {
            self.find_in_shared_copy(lookup, space, scratch)
        } else {
            // SAFETY: as in `find`.
            unsafe { lookup.search.end(&space.memory, lookup.identity.as_bytes(), scratch) }
        };
        let record = record.map_err(|error| {
            if error.code() == ErrorCode::Corrupt {
                // The writer of this space learns of the damage when it checks whether it may
                // continue.
                space.memory.note_damage();
            }
            error.with_partition(lookup.id)
        })?;
        Ok(record.map(|record| record.row))
    }

    /// Copies a record of a shared copy, until a copy is consistent.
    fn find_in_shared_copy<'v>(
        &'v self,
        lookup: &KeyLookup<'_, 'v>,
        space: &'v Space,
        scratch: &'v Scratch,
    ) -> Result<Option<Record<'v>>> {
        let key = lookup.identity.as_bytes();
        let KeyLookup { mut reused, mut search, .. } = *lookup;
        let mut space = space;
        for _ in 0..SHARED_TRIES_MAX {
            // SAFETY: the result is used only if no memory was reused.
            let record = unsafe { search.end_copied(&space.memory, key, scratch) };
            let is_unchanged = reused.is_unchanged(&space.memory);
            let cannot_be_read =
                record.as_ref().is_err_and(|error| error.code() == ErrorCode::Unavailable);
            if is_unchanged && !cannot_be_read {
                return record;
            }
            let header = &self.inner.followed_partition(lookup.id)?.header;
            // The spill file of a replaced space may be gone.
            let generation = space.generation;
            let root;
            (space, reused, root) = self.place(header)?;
            if is_unchanged && space.generation == generation {
                return record;
            }
            search = Search::begin(&space.memory, root, space.hash.of(key));
        }
        Err(changes_too_fast())
    }

    #[inline(always)]
    fn refusal(&self, id: PartitionId, phase: Phase) -> Result<Option<KeyStatus>> {
        if phase == Phase::Serving && self.at.admission.is_none() {
            return Ok(None);
        }
        self.refusal_of(id, phase)
    }

    fn refusal_of(&self, id: PartitionId, phase: Phase) -> Result<Option<KeyStatus>> {
        match phase {
            Phase::Serving => {}
            Phase::Bootstrapping if self.at.allow_incomplete_reads => {}
            Phase::Bootstrapping => return Ok(Some(KeyStatus::Unavailable)),
            Phase::Poisoned => {
                let message =
                    "this partition met a broken invariant; it answers again after the rebuild";
                return Err(Error::internal(message).with_partition(id));
            }
        }
        let admission = self.at.admission.map_or(ReadAdmission::Serve, |admission| admission(id));
        Ok(match admission {
            ReadAdmission::Serve => None,
            ReadAdmission::Unavailable => Some(KeyStatus::Unavailable),
            ReadAdmission::Stale => Some(KeyStatus::Stale),
        })
    }

    /// Fails if a partition's scan must not show documents, as a read of one of its keys would.
    pub(crate) fn check_partition(&self, id: PartitionId) -> Result<()> {
        let phase = self.inner.followed_partition(id)?.header.load_phase_acquire();
        match self.refusal(id, phase)? {
            Some(status) => Err(self.refusal_error(id, status)),
            None => Ok(()),
        }
    }

    /// Lists keys of a partition from this hash on, if the partition may answer; returns the hash
    /// to continue from, or `None` at the end.
    pub(crate) fn list(
        &self,
        id: PartitionId,
        from: u64,
        keys: &mut KeyListing,
    ) -> Result<Option<u64>> {
        self.check_partition(id)?;
        let in_partition = |error: Error| error.with_partition(id);
        let header = &self.inner.followed_partition(id)?.header;
        let (bytes, ends) = (keys.bytes.len(), keys.ends.len());
        for _ in 0..SHARED_TRIES_MAX {
            let (space, reused, root) = self.place(header).map_err(in_partition)?;
            let (memory, hash) = (&space.memory, space.hash);
            if !memory.is_shared() {
                // SAFETY: the root was loaded while this view has held its guard.
                let next_hash =
                    unsafe { table::keys_from(memory, root, hash, from, |key| keys.push(key)) };
                return next_hash.map_err(in_partition);
            }
            let push = |key: &[u8]| keys.push(key);
            let next_hash = table::keys_copied_from(memory, root, hash, from, push);
            if reused.is_unchanged(memory) {
                return next_hash.map_err(in_partition);
            }
            keys.bytes.truncate(bytes);
            keys.ends.truncate(ends);
        }
        Err(in_partition(changes_too_fast()))
    }

    /// Returns the error for a refused key, outside batches.
    pub(crate) fn refusal_error(&self, id: PartitionId, status: KeyStatus) -> Error {
        match status {
            KeyStatus::NotFollowed => self.inner.not_followed(id),
            KeyStatus::Stale => {
                let message = "the data is older than the staleness bound; retry, or read with a \
                    larger bound";
                Error::stale(message).with_partition(id)
            }
            _ => {
                let message =
                    "the partition has not caught up; await readiness, or allow incomplete reads";
                Error::unavailable(message).with_partition(id)
            }
        }
    }
}

/// Maps the error of a row that was found in a space and cannot be read.
#[cold]
fn unreadable(error: Error, space: &Space) -> Error {
    // The owner of the copy already knows the definition.
    if error.code() == ErrorCode::Internal && space.memory.is_shared() {
        let message =
            "the definition that a document was written with is not known here yet; try again";
        return Error::unavailable(message);
    }
    error
}

fn changes_too_fast() -> Error {
    Error::unavailable("the shared copy changed during each attempt to read it; try again")
}
