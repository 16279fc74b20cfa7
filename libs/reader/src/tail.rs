//! The tail of one partition: the task that reads the partition's log, applies the entries and
//! publishes the progress. The tail is the only writer of its partition; all other tasks read what
//! it publishes.
//!
//! A session is one period of following the log. Four events end a session:
//!
//! - *retry*: the log failed; the tail waits and connects again;
//! - *rebuild*: the replica cannot continue with this log; the tail builds another one next to it;
//! - *halt*: an entry is newer than this build; the tail stops;
//! - *poison*: an invariant broke; the tail stops reads of the replica and builds another one.

mod beginning;

use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::change::Entry;
use forebay_core::clock::Timestamp;
use forebay_core::fold::Record;
use forebay_core::id::{LogId, Offset, SchemaVersion};
use forebay_core::limits::{
    CHECKPOINT_CLOSE_MS, CHECKPOINT_FILES_MAX, READER_BACKOFF_MS_MAX, READER_BACKOFF_MS_MIN,
    READER_CLOCK_CHECK_MS, READER_CLOCK_CHECK_SOON_MS, READER_CLOCK_EXCHANGE_SLOW_US,
    READER_DEFINITION_WAIT_MS, READER_LEAVE_WAIT_MS, READER_POISONED_COPIES_MAX,
    READER_READ_WAIT_MS,
};
use forebay_core::outcome::Outcome;
use forebay_core::state_rows::SkippedRecord;
use forebay_core::{Error, ErrorCode, Result};
use forebay_log::LogRecord;
use forebay_snapshot::in_place;
use forebay_wire::entry::decode_entry;
use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::age::clock_error_us;
use crate::callback::{call_back, panic_text};
use crate::checkpoint::{Checkpoints, due};
use crate::closing::Running;
use crate::connect::{Connected, check_continues, connect, read, read_one};
use crate::generation::{Generation, Step, Stop};
use crate::options::Skipped;
use crate::partition::Partition;
use crate::progress::{Counts, Phase, Progress};
use crate::shared::Shared;
use crate::storage::OpenedCopy;
use crate::wait::barrier_entry;

/// The event that ended a session.
enum Pause {
    /// The log or another external part failed: try again.
    Retry(Error),
    /// The replica cannot continue with this log.
    Rebuild(Error),
    /// An entry is newer than this build.
    Halt(Error),
    /// An invariant broke.
    Poison(Error),
}

/// The tail: follows one partition until the reader closes.
pub(crate) struct Tail {
    shared: Arc<Shared>,
    partition: Arc<Partition>,
    /// Replica that follows the log; an older one may still serve next to it.
    following: Generation,
    backoff: Backoff,
    counts: Counts,
    poisoned: u32,
    /// Whether the log does not report its time, so that a barrier must measure the clock.
    needs_barrier_clock: bool,
    /// Whether this run measured the clock error; the clock error of a checkpoint is from an
    /// earlier run.
    is_clock_measured: bool,
    /// Duration of the exchange that measured the clock error, in microseconds.
    clock_exchange_us: i64,
    checkpoints: Option<Checkpoints>,
    /// Number of failed attempts to find a snapshot or shard that the replica can start from.
    begin_attempts: u32,
    /// Records that the replica skipped before it was opened here, and that the callback has not
    /// received.
    skipped_before: BTreeMap<Offset, SkippedRecord>,
    /// Maintenance of the replica's memory, which runs next to the tail.
    upkeep: Option<JoinHandle<()>>,
    /// Time of the last failure, for lack of space, to detach from another version's records.
    leave_failed: Option<Timestamp>,
    /// The registration is dropped after everything above, including the lock of the checkpoints'
    /// directory.
    _running: Running,
}

impl Tail {
    pub(crate) fn new(
        shared: Arc<Shared>,
        partition: Arc<Partition>,
        checkpoints: Option<Checkpoints>,
    ) -> Result<Self> {
        let OpenedCopy { writer, resumed, outcomes, skipped } =
            shared.storage.open(partition.at)?;
        let following = match resumed {
            Some(resumed) => Generation::resumed(writer, resumed),
            None => Generation::first(partition.at, shared.count, writer),
        };
        partition.replace_outcomes(outcomes);
        let running = shared.closing.enter();
        let tail = Self::of(shared, partition, checkpoints, following, running);
        Ok(Self { skipped_before: skipped, ..tail })
    }

    /// Returns the tail of a shared copy that this reader owns from now on.
    pub(crate) fn of_copy(
        shared: Arc<Shared>,
        partition: Arc<Partition>,
        kept: Checkpoints,
        copy: Generation,
        running: Running,
    ) -> Self {
        Self::of(shared, partition, Some(kept), copy, running)
    }

    fn of(
        shared: Arc<Shared>,
        partition: Arc<Partition>,
        checkpoints: Option<Checkpoints>,
        mut following: Generation,
        running: Running,
    ) -> Self {
        following.set_beside(shared.beside);
        Self {
            shared,
            partition,
            following,
            backoff: reader_backoff(),
            counts: Counts::default(),
            poisoned: 0,
            needs_barrier_clock: false,
            is_clock_measured: false,
            clock_exchange_us: 0,
            checkpoints,
            begin_attempts: 0,
            skipped_before: BTreeMap::new(),
            upkeep: None,
            leave_failed: None,
            _running: running,
        }
    }

    /// Follows the log until the reader closes or the partition halts, and then writes a last
    /// checkpoint. The replica advances only between two awaits, so it is whole wherever the close
    /// interrupts the tail.
    pub(crate) async fn run(mut self) {
        let closing = Arc::clone(&self.shared.closing);
        tokio::select! {
            biased;
            () = closing.closed() => {}
            () = self.follow() => {}
        }
        if !self.shared.is_gone.load(Ordering::Relaxed) {
            self.checkpoint(Some(Duration::from_millis(CHECKPOINT_CLOSE_MS)));
        }
        // The drop closes the replica. For a shard that means a flush to disk, which blocks.
        in_place(|| drop(self));
    }

    async fn follow(&mut self) {
        if let Err(panic) = AssertUnwindSafe(self.restore()).catch_unwind().await {
            self.rebuild(panicked(panic.as_ref())).await;
        }
        loop {
            let session = AssertUnwindSafe(self.session()).catch_unwind().await;
            let pause = match session {
                Ok(Err(pause)) => pause,
                Ok(Ok(never)) => match never {},
                Err(panic) => Pause::Poison(panicked(panic.as_ref())),
            };
            match pause {
                Pause::Retry(error) => self.note_trouble(error),
                Pause::Rebuild(reason) => self.rebuild(reason).await,
                Pause::Halt(error) => return self.halt(error),
                Pause::Poison(error) => {
                    self.poisoned += 1;
                    if self.poisoned > READER_POISONED_COPIES_MAX {
                        self.poison(&error);
                        return self.halt(error);
                    }
                    self.poison(&error);
                    self.rebuild(error).await;
                }
            }
            tokio::time::sleep(self.backoff.next_wait(&*self.shared.parts.entropy)).await;
        }
    }

    async fn session(&mut self) -> Result<Infallible, Pause> {
        self.connect().await?;
        self.tell_skipped_before().await?;
        self.following.write_waiting().map_err(|stop| self.pause(stop))?;
        let mut clock_check = self.next_clock_check();
        self.keep_up();
        loop {
            // Batch reads and scans that hit a damaged block do not notify the tail, so check for
            // damage on every iteration.
            self.following.writer().check_sound().map_err(Pause::Rebuild)?;
            self.note_mended();
            self.stand_alone();
            let (shared, partition) = (Arc::clone(&self.shared), Arc::clone(&self.partition));
            let wait_max = Duration::from_millis(READER_READ_WAIT_MS);
            let from = self.following.state().offset_applied;
            let records = tokio::select! {
                biased;
                () = partition.board.asked() => {
                    self.connect().await?;
                    if !self.needs_barrier_clock {
                        // The connect measured the clock as well.
                        clock_check = self.next_clock_check();
                    }
                    continue;
                }
                () = &mut clock_check => {
                    self.connect().await?;
                    self.measure_by_barrier().await;
                    clock_check = self.next_clock_check();
                    continue;
                }
                () = due(&mut self.checkpoints) => {
                    self.checkpoint_due();
                    continue;
                }
                () = partition.at_rest.asked() => {
                    in_place(|| partition.at_rest.run(&self.following));
                    continue;
                }
                records = read(&*shared.parts.log, partition.at, from, wait_max) => records,
            };
            let records = records.map_err(Pause::Retry)?;
            self.apply(&records.records).await?;
            self.backoff.reset();
            self.publish(|progress| progress.end = records.end);
            self.keep_up();
            if !self.is_clock_measured {
                self.measure_by_barrier().await;
                clock_check = self.next_clock_check();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Starts the pending maintenance of the replica's memory, unless some is running. The
    /// maintenance continues until nothing is left to do, because the next record may be far away.
    fn keep_up(&mut self) {
        if self.upkeep.as_ref().is_none_or(JoinHandle::is_finished) {
            let upkeep = self.following.writer().upkeep();
            let closing = Arc::clone(&self.shared.closing);
            self.upkeep = upkeep.map(|upkeep| {
                tokio::task::spawn_blocking(
                    move || while closing.check().is_ok() && upkeep.run() {},
                )
            });
        }
    }

    /// Copies all records that this replica shares with another version, if requested. Only one
    /// partition does so at a time. The tail applies no entries during the copy.
    fn stand_alone(&mut self) {
        if !self.shared.stands_alone.load(Ordering::Relaxed) || !self.following.is_borrowing() {
            return;
        }
        let (shared, now) = (Arc::clone(&self.shared), self.shared.parts.clock.now());
        let rest_us = READER_LEAVE_WAIT_MS * 1_000;
        let is_soon = |tried: Timestamp| now.micros_since(tried).unsigned_abs() < rest_us;
        let Some(_turn) = shared.leaving.try_lock() else { return };
        if self.leave_failed.is_some_and(is_soon) {
            return;
        }
        match in_place(|| self.following.stand_alone()) {
            Ok(()) => {
                let (at, name) = (self.partition.at, &shared.name);
                tracing::info!(store = %name, partition = %at.partition, "record sharing ended");
            }
            Err(error) => {
                self.leave_failed = Some(now);
                self.note_trouble(error);
            }
        }
    }

    /// Checks that the replica follows this log, and measures the log's clock.
    async fn connect(&mut self) -> Result<(), Pause> {
        // A read that finds damage requests this check.
        self.following.writer().check_sound().map_err(Pause::Rebuild)?;
        self.note_mended();
        let asked = self.partition.board.checks_asked();
        let parts = &self.shared.parts;
        let connected = connect(&*parts.log, self.partition.at, &*parts.clock).await;
        let mut connected = connected.map_err(Pause::Retry)?;
        if self.following.is_empty() && self.begin(&connected).await? {
            // The start took time, and the log has advanced.
            let (at, parts) = (self.partition.at, &self.shared.parts);
            let again = connect(&*parts.log, at, &*parts.clock).await;
            connected = again.map_err(Pause::Retry)?;
        }
        self.note_clock(&connected);
        let continues = if self.following.is_empty() {
            Ok(())
        } else {
            check_continues(&connected, self.following.state()).map_err(Pause::Rebuild)
        };
        let continues = match continues {
            Ok(()) => self.following.open(connected.bounds).map_err(Pause::Retry),
            rebuild => rebuild,
        };
        self.publish(|progress| {
            progress.end = connected.bounds.end;
            progress.checked = asked;
            progress.checked_log_id = connected.log_id;
        });
        continues
    }

    fn note_clock(&mut self, connected: &Connected) {
        self.needs_barrier_clock = connected.clock_error_us.is_none();
        if let Some(micros) = connected.clock_error_us {
            self.set_clock_error(micros, connected.exchange_us);
        }
    }

    /// Returns the timer of the next clock measurement: soon if the last exchange was slow, as
    /// exchanges in an outage are, and therefore imprecise.
    fn next_clock_check(&self) -> Pin<Box<Sleep>> {
        let was_slow = self.clock_exchange_us > READER_CLOCK_EXCHANGE_SLOW_US;
        let wait_ms = if was_slow { READER_CLOCK_CHECK_SOON_MS } else { READER_CLOCK_CHECK_MS };
        Box::pin(tokio::time::sleep(Duration::from_millis(wait_ms)))
    }

    fn set_clock_error(&mut self, micros: i64, exchange_us: i64) {
        self.clock_exchange_us = exchange_us;
        self.partition.board.set_clock_error(micros);
        self.following.note_clock_error(micros);
        self.is_clock_measured = true;
    }

    /// Measures the clock error by the append time of a barrier, if the log does not report its
    /// time. A failure leaves the error as it was, known or unknown.
    async fn measure_by_barrier(&mut self) {
        let state = self.following.state();
        let Some(log_id) = state.log_id.filter(|_| self.needs_barrier_clock) else { return };
        let barrier = barrier_entry(log_id, state.position, state.schema_version);
        let parts = &self.shared.parts;
        let before = parts.clock.now();
        match self.shared.append_barrier(self.partition.at, &barrier).await {
            Ok(appended) => {
                let after = parts.clock.now();
                let micros = clock_error_us(before, appended.append_time, after);
                self.set_clock_error(micros, after.micros_since(before));
            }
            Err(error) => tracing::debug!(
                store = %self.shared.name, partition = %self.partition.at.partition, %error,
                "clock error not measured"
            ),
        }
    }

    /// Applies records in order. Before the first record of another log id, the tail queries the
    /// log's id: if the log was replaced, later records with the replica's id (such as the reader's
    /// own barriers) do not belong to the replica's log.
    async fn apply(&mut self, records: &[LogRecord]) -> Result<(), Pause> {
        let applied = self.apply_each(records).await;
        // Flush the records before the failing one. If the flush fails permanently, report that
        // error: otherwise the tail would keep following with a replica that can no longer write.
        let settled = self.settle();
        settled.and(applied)
    }

    async fn apply_each(&mut self, records: &[LogRecord]) -> Result<(), Pause> {
        let mut is_checked = false;
        for record in records {
            let (record, entry) = self.decode(record.clone()).await?;
            if !is_checked && self.is_suspect(&entry) {
                self.settle()?;
                self.connect().await?;
                is_checked = true;
            }
            self.apply_one(record, entry).await?;
        }
        Ok(())
    }

    /// Decodes a record. Reads a damaged record once more, because the damage may have happened in
    /// transit.
    async fn decode(&self, record: LogRecord) -> Result<(LogRecord, Result<Entry>), Pause> {
        let entry = decode_entry(&record.entry);
        if !entry.as_ref().is_err_and(|error| error.code() == ErrorCode::Corrupt) {
            return Ok((record, entry));
        }
        let log = &*self.shared.parts.log;
        let again = read_one(log, self.partition.at, record.offset).await;
        let record = again.map_err(Pause::Retry)?.unwrap_or(record);
        let entry = decode_entry(&record.entry);
        Ok((record, entry))
    }

    fn is_suspect(&self, entry: &Result<Entry>) -> bool {
        let Some(ours) = self.following.state().log_id else { return false };
        match entry {
            Ok(entry) => entry.log_id != ours,
            Err(error) => error.code() == ErrorCode::UpgradeNeeded,
        }
    }

    async fn apply_one(&mut self, record: LogRecord, entry: Result<Entry>) -> Result<(), Pause> {
        let outcome = match self.fold(&record, entry) {
            Err(Stop::NeedsDefinition(version)) => {
                self.settle()?;
                self.fetch_definition(version).await?;
                self.fold(&record, decode_entry(&record.entry))
            }
            outcome => outcome,
        };
        let step = outcome.map_err(|stop| self.pause(stop))?;
        self.counts.read_bytes += record.entry.len() as u64;
        self.counts.repeats += step.repeats;
        self.counts.too_large += step.too_large;
        match step.skipped {
            None => self.counts.applied += 1,
            Some(reason) => self.note_skipped(record, reason),
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Pause> {
        self.following.settle().map_err(|stop| self.pause(stop))
    }

    fn pause(&self, stop: Stop) -> Pause {
        match stop {
            Stop::NeedsDefinition(version) => Pause::Retry(unknown_definition(version)),
            Stop::UpgradeNeeded(error) => Pause::Halt(error),
            Stop::Full(error) => Pause::Retry(error),
            Stop::NeedsRoom(error) => Pause::Rebuild(error),
            Stop::Broken(error) => match self.following.writer().check_sound() {
                Ok(()) => Pause::Poison(error),
                Err(damage) => Pause::Rebuild(damage),
            },
        }
    }

    fn fold(&mut self, record: &LogRecord, entry: Result<Entry>) -> Result<Step, Stop> {
        let partition = &self.partition;
        let keep = |outcomes: &[Outcome]| partition.keep_outcomes(outcomes);
        let fold = Record { offset: record.offset, append_time: record.append_time, entry };
        self.following.apply(fold, self.shared.storage.schemas(), keep)
    }

    fn note_skipped(&mut self, record: LogRecord, reason: Error) {
        self.counts.skipped += 1;
        let (at, offset) = (self.partition.at, record.offset);
        tracing::warn!(
            store = %self.shared.name, partition = %at.partition, %offset, %reason,
            "record skipped by every replica"
        );
        self.tell_skipped(record, self.following.state().log_id, reason);
    }

    /// Reports the records that were skipped before the replica was opened here, if the log still
    /// holds them.
    async fn tell_skipped_before(&mut self) -> Result<(), Pause> {
        if self.shared.parts.on_skipped.is_none() {
            self.skipped_before.clear();
        }
        while let Some((offset, _)) = self.skipped_before.first_key_value() {
            let log = &*self.shared.parts.log;
            let record = match read_one(log, self.partition.at, *offset).await {
                // Retention has removed the record since.
                Err(error) if error.code() == ErrorCode::TokenLost => None,
                record => record.map_err(Pause::Retry)?,
            };
            let skipped = self.skipped_before.pop_first();
            if let Some((record, (_, SkippedRecord { log_id, reason }))) = record.zip(skipped) {
                self.tell_skipped(record, log_id, reason);
            }
        }
        Ok(())
    }

    fn tell_skipped(&self, record: LogRecord, log_id: Option<LogId>, reason: Error) {
        let Some(on_skipped) = &self.shared.parts.on_skipped else { return };
        let (at, offset) = (self.partition.at, record.offset);
        let (append_time, entry) = (record.append_time, record.entry);
        let skipped = Skipped { at, offset, log_id, append_time, entry, reason };
        call_back("on_skipped", || on_skipped(&skipped));
    }

    async fn fetch_definition(&mut self, version: SchemaVersion) -> Result<(), Pause> {
        if self.shared.learn_definitions(version).map_err(Pause::Retry)? {
            return Ok(());
        }
        self.publish(|progress| progress.trouble = Some(unknown_definition(version)));
        let wait_max = Duration::from_millis(READER_DEFINITION_WAIT_MS);
        self.shared.await_definition(version, wait_max).await.map_err(Pause::Retry)
    }

    fn note_trouble(&mut self, error: Error) {
        self.counts.log_errors += 1;
        let (at, name) = (self.partition.at, &self.shared.name);
        if self.partition.board.picture().trouble.as_ref() != Some(&error) {
            tracing::warn!(store = %name, partition = %at.partition, %error, "log tail stalled");
        }
        self.publish(|progress| progress.trouble = Some(error));
    }

    /// Starts a new replica from the log's start; the serving one stays next to it. If there is no
    /// space for a second replica, the tail retries until there is, unless the rebuild itself
    /// serves to free space: then the old replica may be the first to find some.
    async fn rebuild(&mut self, reason: Error) {
        let is_for_room = reason.code() == ErrorCode::LimitExceeded;
        let is_damage = reason.code() == ErrorCode::Corrupt;
        if is_damage && self.checkpoints.as_mut().is_some_and(Checkpoints::drop_damaged) {
            self.counts.checkpoints.damaged += 1;
        }
        while let Err(error) = in_place(|| self.following.start_over(reason.clone())) {
            self.note_trouble(error);
            if is_for_room {
                return;
            }
            tokio::time::sleep(self.backoff.next_wait(&*self.shared.parts.entropy)).await;
        }
        let (at, name) = (self.partition.at, &self.shared.name);
        tracing::warn!(store = %name, partition = %at.partition, %reason, "building a new copy");
        self.counts.rebuilds += 1;
        self.publish(|_| {});
    }

    fn poison(&mut self, error: &Error) {
        let (at, name) = (self.partition.at, &self.shared.name);
        tracing::error!(store = %name, partition = %at.partition, %error, "invariant broken");
        self.following.mark_broken();
        if self.following.is_served() {
            self.following.poison();
            self.partition.board.publish(|progress| progress.phase = Phase::Poisoned);
        }
    }

    fn halt(&mut self, error: Error) {
        let (at, name) = (self.partition.at, &self.shared.name);
        tracing::error!(store = %name, partition = %at.partition, %error, "partition halted");
        self.publish(|progress| progress.halted = Some(error));
    }

    /// Restores the replica from the newest usable checkpoint, if there is one.
    async fn restore(&mut self) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let mut files = match in_place(|| checkpoints.files()) {
            Ok(files) => files,
            Err(error) => return self.note_ignored(&error),
        };
        if self.following.is_opened() {
            // Another reader owned the copy until now, and it is further than any checkpoint.
            self.counts.checkpoints.restored += 1;
            let clock_error_us = self.following.clock_error_us();
            clock_error_us
                .into_iter()
                .for_each(|micros| self.partition.board.set_clock_error(micros));
            return self.publish(|_| {});
        }
        files.truncate(CHECKPOINT_FILES_MAX);
        for file in files {
            match self.restore_from(&file).await {
                Ok(()) => {
                    self.counts.checkpoints.restored += 1;
                    self.note_mended();
                    return self.publish(|_| {});
                }
                Err(error) => self.note_ignored(&error),
            }
        }
    }

    async fn restore_from(&mut self, file: &Path) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let (image, head) = in_place(|| checkpoints.open(file, self.following.state()))?;
        let version = head.state.schema_version;
        if version != SchemaVersion(0) && !self.shared.learn_definitions(version)? {
            let wait_max = Duration::from_millis(READER_DEFINITION_WAIT_MS);
            if let Err(error) = self.shared.await_definition(version, wait_max).await {
                // The checkpoint is sound, and becomes usable once its definition is known.
                let (log_id, offset) = (head.state.log_id, head.state.offset_applied);
                self.checkpoints.iter_mut().for_each(|kept| kept.keep_from(log_id, offset));
                return Err(error);
            }
        }
        let clock_error_us = head.clock_error_us;
        in_place(|| self.following.restore(head, &image))?;
        let following = &self.following;
        self.checkpoints.iter_mut().for_each(|kept| kept.note_restored(following, file));
        if let Some(micros) = clock_error_us {
            self.partition.board.set_clock_error(micros);
        }
        Ok(())
    }

    /// Counts the blocks of the checkpoint that were repaired since the last call: the replica is
    /// correct, but the file and the disk under it are suspect.
    fn note_mended(&mut self) {
        let blocks = self.following.take_blocks_mended();
        if blocks == 0 {
            return;
        }
        self.counts.checkpoints.blocks_mended += blocks;
        self.checkpoints.iter_mut().for_each(Checkpoints::note_mended);
        let (at, name) = (self.partition.at, &self.shared.name);
        tracing::warn!(
            store = %name, partition = %at.partition, blocks,
            "checkpoint blocks repaired; look at the disk"
        );
        self.publish(|_| {});
    }

    fn note_ignored(&mut self, error: &Error) {
        match error.code() {
            ErrorCode::Corrupt => self.counts.checkpoints.damaged += 1,
            _ => self.counts.checkpoints.ignored += 1,
        }
        let (at, name) = (self.partition.at, &self.shared.name);
        tracing::warn!(store = %name, partition = %at.partition, %error, "checkpoint ignored");
    }

    /// Writes a checkpoint that is due, but not while any partition of the reader starts from an
    /// image: that needs the disk, and a partition that started so has an image there.
    fn checkpoint_due(&mut self) {
        match &mut self.checkpoints {
            Some(checkpoints) if self.shared.is_fetching() => checkpoints.rest(0),
            _ => self.checkpoint(None),
        }
    }

    /// Writes a checkpoint between two groups of records, when state and rows are at one position.
    /// The tail applies nothing during the write. A write that takes longer than `longest` is
    /// aborted.
    fn checkpoint(&mut self, longest: Option<Duration>) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let (clock, following) = (&*self.shared.parts.clock, &self.following);
        let clock_error_us = self.partition.board.freshness().clock_error_us;
        let began = clock.now();
        // A clock that jumps, in either direction, ends the write early.
        let is_late = || {
            let took_us = clock.now().micros_since(began).unsigned_abs();
            longest.is_some_and(|longest| Duration::from_micros(took_us) > longest)
        };
        let written = in_place(|| checkpoints.write(following, clock_error_us, &is_late));
        checkpoints.rest(clock.now().micros_since(began));
        match written {
            Ok(false) => return,
            Ok(true) => self.counts.checkpoints.written += 1,
            Err(error) => {
                self.counts.checkpoints.failed += 1;
                let (at, name) = (self.partition.at, &self.shared.name);
                if checkpoints.is_news(&error) {
                    tracing::warn!(
                        store = %name, partition = %at.partition, %error, "checkpoint write failed"
                    );
                }
            }
        }
        self.publish(|_| {});
    }

    /// Puts the replica in service as soon as that is permitted.
    ///
    /// # Errors
    /// Returns `Unavailable` or `LimitExceeded` if this process cannot map the replica in place of
    /// a checkpoint.
    fn come_into_service(&mut self, picture: &Progress) -> Result<()> {
        if !self.following.may_be_served(picture, self.shared.options.serve_partial) {
            return Ok(());
        }
        // For a shard, this call flushes to disk, which blocks.
        in_place(|| self.following.publish(picture.phase))?;
        if self.shared.storage.go_live(self.partition.at.partition)? {
            self.poisoned = 0;
            let outcomes = self.following.serve();
            self.partition.replace_outcomes(outcomes);
        }
        Ok(())
    }

    /// Publishes the replica's progress, and puts it in service as soon as that is permitted.
    fn publish(&mut self, change: impl FnOnce(&mut Progress)) {
        let picture = self.partition.board.picture();
        let trouble = self.come_into_service(&picture).err();
        let (following, counts) = (&mut self.following, self.counts);
        self.partition.board.publish(|progress| {
            if !following.is_waiting() {
                progress.trouble = trouble;
            }
            progress.counts = counts;
            following.show(progress);
            change(progress);
        });
        self.shared.note_progress(self.partition.board.schema_version());
    }
}

/// Returns the back-off of a reader between attempts.
pub(crate) fn reader_backoff() -> Backoff {
    let (first, longest) = (READER_BACKOFF_MS_MIN, READER_BACKOFF_MS_MAX);
    Backoff::new(Duration::from_millis(first), Duration::from_millis(longest))
}

fn unknown_definition(version: SchemaVersion) -> Error {
    Error::unavailable(format!(
        "the log names schema version {version}, which is not in the control log yet"
    ))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::internal(format!("the tail panicked: {}", panic_text(panic)))
}
