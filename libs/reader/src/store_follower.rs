//! A store's partitions, followed into a storage that a service brings: all that a reader promises
//! of waits, ages and outcomes, over documents that lie elsewhere.

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

/// Follows some partitions of a store, one task for each. Cheap to clone; it ends with the last
/// clone.
#[derive(Clone)]
pub struct StoreFollower {
    handle: Arc<Handle>,
}

/// Ends it all when the last clone goes.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.closing.close();
    }
}

impl StoreFollower {
    /// Starts to follow, on the current runtime, what the options ask for of the store of this
    /// definition. Of the options those of checkpoints and of memory are the storage's own matter.
    ///
    /// # Errors
    /// `InvalidArgument` for a filter that the store cannot fulfil or a readiness bound below twice
    /// its heartbeat interval; those of [`Storage::open`].
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

    /// Whether a partition is among those that are followed.
    pub fn follows(&self, partition: PartitionId) -> bool {
        self.shared().partition(partition).is_ok()
    }

    /// How each partition is at this moment.
    pub fn status(&self) -> ReaderStatus {
        self.shared().status()
    }

    /// Waits for what `read` asks for in these partitions, and refuses those that do not answer or
    /// are older than its bound. What is read behind it is as fresh as asked for.
    ///
    /// # Errors
    /// As [`Reader::read`](crate::Reader::read); but `Unavailable` where it is closed, also while
    /// it waits: what took its place is to be asked.
    pub async fn admit(&self, read: &Read, partitions: &[PartitionId]) -> Result<()> {
        let shared = self.shared();
        shared.wait_for_read(read, partitions).await.map_err(|error| match error.code() {
            ErrorCode::Closed => {
                let message = "the store is opened anew here, or elsewhere; ask again";
                Error::unavailable(message).with_store(&shared.name)
            }
            _ => error,
        })?;
        partitions.iter().try_for_each(|partition| shared.check_serves(*partition, read.age_max()))
    }

    /// Waits until a partition has applied this position, whatever its log.
    ///
    /// # Errors
    /// As [`Reader::wait_applied`](crate::Reader::wait_applied).
    pub async fn wait_applied(
        &self,
        partition: PartitionId,
        position: Position,
        timeout: Duration,
    ) -> Result<()> {
        self.shared().wait_applied(partition, position, timeout).await
    }

    /// What a conditional change came to; `None` when it was not applied here, had no condition, or
    /// is no longer kept.
    ///
    /// # Errors
    /// `Unsupported` without [`ReaderOptions::keep_outcomes`].
    pub fn outcome(
        &self,
        partition: PartitionId,
        client: ClientId,
        sequence: Sequence,
    ) -> Result<Option<Outcome>> {
        self.shared().partition(partition)?.outcome(client, sequence)
    }

    /// Ends it: waits end with `Closed`, those of [`StoreFollower::admit`] with `Unavailable`, and
    /// its tasks behind that.
    pub fn close(&self) {
        self.shared().closing.close();
    }

    /// Ends it, and waits until its tasks have ended: the storage's writers are free then.
    ///
    /// # Errors
    /// `DeadlineExceeded` when they have not in this time; it ends all the same.
    pub async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.shared().shut_down(timeout).await
    }
}
