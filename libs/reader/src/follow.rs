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
    READER_COPY_LOOK_MS, READER_COPY_LOOK_SOON_MS, READER_TAKE_OVER_FIRST_MS, READER_TAKE_OVER_MS,
};
use forebay_core::{Error, Result};
use forebay_index::{Index, PartitionPhase, PartitionStatus};
use forebay_snapshot::in_place;

use crate::checkpoint::{CheckpointDirectory, Checkpoints};
use crate::closing::Running;
use crate::connect::connect;
use crate::generation::Generation;
use crate::partition::Partition;
use crate::progress::{CatchUp, Phase, Progress, Served};
use crate::shared::Shared;
use crate::tail::{Tail, reader_backoff};

/// A standby: follows a copy that another reader owns until this reader owns it.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    index: Index,
    partition: Arc<Partition>,
    directory: Arc<CheckpointDirectory>,
    running: Running,
}

impl Follower {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: Index,
        partition: Arc<Partition>,
        directory: Arc<CheckpointDirectory>,
    ) -> Self {
        let running = shared.closing.enter();
        Self { shared, index, partition, directory, running }
    }

    /// Runs until the reader closes. The standby becomes the copy's tail once it has the lock, at
    /// once if `kept` holds it already. The take-over runs in this task, after the reader has
    /// opened, because it takes longer the larger the copy is.
    pub(crate) async fn run(self, kept: Option<Checkpoints>) {
        if let Err(error) = self.show() {
            self.note_trouble(error);
        }
        let closing = Arc::clone(&self.shared.closing);
        let (kept, copy) = tokio::select! {
            biased;
            () = closing.closed() => return,
            taken = self.take_over(kept) => taken,
        };
        let Self { shared, partition, running, .. } = self;
        Tail::of_copy(shared, partition, kept, copy, running).run().await;
    }

    /// Waits until this reader can take the copy over.
    async fn take_over(&self, mut kept: Option<Checkpoints>) -> (Checkpoints, Generation) {
        let mut backoff = reader_backoff();
        loop {
            let kept = match kept.take() {
                Some(kept) => kept,
                None => self.follow().await,
            };
            match self.take_copy() {
                Ok(copy) => {
                    let (at, name) = (self.partition.at, &self.shared.name);
                    tracing::info!(store = %name, partition = %at.partition, "copy taken over");
                    return (kept, copy);
                }
                Err(error) => self.note_trouble(error),
            }
            drop(kept);
            tokio::time::sleep(backoff.next_wait(&*self.shared.parts.entropy)).await;
        }
    }

    /// Polls the copy until this reader owns it.
    async fn follow(&self) -> Checkpoints {
        let board = &self.partition.board;
        let mut until_try = Duration::from_millis(READER_TAKE_OVER_FIRST_MS);
        loop {
            if until_try.is_zero() {
                match self.directory.try_keep(self.partition.at) {
                    Ok(Some(kept)) => return kept,
                    Ok(None) => {}
                    Err(error) => self.note_trouble(error),
                }
                until_try = Duration::from_millis(READER_TAKE_OVER_MS);
            }
            if let Err(error) = self.look() {
                self.note_trouble(error);
            }
            let is_soon = board.is_watched() || board.phase() != Phase::Serving;
            let wait_ms = if is_soon { READER_COPY_LOOK_SOON_MS } else { READER_COPY_LOOK_MS };
            let wait = Duration::from_millis(wait_ms).min(until_try);
            tokio::select! {
                biased;
                () = board.asked() => self.check_log().await,
                () = self.partition.at_rest.asked() => self.partition.at_rest.refuse(),
                () = tokio::time::sleep(wait) => until_try -= wait,
            }
        }
    }

    /// Publishes the copy's header once this reader maps the copy.
    fn look(&self) -> Result<()> {
        self.index.tidy();
        self.index.go_live(self.partition.at.partition)?;
        self.show()
    }

    fn show(&self) -> Result<()> {
        let status = self.index.status(self.partition.at.partition)?;
        let version = status.progress.schema_version;
        let is_known = version.0 == 0 || self.index.schemas().get(version).is_some();
        if !is_known && !self.shared.learn_definitions(version)? {
            // A position is published only after its definitions are known, because a wait ends
            // with the publication.
            return Ok(());
        }
        if let Some(micros) = status.following.clock_error_us {
            self.partition.board.set_clock_error(micros);
        }
        let picture = self.partition.board.picture();
        let mut next = Progress { trouble: None, ..picture.clone() };
        show(&mut next, &status);
        if next.is_like(&picture) {
            return Ok(());
        }
        self.partition.board.publish(|progress| *progress = next);
        self.shared.note_progress(version);
        Ok(())
    }

    /// Queries the log's id, for a wait with a token of another log.
    async fn check_log(&self) {
        let (asked, parts) = (self.partition.board.checks_asked(), &self.shared.parts);
        match connect(&*parts.log, self.partition.at, &*parts.clock).await {
            Ok(connected) => self.partition.board.publish(|progress| {
                progress.end = connected.bounds.end;
                progress.checked = asked;
                progress.checked_log_id = connected.log_id;
            }),
            Err(error) => self.note_trouble(error),
        }
    }

    /// Takes the copy over; this reader holds its lock. If readers still use a checkpoint, the copy
    /// is not served before it may replace the checkpoint.
    ///
    /// # Errors
    /// Returns the errors of [`Index::hold`](forebay_index::Index::hold).
    fn take_copy(&self) -> Result<Generation> {
        let (shared, at) = (&self.shared, self.partition.at);
        let (writer, resumed) = in_place(|| {
            self.directory.sweep();
            self.index.hold(at.partition)
        })?;
        let mut copy = match resumed {
            Some(resumed) => Generation::resumed(Box::new(writer), resumed),
            None => Generation::first(at, shared.count, Box::new(writer)),
        };
        if !self.index.go_live(at.partition)? {
            copy.wait_beside(Error::unavailable("the checkpoint serves until it is copied"));
        }
        Ok(copy)
    }

    fn note_trouble(&self, error: Error) {
        let (at, name) = (self.partition.at, &self.shared.name);
        if self.partition.board.picture().trouble.as_ref() != Some(&error) {
            tracing::warn!(store = %name, partition = %at.partition, %error, "takeover failed");
        }
        self.partition.board.publish(|progress| progress.trouble = Some(error));
    }
}

fn show(progress: &mut Progress, status: &PartitionStatus) {
    let (at, following) = (&status.progress, &status.following);
    progress.phase = match status.phase {
        PartitionPhase::Bootstrapping => Phase::Bootstrapping,
        PartitionPhase::Serving => Phase::Serving,
        PartitionPhase::Poisoned => Phase::Poisoned,
    };
    progress.generation = following.copy;
    progress.served = Served {
        log_id: following.log_id,
        position: following.log_id.map(|_| at.position),
        offset_applied: at.offset_applied,
        append_time: following.append_time,
        schema_version: at.schema_version,
    };
    let (start, target) = following.opened.unwrap_or_default();
    progress.catch_up = CatchUp { start, offset_applied: at.offset_applied, target };
    progress.end = progress.end.max(at.offset_applied).max(target);
}
