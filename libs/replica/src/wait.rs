//! Waits: for a token's positions, for a barrier, for a position, or for readiness.
//!
//! The caller bounds a wait. A wait ends early if the replica closes, if the partition halts, or if
//! the token's log is lost. The tail queries the log itself to find out whether a log is lost,
//! because a token may also belong to a newer log that the tail has not noticed yet.

use std::time::Duration;

use forebay_core::id::{LogId, PartitionId, Position};
use forebay_core::limits::READER_BARRIER_TRIES_MAX;
use forebay_core::replica_state::Phase;
use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::token::Token;
use futures::future::{BoxFuture, try_join_all};

use crate::age::check_bound;
use crate::barrier::{BarrierAt, barrier_entry};
use crate::close_signal::closed;
use crate::connect::replica_backoff;
use crate::context::ReplicaContext;
use crate::partition::{Partition, not_serving};
use crate::progress::ReplicaProgress;
use crate::read_options::{ReadOptions, ReadWait};

/// The result of comparing a wait with the progress.
enum WaitState {
    Done,
    Wait,
    OtherLog,
}

impl ReplicaContext {
    /// Runs a wait until it ends, the caller's time is over, or the replica closes.
    pub(crate) async fn bounded<T>(
        &self,
        timeout: Duration,
        overdue: impl FnOnce() -> Error,
        wait: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.close_signal.check()?;
        tokio::select! {
            biased;
            () = self.close_signal.closed() => Err(closed()),
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
        let mut updates = partition.board.watch();
        let mut check_number = None;
        loop {
            let current = updates.borrow_and_update().clone();
            match state_of_wait(partition, &current, log_id, position)? {
                WaitState::Done => return Ok(()),
                WaitState::Wait => {}
                WaitState::OtherLog => {
                    let number =
                        *check_number.get_or_insert_with(|| partition.board.ask_for_check());
                    if current.checked >= number && current.checked_log_id != Some(log_id) {
                        return Err(token_lost(partition));
                    }
                }
            }
            updates.changed().await.map_err(|_| closed())?;
        }
    }

    /// Waits for what a read of these partitions requests.
    pub fn wait_for_read<'a>(
        &'a self,
        read: &'a ReadOptions,
        partitions: &'a [PartitionId],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.close_signal.check()?;
            for partition in partitions {
                self.partition(*partition)?;
            }
            match read.wait() {
                ReadWait::Nothing => Ok(()),
                ReadWait::Token(token) => self.await_token(token, partitions, read.timeout()).await,
                ReadWait::Latest => {
                    let waits = partitions.iter().map(async |partition| {
                        let partition = self.partition(*partition)?;
                        let wait = self.wait_latest(partition);
                        self.bounded(read.timeout(), || self.overdue(partition), wait).await
                    });
                    try_join_all(waits).await.map(|_| ())
                }
            }
        })
    }

    /// Refuses a partition that does not answer, or is older than `max_staleness`.
    pub(crate) fn check_serves(
        &self,
        id: PartitionId,
        max_staleness: Option<Duration>,
    ) -> Result<()> {
        let at_store = |error: Error| error.with_store(&self.name).with_partition(id);
        let partition = self.partition(id)?;
        let current = partition.board.current();
        if !partition.serves(&current) {
            return Err(not_serving(partition.at, &current).with_store(&self.name));
        }
        let Some(bound) = max_staleness else { return Ok(()) };
        check_bound(bound, &self.storage.schemas().newest().definition.options)
            .map_err(at_store)?;
        partition.board.freshness().check(self.parts.clock.now(), bound).map_err(at_store)
    }

    /// Waits until the token's positions in these partitions are applied.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a token of another store, and the errors of
    /// [`ReplicaContext::wait_for`].
    pub(crate) async fn await_token(
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
        self.close_signal.check()?;
        try_join_all(waits).await.map(|_| ())
    }

    /// Waits until a partition has applied this position, regardless of its log.
    ///
    /// # Errors
    /// Returns the errors of a wait for a token.
    pub fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let partition = self.partition(partition)?;
            let wait = self.wait_position(partition, position);
            self.bounded(timeout, || self.overdue(partition), wait).await
        })
    }

    /// Waits until the partition has applied this position, regardless of its log.
    pub(crate) async fn wait_position(
        &self,
        partition: &Partition,
        position: Position,
    ) -> Result<()> {
        let mut updates = partition.board.watch();
        let log_id = loop {
            let served_state = updates.borrow_and_update().served;
            if let Some(log_id) = served_state.log_id {
                break log_id;
            }
            updates.changed().await.map_err(|_| closed())?;
        };
        self.wait_for(partition, log_id, position).await
    }

    /// Waits until everything that was in the partition's log at the time of the call is applied.
    ///
    /// # Errors
    /// Returns the errors of the barrier's append, and the error for which the partition halted.
    pub(crate) async fn wait_latest(&self, partition: &Partition) -> Result<()> {
        let mut updates = partition.board.watch();
        loop {
            let current = updates.borrow_and_update().clone();
            if let Some(error) = &current.fatal_error {
                return Err(error.clone());
            }
            if current.served.log_id.is_some() && current.phase != Phase::Poisoned {
                break;
            }
            updates.changed().await.map_err(|_| closed())?;
        }
        let barrier = partition.barriers.join(|| self.send_barrier(partition)).await?;
        let outcome = self.wait_for(partition, barrier.log_id, barrier.position).await;
        outcome.map_err(|error| match error.code() {
            ErrorCode::TokenLost => replaced(partition),
            _ => error,
        })
    }

    /// Appends a barrier to the partition's log as this replica knows it.
    async fn send_barrier(&self, partition: &Partition) -> Result<BarrierAt> {
        let served_state = partition.board.current().served;
        let (Some(log_id), Some(position)) = (served_state.log_id, served_state.position) else {
            return Err(Error::unavailable("the partition's log has no entry yet; try again"));
        };
        let barrier = barrier_entry(log_id, position, served_state.schema_version);
        let mut receipt = self.append_barrier(partition.at, &barrier).await;
        let mut backoff = replica_backoff();
        for _ in 1..READER_BARRIER_TRIES_MAX {
            // A retry re-establishes a broken connection; a duplicate barrier is harmless.
            match &receipt {
                Err(error) if error.code().is_retryable() => {}
                _ => break,
            }
            tokio::time::sleep(backoff.next_wait(&*self.parts.entropy)).await;
            receipt = self.append_barrier(partition.at, &barrier).await;
        }
        let receipt = match receipt {
            // The barrier's offset is below the replica's: it is another log.
            Ok(receipt) if receipt.offset < served_state.offset_applied => Err(replaced(partition)),
            Ok(receipt) => Ok(receipt),
            Err(error) if error.code() == ErrorCode::TokenLost => Err(replaced(partition)),
            Err(error) => Err(error),
        };
        match receipt {
            Ok(receipt) => Ok(BarrierAt { log_id, position: barrier.position(receipt.offset) }),
            Err(error) => {
                partition.board.ask_for_check();
                Err(error)
            }
        }
    }

    /// Returns whether all followed partitions serve within the readiness bound.
    pub fn is_ready(&self) -> bool {
        self.close_signal.check().is_ok() && self.observe_readiness(self.parts.clock.now())
    }

    /// Waits until the replica is ready.
    ///
    /// # Errors
    /// Returns `Unavailable` with phase, percent and remaining time if the wait takes longer than
    /// `timeout`; the error for which a partition halted; `Closed`.
    pub fn await_ready(&self, timeout: Duration) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let wait = async {
                loop {
                    let progressed = self.progressed.notified();
                    if self.observe_readiness(self.parts.clock.now()) {
                        return Ok(());
                    }
                    if let Some(error) = self.fatal_error() {
                        return Err(error.with_store(&self.name));
                    }
                    progressed.await;
                }
            };
            self.bounded(timeout, || self.not_ready(), wait).await
        })
    }

    fn not_ready(&self) -> Error {
        let status = self.status();
        let remaining = match status.bootstrap_remaining {
            Some(remaining) => format!("about {} ms remain", remaining.as_millis()),
            None => "the remaining time is not known yet".to_owned(),
        };
        let age = match status.age {
            Some(age) => format!("age {} ms", age.as_millis()),
            None => "age unknown".to_owned(),
        };
        let last_error =
            status.partitions.iter().find_map(|partition| partition.last_error.as_ref());
        let stalled =
            last_error.map(|error| format!("; a replica stalled: {error}")).unwrap_or_default();
        let message = format!(
            "not ready in time: {}, {}%, {remaining}, {age}; wait longer, or look at the \
             status{stalled}",
            status.phase.name(),
            status.bootstrap_percent,
        );
        Error::unavailable(message).with_store(&status.store)
    }

    /// Returns the error of a wait on this partition whose time is over.
    pub(crate) fn overdue(&self, partition: &Partition) -> Error {
        let current = partition.board.current();
        if !partition.serves(&current) || current.fatal_error.is_some() {
            return not_serving(partition.at, &current).with_store(&self.name);
        }
        let lag = current.end_offset.0.saturating_sub(current.served.offset_applied.0);
        let stalled = match &current.last_error {
            Some(error) => format!("; the replica stalled: {error}"),
            None => String::new(),
        };
        let message = format!(
            "the partition did not apply the position in time, with a lag of {lag} records; wait \
             longer, or read without the wait{stalled}"
        );
        Error::deadline_exceeded(message)
            .with_store(&self.name)
            .with_partition(partition.at.partition)
    }
}

fn state_of_wait(
    partition: &Partition,
    current: &ReplicaProgress,
    log_id: LogId,
    position: Position,
) -> Result<WaitState> {
    if current.served.covers(log_id, position) {
        return Ok(if partition.serves(current) { WaitState::Done } else { WaitState::Wait });
    }
    if let Some(error) = &current.fatal_error {
        return Err(error.clone());
    }
    Ok(match current.served.log_id {
        Some(served_log_id) if served_log_id != log_id => WaitState::OtherLog,
        _ => WaitState::Wait,
    })
}

fn token_lost(partition: &Partition) -> Error {
    let message = "the log of the token is no longer served, so its write may be lost; read \
        without the token, or write again";
    Error::token_lost(message).with_partition(partition.at.partition)
}

fn replaced(partition: &Partition) -> Error {
    let message =
        "the partition's log was replaced, and the replica rebuilds the partition; try again";
    Error::unavailable(message).with_partition(partition.at.partition)
}
