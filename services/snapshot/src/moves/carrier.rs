//! Forwards entries from a store's logs to the logs of a version of the same documents with another
//! number of partitions (`tools/docs/src/semantics.md`, section 2).
//!
//! Every forwarded entry names the last entry of its source that was forwarded before it, so a
//! partition applies each entry once, whichever process forwards it and however often. Entries of
//! all sources are forwarded in the order of their times.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::EntryBody;
use forebay_core::fold::{Blocked, Documents, PartitionState, Record, Schemas};
use forebay_core::id::{Offset, PartitionId, SchemaVersion, StoreId};
use forebay_core::schema::Definition;
use forebay_core::versions::{Carried, StoreLogs, StoreVersion};
use forebay_core::{Error, Result};
use forebay_log::{CopiedFrom, CopiedLog, LogRecord, ReadLimit, find_log_id};
use forebay_wire::entry::decode_entry;
use futures::future::try_join_all;

use super::group::{Carry, Group, Sorting};
use crate::keeper::SnapshotParts;

/// Limit of one read of a partition.
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

/// Forwarder to the logs of one version.
pub(crate) struct Carrier<'p> {
    parts: &'p SnapshotParts,
    store: StoreId,
    sorting: Sorting,
    sources: Vec<SourceLog>,
    targets: Vec<CopiedLog>,
}

/// A partition from which entries are forwarded.
struct SourceLog {
    /// Fold of the source's entries, which decides the entries that count.
    state: PartitionState,
    /// Groups that were read and not forwarded yet.
    waiting: VecDeque<Group>,
    /// Whether the log was read to its end.
    is_at_end: bool,
}

/// A lookup that finds no documents: the effect of an entry on documents does not matter here.
struct NoDocuments;

impl Documents for NoDocuments {
    fn row(&self, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

/// The definitions of a store in the catalog.
struct Known<'p>(&'p SnapshotParts, StoreId);

impl Schemas for Known<'_> {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        self.0.catalog.catalog().store(self.1).and_then(|history| history.at(version)).cloned()
    }
}

impl<'p> Carrier<'p> {
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
        let carried = version.carried.as_ref();
        let Carried { from, began } =
            carried.ok_or_else(|| Error::internal("the version has no source of a repartition"))?;
        holds_from(parts, *from, began).await?;
        let sources = began.iter().zip(from.all()).map(async |(began, at)| {
            let log_id = find_log_id(&*parts.log, at, parts.log.bounds(at).await?).await?;
            let state = PartitionState::new(at, from.partitions);
            let state = PartitionState { log_id, offset_applied: *began, ..state };
            Ok::<_, Error>(SourceLog { state, waiting: VecDeque::new(), is_at_end: false })
        });
        let targets = version.logs.all().map(|at| CopiedLog::find(&*parts.log, at));
        Ok(Self {
            parts,
            store: definition.versions.home(),
            sorting: Sorting {
                from: *from,
                to: version.logs.partitions,
                is_partitioned: definition.partition_key.is_some(),
            },
            sources: try_join_all(sources).await?,
            targets: try_join_all(targets).await?,
        })
    }

    /// Forwards all entries that the source logs hold; returns the number of entries appended to
    /// the new logs.
    ///
    /// # Errors
    /// `Unavailable` if another process forwards, too; else as the log. After an error the caller
    /// must begin again.
    pub(crate) async fn carry(&mut self) -> Result<u64> {
        let appended = self.carry_to_ends().await?;
        if appended > 0 {
            self.read_back().await?;
            if self.is_overtaken() {
                let message =
                    "another process forwards to the same log; the service checks its progress";
                return Err(Error::unavailable(message));
            }
        }
        Ok(appended)
    }

    /// Returns whether another process forwards entries within this time. Call it before this
    /// process forwards.
    ///
    /// # Errors
    /// As the log.
    pub(crate) async fn others_carry(&mut self, within: Duration) -> Result<bool> {
        tokio::time::sleep(within).await;
        self.read_back().await?;
        Ok(self.is_overtaken())
    }

    /// Returns whether the target logs hold entries that this process has not sent.
    fn is_overtaken(&self) -> bool {
        self.targets.iter().any(CopiedLog::is_overtaken)
    }

    async fn read_back(&mut self) -> Result<()> {
        let (parts, targets) = (self.parts, &mut self.targets);
        try_join_all(targets.iter_mut().map(|target| target.read_back(&*parts.log))).await?;
        Ok(())
    }

    async fn carry_to_ends(&mut self) -> Result<u64> {
        let mut appended = 0;
        self.sources.iter_mut().for_each(|source| source.is_at_end = false);
        loop {
            for place in 0..self.sources.len() {
                let source = &self.sources[place];
                if source.waiting.is_empty() && !source.is_at_end {
                    self.read(place).await?;
                }
            }
            let Some((from, group)) = self.next() else { return Ok(appended) };
            appended += self.send(from, group).await?;
        }
    }

    /// Returns, for each source partition, the offset after the last forwarded entry.
    pub(crate) fn carried(&self) -> impl Iterator<Item = (PartitionId, Offset)> {
        let states = self.sources.iter().map(|source| &source.state);
        states.map(|state| (state.partition.partition, state.offset_applied))
    }

    /// Returns the next group to forward: the oldest waiting one.
    fn next(&mut self) -> Option<(PartitionId, Group)> {
        let waiting = self.sources.iter_mut().filter(|source| !source.waiting.is_empty());
        let time = |source: &&mut SourceLog| source.waiting.front().map(|group| group.append_time);
        let source = waiting.min_by_key(time)?;
        Some((source.state.partition.partition, source.waiting.pop_front()?))
    }

    /// Reads a source partition until a group waits or the log ends.
    async fn read(&mut self, place: usize) -> Result<()> {
        loop {
            let SourceLog { state, waiting, .. } = &self.sources[place];
            if !waiting.is_empty() {
                return Ok(());
            }
            let read = self.parts.log.read(state.partition, state.offset_applied, READ).await?;
            if read.records.is_empty() {
                self.sources[place].is_at_end = true;
                return Ok(());
            }
            for record in read.records {
                self.take(place, record).await?;
            }
        }
    }

    /// Adds a record of a source partition, if the partition applies it.
    async fn take(&mut self, place: usize, record: LogRecord) -> Result<()> {
        let LogRecord { offset, append_time, entry: bytes } = record;
        let decoded = decode_entry(&bytes);
        let entry = decoded.as_ref().ok().cloned();
        let SourceLog { state, waiting, .. } = &mut self.sources[place];
        let partition = state.partition.partition;
        let mut record = Record { offset, append_time, entry: decoded };
        let known = Known(self.parts, self.store);
        let applied = loop {
            let version = match state.apply(record, &NoDocuments, &known) {
                Ok(applied) => break applied,
                Err(Blocked::NeedsDefinition(version)) => version,
                Err(blocked) => return Err(blocked.into_error(unknown)),
            };
            self.parts.catch_up().await?;
            let again = entry.clone().filter(|_| known.at(version).is_some());
            let entry = Ok(again.ok_or_else(|| unknown(version))?);
            record = Record { offset, append_time, entry };
        };
        let Some(entry) = entry.filter(|_| applied.skipped.is_none()) else { return Ok(()) };
        let append_time = entry.source.map_or(append_time, |source| source.append_time);
        let about = (offset, append_time, bytes.len());
        let targets = &self.targets;
        let has_come = |to: PartitionId, position| {
            let sent = targets.get(to.0 as usize).and_then(|target| target.sent(partition));
            sent.is_some_and(|sent| sent >= position)
        };
        self.sorting.add(waiting, partition, entry, about, has_come)
    }

    /// Appends a group's entries to their partitions, unless they were appended before; returns the
    /// number of appends.
    async fn send(&mut self, from: PartitionId, group: Group) -> Result<u64> {
        let Group { append_time, schema_version, position, carry, .. } = group;
        let from = CopiedFrom { partition: from, position, append_time };
        let (log, targets) = (&*self.parts.log, &mut self.targets);
        let appends = match carry {
            Carry::All(body) => {
                let all =
                    targets.iter_mut().map(|it| it.send(log, from, schema_version, body.clone()));
                try_join_all(all).await?
            }
            Carry::Changes(mut sorted) => {
                let some = targets.iter_mut().filter_map(|it| {
                    let body = EntryBody::Changes(sorted.remove(&it.partition().partition)?);
                    Some(it.send(log, from, schema_version, body))
                });
                try_join_all(some).await?
            }
        };
        Ok(appends.into_iter().filter(|is_appended| *is_appended).count() as u64)
    }
}

/// Checks that the logs hold all entries from these offsets.
///
/// # Errors
/// `Conflict` if a log was trimmed beyond its offset; else as the log.
pub(crate) async fn holds_from(
    parts: &SnapshotParts,
    logs: StoreLogs,
    began: &[Offset],
) -> Result<()> {
    for (at, began) in logs.all().zip(began) {
        if parts.log.bounds(at).await?.start > *began {
            let message = "the log was trimmed during the push; push again, or retain more of the \
                log (log_window)";
            return Err(Error::conflict(message).with_partition(at.partition));
        }
    }
    Ok(())
}

fn unknown(version: SchemaVersion) -> Error {
    Error::unavailable(format!("definition {version} is not known yet; try again"))
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::clock::SystemClock;
    use forebay_core::entropy::SystemEntropy;
    use forebay_core::id::PartitionCount;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use forebay_log::{Alone, CatalogFollower, MemoryLog, open_log};
    use forebay_snapshot::SnapshotStore;

    use super::*;
    use crate::define::append;
    use crate::keeper::SnapshotOptions;

    fn parts(folder: &tempfile::TempDir) -> SnapshotParts {
        let snapshots = format!("file://{}", folder.path().display());
        SnapshotParts {
            log: Arc::new(MemoryLog::new(Arc::new(SystemClock))),
            catalog: Arc::new(CatalogFollower::standing(Default::default())),
            entropy: Arc::new(SystemEntropy),
            membership: Arc::new(Alone::default()),
            replicators: Arc::new(String::new()),
            snapshots: SnapshotStore::open(&snapshots).unwrap(),
            options: SnapshotOptions::new(Duration::from_secs(60), 1).unwrap(),
        }
    }

    #[tokio::test]
    async fn what_was_trimmed_before_it_was_carried_is_a_conflict_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let parts = parts(&folder);
        let first = StoreSpec::documents("users", KeyType::Int64, 2).define(StoreId(1)).unwrap();
        let began = vec![Offset(2), Offset(3)];
        let moved = first.with_moved_version(StoreId(8), PartitionCount(3), began).unwrap();
        let version = moved.versions.newest();
        for logs in [first.written(), version.logs] {
            parts.log.create(logs.store, logs.partitions).await.unwrap();
            for at in logs.all() {
                let log_id = open_log(&*parts.log, &*parts.entropy, at).await.unwrap();
                for _ in 0..4 {
                    let beat = EntryBody::Heartbeat;
                    append(&parts, at, log_id, SchemaVersion(1), beat).await.unwrap();
                }
            }
        }
        let begin = async || Carrier::begin(&parts, &moved, version).await.map(drop);
        begin().await.unwrap();
        for (at, began) in first.written().all().zip([Offset(2), Offset(3)]) {
            parts.log.trim(at, began).await.unwrap();
        }
        begin().await.unwrap();
        let last = first.written().at(PartitionId(1));
        parts.log.trim(last, Offset(4)).await.unwrap();
        let error = begin().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
        assert_eq!(error.context().partition, Some(last.partition));
        assert!(error.message().contains("log_window"), "{error}");
    }
}
