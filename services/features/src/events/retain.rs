//! Retention of events, by the times at which the log appended them and by their bytes. Older
//! events are deleted from the shard and trimmed from the log, once every view of the stream has
//! derived them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::id::{Epoch, Offset, PartitionId, StoreId};
use forebay_core::key_order::Direction;
use forebay_core::schema::{Definition, StoreOptions};
use forebay_shard::{EventAt, OwnedView, Shard, View};
use forebay_snapshot::in_place;
use forebay_wire::entry::encode_entry;
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::kept::EventShards;
use super::stored::{EventHead, StoredEvent};
use crate::parts::FeatureParts;

/// Longest time between two checks of the retention.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Shortest time between two checks of the retention.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(100);

/// For each view and partition of its stream, the offset up to which the events were derived and
/// are in the view's logs.
#[derive(Clone, Default)]
pub(crate) struct DerivedUpTo(Arc<Mutex<BTreeMap<(StoreId, PartitionId), Offset>>>);

impl DerivedUpTo {
    /// Records that a view needs nothing of a partition below an offset.
    pub(crate) fn note(&self, view: StoreId, partition: PartitionId, offset: Offset) {
        self.0.lock().insert((view, partition), offset);
    }

    fn get(&self, view: StoreId, partition: PartitionId) -> Option<Offset> {
        self.0.lock().get(&(view, partition)).copied()
    }
}

/// Enforces the retention of a stream until the task is dropped.
pub(crate) async fn retain(
    parts: FeatureParts,
    definition: Definition,
    shards: EventShards,
    derived: DerivedUpTo,
) {
    let StoreOptions { log_window_us, log_bytes, .. } = definition.options;
    if log_window_us.is_none() && log_bytes.is_none() {
        return;
    }
    let window = log_window_us.map(|window| Duration::from_micros(window.unsigned_abs()));
    let every = window.map_or(LOOK_EVERY, |window| window / 10);
    loop {
        tokio::time::sleep(every.clamp(LOOK_EVERY_MIN, LOOK_EVERY)).await;
        for shard in shards.open_shards() {
            let at = shard.partition();
            if let Err(error) = let_go(&parts, &definition, shard, &derived).await {
                warn!(%at, %error, "events not removed after their retention");
            }
        }
    }
}

async fn let_go(
    parts: &FeatureParts,
    definition: &Definition,
    shard: Arc<Shard>,
    derived: &DerivedUpTo,
) -> Result<()> {
    let (options, now) = (&definition.options, parts.clock.now());
    let found = in_place(|| {
        let view = OwnedView::open(Arc::clone(&shard))?;
        Retained::of(view.view(), options, now)
    })?;
    let (at, log) = (shard.partition(), &*parts.log);
    if let Some(beat) = found.beat {
        log.append(at, encode_entry(&beat)?).await?;
    }
    let Some(below) = found.goes_below else { return Ok(()) };
    let bounds = log.bounds(at).await?;
    // An empty log does not contain its id, so the last record stays.
    let mut below = below.min(Offset(bounds.end.0.saturating_sub(1)));
    for view in views_of(parts, at.store) {
        match derived.get(view, at.partition) {
            Some(offset) => below = below.min(offset),
            None => {
                debug!(%at, %view, "events stay until a view has derived them");
                return Ok(());
            }
        }
    }
    if below > shard.events_from() {
        in_place(|| shard.drop_events(below))?;
        info!(%at, %below, "events removed after their retention");
    }
    if below > bounds.start { log.trim(at, below).await } else { Ok(()) }
}

fn views_of(parts: &FeatureParts, stream: StoreId) -> Vec<StoreId> {
    let catalog = parts.catalog.catalog();
    let is_of =
        |definition: &&Definition| definition.view().is_some_and(|view| view.source == stream);
    let all = catalog.living().map(|schema| &schema.definition);
    all.filter(is_of).map(|definition| definition.store).collect()
}

/// The expired part of a partition.
struct Retained {
    goes_below: Option<Offset>,
    /// Heartbeat that advances a silent log's time, by which events expire.
    beat: Option<Entry>,
}

impl Retained {
    fn of(view: &View<'_>, options: &StoreOptions, now: Timestamp) -> Result<Self> {
        let ends = [(EventAt::default(), Direction::Forward), (LAST, Direction::Backward)];
        let [first, last] = ends.map(|(from, direction)| event(view, from, direction));
        let (Some(first), Some(last)) = (first?, last?) else {
            return Ok(Self { goes_below: None, beat: None });
        };
        let cutoff = |time: Timestamp| {
            let window = options.log_window_us?;
            Some(Timestamp::from_micros(time.as_micros().saturating_sub(window)))
        };
        let over = options.log_bytes.map(|most| last.bytes_behind().saturating_sub(most));
        let until = cutoff(view.partition_time());
        let stays = |event: &Found| {
            let is_young = until.is_none_or(|until| event.head.append_time > until);
            is_young && over.is_none_or(|over| event.head.bytes_before >= over)
        };
        let is_due = cutoff(now).is_some_and(|until| first.head.append_time <= until);
        let is_seen = until.is_some_and(|until| first.head.append_time <= until);
        let beat = (is_due && !is_seen).then(|| heartbeat(view)).flatten();
        if stays(&first) {
            return Ok(Self { goes_below: None, beat });
        }
        // Binary search for the first event that stays: all later ones stay, too.
        let (mut gone, mut stay) = (first.at.offset, last.at.offset.next());
        while gone.next() < stay {
            let middle = Offset(gone.0 + (stay.0 - gone.0) / 2);
            let at = EventAt { offset: middle, place: 0 };
            match event(view, at, Direction::Forward)? {
                Some(event) if !stays(&event) => gone = event.at.offset,
                _ => stay = middle,
            }
        }
        Ok(Self { goes_below: Some(stay), beat })
    }
}

const LAST: EventAt = EventAt { offset: Offset(u64::MAX), place: u16::MAX };

/// Position and head of an event.
struct Found {
    at: EventAt,
    head: EventHead,
    bytes: u64,
}

impl Found {
    fn bytes_behind(&self) -> u64 {
        self.head.bytes_before + self.bytes
    }
}

fn event(view: &View<'_>, from: EventAt, direction: Direction) -> Result<Option<Found>> {
    let mut events = view.scan_events(from, direction)?;
    let Some((at, row)) = events.next()? else { return Ok(None) };
    let head = StoredEvent::decode(row)?.head;
    Ok(Some(Found { at, head, bytes: row.len() as u64 }))
}

fn heartbeat(view: &View<'_>) -> Option<Entry> {
    let (log_id, schema_version) = (view.log_id()?, view.schema_version());
    let body = EntryBody::Heartbeat;
    Some(Entry { log_id, epoch: Epoch(0), schema_version, source: None, body })
}
