//! The standby of a partition whose shared copy another reader owns, in another process or in this
//! one.
//!
//! Reads use the shared copy directly and do not depend on the standby. The standby polls the
//! copy's header and publishes it, as a tail would, for waits and for reads with an age bound. The
//! standby also tries to take the owner's lock. If the owner ends, in whatever way, the reader that
//! gets the lock continues as the copy's tail.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::limits::{
    READER_COPY_POLL_INTERVAL_ACTIVE_MS, READER_COPY_POLL_INTERVAL_MS, READER_TAKE_OVER_FIRST_MS,
    READER_TAKE_OVER_MS,
};
use forebay_core::replica_state::Phase;
use forebay_core::{Error, Result};
use forebay_index::{Index, PartitionStatus};
use forebay_replica::{
    CatchUp, Checkpoints, Partition, PartitionReplica, ReplicaContext, ReplicaProgress,
    ServedState, Tail, TaskGuard, connect, replica_backoff,
};
use forebay_tasks::block_in_place;

use crate::checkpoint_directory::CheckpointDirectory;
use crate::index_storage::IndexWriter;

/// A standby: follows a copy that another reader owns until this reader owns it.
pub(crate) struct Standby {
    context: Arc<ReplicaContext>,
    index: Index,
    partition: Arc<Partition>,
    directory: Arc<CheckpointDirectory>,
    task_guard: TaskGuard,
}

impl Standby {
    pub(crate) fn new(
        context: Arc<ReplicaContext>,
        index: Index,
        partition: Arc<Partition>,
        directory: Arc<CheckpointDirectory>,
    ) -> Self {
        let task_guard = context.close_signal.enter();
        Self { context, index, partition, directory, task_guard }
    }

    /// Runs until the reader closes. The standby becomes the copy's tail once it has the lock, at
    /// once if `locked` holds it already. The take-over runs in this task, after the reader has
    /// opened, because it takes longer the larger the copy is.
    pub(crate) async fn run(self, locked: Option<Checkpoints>) {
        if let Err(error) = self.publish() {
            self.note_error(error);
        }
        let close_signal = Arc::clone(&self.context.close_signal);
        let (checkpoints, replica) = tokio::select! {
            biased;
            () = close_signal.closed() => return,
            taken = self.take_over(locked) => taken,
        };
        let Self { context, partition, task_guard, .. } = self;
        Tail::of_shared_copy(context, partition, checkpoints, replica, task_guard).run().await;
    }

    /// Waits until this reader can take the copy over.
    async fn take_over(
        &self,
        mut checkpoints: Option<Checkpoints>,
    ) -> (Checkpoints, PartitionReplica) {
        let mut backoff = replica_backoff();
        loop {
            let checkpoints = match checkpoints.take() {
                Some(checkpoints) => checkpoints,
                None => self.wait_for_lock().await,
            };
            match self.take_copy() {
                Ok(replica) => {
                    let (at, name) = (self.partition.at, &self.context.name);
                    tracing::info!(store = %name, partition = %at.partition, "copy taken over");
                    return (checkpoints, replica);
                }
                Err(error) => self.note_error(error),
            }
            drop(checkpoints);
            tokio::time::sleep(backoff.next_wait(&*self.context.parts.entropy)).await;
        }
    }

    /// Polls the copy until this reader owns it.
    async fn wait_for_lock(&self) -> Checkpoints {
        let board = &self.partition.board;
        let mut until_try = Duration::from_millis(READER_TAKE_OVER_FIRST_MS);
        loop {
            if until_try.is_zero() {
                match Checkpoints::try_lock(self.directory.folder(), self.partition.at) {
                    Ok(Some(checkpoints)) => return checkpoints,
                    Ok(None) => {}
                    Err(error) => self.note_error(error),
                }
                until_try = Duration::from_millis(READER_TAKE_OVER_MS);
            }
            if let Err(error) = self.poll() {
                self.note_error(error);
            }
            let is_soon = board.is_watched() || board.phase() != Phase::Serving;
            let wait_ms = if is_soon {
                READER_COPY_POLL_INTERVAL_ACTIVE_MS
            } else {
                READER_COPY_POLL_INTERVAL_MS
            };
            let wait = Duration::from_millis(wait_ms).min(until_try);
            tokio::select! {
                biased;
                () = board.asked() => self.check_log().await,
                () = self.partition.quiesced.asked() => self.partition.quiesced.refuse(),
                () = tokio::time::sleep(wait) => until_try -= wait,
            }
        }
    }

    /// Publishes the copy's header once this reader maps the copy.
    fn poll(&self) -> Result<()> {
        self.index.collect_garbage();
        self.index.switch_to_shared_copy(self.partition.at.partition)?;
        self.publish()
    }

    fn publish(&self) -> Result<()> {
        let status = self.index.status(self.partition.at.partition)?;
        let version = status.progress.schema_version;
        let is_known = version.0 == 0 || self.index.schemas().get(version).is_some();
        if !is_known && !self.context.learn_definitions(version)? {
            // A position is published only after its definitions are known, because a wait ends
            // with the publication.
            return Ok(());
        }
        if let Some(micros) = status.cursor.clock_error_us {
            self.partition.board.set_clock_error(micros);
        }
        let current = self.partition.board.current();
        let mut next = ReplicaProgress { last_error: None, ..current.clone() };
        report(&mut next, &status);
        if next.is_like(&current) {
            return Ok(());
        }
        self.partition.board.publish(|progress| *progress = next);
        self.context.note_progress(version);
        Ok(())
    }

    /// Queries the log's id, for a wait with a token of another log.
    async fn check_log(&self) {
        let (checks_asked, parts) = (self.partition.board.checks_asked(), &self.context.parts);
        match connect(&*parts.log, self.partition.at, &*parts.clock).await {
            Ok(connected) => self.partition.board.publish(|progress| {
                progress.end_offset = connected.bounds.end;
                progress.checked = checks_asked;
                progress.checked_log_id = connected.log_id;
            }),
            Err(error) => self.note_error(error),
        }
    }

    /// Takes the copy over; this reader holds its lock. If readers still use a checkpoint, the copy
    /// is not served before it may replace the checkpoint.
    ///
    /// # Errors
    /// Returns the errors of [`Index::acquire_writer`](forebay_index::Index::acquire_writer).
    fn take_copy(&self) -> Result<PartitionReplica> {
        let (context, at) = (&self.context, self.partition.at);
        let (writer, resumed) = block_in_place(|| {
            self.directory.sweep();
            self.index.acquire_writer(at.partition)
        })?;
        let mut replica = match resumed {
            Some(resumed) => PartitionReplica::resumed(Box::new(IndexWriter(writer)), resumed),
            None => PartitionReplica::first(at, context.count, Box::new(IndexWriter(writer))),
        };
        if !self.index.switch_to_shared_copy(at.partition)? {
            replica.wait_beside(Error::unavailable("the checkpoint serves until it is copied"));
        }
        Ok(replica)
    }

    fn note_error(&self, error: Error) {
        let (at, name) = (self.partition.at, &self.context.name);
        if self.partition.board.current().last_error.as_ref() != Some(&error) {
            tracing::warn!(store = %name, partition = %at.partition, %error, "takeover failed");
        }
        self.partition.board.publish(|progress| progress.last_error = Some(error));
    }
}

fn report(progress: &mut ReplicaProgress, status: &PartitionStatus) {
    let (at, cursor) = (&status.progress, &status.cursor);
    progress.phase = status.phase;
    progress.generation = cursor.copy;
    progress.served = ServedState {
        log_id: cursor.log_id,
        position: cursor.log_id.map(|_| at.position),
        offset_applied: at.offset_applied,
        append_time: cursor.append_time,
        schema_version: at.schema_version,
    };
    let (start, target) = cursor.opened.unwrap_or_default();
    progress.catch_up = CatchUp { start, offset_applied: at.offset_applied, target };
    progress.end_offset = progress.end_offset.max(at.offset_applied).max(target);
}
