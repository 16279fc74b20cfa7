//! Events in a shard of a stream's partition: rows keyed by their position in the log. Events are
//! only appended, and retention removes the oldest ones first.
//!
//! Events are in a separate column family, in separate files. Each new file follows the existing
//! ones in key order, so compaction moves a file unchanged, and retention removes whole files. The
//! documents of the shard are an index of the events: each key ends in the position of its event,
//! and the document is removed with the event.

use forebay_core::id::Offset;
use forebay_core::key_order::Direction;
use forebay_core::{Error, Result};
use rocksdb::{
    ColumnFamily, DB, DBRawIteratorWithThreadMode, FlushOptions, ReadOptions, WriteBatch,
};

use crate::event_position::{EVENTS, EVENTS_FROM, EventPosition};
use crate::shard::Shard;
use crate::view::View;

impl Shard {
    /// Removes the events below an offset; compaction removes their index rows later. The cost does
    /// not depend on the number of events.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses; `Internal` for a shard of documents.
    pub fn drop_events(&self, end: Offset) -> Result<()> {
        let events = self.events()?;
        if end <= self.events_from() {
            return Ok(());
        }
        // The floor rises before the events go, so that a reader that misses an event knows the
        // reason, even after a kill.
        self.floor.raise(end);
        let to = EventPosition { offset: end, index_in_entry: 0 }.to_bytes();
        let from = EventPosition::default().to_bytes();
        let mut batch = WriteBatch::default();
        batch.put(EVENTS_FROM, end.0.to_le_bytes());
        batch.delete_range_cf(events, from, to);
        self.write(batch, self.partition_time())?;
        self.flush()?;
        let result = self.db.delete_file_in_range_cf(events, from, to);
        result.map_err(|error| self.engine_error(&error, "removing events"))
    }

    /// Loads the retention floor that an earlier process wrote.
    pub(crate) fn resume_events(&self) -> Result<()> {
        let from = self.db.get_pinned(EVENTS_FROM);
        let Some(from) = from.map_err(|error| self.engine_error(&error, "reading a shard"))? else {
            return Ok(());
        };
        let damage_error =
            |_| self.with_location(Error::corrupt("the retention floor of a shard is unreadable"));
        let from = from.as_ref().try_into().map_err(damage_error)?;
        self.floor.raise(Offset(u64::from_le_bytes(from)));
        Ok(())
    }

    /// Returns the offset below which events are removed.
    pub fn events_from(&self) -> Offset {
        self.floor.get()
    }

    /// Returns the column family of events.
    pub(crate) fn events(&self) -> Result<&ColumnFamily> {
        let missing_error = || self.with_location(Error::internal("the shard has no events"));
        self.db.cf_handle(EVENTS).ok_or_else(missing_error)
    }

    /// Flushes events and documents atomically.
    pub(crate) fn flush_all(&self) -> std::result::Result<(), rocksdb::Error> {
        let parts = [rocksdb::DEFAULT_COLUMN_FAMILY_NAME, EVENTS];
        let parts: Vec<_> = parts.iter().filter_map(|name| self.db.cf_handle(name)).collect();
        match parts.len() {
            2 => self.db.flush_cfs_opt(&parts, &FlushOptions::default()),
            _ => self.db.flush(),
        }
    }
}

impl View<'_> {
    /// Returns the rows of the events at these positions, in the same order; `None` for a missing
    /// one.
    ///
    /// # Errors
    /// As [`Shard::row`]; `Internal` for a shard of documents.
    pub fn events(&self, at: &[EventPosition]) -> Result<Vec<Option<Vec<u8>>>> {
        let (shard, events) = (self.shard(), self.shard().events()?);
        let mut options = ReadOptions::default();
        options.set_snapshot(self.snapshot());
        options.set_async_io(true);
        let keys: Vec<_> = at.iter().map(|at| at.to_bytes()).collect();
        let found = shard.db.batched_multi_get_cf_opt(events, &keys, false, &options);
        let engine_error = |error| shard.engine_error(&error, "reading events");
        found
            .into_iter()
            .map(|row| Ok(row.map_err(engine_error)?.map(|row| row.to_vec())))
            .collect()
    }

    /// Scans the events from a position on, in ascending or descending order.
    ///
    /// # Errors
    /// `Internal` for a shard of documents.
    pub fn scan_events(&self, from: EventPosition, direction: Direction) -> Result<EventScan<'_>> {
        let (shard, events) = (self.shard(), self.shard().events()?);
        let mut options = ReadOptions::default();
        options.set_snapshot(self.snapshot());
        let mut rows = shard.db.raw_iterator_cf_opt(events, options);
        match direction {
            Direction::Forward => rows.seek(from.to_bytes()),
            Direction::Backward => rows.seek_for_prev(from.to_bytes()),
        }
        Ok(EventScan { shard, rows, direction, is_begun: false })
    }
}

/// A scan of events.
pub struct EventScan<'v> {
    shard: &'v Shard,
    rows: DBRawIteratorWithThreadMode<'v, DB>,
    direction: Direction,
    is_begun: bool,
}

impl EventScan<'_> {
    /// Returns the position and row of the next event; `None` after the last one.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file; `Unavailable` if the disk refuses. The scan never skips events
    /// silently.
    #[expect(clippy::should_implement_trait, reason = "a lent row lives until the next call")]
    pub fn next(&mut self) -> Result<Option<(EventPosition, &[u8])>> {
        if std::mem::replace(&mut self.is_begun, true) && self.rows.valid() {
            match self.direction {
                Direction::Forward => self.rows.next(),
                Direction::Backward => self.rows.prev(),
            }
        }
        let Some((at, row)) = self.rows.item() else {
            let engine_error = |error| self.shard.engine_error(&error, "scanning events");
            return self.rows.status().map(|()| None).map_err(engine_error);
        };
        let damage_error = |_| {
            self.shard.with_location(Error::corrupt("the offset of an event has the wrong length"))
        };
        let at = EventPosition::from_bytes(at.try_into().map_err(damage_error)?);
        Ok(Some((at, row)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use forebay_core::clock::Timestamp;
    use forebay_core::fold::{FoldEffects, PartitionState};
    use forebay_core::id::{LogId, PartitionCount, PartitionId, PartitionRef, StoreId};
    use forebay_core::key::{Key, KeyType};
    use forebay_core::key_order::KeyOrder;
    use forebay_core::state_rows::FollowState;
    use proptest::prelude::*;
    use rocksdb::WaitForCompactOptions;

    use super::*;
    use crate::{Resources, ShardDirectory, ShardWriter};

    const AT: PartitionRef = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
    const ORDER: KeyOrder = KeyOrder { primary: KeyType::Bytes, partition: None };

    fn directory(path: &Path) -> ShardDirectory {
        ShardDirectory::with_events(path, Resources::new(64 << 20).unwrap())
    }

    fn at(offset: u64, index_in_entry: u16) -> EventPosition {
        EventPosition { offset: Offset(offset), index_in_entry }
    }

    fn found_by(at: EventPosition) -> Key {
        Key::from_identity_bytes(&[&b"by"[..], &at.to_bytes()].concat())
    }

    /// Writes an entry of two events with an index row each.
    fn write(writer: &mut ShardWriter, offset: u64) {
        let places = [at(offset, 0), at(offset, 1)];
        let events = places.map(|at| (at, at.to_bytes().repeat(20)));
        let writes = places.map(|at| (found_by(at), Some(vec![0; 3]))).to_vec();
        let mut state = PartitionState::new(AT, PartitionCount(1));
        state.log_id = Some(LogId(1));
        state.offset_applied = Offset(offset + 1);
        state.partition_time = Timestamp::from_micros(offset as i64);
        let effects = FoldEffects { writes, ..FoldEffects::default() };
        let follow_state = FollowState { copy: 1, ..FollowState::default() };
        writer.apply_events(&events, &effects, &state, follow_state).unwrap();
    }

    /// Returns the offsets of the events, and the offsets in their index rows.
    fn offsets(shard: &Shard) -> (Vec<u64>, Vec<u64>) {
        let view = shard.view().unwrap();
        let (mut event_offsets, mut found) = (Vec::new(), Vec::new());
        let mut events = view.scan_events(EventPosition::default(), Direction::Forward).unwrap();
        while let Some((at, row)) = events.next().unwrap() {
            assert_eq!(row, at.to_bytes().repeat(20));
            event_offsets.push(at.offset.0);
        }
        let mut keys = view.scan(&ORDER.all(), Direction::Forward);
        while let Some((key, _)) = keys.next().unwrap() {
            let at = *key.as_bytes().last_chunk().unwrap();
            found.push(EventPosition::from_bytes(at).offset.0);
        }
        (event_offsets, found)
    }

    fn repeat_each(offsets: std::ops::Range<u64>) -> Vec<u64> {
        offsets.flat_map(|offset| [offset, offset]).collect()
    }

    #[test]
    fn oldest_events_are_dropped_together_with_their_index_entries() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = directory(folder.path()).create(AT, ORDER).unwrap();
        for offset in 0..100 {
            write(&mut writer, offset);
            if offset % 20 == 19 {
                writer.shard().flush().unwrap();
            }
        }
        let shard = writer.shard();
        assert_eq!(offsets(shard), (repeat_each(0..100), repeat_each(0..100)));
        let before = shard.view().unwrap();
        shard.drop_events(Offset(70)).unwrap();
        assert_eq!(shard.events_from(), Offset(70));
        assert_eq!(offsets(shard).0, repeat_each(70..100));
        // A view from before the removal may have lost events: a reader that misses one checks the
        // floor.
        let rows = before.events(&[at(75, 1), at(100, 0)]).unwrap();
        assert_eq!(rows, [Some(at(75, 1).to_bytes().repeat(20)), None]);
        drop(before);
        shard.compact();
        assert_eq!(offsets(shard), (repeat_each(70..100), repeat_each(70..100)));
        // The floor never falls.
        shard.drop_events(Offset(50)).unwrap();
        assert_eq!((shard.events_from(), offsets(shard).0), (Offset(70), repeat_each(70..100)));

        drop(writer);
        let restored = directory(folder.path()).resume(AT, PartitionCount(1), ORDER).unwrap();
        let (mut writer, restored) = restored.unwrap();
        assert_eq!(restored.state.offset_applied, Offset(100));
        assert_eq!(writer.shard().events_from(), Offset(70), "a restart knows what is gone");
        write(&mut writer, 100);
        assert_eq!(offsets(writer.shard()), (repeat_each(70..101), repeat_each(70..101)));
    }

    /// Proves that a file of events is written once: compaction moves the file and does not
    /// recompress it.
    #[test]
    fn event_files_are_moved_without_a_rewrite() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = directory(folder.path()).create(AT, ORDER).unwrap();
        let files = |shard: &Shard| {
            let files = shard.db.live_files().unwrap().into_iter();
            let of_events = files.filter(|file| file.column_family_name == EVENTS);
            of_events.map(|file| (file.name, file.level)).collect::<BTreeMap<_, _>>()
        };
        let mut written_files = BTreeSet::new();
        for offset in 0..40 {
            write(&mut writer, offset);
            writer.shard().flush().unwrap();
            written_files.extend(files(writer.shard()).into_keys());
        }
        let shard = writer.shard();
        shard.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
        let files_left = files(shard);
        assert!(
            files_left.values().any(|level| *level > 0),
            "nothing was compacted: {files_left:?}"
        );
        assert!(
            files_left.keys().all(|name| written_files.contains(name)),
            "{files_left:?} of {written_files:?}"
        );
        assert_eq!((files_left.len(), written_files.len()), (40, 40));
    }

    #[test]
    fn kill_loses_unflushed_documents_and_events_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = directory(folder.path()).create(AT, ORDER).unwrap();
        (0..10).for_each(|offset| write(&mut writer, offset));
        writer.shard().flush().unwrap();
        (10..20).for_each(|offset| write(&mut writer, offset));
        drop(writer);
        let restored = directory(folder.path()).resume(AT, PartitionCount(1), ORDER).unwrap();
        let (writer, restored) = restored.unwrap();
        let end = restored.state.offset_applied.0;
        assert!(end >= 10, "what was flushed is there");
        assert_eq!(offsets(writer.shard()), (repeat_each(0..end), repeat_each(0..end)));
    }

    #[test]
    fn shard_of_documents_has_no_events() {
        let folder = tempfile::tempdir().unwrap();
        let directory = ShardDirectory::new(folder.path(), Resources::new(64 << 20).unwrap());
        let writer = directory.create(AT, ORDER).unwrap();
        let code = |result: Result<()>| result.unwrap_err().code();
        let internal = forebay_core::ErrorCode::Internal;
        assert_eq!(code(writer.shard().drop_events(Offset(1))), internal);
        assert_eq!(code(writer.shard().view().unwrap().events(&[]).map(drop)), internal);
    }

    proptest! {
        #[test]
        fn event_positions_sort_like_their_bytes(a: (u64, u16), b: (u64, u16)) {
            let at = |(offset, index_in_entry)| EventPosition {
                offset: Offset(offset),
                index_in_entry,
            };
            let (a, b) = (at(a), at(b));
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
            prop_assert_eq!(EventPosition::from_bytes(a.to_bytes()), a);
        }
    }
}
