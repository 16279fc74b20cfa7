//! The only writer of a shard: writes each entry atomically, together with its position.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::key::Key;
use forebay_core::key_order::{DOCUMENTS, KeyOrder};
use forebay_core::state_rows::{
    FollowState, HEAD, RestoredState, STATE_FROM, STATE_TO, write_changed,
};
use forebay_core::{Error, Result};
use rocksdb::WriteBatch;

use crate::event_position::EventPosition;
use crate::shard::Shard;

/// The writer of the results of folding records. Each open shard has one writer.
#[derive(Debug)]
pub struct ShardWriter {
    shard: Arc<Shard>,
    next_outcome: u64,
}

impl ShardWriter {
    pub(crate) fn new(shard: Shard) -> Self {
        Self { shard: Arc::new(shard), next_outcome: 0 }
    }

    /// Returns the shard, for readers.
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// Writes the changes of an entry and the resulting state atomically: readers, and processes
    /// that open the shard later, find all of it or nothing. Waits during a write stall of the
    /// engine, which may take as long as a compaction. If the call fails, nothing has changed.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses; `Corrupt` for a key that is invalid in this store.
    pub fn apply(
        &mut self,
        effects: &FoldEffects,
        state: &PartitionState,
        follow_state: FollowState,
    ) -> Result<()> {
        self.apply_events(&[], effects, state, follow_state)
    }

    /// Writes like [`ShardWriter::apply`], and adds the rows of the entry's events.
    ///
    /// # Errors
    /// As [`ShardWriter::apply`]; `Internal` for events in a shard of documents.
    pub fn apply_events(
        &mut self,
        events: &[(EventPosition, Vec<u8>)],
        effects: &FoldEffects,
        state: &PartitionState,
        follow_state: FollowState,
    ) -> Result<()> {
        let (batch, next_outcome) = self.batch(events, effects, state, follow_state)?;
        self.shard.write(batch, state.partition_time)?;
        self.next_outcome = next_outcome;
        Ok(())
    }

    /// Writes like [`ShardWriter::apply_events`], but does nothing and returns `false` during a
    /// write stall.
    ///
    /// # Errors
    /// As [`ShardWriter::apply_events`].
    pub fn try_apply_events(
        &mut self,
        events: &[(EventPosition, Vec<u8>)],
        effects: &FoldEffects,
        state: &PartitionState,
        follow_state: FollowState,
    ) -> Result<bool> {
        let (batch, next_outcome) = self.batch(events, effects, state, follow_state)?;
        let is_written = self.shard.try_write(batch, state.partition_time)?;
        if is_written {
            self.next_outcome = next_outcome;
        }
        Ok(is_written)
    }

    /// Writes like [`ShardWriter::apply`], but does nothing and returns `false` during a write
    /// stall.
    ///
    /// # Errors
    /// As [`ShardWriter::apply`].
    pub fn try_apply(
        &mut self,
        effects: &FoldEffects,
        state: &PartitionState,
        follow_state: FollowState,
    ) -> Result<bool> {
        self.try_apply_events(&[], effects, state, follow_state)
    }

    /// Returns the changes of an entry as a batch, and the number of the next outcome.
    fn batch(
        &self,
        events: &[(EventPosition, Vec<u8>)],
        effects: &FoldEffects,
        state: &PartitionState,
        follow_state: FollowState,
    ) -> Result<(WriteBatch, u64)> {
        let mut batch = WriteBatch::default();
        if effects.drop_all {
            batch.delete_range([DOCUMENTS], [DOCUMENTS + 1]);
        }
        put_documents(&mut batch, self.shard.order, &effects.writes)?;
        if !events.is_empty() {
            let part = self.shard.events()?;
            events.iter().for_each(|(at, row)| batch.put_cf(part, at.to_bytes(), row));
        }
        let write = |key: &[u8], row: Option<&[u8]>| match row {
            Some(row) => batch.put(key, row),
            None => batch.delete(key),
        };
        let next_outcome = write_changed(effects, state, follow_state, self.next_outcome, write);
        Ok((batch, next_outcome))
    }

    /// Notes that this shard serves reads. Before the first entry the call does nothing.
    ///
    /// # Errors
    /// As [`ShardWriter::apply`].
    pub fn mark_served(&mut self) -> Result<()> {
        let Some(mut head) = self.shard.head()? else { return Ok(()) };
        head.follow_state.is_served = true;
        let mut batch = WriteBatch::default();
        batch.put(HEAD, head.encode());
        self.shard.write(batch, head.partition_time)
    }

    /// Returns whether the shard has readers.
    pub fn has_readers(&self) -> bool {
        Arc::strong_count(&self.shard) > 1
    }

    /// Returns the shard, or the writer if the shard has readers.
    pub(crate) fn into_shard(self) -> std::result::Result<Shard, Self> {
        let Self { shard, next_outcome } = self;
        Arc::try_unwrap(shard).map_err(|shard| Self { shard, next_outcome })
    }

    /// Loads the state that an earlier process wrote; returns `None` if nothing was written.
    pub(crate) fn resume(&mut self) -> Result<Option<RestoredState>> {
        let Some(head) = self.shard.head()? else { return Ok(None) };
        let shard = &self.shard;
        if head.at != shard.partition() {
            let error = Error::corrupt("the folder holds the shard of another partition");
            return Err(shard.with_location(error));
        }
        shard.note_time(head.partition_time);
        shard.note_durable(head.partition_time);
        let mut restored = head.into_restored();
        let mut rows = shard.db.raw_iterator();
        rows.seek(STATE_FROM);
        while let Some((key, row)) = rows.item().filter(|(key, _)| *key < STATE_TO) {
            restored.take_row(key, row).map_err(|error| shard.with_location(error))?;
            rows.next();
        }
        rows.status().map_err(|error| shard.engine_error(&error, "reading a shard's state"))?;
        drop(rows);
        self.next_outcome = restored.next_outcome;
        Ok(Some(restored))
    }
}

/// Adds documents to a batch under their stored keys in this order.
///
/// # Errors
/// `Corrupt` for a key that is invalid in the store.
pub(crate) fn put_documents(
    batch: &mut WriteBatch,
    order: KeyOrder,
    writes: &[(Key, Option<Vec<u8>>)],
) -> Result<()> {
    for (key, row) in writes {
        let stored_key = order.stored(key.as_bytes());
        let stored_key = stored_key.map_err(|error| error.with_key_digest(key.digest()))?;
        match row {
            Some(row) => batch.put(stored_key, row),
            None => batch.delete(stored_key),
        }
    }
    Ok(())
}

impl RowLookup for ShardWriter {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.shard.row(key)?.map(|row| Cow::from(row.to_vec())))
    }
}
