//! Retention of events, by the times at which the log appended them and by their bytes. Older
//! events are deleted from the shard and trimmed from the log, once every view of the stream has
//! derived them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::id::{Offset, PartitionId, StoreId};
use forebay_core::key_order::Direction;
use forebay_core::schema::{Definition, StoreOptions};
use forebay_shard::{EventPosition, OwnedView, Shard, View};
use forebay_tasks::block_in_place;
use forebay_wire::entry::encode_entry;
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::event_shards::EventShards;
use super::stored_event::{EventHead, StoredEvent};
use crate::parts::FeatureParts;

/// Longest time between two checks of the retention.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Shortest time between two checks of the retention.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(100);

/// For each view and partition of its stream, the offset up to which the events were derived and
/// are in the view's logs.
#[derive(Clone, Default)]
pub(crate) struct DerivedOffsets(Arc<Mutex<BTreeMap<(StoreId, PartitionId), Offset>>>);

impl DerivedOffsets {
    /// Records that a view needs nothing of a partition below an offset.
    pub(crate) fn note(&self, view: StoreId, partition: PartitionId, offset: Offset) {
        self.0.lock().insert((view, partition), offset);
    }

    fn get(&self, view: StoreId, partition: PartitionId) -> Option<Offset> {
        self.0.lock().get(&(view, partition)).copied()
    }
}

/// Enforces the retention of a stream until the task is dropped.
pub(crate) async fn run_retention(
    parts: FeatureParts,
    definition: Definition,
    shards: EventShards,
    derived: DerivedOffsets,
) {
    let StoreOptions { log_retention_us, log_retention_bytes, .. } = definition.options;
    if log_retention_us.is_none() && log_retention_bytes.is_none() {
        return;
    }
    let retention =
        log_retention_us.map(|retention| Duration::from_micros(retention.unsigned_abs()));
    let interval = retention.map_or(LOOK_EVERY, |retention| retention / 10);
    loop {
        tokio::time::sleep(interval.clamp(LOOK_EVERY_MIN, LOOK_EVERY)).await;
        for shard in shards.open_shards() {
            let at = shard.partition();
            if let Err(error) = enforce_retention(&parts, &definition, shard, &derived).await {
                warn!(%at, %error, "events not removed after their retention");
            }
        }
    }
}

/// Deletes the expired events of a partition, and trims its log.
async fn enforce_retention(
    parts: &FeatureParts,
    definition: &Definition,
    shard: Arc<Shard>,
    derived: &DerivedOffsets,
) -> Result<()> {
    let (options, now) = (&definition.options, parts.context.clock.now());
    let expired = block_in_place(|| {
        let view = OwnedView::open(Arc::clone(&shard))?;
        ExpiredEvents::of(view.view(), options, now)
    })?;
    let (at, log) = (shard.partition(), &*parts.context.log);
    if let Some(heartbeat) = expired.heartbeat {
        log.append(at, encode_entry(&heartbeat)?).await?;
    }
    let Some(end) = expired.end else { return Ok(()) };
    let bounds = log.bounds(at).await?;
    // An empty log does not contain its id, so the last record stays.
    let mut end = end.min(Offset(bounds.end.0.saturating_sub(1)));
    for view in views_of(parts, at.store) {
        match derived.get(view, at.partition) {
            Some(offset) => end = end.min(offset),
            None => {
                debug!(%at, %view, "events stay until a view has derived them");
                return Ok(());
            }
        }
    }
    if end > shard.events_from() {
        block_in_place(|| shard.drop_events(end))?;
        info!(%at, below = %end, "events removed after their retention");
    }
    if end > bounds.start { log.trim(at, end).await } else { Ok(()) }
}

fn views_of(parts: &FeatureParts, stream: StoreId) -> Vec<StoreId> {
    let catalog = parts.context.catalog.catalog();
    let is_of =
        |definition: &&Definition| definition.view().is_some_and(|view| view.source == stream);
    let all = catalog.active_stores().map(|schema| &*schema.definition);
    all.filter(is_of).map(|definition| definition.store).collect()
}

/// The expired part of a partition.
struct ExpiredEvents {
    /// First offset after the expired events; `None` if there are none.
    end: Option<Offset>,
    /// Heartbeat that advances a silent log's time, by which events expire.
    heartbeat: Option<Entry>,
}

impl ExpiredEvents {
    fn of(view: &View<'_>, options: &StoreOptions, now: Timestamp) -> Result<Self> {
        let ends = [(EventPosition::default(), Direction::Forward), (LAST, Direction::Backward)];
        let [first, last] = ends.map(|(from, direction)| event(view, from, direction));
        let (Some(first), Some(last)) = (first?, last?) else {
            return Ok(Self { end: None, heartbeat: None });
        };
        let cutoff = |time: Timestamp| {
            let retention = options.log_retention_us?;
            Some(Timestamp::from_micros(time.as_micros().saturating_sub(retention)))
        };
        let excess_bytes = options
            .log_retention_bytes
            .map(|bytes_max| last.bytes_behind().saturating_sub(bytes_max));
        let cutoff_time = cutoff(view.partition_time());
        let stays = |event: &EventExtent| {
            let is_young =
                cutoff_time.is_none_or(|cutoff_time| event.head.append_time > cutoff_time);
            is_young
                && excess_bytes.is_none_or(|excess_bytes| event.head.bytes_before >= excess_bytes)
        };
        let is_due = cutoff(now).is_some_and(|cutoff_time| first.head.append_time <= cutoff_time);
        let is_seen = cutoff_time.is_some_and(|cutoff_time| first.head.append_time <= cutoff_time);
        let heartbeat = (is_due && !is_seen).then(|| heartbeat(view)).flatten();
        if stays(&first) {
            return Ok(Self { end: None, heartbeat });
        }
        // Binary search for the first event that stays: all later ones stay, too.
        let (mut expired, mut retained) = (first.at.offset, last.at.offset.next());
        while expired.next() < retained {
            let middle = Offset(expired.0 + (retained.0 - expired.0) / 2);
            let at = EventPosition { offset: middle, index_in_entry: 0 };
            match event(view, at, Direction::Forward)? {
                Some(event) if !stays(&event) => expired = event.at.offset,
                _ => retained = middle,
            }
        }
        Ok(Self { end: Some(retained), heartbeat })
    }
}

const LAST: EventPosition = EventPosition { offset: Offset(u64::MAX), index_in_entry: u16::MAX };

/// Position and head of an event.
struct EventExtent {
    at: EventPosition,
    head: EventHead,
    bytes: u64,
}

impl EventExtent {
    fn bytes_behind(&self) -> u64 {
        self.head.bytes_before + self.bytes
    }
}

fn event(
    view: &View<'_>,
    from: EventPosition,
    direction: Direction,
) -> Result<Option<EventExtent>> {
    let mut events = view.scan_events(from, direction)?;
    let Some((at, row)) = events.next()? else { return Ok(None) };
    let head = StoredEvent::decode(row)?.head;
    Ok(Some(EventExtent { at, head, bytes: row.len() as u64 }))
}

fn heartbeat(view: &View<'_>) -> Option<Entry> {
    Some(Entry::original(view.log_id()?, view.schema_version(), EntryBody::Heartbeat))
}
