//! Micro-batches: entries of all sources that are close in time, derived and appended together.

use std::collections::BTreeMap;

use forebay_core::change::{Change, ClientBatch, EntryBody};
use forebay_core::clock::Timestamp;
use forebay_core::id::{ClientId, PartitionId, Position};
use forebay_core::limits::{ENTRY_BYTES_MAX, ENTRY_CHANGES_MAX};
use forebay_core::{Error, Result};
use forebay_entries::{CopyOrigin, ExactlyOnceSink};
use futures::future::try_join_all;

use super::Deriver;

/// Maximum time span of a batch. The entries of a batch may be sent in another order, all with the
/// time of the first one.
pub(crate) const BATCH_WINDOW_US: i64 = 100_000;
/// Maximum bytes of a source's entries in one batch, unless it is a single entry: they may all
/// become one entry of the view.
const BYTES_MAX: usize = ENTRY_BYTES_MAX / 4;

/// A micro-batch.
pub(super) struct MicroBatch {
    /// Append time of the first entry.
    began: Timestamp,
    source_batches: BTreeMap<PartitionId, SourceBatch>,
}

/// The events of one source.
#[derive(Default)]
struct SourceBatch {
    /// Position up to which the source was derived.
    position: Position,
    events: BTreeMap<PartitionId, Vec<Change>>,
    /// Number of changes in its entries.
    changes: usize,
    bytes: usize,
}

impl Deriver<'_> {
    /// Derives the next entries of the sources; returns `None` if there are none. Stops if a source
    /// must be read before its next time is known.
    pub(super) async fn next_batch(&mut self) -> Result<Option<MicroBatch>> {
        let mut batch: Option<MicroBatch> = None;
        while let Some(index) = self.next() {
            let (source, _) = &mut self.sources[index];
            let Some(time) = source.next_time() else { break };
            let began = batch.as_ref().map_or(time, |batch| batch.began);
            let from = source.partition().partition;
            let (changes, bytes) = source.next_size();
            let is_full = |source: &SourceBatch| {
                source.changes + changes > ENTRY_CHANGES_MAX || source.bytes + bytes > BYTES_MAX
            };
            let is_too_much = batch
                .as_ref()
                .is_some_and(|batch| batch.source_batches.get(&from).is_some_and(is_full));
            if time.micros_since(began) > BATCH_WINDOW_US || is_too_much {
                break;
            }
            let Some(entry) = source.take(self.parts).await? else {
                break;
            };
            let batch =
                batch.get_or_insert_with(|| MicroBatch { began, source_batches: BTreeMap::new() });
            let source_batch = batch.source_batches.entry(from).or_default();
            source_batch.position = entry.position;
            (source_batch.changes, source_batch.bytes) =
                (source_batch.changes + changes, source_batch.bytes + bytes);
            for (_, event) in &entry.events {
                let Some((to, event)) = self.derivation.derive(event, entry.append_time)? else {
                    continue;
                };
                let sent = self.targets.get(to.0 as usize).and_then(|target| target.sent(from));
                if sent.is_some_and(|sent| sent >= entry.position) {
                    continue;
                }
                source_batch.events.entry(to).or_default().push(event);
            }
        }
        Ok(batch)
    }

    /// Returns the source with the oldest next entry; `None` if a source must be read first.
    fn next(&self) -> Option<usize> {
        let sources = self.sources.iter().enumerate();
        let is_unknown =
            |source: &super::SourceLog| source.next_time().is_none() && !source.is_at_end();
        if self.sources.iter().any(|(source, _)| is_unknown(source)) {
            return None;
        }
        let timed = sources.filter_map(|(index, (source, _))| Some((source.next_time()?, index)));
        timed.min().map(|(_, index)| index)
    }

    /// Appends the derived events, and records them in the checkpoints.
    pub(super) async fn append_batch(&mut self, batch: MicroBatch) -> Result<()> {
        let MicroBatch { began, mut source_batches } = batch;
        let (log, version) = (&*self.parts.context.log, self.definition.version);
        let to_each = self.targets.iter_mut().map(|target| {
            let to = target.partition().partition;
            let entries: Vec<_> = source_batches
                .iter_mut()
                .filter_map(|(from, source_batch)| {
                    let events = source_batch.events.remove(&to)?;
                    let from = CopyOrigin {
                        partition: *from,
                        position: source_batch.position,
                        append_time: began,
                    };
                    Some((from, events))
                })
                .collect();
            async move {
                for (from, changes) in entries {
                    let body =
                        EntryBody::Changes(vec![ClientBatch { client: ClientId(0), changes }]);
                    ExactlyOnceSink::send(target, log, from, version, body).await?;
                }
                Ok::<_, Error>(())
            }
        });
        try_join_all(to_each).await?;
        for (source, checkpoint) in &mut self.sources {
            if source_batches.contains_key(&source.partition().partition) {
                checkpoint.keep(source, &self.targets)?;
                self.derived.note(
                    self.definition.store,
                    source.partition().partition,
                    source.state().offset_applied,
                );
            }
        }
        Ok(())
    }
}
