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

mod checkpoints;
mod clock;
mod initial_load;
mod replay;
mod session;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::backoff::Backoff;
use forebay_core::clock::Timestamp;
use forebay_core::id::Offset;
use forebay_core::limits::{CHECKPOINT_CLOSE_MS, READER_POISONED_COPIES_MAX};
use forebay_core::replica_state::Phase;
use forebay_core::state_rows::SkippedRecord;
use forebay_core::{Error, ErrorCode, Result};
use forebay_tasks::block_in_place;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::checkpoint::Checkpoints;
use crate::close_signal::TaskGuard;
use crate::connect::replica_backoff;
use crate::context::ReplicaContext;
use crate::partition::Partition;
use crate::partition_replica::PartitionReplica;
use crate::progress::{Counts, ReplicaProgress};
use crate::storage::OpenedReplica;

/// The event that ended a session.
enum SessionEnd {
    /// The log or another external part failed: try again.
    Retry(Error),
    /// The replica cannot continue with this log.
    Rebuild(Error),
    /// An entry is newer than this build.
    Halt(Error),
    /// An invariant broke.
    Poison(Error),
}

/// The tail: follows one partition until the replica closes.
pub struct Tail {
    context: Arc<ReplicaContext>,
    partition: Arc<Partition>,
    /// Replica that follows the log; an older one may still serve next to it.
    replica: PartitionReplica,
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
    bootstrap_attempts: u32,
    /// Records that the replica skipped before it was opened here, and that the callback has not
    /// received.
    skipped_before: BTreeMap<Offset, SkippedRecord>,
    /// Maintenance of the replica's memory, which runs next to the tail.
    maintenance: Option<JoinHandle<()>>,
    /// Time of the last failure, for lack of space, to detach from another version's records.
    detach_failed: Option<Timestamp>,
    /// The registration is dropped after everything above, including the lock of the checkpoints'
    /// directory.
    _task_guard: TaskGuard,
}

impl Tail {
    /// Returns the tail of a partition whose replica the storage opens.
    ///
    /// # Errors
    /// Returns the errors of [`Storage::open`](crate::Storage::open).
    pub fn new(
        context: Arc<ReplicaContext>,
        partition: Arc<Partition>,
        checkpoints: Option<Checkpoints>,
    ) -> Result<Self> {
        let OpenedReplica { writer, resumed, outcomes, skipped } =
            context.storage.open(partition.at)?;
        let replica = match resumed {
            Some(resumed) => PartitionReplica::resumed(writer, resumed),
            None => PartitionReplica::first(partition.at, context.count, writer),
        };
        partition.replace_outcomes(outcomes);
        let task_guard = context.close_signal.enter();
        let tail = Self::with_replica(context, partition, checkpoints, replica, task_guard);
        Ok(Self { skipped_before: skipped, ..tail })
    }

    /// Returns the tail of a shared copy that this reader owns from now on.
    pub fn of_shared_copy(
        context: Arc<ReplicaContext>,
        partition: Arc<Partition>,
        checkpoints: Checkpoints,
        replica: PartitionReplica,
        task_guard: TaskGuard,
    ) -> Self {
        Self::with_replica(context, partition, Some(checkpoints), replica, task_guard)
    }

    fn with_replica(
        context: Arc<ReplicaContext>,
        partition: Arc<Partition>,
        checkpoints: Option<Checkpoints>,
        mut replica: PartitionReplica,
        task_guard: TaskGuard,
    ) -> Self {
        replica.set_beside(context.options.beside);
        Self {
            context,
            partition,
            replica,
            backoff: replica_backoff(),
            counts: Counts::default(),
            poisoned: 0,
            needs_barrier_clock: false,
            is_clock_measured: false,
            clock_exchange_us: 0,
            checkpoints,
            bootstrap_attempts: 0,
            skipped_before: BTreeMap::new(),
            maintenance: None,
            detach_failed: None,
            _task_guard: task_guard,
        }
    }

    /// Follows the log until the replica closes or the partition halts, and then writes a last
    /// checkpoint. The replica advances only between two awaits, so it is whole wherever the close
    /// interrupts the tail.
    pub fn run(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let close_signal = Arc::clone(&self.context.close_signal);
            tokio::select! {
                biased;
                () = close_signal.closed() => {}
                () = self.follow_log() => {}
            }
            if !self.context.is_gone.load(Ordering::Relaxed) {
                self.checkpoint(Some(Duration::from_millis(CHECKPOINT_CLOSE_MS)));
            }
            // The drop closes the replica. For a shard that means a flush to disk, which blocks.
            block_in_place(|| drop(self));
        })
    }

    async fn follow_log(&mut self) {
        if let Err(panic) = AssertUnwindSafe(self.restore()).catch_unwind().await {
            self.rebuild(Error::of_panic(panic.as_ref())).await;
        }
        loop {
            let session = AssertUnwindSafe(self.run_session()).catch_unwind().await;
            let end = match session {
                Ok(Err(end)) => end,
                Ok(Ok(impossible)) => match impossible {},
                Err(panic) => SessionEnd::Poison(Error::of_panic(panic.as_ref())),
            };
            match end {
                SessionEnd::Retry(error) => self.note_error(error),
                SessionEnd::Rebuild(reason) => self.rebuild(reason).await,
                SessionEnd::Halt(error) => return self.halt(error),
                SessionEnd::Poison(error) => {
                    self.poisoned += 1;
                    self.poison(&error);
                    if self.poisoned > READER_POISONED_COPIES_MAX {
                        return self.halt(error);
                    }
                    self.rebuild(error).await;
                }
            }
            tokio::time::sleep(self.backoff.next_wait(&*self.context.parts.entropy)).await;
        }
    }

    fn note_error(&mut self, error: Error) {
        self.counts.log_errors += 1;
        let (at, name) = (self.partition.at, &self.context.name);
        if self.partition.board.current().last_error.as_ref() != Some(&error) {
            tracing::warn!(store = %name, partition = %at.partition, %error, "log tail stalled");
        }
        self.publish(|progress| progress.last_error = Some(error));
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
        while let Err(error) = block_in_place(|| self.replica.start_over(reason.clone())) {
            self.note_error(error);
            if is_for_room {
                return;
            }
            tokio::time::sleep(self.backoff.next_wait(&*self.context.parts.entropy)).await;
        }
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::warn!(store = %name, partition = %at.partition, %reason, "building a new copy");
        self.counts.rebuilds += 1;
        self.publish(|_| {});
    }

    fn poison(&mut self, error: &Error) {
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::error!(store = %name, partition = %at.partition, %error, "invariant broken");
        self.replica.mark_broken();
        if self.replica.is_served() {
            self.replica.poison();
            self.partition.board.publish(|progress| progress.phase = Phase::Poisoned);
        }
    }

    fn halt(&mut self, error: Error) {
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::error!(store = %name, partition = %at.partition, %error, "partition halted");
        self.publish(|progress| progress.fatal_error = Some(error));
    }

    /// Puts the replica in service as soon as that is permitted.
    ///
    /// # Errors
    /// Returns `Unavailable` or `LimitExceeded` if this process cannot map the replica in place of
    /// a checkpoint.
    fn put_in_service(&mut self, current: &ReplicaProgress) -> Result<()> {
        if !self.replica.may_be_served(current, self.context.options.allow_incomplete_reads) {
            return Ok(());
        }
        // For a shard, this call flushes to disk, which blocks.
        block_in_place(|| self.replica.publish(current.phase))?;
        if self.context.storage.switch_to_shared_copy(self.partition.at.partition)? {
            self.poisoned = 0;
            let outcomes = self.replica.serve();
            self.partition.replace_outcomes(outcomes);
        }
        Ok(())
    }

    /// Publishes the replica's progress, and puts it in service as soon as that is permitted.
    fn publish(&mut self, change: impl FnOnce(&mut ReplicaProgress)) {
        let current = self.partition.board.current();
        let last_error = self.put_in_service(&current).err();
        let (replica, counts) = (&mut self.replica, self.counts);
        self.partition.board.publish(|progress| {
            if !replica.has_pending_effects() {
                progress.last_error = last_error;
            }
            progress.counts = counts;
            replica.report(progress);
            change(progress);
        });
        self.context.note_progress(self.partition.board.schema_version());
    }
}
