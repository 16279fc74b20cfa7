//! Reads of many documents at one position: keys that are named, and ranges in their order.

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::{LogId, Offset, Position, SchemaVersion};
use forebay_core::key::Key;
use forebay_core::key_order::{Direction, KeyRange};
use forebay_core::row::row_expires_at;
use forebay_core::state_rows::{HEAD, Head};
use rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions, Snapshot};

use crate::shard::Shard;

/// All documents of a shard at one position. What is written meanwhile it does not see.
pub struct View<'s> {
    shard: &'s Shard,
    snapshot: Snapshot<'s>,
    head: Option<Head>,
}

impl<'s> View<'s> {
    pub(crate) fn open(shard: &'s Shard) -> Result<Self> {
        let snapshot = shard.db.snapshot();
        let head = snapshot.get(HEAD);
        let head = head.map_err(|error| shard.explained(&error, "reading a shard's head"))?;
        let head = head.map(|bytes| Head::decode(&bytes)).transpose();
        let head = head.map_err(|error| shard.located(error))?;
        Ok(Self { shard, snapshot, head })
    }

    pub(crate) fn shard(&self) -> &'s Shard {
        self.shard
    }

    pub(crate) fn snapshot(&self) -> &Snapshot<'s> {
        &self.snapshot
    }

    /// Id of the log that the documents come from; `None` before its first entry.
    pub fn log_id(&self) -> Option<LogId> {
        self.head.as_ref().and_then(|head| head.log_id)
    }

    /// Position of the last entry applied.
    pub fn position(&self) -> Position {
        self.head.as_ref().map_or(Position::default(), |head| head.position)
    }

    /// First offset not yet applied.
    pub fn offset_applied(&self) -> Offset {
        self.head.as_ref().map_or(Offset(0), |head| head.offset_applied)
    }

    /// Running maximum of the append times of what was applied.
    pub fn partition_time(&self) -> Timestamp {
        self.head.as_ref().map_or(Timestamp::MIN, |head| head.partition_time)
    }

    /// Newest schema version of the documents.
    pub fn schema_version(&self) -> SchemaVersion {
        self.head.as_ref().map_or(SchemaVersion(0), |head| head.schema_version)
    }

    /// When a reader whose clock says this reads: documents that have expired by then are none.
    /// Never before the shard's partition time of now, so that what was taken off the disk since
    /// the view was opened is none to it either.
    pub fn read_time(&self, clock: Timestamp) -> Timestamp {
        clock.max(self.shard.partition_time())
    }

    /// The rows under these identity bytes, in their order; expired ones too.
    ///
    /// # Errors
    /// As [`Shard::row`].
    pub fn rows<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let stored = keys.into_iter().map(|key| self.shard.order.stored(key));
        let stored = stored.collect::<Result<Vec<_>>>()?;
        let found = self.snapshot.multi_get(stored).into_iter();
        let told = |error| self.shard.explained(&error, "reading documents");
        found.map(|row| row.map_err(told)).collect()
    }

    /// The documents of a range, one after the other; expired ones too.
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> Scan<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(range.from.clone());
        options.set_iterate_upper_bound(range.to.clone());
        let mut rows = self.snapshot.raw_iterator_opt(options);
        match direction {
            // Equal bounds are no range to the engine.
            _ if range.is_empty() => {}
            Direction::Forward => rows.seek_to_first(),
            Direction::Backward => rows.seek_to_last(),
        }
        Scan { shard: self.shard, rows, direction, is_begun: false }
    }
}

/// A scan of a range, in its direction.
pub struct Scan<'v> {
    shard: &'v Shard,
    rows: DBRawIteratorWithThreadMode<'v, DB>,
    direction: Direction,
    is_begun: bool,
}

impl Scan<'_> {
    /// The next document: its key and its row. `None` behind the last one.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file, `Unavailable` for a disk that refuses: never fewer documents
    /// than there are.
    #[expect(clippy::should_implement_trait, reason = "what it lends lives until the next call")]
    pub fn next(&mut self) -> Result<Option<(Key, &[u8])>> {
        if std::mem::replace(&mut self.is_begun, true) && self.rows.valid() {
            match self.direction {
                Direction::Forward => self.rows.next(),
                Direction::Backward => self.rows.prev(),
            }
        }
        let Some((stored, row)) = self.rows.item() else {
            let status = self.rows.status();
            let told = |error| self.shard.explained(&error, "scanning documents");
            return status.map(|()| None).map_err(told);
        };
        let key = self.shard.order.identity(stored).map_err(|error| self.shard.located(error))?;
        Ok(Some((key, row)))
    }

    /// The next document that has not expired at this time.
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
