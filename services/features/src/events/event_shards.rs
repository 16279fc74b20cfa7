//! Shards of a stream's events: each event is stored by its position in the log, with its index
//! entries, in one step with the shard's position.

use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::Change;
use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, Offset};
use forebay_core::key_order::Direction;
use forebay_core::schema_set::SchemaSet;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_shard::{EventPosition, Shard, ShardDirectory};
use forebay_shard_replica::{EntryRun, Materializer, ShardFolder, ShardReplicas, WrittenShard};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::keys::{Entry, Indexes, ORDER};
use super::stored_event::{EventHead, StoredEvent, encode};
use crate::rows::ValueRows;

/// Row format of a stream's shards.
pub(crate) struct EventRows {
    indexes: Indexes,
    /// The column with the event time.
    event_time: Option<FieldId>,
    rows: ValueRows,
}

/// Total bytes of the events stored in a shard, once known.
#[derive(Default)]
pub(crate) struct BytesStored(Mutex<Option<u64>>);

/// The shards of one stream in this process.
pub(crate) type EventShards = ShardReplicas<EventRows>;

impl EventRows {
    /// Creates the set of a stream's shards in a folder, with these definitions; no shard is open
    /// yet.
    ///
    /// # Errors
    /// `InvalidArgument` without a definition.
    pub(crate) fn shards(
        versions: Vec<Arc<SchemaAt>>,
        directory: ShardDirectory,
        reopen: Arc<Notify>,
    ) -> Result<EventShards> {
        let schemas = SchemaSet::new(versions)?;
        let definition = &schemas.newest().definition;
        let event_time = definition.event_time().map(|column| column.id);
        let (indexes, rows) = (Indexes::of(definition), ValueRows::new()?);
        let partitions = definition.write_logs().partitions;
        let folder = ShardFolder { directory, order: ORDER, partitions };
        let rows = Self { indexes, event_time, rows };
        Ok(ShardReplicas::new(rows, schemas, folder, reopen))
    }

    /// Returns the time of an event; `appended` if the event has none.
    fn time(&self, event: &Change, appended: Timestamp) -> Timestamp {
        match self.event_time.and_then(|column| event.set_value(column)) {
            Some(Value::Timestamp(micros)) => Timestamp::from_micros(*micros),
            _ => appended,
        }
    }
}

impl Materializer for EventRows {
    type Shared = BytesStored;

    fn is_compatible(&self, shard: &Shard, _schemas: &SchemaSet) -> Result<bool> {
        match shard.row(Indexes::row_key().as_bytes())? {
            Some(row) => Ok(self.rows.bytes(&row)? == self.indexes.fingerprint()),
            None => Ok(false),
        }
    }

    fn write(&self, shard: &mut WrittenShard<Self>, run: &EntryRun<'_>) -> Result<()> {
        let mut bytes_before = bytes_stored(shard)?;
        let (mut events, mut writes) = (Vec::new(), Vec::new());
        let found_by = self.rows.row(Vec::new(), None)?;
        for entry in run.entries.iter().filter(|entry| !entry.effects.events.is_empty()) {
            let unknown = || Error::internal("the definition of an event is not known");
            let layout = &run.schemas.get(entry.schema_version).ok_or_else(unknown)?.layout;
            let (offset, append_time) = (entry.offset, entry.append_time);
            for (position, event) in &entry.effects.events {
                let at = EventPosition { offset, index_in_entry: position.index_in_entry };
                let time = self.time(event, append_time);
                let row = encode(EventHead { time, append_time, bytes_before }, event, layout)?;
                bytes_before += row.len() as u64;
                events.push((at, row));
                let found = self.indexes.entries(event, Entry { time, at }).into_iter();
                writes.extend(found.map(|key| (key, Some(found_by.clone()))));
            }
        }
        if shard.is_empty() {
            let row = self.rows.row(self.indexes.fingerprint(), None)?;
            writes.push((Indexes::row_key(), Some(row)));
        }
        shard.write_run(run, &events, writes)?;
        *shard.shared().0.lock() = Some(bytes_before);
        Ok(())
    }
}

/// Returns the total bytes of all events ever written, including deleted ones.
fn bytes_stored(shard: &WrittenShard<EventRows>) -> Result<u64> {
    let bytes = *shard.shared().0.lock();
    if let Some(bytes) = bytes {
        return Ok(bytes);
    }
    let view = shard.shard().view()?;
    let last = EventPosition { offset: Offset(u64::MAX), index_in_entry: u16::MAX };
    let mut events = view.scan_events(last, Direction::Backward)?;
    let Some((_, row)) = events.next()? else { return Ok(0) };
    Ok(StoredEvent::decode(row)?.head.bytes_before + row.len() as u64)
}
