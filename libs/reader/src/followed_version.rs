//! A followed store version: whether it may answer, and the refusals of its reads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::replica_state::Phase;
use forebay_core::{Error, ErrorCode, Result};
use forebay_index::{Index, ReadAdmission, ReadAt, View};
use forebay_replica::{ReadOptions, ReadWait, ReplicaContext, check_bound, not_serving};
use forebay_wire::token::Token;

/// A followed store version.
pub(crate) struct FollowedVersion {
    /// The replica of the version.
    pub context: Arc<ReplicaContext>,
    /// The index that reads use.
    pub index: Index,
}

impl FollowedVersion {
    /// Returns whether each partition answers and has reached the position of another version; this
    /// version is live since schema version `live_since`.
    pub(crate) fn has_passed(&self, before: &Self, live_since: SchemaVersion) -> bool {
        if self.context.logs != before.context.logs {
            // All earlier writes are in the new logs before the entry that makes the version live.
            return self.context.followed().all(|followed| {
                let progress = followed.board.current();
                progress.phase == Phase::Serving && progress.served.schema_version >= live_since
            });
        }
        self.context.followed().zip(before.context.followed()).all(|(followed, other)| {
            let (progress, other) = (followed.board.current(), other.board.current());
            let is_behind = progress.served.log_id == other.served.log_id
                && progress.served.position < other.served.position;
            progress.phase == Phase::Serving && !is_behind
        })
    }

    /// Returns the storage id of the live store version, by the newest definition that any of these
    /// partitions has seen; `None` before one has.
    pub(crate) fn live_in(&self, partitions: &[PartitionId]) -> Result<Option<StoreId>> {
        let mut newest = SchemaVersion(0);
        for partition in partitions {
            newest = newest.max(self.context.partition(*partition)?.board.schema_version());
        }
        let schema = self.context.storage.schemas().get(newest);
        Ok(schema.map(|schema| schema.definition.versions.live().storage_id))
    }

    /// Returns whether writes go to other logs, so that a wait in these partitions of the old logs
    /// says too little, or was refused for this reason.
    pub(crate) async fn is_left(
        &self,
        read: &ReadOptions,
        partitions: &[PartitionId],
        outcome: &Result<()>,
    ) -> bool {
        let is_elsewhere = |schema: &SchemaAt| schema.definition.write_logs() != self.context.logs;
        match (read.wait(), outcome) {
            (ReadWait::Nothing, _) => false,
            (ReadWait::Latest, Ok(())) => {
                let boards = partitions.iter().filter_map(|id| self.context.partition(*id).ok());
                let newest_version = boards.map(|partition| partition.board.schema_version()).max();
                let schema = newest_version.and_then(|newest_version| {
                    self.context.storage.schemas().get(newest_version).cloned()
                });
                schema.is_some_and(|schema| is_elsewhere(&schema))
            }
            (ReadWait::Latest, Err(_)) => self.newest().is_some_and(|newest| is_elsewhere(&newest)),
            (ReadWait::Token(token), _) => {
                if outcome.as_ref().is_err_and(|error| error.code() != ErrorCode::TokenLost)
                    || outcome.is_ok() && self.has_logs_of(token)
                {
                    return false;
                }
                // The catalog may not have received the repartition yet.
                let end = self.context.parts.log.bounds(PartitionRef::CONTROL).await;
                if let Ok(bounds) = end {
                    drop(self.context.parts.catalog.wait_applied(bounds.end, read.timeout()).await);
                }
                self.newest().is_some_and(|newest| is_elsewhere(&newest))
            }
        }
    }

    /// Returns the newest definition of the store.
    fn newest(&self) -> Option<Arc<SchemaAt>> {
        let catalog = self.context.parts.catalog.catalog();
        catalog.store(self.context.home).and_then(|history| history.newest()).cloned()
    }

    /// Returns whether a token is of the followed logs, as far as this reader knows.
    fn has_logs_of(&self, token: &Token) -> bool {
        token.positions.iter().all(|(id, (log_id, _))| {
            let followed = self.context.partitions.get(id.0 as usize);
            followed.is_some_and(|followed| {
                let served_log =
                    followed.as_ref().and_then(|partition| partition.board.current().served.log_id);
                served_log.is_none_or(|served_log| served_log == *log_id)
            })
        })
    }

    /// Refuses calls after the close. A store version that another one has just replaced still
    /// answers a call that reached it before: its reader is not closed.
    ///
    /// # Errors
    /// Returns `Closed` after the close.
    pub(crate) fn check_open(&self) -> Result<()> {
        // `is_gone` is set before the version closes.
        self.context.close_signal.check().or_else(|error| {
            match self.context.is_gone.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err(error),
            }
        })
    }

    /// Calls `visit` with a view of this store version.
    #[inline]
    pub(crate) fn read_local<T>(
        &self,
        max_staleness: Option<Duration>,
        visit: impl FnOnce(&View<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_admission(max_staleness, |at| visit(&self.index.view(at)))
    }

    /// Runs reads at the present time, under an age bound if there is one.
    pub(crate) fn with_admission<T>(
        &self,
        max_staleness: Option<Duration>,
        reads: impl FnOnce(ReadAt<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_open()?;
        let Some(bound) = max_staleness else {
            let at = ReadAt::by(&*self.context.parts.clock)
                .allow_incomplete_reads(self.context.options.allow_incomplete_reads);
            return reads(at).map_err(|error| self.explained(error, None));
        };
        let now = self.context.parts.clock.now();
        let at =
            ReadAt::new(now).allow_incomplete_reads(self.context.options.allow_incomplete_reads);
        let options = &self.context.storage.schemas().newest().definition.options;
        check_bound(bound, options).map_err(|error| error.with_store(&self.context.name))?;
        let admission = |partition: PartitionId| self.admission(partition, now, bound);
        reads(at.admission(&admission)).map_err(|error| self.explained(error, Some((now, bound))))
    }

    fn admission(&self, partition: PartitionId, now: Timestamp, bound: Duration) -> ReadAdmission {
        let followed = self.context.partitions.get(partition.0 as usize).and_then(Option::as_ref);
        match followed {
            Some(partition) if partition.board.freshness().check(now, bound).is_ok() => {
                ReadAdmission::Serve
            }
            _ => ReadAdmission::Stale,
        }
    }

    /// Adds to a refusal what this reader knows of its cause, and the store's name.
    fn explained(&self, error: Error, bound: Option<(Timestamp, Duration)>) -> Error {
        let followed = error.context().partition.and_then(|id| self.context.partition(id).ok());
        let explanation = followed.and_then(|partition| match error.code() {
            ErrorCode::Unavailable | ErrorCode::Internal => {
                let progress = partition.board.current();
                (!partition.serves(&progress)).then(|| not_serving(partition.at, &progress))
            }
            ErrorCode::Stale => {
                let (now, max_staleness) = bound?;
                let stale_error = partition.board.freshness().check(now, max_staleness).err()?;
                Some(stale_error.with_partition(partition.at.partition))
            }
            ErrorCode::Corrupt => {
                // The tail then builds a new replica next to this one.
                partition.board.ask_for_check();
                let message = "a part of this replica is damaged, and the reader rebuilds the \
                    replica from the log; try again";
                Some(Error::unavailable(message).with_partition(partition.at.partition))
            }
            _ => None,
        });
        explanation.unwrap_or(error).with_store(&self.context.name)
    }
}
