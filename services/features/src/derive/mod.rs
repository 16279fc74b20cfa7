//! Derivation of a view's events from those of its source: in the order of their times, and
//! appended to the view's own logs, each once (`tools/docs/src/semantics.md`, sections 2 and 9).
//!
//! An entry of the view names the source position up to which it was derived, and the entry before
//! it; so replicas apply each entry once, however many processes derive, and however often. The
//! partition of an event depends on no join, so an event that is derived again goes to the same
//! partition.

mod batch;
mod checkpoint;
mod derivation;
mod joins;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::change::EntryBody;
use forebay_core::clock::Timestamp;
use forebay_core::entropy::Entropy;
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::{CopyOrigin, ExactlyOnceSink, SinkProgress, find_log_id};
use forebay_tasks::block_in_place;
use futures::future::{select_all, try_join_all};
use tracing::{debug, warn};

pub(crate) use self::batch::BATCH_WINDOW_US;
use self::checkpoint::{Checkpoint, LastAppended};
use self::derivation::Derivation;
use self::joins::JoinReaders;
pub(crate) use self::source::SourceLog;
use crate::events::DerivedOffsets;
use crate::parts::FeatureParts;
use crate::view_stats::Counters;

/// Interval between two flushes of the checkpoints.
const FLUSH_EVERY_US: i64 = 10_000_000;
/// Interval between two checks for other processes that derive the same partitions; until the
/// check, entries that another process has appended before have no effect.
const LOOK_EVERY_US: i64 = 1_000_000;
/// Minimum time between two batches at the end of the logs, so that events that arrive one by one
/// are appended together, with one sync and one fold for many.
const BATCH_EVERY: Duration = Duration::from_millis(10);
/// Wait before a failed derivation restarts.
const BEGIN_WAIT: Duration = Duration::from_millis(200);
/// Minimum wait, and half of the maximum, while another process derives the same partitions.
const YIELD_WAIT: Duration = Duration::from_secs(2);

/// Derives a view's events until the task is dropped.
pub(crate) async fn derive(
    parts: FeatureParts,
    definition: Definition,
    (counters, derived): (Arc<Counters>, DerivedOffsets),
) {
    loop {
        let begun = Deriver::begin(&parts, &definition, &counters, &derived).await;
        let ended = match begun {
            Ok(mut deriver) => deriver.run().await,
            Err(error) => Err(error),
        };
        let view = &definition.name;
        match ended {
            Ok(()) => {
                debug!(%view, "another process derives the view");
                tokio::time::sleep(yield_wait(&*parts.context.entropy)).await;
            }
            Err(error) if error.code() == ErrorCode::Unavailable => {
                debug!(%view, %error, "derivation of events restarted");
            }
            Err(error) => warn!(%view, %error, "derivation of events failed; trying again"),
        }
        tokio::time::sleep(BEGIN_WAIT).await;
    }
}

/// Returns a random wait, so that only one of several processes continues.
fn yield_wait(entropy: &dyn Entropy) -> Duration {
    let share = entropy.next_u64().unwrap_or(0) as f64 / u64::MAX as f64;
    YIELD_WAIT.mul_f64(1.0 + share)
}

/// Derivation of one view's events from the source partitions of this process.
struct Deriver<'p> {
    parts: &'p FeatureParts,
    /// The newest definition at the start.
    definition: Definition,
    source: Definition,
    derivation: Derivation,
    sources: Vec<(SourceLog, Checkpoint)>,
    targets: Vec<ExactlyOnceSink>,
    /// Receives the offsets up to which the targets have the events.
    derived: DerivedOffsets,
    /// Time of the last batch.
    batched: Timestamp,
    /// Time of the last check for other processes.
    looked: Timestamp,
    /// Time of the last flush of the checkpoints.
    flushed: Timestamp,
    /// Time of the last heartbeat to all partitions.
    heartbeat_at: Timestamp,
}

impl<'p> Deriver<'p> {
    async fn begin(
        parts: &'p FeatureParts,
        definition: &Definition,
        counters: &Arc<Counters>,
        derived: &DerivedOffsets,
    ) -> Result<Self> {
        let view = definition.view().ok_or_else(|| Error::internal("the stream is no view"))?;
        let catalog = parts.context.catalog.catalog();
        let deleted_error = || Error::not_found("the stream of a view was deleted");
        let source = catalog.store(view.source).and_then(|history| history.newest());
        let source = (*source.ok_or_else(deleted_error)?.definition).clone();
        let joins = JoinReaders::open(parts, view).await?;
        let derivation = Derivation::new(definition, &source, joins, Arc::clone(counters))?;
        let logs = source.write_logs();
        let directory = parts.shards.derived(definition.store);
        let home = source.versions.home();
        let partitions =
            parts.context.membership.assignment().borrow().of(logs.store, logs.partitions);
        let mut sources = Vec::new();
        for partition in partitions {
            let at = logs.at(partition);
            let opened = block_in_place(|| Checkpoint::open(&directory, home, at, logs.partitions));
            let (checkpoint, mut source) = opened?;
            begin_at_log(parts, &mut source).await?;
            derived.note(definition.store, partition, source.state().offset_applied);
            sources.push((source, checkpoint));
        }
        let found = definition.write_logs().all().map(|at| find(parts, at, &sources));
        let targets = try_join_all(found).await?;
        let now = parts.context.clock.now();
        Ok(Self {
            parts,
            definition: definition.clone(),
            source,
            derivation,
            sources,
            targets,
            derived: derived.clone(),
            batched: Timestamp::MIN,
            looked: now,
            flushed: now,
            heartbeat_at: Timestamp::MIN,
        })
    }

    /// Derives until another process derives the same partitions.
    async fn run(&mut self) -> Result<()> {
        while !self.go_on().await? {}
        Ok(())
    }

    /// Derives the available events, or waits for more; returns whether another process derives the
    /// same partitions.
    async fn go_on(&mut self) -> Result<bool> {
        let parts = self.parts;
        try_join_all(self.sources.iter_mut().map(|(source, _)| source.read(parts))).await?;
        if let Some(batch) = self.next_batch().await? {
            self.batched = parts.context.clock.now();
            self.append_batch(batch).await?;
        }
        let is_at_end = self.sources.iter().all(|(source, _)| source.is_at_end());
        if is_at_end {
            self.append_heartbeats().await?;
        }
        let now = parts.context.clock.now();
        if now.micros_since(self.looked) >= LOOK_EVERY_US {
            self.looked = now;
            if self.look_for_others().await? {
                return Ok(true);
            }
        }
        if now.micros_since(self.flushed) >= FLUSH_EVERY_US {
            self.flushed = now;
            let checkpoints = self.sources.iter().map(|(_, checkpoint)| checkpoint);
            block_in_place(|| checkpoints.map(Checkpoint::flush).collect::<Result<Vec<_>>>())?;
        }
        if is_at_end {
            self.wait().await?;
            let waited_us =
                parts.context.clock.now().micros_since(self.batched).max(0).unsigned_abs();
            tokio::time::sleep(BATCH_EVERY.saturating_sub(Duration::from_micros(waited_us))).await;
        }
        Ok(false)
    }

    /// Waits until one of the sources has more.
    async fn wait(&self) -> Result<()> {
        let wait_max = self.interval() / 2;
        let waits =
            self.sources.iter().map(|(source, _)| Box::pin(source.wait(self.parts, wait_max)));
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            tokio::time::sleep(wait_max).await;
            return Ok(());
        }
        select_all(waits).await.0
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.definition.options.heartbeat_ms.into())
    }

    /// Returns whether another process derives from the same partitions, as may happen during a
    /// reassignment.
    async fn look_for_others(&mut self) -> Result<bool> {
        let log = &*self.parts.context.log;
        try_join_all(self.targets.iter_mut().map(|target| target.read_back(log))).await?;
        let froms = self.sources.iter().map(|(source, _)| source.partition().partition);
        let is_fenced = |from: PartitionId| {
            let received =
                |target: &ExactlyOnceSink| target.progress().received.get(&from).copied();
            self.targets.iter().any(|target| received(target) != target.sent(from))
        };
        if froms.into_iter().any(is_fenced) {
            return Ok(true);
        }
        for (source, checkpoint) in &mut self.sources {
            checkpoint.keep(source, &self.targets)?;
        }
        Ok(false)
    }

    /// Appends heartbeats while no events arrive, because the view's windows move with its log's
    /// time.
    async fn append_heartbeats(&mut self) -> Result<()> {
        let (parts, interval) = (self.parts, self.interval());
        let beats = self
            .sources
            .iter()
            .map(|(source, _)| source.append_heartbeat(parts, self.source.version, interval));
        try_join_all(beats).await?;
        let now = parts.context.clock.now();
        if now.micros_since(self.heartbeat_at) < interval.as_micros() as i64 {
            return Ok(());
        }
        self.heartbeat_at = now;
        // The slowest source may still yield an older event.
        let slowest = self.sources.iter().map(|(source, _)| source);
        let Some(slowest) = slowest.min_by_key(|source| source.append_time()) else {
            return Ok(());
        };
        let Some(append_time) = slowest.append_time() else { return Ok(()) };
        let (partition, position) = (slowest.partition().partition, slowest.state().position);
        let from = CopyOrigin { partition, position, append_time };
        let (log, version) = (&*parts.context.log, self.definition.version);
        let sent = self.targets.iter_mut();
        let sent = sent.map(|target| target.send(log, from, version, EntryBody::Heartbeat));
        try_join_all(sent).await.map(drop)
    }
}

/// Moves a source to the start of its log if nothing was derived from it yet, or if the log was
/// trimmed since. Only entries that every view has derived are trimmed, so another process has
/// derived them.
async fn begin_at_log(parts: &FeatureParts, source: &mut SourceLog) -> Result<()> {
    let at = source.partition();
    let bounds = parts.context.log.bounds(at).await?;
    let log_id = find_log_id(&*parts.context.log, at, bounds).await?;
    if source.state().log_id.is_none() {
        source.begin_at(log_id, bounds.start);
        return Ok(());
    }
    if source.state().log_id == log_id {
        source.begin_at(log_id, source.state().offset_applied.max(bounds.start));
        return Ok(());
    }
    let message = "the stream's log was recreated after the view's derivation began, so events are \
        missing; drop the view and apply it again";
    Err(Error::conflict(message).with_partition(at.partition))
}

/// Reads how far events were appended to one of the view's partitions.
async fn find(
    parts: &FeatureParts,
    at: PartitionRef,
    sources: &[(SourceLog, Checkpoint)],
) -> Result<ExactlyOnceSink> {
    let log = &*parts.context.log;
    let log_id = find_log_id(log, at, log.bounds(at).await?).await?;
    let last_appended = |(source, checkpoint): &(SourceLog, Checkpoint)| {
        let appended = checkpoint.appended().get(&at.partition).copied();
        appended.map(|appended| (source.partition().partition, appended))
    };
    let last_appended: Option<BTreeMap<PartitionId, LastAppended>> =
        sources.iter().map(last_appended).collect();
    let last_appended = last_appended
        .filter(|last_appended| last_appended.values().all(|last| Some(last.log_id) == log_id));
    let Some((last_appended, log_id)) =
        last_appended.filter(|last_appended| !last_appended.is_empty()).zip(log_id)
    else {
        return ExactlyOnceSink::find(log, at).await;
    };
    let next = last_appended.values().map(|last| last.next).min().unwrap_or_default();
    let received =
        last_appended.into_iter().filter_map(|(from, last)| Some((from, last.position?))).collect();
    ExactlyOnceSink::resume(log, at, SinkProgress { log_id, next, received }).await
}
