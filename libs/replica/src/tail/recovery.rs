//! The answers of a tail to failures: note the error, build another replica, or stop.

use forebay_core::{Error, ErrorCode};
use forebay_tasks::block_in_place;

use super::Tail;
use crate::checkpoint::Checkpoints;
use crate::progress::Phase;

impl Tail {
    pub(super) fn note_error(&mut self, error: Error) {
        self.counts.log_errors += 1;
        let (at, name) = (self.partition.at, &self.context.name);
        if self.partition.board.current().trouble.as_ref() != Some(&error) {
            tracing::warn!(store = %name, partition = %at.partition, %error, "log tail stalled");
        }
        self.publish(|progress| progress.trouble = Some(error));
    }

    /// Starts a new replica from the log's start; the serving one stays next to it. If there is no
    /// space for a second replica, the tail retries until there is, unless the rebuild itself
    /// serves to free space: then the old replica may be the first to find some.
    pub(super) async fn rebuild(&mut self, reason: Error) {
        let is_for_room = reason.code() == ErrorCode::LimitExceeded;
        let is_damage = reason.code() == ErrorCode::Corrupt;
        if is_damage && self.checkpoints.as_mut().is_some_and(Checkpoints::drop_damaged) {
            self.counts.checkpoints.damaged += 1;
        }
        while let Err(error) = block_in_place(|| self.replica.start_over(reason.clone())) {
            self.note_error(error);
            if is_for_room {
                return;
            }
            tokio::time::sleep(self.backoff.next_wait(&*self.context.parts.entropy)).await;
        }
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::warn!(store = %name, partition = %at.partition, %reason, "building a new copy");
        self.counts.rebuilds += 1;
        self.publish(|_| {});
    }

    pub(super) fn poison(&mut self, error: &Error) {
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::error!(store = %name, partition = %at.partition, %error, "invariant broken");
        self.replica.mark_broken();
        if self.replica.is_served() {
            self.replica.poison();
            self.partition.board.publish(|progress| progress.phase = Phase::Poisoned);
        }
    }

    pub(super) fn halt(&mut self, error: Error) {
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::error!(store = %name, partition = %at.partition, %error, "partition halted");
        self.publish(|progress| progress.halted = Some(error));
    }
}
