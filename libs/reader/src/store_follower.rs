//! A follower of a store's partitions into a service's own storage: it gives a reader's promises
//! about waits, ages and outcomes over documents that are stored elsewhere.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{ClientId, PartitionId, Position, Sequence};
use forebay_core::outcome::Outcome;
use forebay_core::{Error, ErrorCode, Result};

use crate::options::{ReaderOptions, ReaderParts};
use crate::read::Read;
use crate::shared::Shared;
use crate::status::ReaderStatus;
use crate::storage::Storage;
use crate::tail::Tail;

/// A follower of some partitions of a store, with one task for each. Cheap to clone; the drop of
/// the last clone ends it.
#[derive(Clone)]
pub struct StoreFollower {
    handle: Arc<Handle>,
}

/// The shared handle; its drop closes the follower.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.closing.close();
    }
}

impl StoreFollower {
    /// Starts to follow, on the current runtime, the partitions that the options select from this
    /// store. The options for checkpoints and memory are left to the storage.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a filter that the store cannot fulfil or a readiness bound
    /// below twice its heartbeat interval, and the errors of [`Storage::open`].
    pub fn start(
        options: ReaderOptions,
        parts: ReaderParts,
        schema: &SchemaAt,
        storage: Arc<dyn Storage>,
    ) -> Result<Self> {
        let name = options.store.clone();
        let at_store = |error: Error| error.with_store(&name);
        let shared = Shared::over(options, parts, &schema.definition, storage);
        let shared = Arc::new(shared.map_err(at_store)?);
        let tail = |partition| Tail::new(Arc::clone(&shared), Arc::clone(partition), None);
        let tails = shared.followed().map(tail).collect::<Result<Vec<_>>>().map_err(at_store)?;
        for tail in tails {
            tokio::spawn(tail.run());
        }
        Ok(Self { handle: Arc::new(Handle(shared)) })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.0
    }

    /// Returns whether a partition is followed.
    pub fn follows(&self, partition: PartitionId) -> bool {
        self.shared().partition(partition).is_ok()
    }

    /// Returns the status of each partition.
    pub fn status(&self) -> ReaderStatus {
        self.shared().status()
    }

    /// Waits for what `read` requests in these partitions, and refuses partitions that do not
    /// answer or are older than its bound. Data read after this call is as fresh as requested.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read`](crate::Reader::read), but `Unavailable` instead of
    /// `Closed`, also if the follower closes during the wait: the caller should retry with the
    /// follower's successor.
    pub async fn admit(&self, read: &Read, partitions: &[PartitionId]) -> Result<()> {
        let shared = self.shared();
        shared.wait_for_read(read, partitions).await.map_err(|error| match error.code() {
            ErrorCode::Closed => {
                let message =
                    "the store's replica is being reopened here or by another process; try again";
                Error::unavailable(message).with_store(&shared.name)
            }
            _ => error,
        })?;
        partitions.iter().try_for_each(|partition| shared.check_serves(*partition, read.age_max()))
    }

    /// Waits until a partition has applied this position, regardless of its log.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::wait_applied`](crate::Reader::wait_applied).
    pub async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        self.shared().wait_applied(partition, position, timeout).await
    }

    /// Returns the outcome of a conditional change; `None` if the change was not applied here, had
    /// no condition, or its outcome is no longer stored.
    ///
    /// # Errors
    /// Returns `Unsupported` without [`ReaderOptions::keep_outcomes`].
    pub fn outcome(
        &self,
        partition: PartitionId,
        client: ClientId,
        sequence: Sequence,
    ) -> Result<Option<Outcome>> {
        self.shared().partition(partition)?.outcome(client, sequence)
    }

    /// Closes the follower: waits end with `Closed`, waits of [`StoreFollower::admit`] with
    /// `Unavailable`, and its tasks end after that.
    pub fn close(&self) {
        self.shared().closing.close();
    }

    /// Closes the follower, and waits until its tasks have ended and the storage's writers are
    /// free.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if the tasks have not ended within `timeout`; the follower is
    /// closed nevertheless.
    pub async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.shared().shut_down(timeout).await
    }
}
