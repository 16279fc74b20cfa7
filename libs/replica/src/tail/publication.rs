//! The publication of a replica: its progress, and its way into service.

use forebay_core::Result;
use forebay_tasks::block_in_place;

use super::Tail;
use crate::progress::ReplicaProgress;

impl Tail {
    /// Puts the replica in service as soon as that is permitted.
    ///
    /// # Errors
    /// Returns `Unavailable` or `LimitExceeded` if this process cannot map the replica in place of
    /// a checkpoint.
    fn put_in_service(&mut self, current: &ReplicaProgress) -> Result<()> {
        if !self.replica.may_be_served(current, self.context.options.allow_incomplete_reads) {
            return Ok(());
        }
        // For a shard, this call flushes to disk, which blocks.
        block_in_place(|| self.replica.publish(current.phase))?;
        if self.context.storage.switch_to_shared_copy(self.partition.at.partition)? {
            self.poisoned = 0;
            let outcomes = self.replica.serve();
            self.partition.replace_outcomes(outcomes);
        }
        Ok(())
    }

    /// Publishes the replica's progress, and puts it in service as soon as that is permitted.
    pub(super) fn publish(&mut self, change: impl FnOnce(&mut ReplicaProgress)) {
        let current = self.partition.board.current();
        let trouble = self.put_in_service(&current).err();
        let (replica, counts) = (&mut self.replica, self.counts);
        self.partition.board.publish(|progress| {
            if !replica.has_pending_effects() {
                progress.trouble = trouble;
            }
            progress.counts = counts;
            replica.show(progress);
            change(progress);
        });
        self.context.note_progress(self.partition.board.schema_version());
    }
}
