//! A followed partition: the state that its tail, its reads and its waits share.

use forebay_core::id::{ClientId, PartitionRef, Sequence};
use forebay_core::outcome::{Outcome, OutcomeTable};
use forebay_core::replica_state::Phase;
use forebay_core::{Error, Result};
use parking_lot::Mutex;

use crate::barrier::BarrierQueue;
use crate::progress::{ProgressBoard, ReplicaProgress};
use crate::quiesced_tasks::QuiescedTasks;

/// A partition that is followed.
pub struct Partition {
    /// The partition's store and id.
    pub at: PartitionRef,
    /// Progress that the tail publishes.
    pub board: ProgressBoard,
    /// Barriers of the partition.
    pub(crate) barriers: BarrierQueue,
    /// Work for a moment at which nothing is applied.
    pub quiesced: QuiescedTasks,
    outcomes: Option<Mutex<OutcomeTable>>,
    allow_incomplete_reads: bool,
}

impl Partition {
    pub(crate) fn new(at: PartitionRef, keep_outcomes: bool, allow_incomplete_reads: bool) -> Self {
        Self {
            at,
            board: ProgressBoard::new(),
            barriers: BarrierQueue::default(),
            quiesced: QuiescedTasks::default(),
            outcomes: keep_outcomes.then(|| Mutex::new(OutcomeTable::default())),
            allow_incomplete_reads,
        }
    }

    /// Returns whether the partition answers reads at this progress.
    pub fn serves(&self, progress: &ReplicaProgress) -> bool {
        match progress.phase {
            Phase::Serving => true,
            Phase::Bootstrapping => self.allow_incomplete_reads,
            Phase::Poisoned => false,
        }
    }

    /// Stores the outcomes of an entry's conditional changes.
    pub(crate) fn keep_outcomes(&self, outcomes: &[Outcome]) {
        let Some(table) = self.outcomes.as_ref().filter(|_| !outcomes.is_empty()) else { return };
        let mut table = table.lock();
        outcomes.iter().for_each(|outcome| table.keep(*outcome));
    }

    /// Replaces the outcomes by those of another replica.
    pub(crate) fn replace_outcomes(&self, outcomes: OutcomeTable) {
        if let Some(table) = &self.outcomes {
            *table.lock() = outcomes;
        }
    }

    /// Returns the outcome of a conditional change, if it is stored.
    ///
    /// # Errors
    /// Returns `Unsupported` if the replica stores no outcomes.
    pub(crate) fn outcome(&self, client: ClientId, sequence: Sequence) -> Result<Option<Outcome>> {
        let table = self.outcomes.as_ref().ok_or_else(|| {
            Error::unsupported(
                "this replica stores no outcomes; open the replica with keep_outcomes",
            )
        })?;
        Ok(table.lock().get(client, sequence))
    }
}

/// Returns the reason why a partition does not answer.
pub fn not_serving(at: PartitionRef, progress: &ReplicaProgress) -> Error {
    let error = match (progress.phase, &progress.fatal_error) {
        (Phase::Poisoned, _) => Error::internal(
            "this partition met a broken invariant; wait for the rebuild, or close the reader \
             and open it again",
        ),
        (_, Some(error)) => error.clone(),
        _ => {
            let catch_up = &progress.catch_up;
            let stalled = match &progress.last_error {
                Some(error) => format!("; the replica stalled: {error}"),
                None => String::new(),
            };
            Error::unavailable(format!(
                "the partition is bootstrapping: {}%, offset {} of {}; await readiness, or open \
                 with allow_incomplete_reads{stalled}",
                catch_up.percent().min(99),
                catch_up.offset_applied,
                catch_up.target,
            ))
        }
    };
    error.with_partition(at.partition)
}
