//! One partition that a reader follows, as its tail, its reads and its waits share it.

use forebay_core::id::{ClientId, PartitionRef, Sequence};
use forebay_core::outcome::{Outcome, OutcomeTable};
use forebay_core::{Error, Result};
use parking_lot::Mutex;

use crate::at_rest::AtRest;
use crate::barrier::BarrierQueue;
use crate::progress::{Phase, Progress, ProgressBoard};

/// One partition that the reader follows.
pub(crate) struct Partition {
    /// Which one.
    pub at: PartitionRef,
    /// Where its tail publishes.
    pub board: ProgressBoard,
    /// Its barriers.
    pub barriers: BarrierQueue,
    /// What is to be done while nothing is applied.
    pub at_rest: AtRest,
    outcomes: Option<Mutex<OutcomeTable>>,
    serve_partial: bool,
}

impl Partition {
    pub(crate) fn new(at: PartitionRef, keep_outcomes: bool, serve_partial: bool) -> Self {
        Self {
            at,
            board: ProgressBoard::new(),
            barriers: BarrierQueue::default(),
            at_rest: AtRest::default(),
            outcomes: keep_outcomes.then(|| Mutex::new(OutcomeTable::default())),
            serve_partial,
        }
    }

    /// Whether reads are answered in this picture.
    pub(crate) fn serves(&self, progress: &Progress) -> bool {
        match progress.phase {
            Phase::Serving => true,
            Phase::Bootstrapping => self.serve_partial,
            Phase::Poisoned => false,
        }
    }

    /// Keeps what the conditional changes of an entry came to.
    pub(crate) fn keep_outcomes(&self, outcomes: &[Outcome]) {
        let Some(table) = self.outcomes.as_ref().filter(|_| !outcomes.is_empty()) else { return };
        let mut table = table.lock();
        outcomes.iter().for_each(|outcome| table.keep(*outcome));
    }

    /// Replaces the outcomes by those of another copy.
    pub(crate) fn replace_outcomes(&self, outcomes: OutcomeTable) {
        if let Some(table) = &self.outcomes {
            *table.lock() = outcomes;
        }
    }

    /// What a conditional change came to, if it is kept.
    ///
    /// # Errors
    /// `Unsupported` when the reader keeps none.
    pub(crate) fn outcome(&self, client: ClientId, sequence: Sequence) -> Result<Option<Outcome>> {
        let table = self.outcomes.as_ref().ok_or_else(|| {
            Error::unsupported("this reader keeps no outcomes; open it with keep_outcomes")
        })?;
        Ok(table.lock().get(client, sequence))
    }
}

/// Why a partition does not answer.
pub(crate) fn not_serving(at: PartitionRef, progress: &Progress) -> Error {
    let error = match (progress.phase, &progress.halted) {
        (Phase::Poisoned, _) => Error::internal(
            "a broken invariant was found in this partition; it is built anew, or close the \
             reader and open it again",
        ),
        (_, Some(halted)) => halted.clone(),
        _ => {
            let catch_up = &progress.catch_up;
            let trouble = match &progress.trouble {
                Some(trouble) => format!("; it is held up: {trouble}"),
                None => String::new(),
            };
            Error::unavailable(format!(
                "the partition is bootstrapping: {}%, offset {} of {}; await readiness, or open \
                 with serve_partial{trouble}",
                catch_up.percent().min(99),
                catch_up.offset_applied,
                catch_up.target,
            ))
        }
    };
    error.with_partition(at.partition)
}
