//! Forwards entries from a store's logs to the logs of a version of the same documents with another
//! number of partitions (`tools/docs/src/semantics.md`, section 2).
//!
//! Every forwarded entry names the last entry of its source that was forwarded before it, so a
//! partition applies each entry once, whichever process forwards it and however often. Entries of
//! all sources are forwarded in the order of their times.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::change::EntryBody;
use forebay_core::fold::PartitionState;
use forebay_core::id::{Offset, PartitionId, PartitionRef};
use forebay_core::schema::Definition;
use forebay_core::versions::{RepartitionSource, StoreLogs, StoreVersion};
use forebay_core::{Error, Result};
use forebay_entries::{AppliedEntry, CopyOrigin, ExactlyOnceSink, OrderedSource, find_log_id};
use futures::future::try_join_all;
use tokio::time::Instant;

use super::router::{ForwardGroup, GroupContent, PartitionRouter};
use crate::context::SnapshotParts;

/// Time between two looks for another process that forwards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Forwarder to the logs of one version.
pub(crate) struct Forwarder<'p> {
    parts: &'p SnapshotParts,
    router: PartitionRouter,
    sources: Vec<ForwardSource>,
    targets: Vec<ExactlyOnceSink>,
    /// Time between two looks for another process during a round.
    look_every: Duration,
}

/// A partition from which entries are forwarded.
struct ForwardSource {
    log: OrderedSource,
    /// Groups that were read and not forwarded yet.
    waiting: VecDeque<ForwardGroup>,
    /// End of the log at the start of the round.
    end: Offset,
    /// Whether the round has read the log to that end.
    is_at_end: bool,
}

impl<'p> Forwarder<'p> {
    /// Reads how far entries were forwarded to this version's logs.
    ///
    /// # Errors
    /// `Internal` for a version without a source; `Conflict` if the source logs no longer hold all
    /// entries; else as the log.
    pub(crate) async fn begin(
        parts: &'p SnapshotParts,
        definition: &Definition,
        version: &StoreVersion,
    ) -> Result<Self> {
        let source = version.repartition_source.as_ref();
        let RepartitionSource { from, start_offsets } =
            source.ok_or_else(|| Error::internal("the version has no source of a repartition"))?;
        check_log_holds(parts, *from, start_offsets).await?;
        let home = definition.versions.home();
        let sources = start_offsets.iter().zip(from.all()).map(async |(start, at)| {
            let log_id =
                find_log_id(&*parts.context.log, at, parts.context.log.bounds(at).await?).await?;
            let mut log = OrderedSource::new(home, PartitionState::new(at, from.partitions), None);
            log.begin_at(log_id, *start);
            Ok::<_, Error>(ForwardSource {
                log,
                waiting: VecDeque::new(),
                end: *start,
                is_at_end: false,
            })
        });
        let targets = version.logs.all().map(|at| ExactlyOnceSink::find(&*parts.context.log, at));
        Ok(Self {
            parts,
            router: PartitionRouter {
                from: *from,
                to: version.logs.partitions,
                is_partitioned: definition.partition_key.is_some(),
            },
            sources: try_join_all(sources).await?,
            targets: try_join_all(targets).await?,
            look_every: LOOK_EVERY,
        })
    }

    /// Forwards all entries that the source logs hold at the call; returns the number of entries
    /// appended to the new logs.
    ///
    /// # Errors
    /// `Unavailable` if another process forwards, too; else as the log. After an error the caller
    /// must begin again.
    pub(crate) async fn forward(&mut self) -> Result<u64> {
        let appended = self.forward_to_ends().await?;
        if appended > 0 {
            self.check_forwards_alone().await?;
        }
        Ok(appended)
    }

    /// Returns whether another process forwards entries within this time. Call it before this
    /// process forwards.
    ///
    /// # Errors
    /// As the log.
    pub(crate) async fn another_forwarder_active(&mut self, wait_max: Duration) -> Result<bool> {
        let mut remaining = wait_max;
        while !remaining.is_zero() && !self.is_fenced() {
            let next = remaining.min(LOOK_EVERY);
            tokio::time::sleep(next).await;
            remaining -= next;
            self.read_back().await?;
        }
        Ok(self.is_fenced())
    }

    /// Returns, for each source partition, the offset after the last forwarded entry.
    pub(crate) fn forwarded_offsets(&self) -> impl Iterator<Item = (PartitionId, Offset)> {
        let states = self.sources.iter().map(|source| source.log.state());
        states.map(|state| (state.partition.partition, state.offset_applied))
    }

    /// Checks that no other process has forwarded entries that this process would forward: replicas
    /// skip the entries of a process that another one has overtaken.
    async fn check_forwards_alone(&mut self) -> Result<()> {
        self.read_back().await?;
        match self.is_fenced() {
            true => Err(Error::unavailable(
                "another process forwards to the same log; the service checks its progress",
            )),
            false => Ok(()),
        }
    }

    /// Returns whether the target logs hold entries that this process has not sent.
    fn is_fenced(&self) -> bool {
        self.targets.iter().any(ExactlyOnceSink::is_fenced)
    }

    async fn read_back(&mut self) -> Result<()> {
        let (parts, targets) = (self.parts, &mut self.targets);
        try_join_all(targets.iter_mut().map(|target| target.read_back(&*parts.context.log)))
            .await?;
        Ok(())
    }

    /// Forwards up to the present ends of the source logs: writers that write meanwhile prolong no
    /// round.
    async fn forward_to_ends(&mut self) -> Result<u64> {
        let (mut appended, mut looked) = (0, Instant::now());
        for source in &mut self.sources {
            source.end = self.parts.context.log.bounds(source.log.partition()).await?.end;
            source.is_at_end = false;
        }
        loop {
            for source in &mut self.sources {
                source.read(self.parts, &self.router, &self.targets).await?;
            }
            let Some((from, group)) = self.next() else { return Ok(appended) };
            appended += self.send(from, group).await?;
            if looked.elapsed() >= self.look_every {
                self.check_forwards_alone().await?;
                looked = Instant::now();
            }
        }
    }

    /// Returns the next group to forward: the oldest waiting one.
    fn next(&mut self) -> Option<(PartitionId, ForwardGroup)> {
        let waiting = self.sources.iter_mut().filter(|source| !source.waiting.is_empty());
        let time =
            |source: &&mut ForwardSource| source.waiting.front().map(|group| group.append_time);
        let source = waiting.min_by_key(time)?;
        Some((source.log.partition().partition, source.waiting.pop_front()?))
    }

    /// Appends a group's entries to their partitions, unless they were appended before; returns the
    /// number of appends.
    async fn send(&mut self, from: PartitionId, group: ForwardGroup) -> Result<u64> {
        let ForwardGroup { append_time, schema_version, position, content, .. } = group;
        let from = CopyOrigin { partition: from, position, append_time };
        let (log, targets) = (&*self.parts.context.log, &mut self.targets);
        let appends = match content {
            GroupContent::All(body) => {
                let all =
                    targets.iter_mut().map(|it| it.send(log, from, schema_version, body.clone()));
                try_join_all(all).await?
            }
            GroupContent::Changes(mut routed) => {
                let sends = targets.iter_mut().filter_map(|it| {
                    let body = EntryBody::Changes(routed.remove(&it.partition().partition)?);
                    Some(it.send(log, from, schema_version, body))
                });
                try_join_all(sends).await?
            }
        };
        Ok(appends.into_iter().filter(|is_appended| *is_appended).count() as u64)
    }
}

impl ForwardSource {
    /// Reads until a group waits or everything up to the end is read.
    async fn read(
        &mut self,
        parts: &SnapshotParts,
        router: &PartitionRouter,
        targets: &[ExactlyOnceSink],
    ) -> Result<()> {
        while self.waiting.is_empty() && !self.is_at_end {
            self.log.read(&*parts.context.log).await?;
            self.is_at_end = self.log.is_at_end();
            while self.log.peek().is_some() {
                self.take(parts, router, targets).await?;
            }
            self.is_at_end |= self.log.state().offset_applied >= self.end;
        }
        Ok(())
    }

    /// Takes the next entry, and adds it to the groups if the partition applies it.
    async fn take(
        &mut self,
        parts: &SnapshotParts,
        router: &PartitionRouter,
        targets: &[ExactlyOnceSink],
    ) -> Result<()> {
        let Some(next) = self.log.peek().cloned() else { return Ok(()) };
        let entry = self.log.apply_next(&*parts.context.log, &parts.context.catalog).await?;
        let is_applied =
            entry.is_some_and(|AppliedEntry { effects, .. }| effects.skipped.is_none());
        let Some(entry) = next.entry.ok().filter(|_| is_applied) else { return Ok(()) };
        let append_time = entry.source.map_or(next.append_time, |source| source.append_time);
        let PartitionRef { partition, .. } = self.log.partition();
        let is_forwarded = |to: PartitionId, position| {
            let sent = targets.get(to.0 as usize).and_then(|target| target.sent(partition));
            sent.is_some_and(|sent| sent >= position)
        };
        let record_head = (next.offset, append_time, next.bytes);
        router.add(&mut self.waiting, partition, entry, record_head, is_forwarded)
    }
}

/// Checks that the logs hold all entries from these offsets.
///
/// # Errors
/// `Conflict` if a log was trimmed beyond its offset; else as the log.
pub(crate) async fn check_log_holds(
    parts: &SnapshotParts,
    logs: StoreLogs,
    start_offsets: &[Offset],
) -> Result<()> {
    for (at, start) in logs.all().zip(start_offsets) {
        if parts.context.log.bounds(at).await?.start > *start {
            let message = "the log was trimmed during the push; push again, or retain more of the \
                log (log_retention)";
            return Err(Error::conflict(message).with_partition(at.partition));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;
    use crate::repartition::fixture::{append_heartbeat, create_repartition, parts, users};

    #[tokio::test]
    async fn forwarder_refuses_only_logs_that_were_trimmed_before_forwarding() {
        let folder = tempfile::tempdir().unwrap();
        let parts = parts(&folder);
        let definition = create_repartition(&parts).await;
        let (logs, version) = (users().write_logs(), definition.versions.newest());
        let begin = async || Forwarder::begin(&parts, &definition, version).await.map(drop);
        begin().await.unwrap();
        for (at, start) in logs.all().zip([Offset(2), Offset(3)]) {
            parts.context.log.trim(at, start).await.unwrap();
        }
        begin().await.unwrap();
        let last = logs.at(PartitionId(1));
        parts.context.log.trim(last, Offset(4)).await.unwrap();
        let error = begin().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
        assert_eq!(error.context().partition, Some(last.partition));
        assert!(error.message().contains("log_retention"), "{error}");
    }

    #[tokio::test]
    async fn forwarder_leaves_entries_appended_during_a_round_to_the_next_round() {
        let folder = tempfile::tempdir().unwrap();
        let parts = parts(&folder);
        let definition = create_repartition(&parts).await;
        let version = definition.versions.newest();
        let mut forwarder = Forwarder::begin(&parts, &definition, version).await.unwrap();
        assert_eq!(forwarder.forward().await.unwrap(), 5 * 3);
        let at = forwarder.sources[0].log.partition();
        append_heartbeat(&parts, at).await;
        // The round goes on for as long as a source reads another group.
        let Forwarder { router, sources, targets, .. } = &mut forwarder;
        sources[0].read(&parts, router, targets).await.unwrap();
        assert!(sources[0].waiting.is_empty());
        assert_eq!(forwarder.forward().await.unwrap(), 3);
    }

    #[tokio::test]
    async fn overtaken_forwarder_ends_its_round_at_the_next_check() {
        let folder = tempfile::tempdir().unwrap();
        let parts = parts(&folder);
        let definition = create_repartition(&parts).await;
        let version = definition.versions.newest();
        let mut slow_forwarder = Forwarder::begin(&parts, &definition, version).await.unwrap();
        slow_forwarder.look_every = Duration::ZERO;
        let mut fast_forwarder = Forwarder::begin(&parts, &definition, version).await.unwrap();
        assert_eq!(fast_forwarder.forward().await.unwrap(), 5 * 3);
        let error = slow_forwarder.forward().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
        for at in version.logs.all() {
            let end = parts.context.log.bounds(at).await.unwrap().end;
            assert_eq!(end, Offset(5 + 5 + 1), "the fenced forwarder appends one entry");
        }
        let mut next_forwarder = Forwarder::begin(&parts, &definition, version).await.unwrap();
        assert_eq!(next_forwarder.forward().await.unwrap(), 0);
    }
}
