//! Core of the writer, without gRPC.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::change::{ClientBatch, Entry, EntryBody};
use forebay_core::id::{
    ClientId, LogId, PartitionId, PartitionRef, Position, SchemaVersion, Sequence, StoreId,
};
use forebay_core::{Error, Result};
use forebay_log::AppendReceipt;
use forebay_runtime::ServiceContext;
use forebay_wire::outcome::ChangeResult;
use forebay_wire::token::Token;
use futures::future::join_all;
use tokio::sync::{Notify, oneshot};

use crate::admit::{AdmittedChange, ClientRouting, Part, admit};
use crate::outcomes::Outcomes;
use crate::partition::PartitionLog;
use crate::queue::{LogPosition, WriteQueue};
use crate::repartition_gate::WriteGate;
use crate::views;

/// Longest wait for a definition that a client names and this writer has not folded yet.
const DEFINITION_WAIT: Duration = Duration::from_secs(5);

/// Checks, routes and appends changes, and administers stores.
pub struct Writer {
    pub(crate) context: ServiceContext,
    /// Source of the outcomes of conditional changes.
    outcomes: Arc<dyn Outcomes>,
    pub(crate) control: PartitionLog,
    queues: Mutex<HashMap<PartitionRef, Arc<WriteQueue>>>,
    gate: WriteGate,
    /// Notified when a definition is in the control log, but its announcement failed.
    pub(crate) unfinished: Arc<Notify>,
}

/// A part of a request that is in a queue, and the receiver of its position in the log.
struct InFlightPart {
    partition: PartitionId,
    changes: Vec<AdmittedChange>,
    position: oneshot::Receiver<Result<LogPosition>>,
}

impl Writer {
    /// Creates a writer with these dependencies, and with this source of the outcomes of
    /// conditional changes. Appends nothing; call [`Writer::start_repairs`] once the writer runs.
    pub fn new(context: ServiceContext, outcomes: Arc<dyn Outcomes>) -> Self {
        let (log, entropy) = (Arc::clone(&context.log), Arc::clone(&context.entropy));
        let control = PartitionLog::new(PartitionRef::CONTROL, log, entropy);
        let (queues, gate, unfinished) = Default::default();
        Self { context, outcomes, control, queues, gate, unfinished }
    }

    /// Appends a batch and returns the outcome of each change, in the order of the batch.
    ///
    /// # Errors
    /// The whole batch is refused and nothing was appended:
    /// - `NotFound`, `InvalidArgument`.
    /// - `LimitExceeded`: a limit, or back-pressure.
    /// - `Unavailable`: the definition is not folded yet, or a repartition of the store takes too
    ///   long.
    /// - `Conflict`: the store was repartitioned after the batch was numbered.
    pub async fn write(
        &self,
        store: StoreId,
        version: SchemaVersion,
        batch: ClientBatch,
        routing: ClientRouting<'_>,
        outcome_wait: Duration,
    ) -> Result<(Token, Vec<ChangeResult>)> {
        let (made_with, newest) = self.definitions(store, version).await?;
        let (client, count) = (batch.client, batch.changes.len());
        let at_store = |error: Error| error.with_store(&newest.definition.name);
        views::check_write(&self.context.catalog.catalog(), &newest.definition)
            .map_err(at_store)?;
        let logs = newest.definition.write_logs();
        routing.check_repartition_count(logs).map_err(at_store)?;
        let parts = admit(batch, routing.partitions, &made_with.definition, &newest.definition)
            .map_err(at_store)?;
        let resumed = self.gate.await_writes_resumed(&self.context.catalog, store).await;
        if resumed.map_err(at_store)? {
            self.forget_old_logs(store);
        }
        let in_flight = self.enqueue(logs.store, &newest, parts).map_err(at_store)?;
        let mut token = Token::new(store);
        let mut outcomes = vec![None; count];
        let waits =
            in_flight.into_iter().map(|InFlightPart { partition, changes, position }| async move {
                (partition, changes, position.await.unwrap_or_else(|_| Err(stopping_error())))
            });
        for (partition, changes, position) in join_all(waits).await {
            let at = logs.at(partition);
            match position {
                Ok(position) => {
                    let last = position.of_change(changes.len() - 1);
                    token.advance(partition, position.log_id, last)?;
                    self.await_results(
                        at,
                        client,
                        (&changes, position),
                        outcome_wait,
                        &mut outcomes,
                    )
                    .await;
                }
                Err(error) => {
                    let error = at_store(self.or_not_yet(at, error));
                    for change in changes {
                        outcomes[change.index] = Some(ChangeResult::failed(error.clone()));
                    }
                }
            }
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing_outcome));
        Ok((token, outcomes.collect()))
    }

    /// Enqueues every part for its partition in these logs. If a queue is full, the
    /// parts before it proceed and are answered as appended; this part is answered as refused.
    fn enqueue(
        &self,
        logs: StoreId,
        newest: &SchemaAt,
        parts: BTreeMap<PartitionId, Part>,
    ) -> Result<Vec<InFlightPart>> {
        let version = newest.definition.version;
        let mut in_flight = Vec::with_capacity(parts.len());
        for (partition, Part { batch, changes, bytes }) in parts {
            let queue = self.queue(PartitionRef { store: logs, partition });
            let position = match queue.enqueue((batch, bytes), version) {
                Ok(position) => position,
                Err(error) if in_flight.is_empty() => return Err(error.with_partition(partition)),
                Err(error) => {
                    let (reply, position) = oneshot::channel();
                    let _ = reply.send(Err(error.with_partition(partition)));
                    position
                }
            };
            in_flight.push(InFlightPart { partition, changes, position });
        }
        Ok(in_flight)
    }

    async fn await_results(
        &self,
        at: PartitionRef,
        client: ClientId,
        (changes, log_position): (&[AdmittedChange], LogPosition),
        outcome_wait: Duration,
        outcomes: &mut [Option<ChangeResult>],
    ) {
        for (index_in_part, change) in changes.iter().enumerate() {
            let position = log_position.of_change(index_in_part);
            let outcome = match change.is_conditional {
                false => ChangeResult::appended(position),
                true => {
                    self.conditional_result(at, position, (client, change.sequence), outcome_wait)
                        .await
                }
            };
            outcomes[change.index] = Some(outcome);
        }
    }

    async fn conditional_result(
        &self,
        at: PartitionRef,
        position: Position,
        change: (ClientId, Sequence),
        wait_max: Duration,
    ) -> ChangeResult {
        match self.outcomes.condition_outcome(at, position, change, wait_max).await {
            Some(condition) => ChangeResult::conditional(position, condition),
            None => {
                let message = "the change is in the log, but no replica reported the outcome in \
                    time; read the document after the token, or retry the same write";
                let error = Error::unknown_outcome(message).with_partition(at.partition);
                ChangeResult { position: Some(position), ..ChangeResult::failed(error) }
            }
        }
    }

    /// Appends a finished entry: a barrier, a heartbeat or a copied entry.
    ///
    /// # Errors
    /// `InvalidArgument` for other entries, `TokenLost` for an entry of another log, else as the
    /// log's append.
    pub async fn append(&self, at: PartitionRef, entry: &Entry) -> Result<AppendReceipt> {
        if !self.has(at) {
            if self.context.catalog.catalog().store_by_logs(at.store).is_some() {
                let message = "the store's writes now go to other partitions; describe the store \
                    again, and send the write there";
                return Err(Error::unavailable(message).with_partition(at.partition));
            }
            let message = "the store has no such partition; describe the store for its partitions";
            return Err(Error::not_found(message).with_partition(at.partition));
        }
        let is_copy = entry.source.is_some();
        match entry.body {
            EntryBody::Barrier | EntryBody::Heartbeat => {}
            EntryBody::Changes(_) | EntryBody::Definition if is_copy => {}
            _ => {
                let message = "the entry is not a barrier, a heartbeat or a copied entry; send \
                    changes with Write";
                return Err(Error::invalid_argument(message));
            }
        }
        let appended = self.queue(at).log().append_finished(entry).await;
        appended.map_err(|error| self.or_not_yet(at, error))
    }

    /// Returns the id of a partition's log.
    pub async fn log_id(&self, at: PartitionRef) -> Result<LogId> {
        let found = self.queue(at).log().log_id().await;
        found.map_err(|error| self.or_not_yet(at, error))
    }

    /// Returns the newest version of a store's definition that this writer knows; 0 if it knows
    /// none.
    pub fn newest_version(&self, store: StoreId) -> SchemaVersion {
        let catalog = self.context.catalog.catalog();
        let newest = catalog.store(store).and_then(|history| history.newest());
        newest.map_or(SchemaVersion(0), |schema| schema.definition.version)
    }

    /// Returns the definition with which a client wrote, and the newest one.
    async fn definitions(
        &self,
        store: StoreId,
        version: SchemaVersion,
    ) -> Result<(Arc<SchemaAt>, Arc<SchemaAt>)> {
        let follower = &self.context.catalog;
        let made_with = match follower.catalog().store(store) {
            Some(history) if history.is_deleted() => return Err(deleted_store_error()),
            Some(history) => history.at(version).cloned(),
            None => None,
        };
        let made_with = match made_with {
            Some(made_with) => made_with,
            // Another writer may have defined it a moment ago.
            None => self.await_definition(store, version).await?,
        };
        let catalog = follower.catalog();
        let newest = catalog.store(store).and_then(|history| history.newest()).cloned();
        Ok((Arc::clone(&made_with), newest.unwrap_or(made_with)))
    }

    async fn await_definition(
        &self,
        store: StoreId,
        version: SchemaVersion,
    ) -> Result<Arc<SchemaAt>> {
        self.context.catch_up(DEFINITION_WAIT).await?;
        let catalog = self.context.catalog.catalog();
        let Some(history) = catalog.store(store) else {
            return Err(Error::not_found("no such store; create it, or list the stores"));
        };
        if history.is_deleted() {
            return Err(deleted_store_error());
        }
        let newest = history.newest().map_or(0, |schema| schema.definition.version.0);
        history.at(version).cloned().ok_or_else(|| {
            let message = format!(
                "the store has no schema version {version}, its newest is {newest}; describe the \
                 store again"
            );
            Error::invalid_argument(message)
        })
    }

    /// Returns whether an active store is written to this partition, according to the folded
    /// catalog.
    pub(crate) fn has(&self, at: PartitionRef) -> bool {
        self.context.catalog.catalog().store_by_logs(at.store).is_some_and(|newest| {
            let logs = newest.definition.write_logs();
            logs.store == at.store && at.partition.0 < logs.partitions.0
        })
    }

    pub(crate) fn queue(&self, at: PartitionRef) -> Arc<WriteQueue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(at).or_insert_with(|| {
            let (log, entropy) = (Arc::clone(&self.context.log), Arc::clone(&self.context.entropy));
            let (log, catalog) = (PartitionLog::new(at, log, entropy), &self.context.catalog);
            Arc::new(WriteQueue::start(Arc::new(log), at, Arc::clone(catalog)))
        });
        Arc::clone(queue)
    }

    /// Drops the queues of a deleted store.
    pub(crate) fn forget(&self, store: StoreId) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|at, _| at.store != store);
    }

    /// Drops the queues of logs that a store's documents have left.
    fn forget_old_logs(&self, store: StoreId) {
        let catalog = self.context.catalog.catalog();
        let written =
            catalog.store_by_logs(store).map(|newest| newest.definition.write_logs().store);
        let is_old =
            |logs: StoreId| catalog.home_by_storage_id(logs) == store && Some(logs) != written;
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|at, _| !is_old(at.store));
    }
}

fn stopping_error() -> Error {
    Error::unknown_outcome("the writer is stopping; retry the same write at another writer")
}

fn deleted_store_error() -> Error {
    Error::not_found("the store was deleted; list the stores")
}

fn missing_outcome() -> ChangeResult {
    ChangeResult::failed(Error::internal(
        "the append reported no outcome of a change; report a bug",
    ))
}
