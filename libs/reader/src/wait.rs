//! Waits: for a token's positions, for a barrier, or for a position.
//!
//! The caller bounds a wait. A wait ends early if the reader closes, if the partition halts, or if
//! the token's log is lost. The tail queries the log itself to find out whether a log is lost,
//! because a token may also belong to a newer log that the tail has not noticed yet.

use std::time::Duration;

use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{LogId, PartitionId, Position, SchemaVersion};
use forebay_core::limits::READER_BARRIER_TRIES_MAX;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::token::Token;
use futures::future::try_join_all;

use crate::barrier::BarrierAt;
use crate::closing::closed;
use crate::partition::{Partition, not_serving};
use crate::progress::{Phase, Progress};
use crate::shared::Shared;
use crate::tail::reader_backoff;

/// The result of comparing a wait with one picture.
enum Seen {
    Done,
    Wait,
    OtherLog,
}

impl Shared {
    /// Runs a wait until it ends, the caller's time is over, or the reader closes.
    pub(crate) async fn bounded<T>(
        &self,
        timeout: Duration,
        overdue: impl FnOnce() -> Error,
        wait: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.closing.check()?;
        tokio::select! {
            biased;
            () = self.closing.closed() => Err(closed()),
            done = tokio::time::timeout(timeout, wait) => done.unwrap_or_else(|_| Err(overdue())),
        }
    }

    /// Waits until the partition has applied this position of this log and answers reads.
    ///
    /// # Errors
    /// Returns `TokenLost` if the partition follows another log, and the error for which the
    /// partition halted.
    pub(crate) async fn wait_for(
        &self,
        partition: &Partition,
        log_id: LogId,
        position: Position,
    ) -> Result<()> {
        let mut pictures = partition.board.watch();
        let mut asked = None;
        loop {
            let picture = pictures.borrow_and_update().clone();
            match seen(partition, &picture, log_id, position)? {
                Seen::Done => return Ok(()),
                Seen::Wait => {}
                Seen::OtherLog => {
                    let number = *asked.get_or_insert_with(|| partition.board.ask_for_check());
                    if picture.checked >= number && picture.checked_log_id != Some(log_id) {
                        return Err(token_lost(partition));
                    }
                }
            }
            pictures.changed().await.map_err(|_| closed())?;
        }
    }

    /// Waits until the token's positions in these partitions are applied.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a token of another store, and the errors of
    /// [`Shared::wait_for`].
    pub(crate) async fn wait_token(
        &self,
        token: &Token,
        partitions: &[PartitionId],
        timeout: Duration,
    ) -> Result<()> {
        if token.store != self.home {
            let message =
                "the token is of another store; pass a token that a write to this store returned";
            return Err(Error::invalid_argument(message).with_store(&self.name));
        }
        if let Some(id) = token.positions.keys().find(|id| id.0 >= self.count.0) {
            let message =
                "the token names a partition that the store no longer has; read without the token";
            return Err(Error::token_lost(message).with_store(&self.name).with_partition(*id));
        }
        let of_token = token.positions.iter().filter(|(id, _)| partitions.contains(id));
        let waits = of_token.map(async |(id, (log_id, position))| {
            let partition = self.partition(*id)?;
            let wait = self.wait_for(partition, *log_id, *position);
            self.bounded(timeout, || self.overdue(partition), wait).await
        });
        self.closing.check()?;
        try_join_all(waits).await.map(|_| ())
    }

    /// Waits until a partition has applied this position, regardless of its log.
    ///
    /// # Errors
    /// Returns the errors of [`Shared::wait_token`].
    pub(crate) async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        let partition = self.partition(partition)?;
        let wait = self.wait_position(partition, position);
        self.bounded(timeout, || self.overdue(partition), wait).await
    }

    /// Waits until the partition has applied this position, regardless of its log.
    pub(crate) async fn wait_position(
        &self,
        partition: &Partition,
        position: Position,
    ) -> Result<()> {
        let mut pictures = partition.board.watch();
        let log_id = loop {
            let served = pictures.borrow_and_update().served;
            if let Some(log_id) = served.log_id {
                break log_id;
            }
            pictures.changed().await.map_err(|_| closed())?;
        };
        self.wait_for(partition, log_id, position).await
    }

    /// Waits until everything that was in the partition's log at the time of the call is applied.
    ///
    /// # Errors
    /// Returns the errors of the barrier's append, and the error for which the partition halted.
    pub(crate) async fn wait_latest(&self, partition: &Partition) -> Result<()> {
        let mut pictures = partition.board.watch();
        loop {
            let picture = pictures.borrow_and_update().clone();
            if let Some(halted) = &picture.halted {
                return Err(halted.clone());
            }
            if picture.served.log_id.is_some() && picture.phase != Phase::Poisoned {
                break;
            }
            pictures.changed().await.map_err(|_| closed())?;
        }
        let barrier = partition.barriers.join(|| self.send_barrier(partition)).await?;
        let waited = self.wait_for(partition, barrier.log_id, barrier.position).await;
        waited.map_err(|error| match error.code() {
            ErrorCode::TokenLost => replaced(partition),
            _ => error,
        })
    }

    /// Appends a barrier to the partition's log as this reader knows it.
    async fn send_barrier(&self, partition: &Partition) -> Result<BarrierAt> {
        let served = partition.board.picture().served;
        let (Some(log_id), Some(position)) = (served.log_id, served.position) else {
            return Err(Error::unavailable("the partition's log has no entry yet; try again"));
        };
        let barrier = barrier_entry(log_id, position, served.schema_version);
        let mut appended = self.append_barrier(partition.at, &barrier).await;
        let mut backoff = reader_backoff();
        for _ in 1..READER_BARRIER_TRIES_MAX {
            // A retry re-establishes a broken connection; a duplicate barrier is harmless.
            match &appended {
                Err(error) if error.code().is_retryable() => {}
                _ => break,
            }
            tokio::time::sleep(backoff.next_wait(&*self.parts.entropy)).await;
            appended = self.append_barrier(partition.at, &barrier).await;
        }
        let appended = match appended {
            // The barrier's offset is below the replica's: it is another log.
            Ok(appended) if appended.offset < served.offset_applied => Err(replaced(partition)),
            Ok(appended) => Ok(appended),
            Err(error) if error.code() == ErrorCode::TokenLost => Err(replaced(partition)),
            Err(error) => Err(error),
        };
        match appended {
            Ok(appended) => Ok(BarrierAt { log_id, position: barrier.position(appended.offset) }),
            Err(error) => {
                partition.board.ask_for_check();
                Err(error)
            }
        }
    }

    /// Returns the error of a wait on this partition whose time is over.
    pub(crate) fn overdue(&self, partition: &Partition) -> Error {
        let picture = partition.board.picture();
        if !partition.serves(&picture) || picture.halted.is_some() {
            return not_serving(partition.at, &picture).with_store(&self.name);
        }
        let lag = picture.end.0.saturating_sub(picture.served.offset_applied.0);
        let trouble = match &picture.trouble {
            Some(trouble) => format!("; the replica stalled: {trouble}"),
            None => String::new(),
        };
        let message = format!(
            "the partition did not apply the position in time, with a lag of {lag} records; wait \
             longer, or read without the wait{trouble}"
        );
        Error::deadline_exceeded(message)
            .with_store(&self.name)
            .with_partition(partition.at.partition)
    }
}

fn seen(
    partition: &Partition,
    picture: &Progress,
    log_id: LogId,
    position: Position,
) -> Result<Seen> {
    if picture.served.covers(log_id, position) {
        return Ok(if partition.serves(picture) { Seen::Done } else { Seen::Wait });
    }
    if let Some(halted) = &picture.halted {
        return Err(halted.clone());
    }
    Ok(match picture.served.log_id {
        Some(served) if served != log_id => Seen::OtherLog,
        _ => Seen::Wait,
    })
}

/// Returns a barrier for the log of this id, position and schema version.
pub(crate) fn barrier_entry(log_id: LogId, last: Position, version: SchemaVersion) -> Entry {
    Entry {
        log_id,
        epoch: last.epoch,
        schema_version: version,
        source: None,
        body: EntryBody::Barrier,
    }
}

fn token_lost(partition: &Partition) -> Error {
    let message = "the log of the token is no longer served, so its write may be lost; read \
        without the token, or write again";
    Error::token_lost(message).with_partition(partition.at.partition)
}

fn replaced(partition: &Partition) -> Error {
    let message =
        "the partition's log was replaced, and the reader rebuilds the partition; try again";
    Error::unavailable(message).with_partition(partition.at.partition)
}
