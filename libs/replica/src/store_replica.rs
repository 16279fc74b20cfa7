//! The replica of a store's partitions in a service's own storage: it gives a reader's promises
//! about waits, ages and outcomes over documents that the storage holds.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{ClientId, PartitionId, Position, Sequence};
use forebay_core::outcome::Outcome;
use forebay_core::{Error, ErrorCode, Result};

use crate::context::ReplicaContext;
use crate::options::{ReplicaOptions, ReplicaParts};
use crate::read_options::ReadOptions;
use crate::status::ReaderStatus;
use crate::storage::Storage;
use crate::tail::Tail;

/// A replica of some partitions of a store, with one task for each. Cheap to clone; the drop of the
/// last clone ends it.
#[derive(Clone)]
pub struct StoreReplica {
    handle: Arc<Handle>,
}

/// The shared handle; its drop closes the replica.
struct Handle(Arc<ReplicaContext>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close_signal.close();
    }
}

impl StoreReplica {
    /// Starts to follow, on the current runtime, the partitions that the options select from this
    /// store.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a filter that the store cannot fulfil or a readiness bound
    /// below twice its heartbeat interval, and the errors of [`Storage::open`].
    pub fn start(
        options: ReplicaOptions,
        parts: ReplicaParts,
        schema: &SchemaAt,
        storage: Arc<dyn Storage>,
    ) -> Result<Self> {
        let name = options.store.clone();
        let at_store = |error: Error| error.with_store(&name);
        let context = ReplicaContext::new(options, parts, &schema.definition, storage);
        let context = Arc::new(context.map_err(at_store)?);
        let tail = |partition| Tail::new(Arc::clone(&context), Arc::clone(partition), None);
        let tails = context.followed().map(tail).collect::<Result<Vec<_>>>().map_err(at_store)?;
        for tail in tails {
            tokio::spawn(tail.run());
        }
        Ok(Self { handle: Arc::new(Handle(context)) })
    }

    fn context(&self) -> &Arc<ReplicaContext> {
        &self.handle.0
    }

    /// Returns whether a partition is followed.
    pub fn follows(&self, partition: PartitionId) -> bool {
        self.context().partition(partition).is_ok()
    }

    /// Returns the status of each partition.
    pub fn status(&self) -> ReaderStatus {
        self.context().status()
    }

    /// Waits for what `read` requests in these partitions, and refuses partitions that do not
    /// answer or are older than its bound. Data read after this call is as fresh as requested.
    ///
    /// # Errors
    /// Returns the errors of a read by a reader, but `Unavailable` instead of `Closed`, also if the
    /// replica closes during the wait: the caller should retry with the replica's successor.
    pub async fn await_readable(
        &self,
        read: &ReadOptions,
        partitions: &[PartitionId],
    ) -> Result<()> {
        let context = self.context();
        context.wait_for_read(read, partitions).await.map_err(|error| match error.code() {
            ErrorCode::Closed => {
                let message =
                    "the store's replica is being reopened here or by another process; try again";
                Error::unavailable(message).with_store(&context.name)
            }
            _ => error,
        })?;
        partitions
            .iter()
            .try_for_each(|partition| context.check_serves(*partition, read.staleness_bound()))
    }

    /// Waits until a partition has applied this position, regardless of its log.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded`, or `Unavailable` with its progress while the partition
    /// bootstraps; the error for which the partition halted; `Closed`.
    pub async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        self.context().wait_applied(partition, position, timeout).await
    }

    /// Returns the outcome of a conditional change; `None` if the change was not applied here, had
    /// no condition, or its outcome is no longer stored.
    ///
    /// # Errors
    /// Returns `Unsupported` without [`ReplicaOptions::keep_outcomes`].
    pub fn outcome(
        &self,
        partition: PartitionId,
        client: ClientId,
        sequence: Sequence,
    ) -> Result<Option<Outcome>> {
        self.context().partition(partition)?.outcome(client, sequence)
    }

    /// Closes the replica: waits end with `Closed`, waits of [`StoreReplica::await_readable`] with
    /// `Unavailable`, and its tasks end after that.
    pub fn close(&self) {
        self.context().close_signal.close();
    }

    /// Closes the replica, and waits until its tasks have ended and the storage's writers are free.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if the tasks have not ended within `timeout`; the replica is
    /// closed nevertheless.
    pub async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.context().shut_down(timeout).await
    }
}
