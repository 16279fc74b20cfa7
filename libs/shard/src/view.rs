//! Reads of many documents at one position: lookups of keys, and scans of ranges.

use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset, Position, SchemaVersion};
use forebay_core::key::Key;
use forebay_core::key_order::{Direction, KeyRange};
use forebay_core::row::row_expires_at;
use forebay_core::state_rows::{HEAD, Head};
use rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions, Snapshot};
use self_cell::self_cell;

use crate::shard::Shard;

/// All documents of a shard at one position. The view does not see later writes.
pub struct View<'s> {
    shard: &'s Shard,
    snapshot: Snapshot<'s>,
    head: Option<Head>,
}

impl<'s> View<'s> {
    pub(crate) fn open(shard: &'s Shard) -> Result<Self> {
        let snapshot = shard.db.snapshot();
        let head = snapshot.get(HEAD);
        let head = head.map_err(|error| shard.engine_error(&error, "reading a shard's head"))?;
        let head = head.map(|bytes| Head::decode(&bytes)).transpose();
        let head = head.map_err(|error| shard.with_location(error))?;
        Ok(Self { shard, snapshot, head })
    }

    pub(crate) fn shard(&self) -> &'s Shard {
        self.shard
    }

    pub(crate) fn snapshot(&self) -> &Snapshot<'s> {
        &self.snapshot
    }

    /// Returns the id of the log that the documents come from; `None` before its first entry.
    pub fn log_id(&self) -> Option<LogId> {
        self.head.as_ref().and_then(|head| head.log_id)
    }

    /// Returns the position of the last applied entry.
    pub fn position(&self) -> Position {
        self.head.as_ref().map_or(Position::default(), |head| head.position)
    }

    /// Returns the first offset that is not applied yet.
    pub fn offset_applied(&self) -> Offset {
        self.head.as_ref().map_or(Offset(0), |head| head.offset_applied)
    }

    /// Returns the running maximum of the append times of the applied entries.
    pub fn partition_time(&self) -> Timestamp {
        self.head.as_ref().map_or(Timestamp::MIN, |head| head.partition_time)
    }

    /// Returns the newest schema version of the documents.
    pub fn schema_version(&self) -> SchemaVersion {
        self.head.as_ref().map_or(SchemaVersion(0), |head| head.schema_version)
    }

    /// Returns the read time for a reader with this clock: documents that have expired at the read
    /// time are invisible. The read time is never before the shard's current partition time, so
    /// that documents that compaction has removed since the view was opened are invisible to every
    /// reader of the view.
    pub fn read_time(&self, clock: Timestamp) -> Timestamp {
        clock.max(self.shard.partition_time())
    }

    /// Returns the rows under these identity bytes, in the same order; includes expired ones.
    ///
    /// # Errors
    /// As [`Shard::row`].
    pub fn rows<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let stored_keys = keys.into_iter().map(|key| self.shard.order.stored(key));
        let stored_keys = stored_keys.collect::<Result<Vec<_>>>()?;
        let found = self.snapshot.multi_get(stored_keys).into_iter();
        let engine_error = |error| self.shard.engine_error(&error, "reading documents");
        found.map(|row| row.map_err(engine_error)).collect()
    }

    /// Scans the documents of a range; includes expired ones.
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> Scan<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(range.from.clone());
        options.set_iterate_upper_bound(range.to.clone());
        let mut rows = self.snapshot.raw_iterator_opt(options);
        match direction {
            // The engine does not accept equal bounds as a range.
            _ if range.is_empty() => {}
            Direction::Forward => rows.seek_to_first(),
            Direction::Backward => rows.seek_to_last(),
        }
        Scan { shard: self.shard, rows, direction, is_begun: false }
    }
}

impl Shard {
    /// Opens a view of all documents at one position; the view keeps its files on the disk.
    ///
    /// # Errors
    /// As [`Shard::row`].
    pub fn view(&self) -> Result<View<'_>> {
        View::open(self)
    }
}

/// A scan of a range in one direction.
pub struct Scan<'v> {
    shard: &'v Shard,
    rows: DBRawIteratorWithThreadMode<'v, DB>,
    direction: Direction,
    is_begun: bool,
}

impl Scan<'_> {
    /// Returns the key and row of the next document; `None` after the last one.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file; `Unavailable` if the disk refuses. The scan never skips
    /// documents silently.
    #[expect(clippy::should_implement_trait, reason = "a lent row lives until the next call")]
    pub fn next(&mut self) -> Result<Option<(Key, &[u8])>> {
        if std::mem::replace(&mut self.is_begun, true) && self.rows.valid() {
            match self.direction {
                Direction::Forward => self.rows.next(),
                Direction::Backward => self.rows.prev(),
            }
        }
        let Some((stored, row)) = self.rows.item() else {
            let status = self.rows.status();
            let engine_error = |error| self.shard.engine_error(&error, "scanning documents");
            return status.map(|()| None).map_err(engine_error);
        };
        let key =
            self.shard.order.identity(stored).map_err(|error| self.shard.with_location(error))?;
        Ok(Some((key, row)))
    }

    /// Returns the next document that has not expired at this time.
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub fn next_live(&mut self, now: Timestamp) -> Result<Option<(Key, Vec<u8>)>> {
        while let Some((key, row)) = self.next()? {
            if row_expires_at(row).is_none_or(|at| at > now) {
                return Ok(Some((key, row.to_vec())));
            }
        }
        Ok(None)
    }
}

self_cell! {
    struct Cell {
        owner: Arc<Shard>,
        #[covariant]
        dependent: View,
    }
}

/// A view that keeps its shard open, for reads that span several calls. Until the view is dropped,
/// the shard stays open and the files of the view stay on the disk.
pub struct OwnedView(Cell);

impl OwnedView {
    /// Opens a view of the current documents.
    ///
    /// # Errors
    /// As [`Shard::view`].
    pub fn open(shard: Arc<Shard>) -> Result<Self> {
        Cell::try_new(shard, |shard| shard.view()).map(Self)
    }

    /// Returns the view.
    pub fn view(&self) -> &View<'_> {
        self.0.borrow_dependent()
    }

    /// Returns the shard of the view.
    pub fn shard(&self) -> &Arc<Shard> {
        self.0.borrow_owner()
    }
}
