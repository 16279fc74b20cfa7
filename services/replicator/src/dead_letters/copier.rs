//! The copier of one store: appends the records that the replica skipped to the dead-letter log, in
//! order, and never twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::dead_letter::{DeadLetter, LastLetter};
use forebay_core::entropy::Entropy;
use forebay_core::id::{
    Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId,
};
use forebay_core::limits::{
    DEAD_LETTER_RECORDS_KEPT, DEAD_LETTERS_BACKOFF_MS_MAX, DEAD_LETTERS_BACKOFF_MS_MIN,
};
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_entries::{find_log_id, open_log};
use forebay_log::ChangeLog;
use forebay_replica::SkippedLogRecord;
use forebay_wire::entry::{decode_entry, encode_entry};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::backlog::Backlog;
use super::letter_log::{DeadLetterTail, bounds, read_back};
use crate::document_shards::DocumentShards;
use crate::parts::ReplicatorParts;

/// Copier of the dead letters of one store.
pub(crate) struct Copier {
    log: Arc<dyn ChangeLog>,
    entropy: Arc<dyn Entropy>,
    home: StoreId,
    /// Reserved id of the store's dead-letter log.
    letters: StoreId,
    partitions: PartitionCount,
    backlog: Arc<Backlog>,
    /// Notified when the replica must be reopened.
    reopen: Arc<Notify>,
    /// Shards that store the skipped records until their letters are durable.
    shards: Option<DocumentShards>,
    /// Cached state of each partition's dead-letter log; discarded after any failed append.
    tails: BTreeMap<PartitionId, DeadLetterTail>,
}

impl Copier {
    /// Creates the copier of a store, with the reserved id of its dead-letter log.
    pub(crate) fn new(
        parts: &ReplicatorParts,
        definition: &Definition,
        letters: StoreId,
        backlog: Arc<Backlog>,
        reopen: Arc<Notify>,
        shards: Option<DocumentShards>,
    ) -> Self {
        Self {
            log: Arc::clone(&parts.context.log),
            entropy: Arc::clone(&parts.context.entropy),
            home: definition.logs().store,
            letters,
            partitions: definition.partitions,
            backlog,
            reopen,
            shards,
            tails: BTreeMap::new(),
        }
    }

    /// Returns the queue from which it copies.
    pub(crate) fn backlog(&self) -> &Arc<Backlog> {
        &self.backlog
    }

    /// Reads how far an earlier copier got in these partitions, so that copied records never wait
    /// again. Call it before the replica is opened.
    ///
    /// # Errors
    /// As the log's reads.
    pub(crate) async fn read_back(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<()> {
        for partition in partitions.iter().copied() {
            let at = PartitionRef { store: self.letters, partition };
            // The logs of all partitions are created together.
            let Some(tail) = read_back(&*self.log, at).await? else { return Ok(()) };
            self.backlog.note_last(partition, tail.last);
            self.tails.insert(partition, tail);
        }
        Ok(())
    }

    /// Copies waiting letters until the task is aborted.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(
            Duration::from_millis(DEAD_LETTERS_BACKOFF_MS_MIN),
            Duration::from_millis(DEAD_LETTERS_BACKOFF_MS_MAX),
        );
        loop {
            let Some(group) = self.backlog.next_group() else {
                if self.backlog.must_reopen() {
                    self.reopen.notify_one();
                }
                self.backlog.await_arrival().await;
                continue;
            };
            let Some(partition) = group.first().map(|first| first.at.partition) else { continue };
            match self.copy(partition, &group).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    self.tails.remove(&partition);
                    self.backlog.note_error();
                    warn!(store = %self.home, %partition, %error, "dead letters delayed");
                    tokio::time::sleep(backoff.next_wait(&*self.entropy)).await;
                }
            }
        }
    }

    /// Copies the first waiting letters, except those that were copied before.
    async fn copy(&mut self, partition: PartitionId, group: &[SkippedLogRecord]) -> Result<()> {
        let home_log = self.home_log(partition, group).await?;
        let tail = self.tail(partition).await?;
        let is_new = |skipped: &&SkippedLogRecord| {
            !tail.last.is_some_and(|last| last.covers(home_log, skipped.offset))
        };
        let letters: Vec<_> =
            group.iter().filter(is_new).map(|skipped| letter(home_log, skipped)).collect();
        let copied = letters.len() as u64;
        if let Some(last) = letters.last() {
            let last = LastLetter { home_log, offset: last.offset };
            self.append(partition, tail, letters).await?;
            self.backlog.note_last(partition, Some(last));
            info!(store = %self.home, %partition, copied, "dead letters copied");
        }
        self.backlog.remove_group(partition, group.len(), copied);
        if let Some((shards, last)) = self.shards.as_ref().zip(group.last()) {
            shards.forget_skipped(partition, last.offset);
        }
        Ok(())
    }

    /// Returns the id of the log in which the letters were skipped.
    async fn home_log(&self, partition: PartitionId, group: &[SkippedLogRecord]) -> Result<LogId> {
        if let Some(log_id) = group.first().and_then(|first| first.log_id) {
            return Ok(log_id);
        }
        // The letters precede the first well-formed entry.
        let at = PartitionRef { store: self.home, partition };
        let found = find_log_id(&*self.log, at, self.log.bounds(at).await?).await?;
        found.ok_or_else(|| Error::unavailable("the home log has no well-formed entry yet"))
    }

    async fn tail(&mut self, partition: PartitionId) -> Result<DeadLetterTail> {
        if let Some(tail) = self.tails.get(&partition) {
            return Ok(*tail);
        }
        let at = PartitionRef { store: self.letters, partition };
        if bounds(&*self.log, at).await?.is_none() {
            self.log.create(self.letters, self.partitions).await?;
        }
        open_log(&*self.log, &*self.entropy, at).await?;
        let found = read_back(&*self.log, at).await?;
        let missing = || Error::unavailable("the dead-letter log does not exist yet; try again");
        let tail = found.filter(|tail| tail.log_id.is_some()).ok_or_else(missing)?;
        self.tails.insert(partition, tail);
        Ok(tail)
    }

    async fn append(
        &mut self,
        partition: PartitionId,
        tail: DeadLetterTail,
        letters: Vec<DeadLetter>,
    ) -> Result<()> {
        let at = PartitionRef { store: self.letters, partition };
        let log_id =
            tail.log_id.ok_or_else(|| Error::internal("the dead-letter log has no log id"))?;
        let last = letters
            .last()
            .map(|letter| LastLetter { home_log: letter.home_log, offset: letter.offset });
        let entry = self.entry(log_id, EntryBody::DeadLetters(letters))?;
        let receipt = self.log.append(at, entry).await?;
        let start = self.trim(at, tail.start, receipt.offset.next()).await;
        self.tails.insert(partition, DeadLetterTail { last, start, ..tail });
        Ok(())
    }

    /// Trims old records once the log holds twice the retained number; returns the resulting start
    /// of the log.
    async fn trim(&self, at: PartitionRef, start: Offset, end: Offset) -> Offset {
        if end.0.saturating_sub(start.0) <= 2 * DEAD_LETTER_RECORDS_KEPT {
            return start;
        }
        let before = Offset(end.0 - DEAD_LETTER_RECORDS_KEPT);
        if let Err(error) = self.log.trim(at, before).await {
            // Untrimmed records only take space; the next attempt follows after as many more
            // records.
            debug!(partition = %at, %error, "dead letters not trimmed");
        }
        before
    }

    fn entry(&self, log_id: LogId, body: EntryBody) -> Result<bytes::Bytes> {
        encode_entry(&Entry::original(log_id, SchemaVersion(0), body))
    }
}

fn letter(home_log: LogId, skipped: &SkippedLogRecord) -> DeadLetter {
    let epoch = decode_entry(&skipped.entry).map_or(Epoch(0), |entry| entry.epoch);
    DeadLetter {
        home_log,
        epoch,
        offset: skipped.offset,
        append_time: skipped.append_time,
        reason: skipped.reason.clone(),
        entry: DeadLetter::held(&skipped.entry).to_vec(),
        entry_bytes: skipped.entry.len() as u64,
    }
}
