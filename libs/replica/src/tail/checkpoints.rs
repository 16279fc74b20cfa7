//! The checkpoints of a tail: restored before the first session, written between two groups of
//! records.

use std::path::Path;
use std::time::Duration;

use forebay_core::id::SchemaVersion;
use forebay_core::limits::{CHECKPOINT_FILES_MAX, READER_DEFINITION_WAIT_MS};
use forebay_core::{Error, ErrorCode, Result};
use forebay_tasks::block_in_place;

use super::Tail;
use crate::checkpoint::Checkpoints;

impl Tail {
    /// Restores the replica from the newest usable checkpoint, if there is one.
    pub(super) async fn restore(&mut self) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let mut files = match block_in_place(|| checkpoints.files()) {
            Ok(files) => files,
            Err(error) => return self.note_unusable_checkpoint(&error),
        };
        if self.replica.is_opened() {
            // Another reader owned the shared copy until now; it is further than any checkpoint.
            self.counts.checkpoints.restored += 1;
            if let Some(micros) = self.replica.clock_error_us() {
                self.partition.board.set_clock_error(micros);
            }
            return self.publish(|_| {});
        }
        files.truncate(CHECKPOINT_FILES_MAX);
        for file in files {
            match self.restore_from(&file).await {
                Ok(()) => {
                    self.counts.checkpoints.restored += 1;
                    self.note_repaired_blocks();
                    return self.publish(|_| {});
                }
                Err(error) => self.note_unusable_checkpoint(&error),
            }
        }
    }

    async fn restore_from(&mut self, file: &Path) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let (image, head) = block_in_place(|| checkpoints.open(file, self.replica.state()))?;
        let version = head.state.schema_version;
        if version != SchemaVersion(0) && !self.context.learn_definitions(version)? {
            let wait_max = Duration::from_millis(READER_DEFINITION_WAIT_MS);
            if let Err(error) = self.context.await_definition(version, wait_max).await {
                // The checkpoint is sound, and becomes usable once its definition is known.
                let (log_id, offset) = (head.state.log_id, head.state.offset_applied);
                self.checkpoints.iter_mut().for_each(|saved| saved.keep_from(log_id, offset));
                return Err(error);
            }
        }
        let clock_error_us = head.clock_error_us;
        block_in_place(|| self.replica.restore(head, &image))?;
        let replica = &self.replica;
        self.checkpoints.iter_mut().for_each(|saved| saved.note_restored(replica, file));
        if let Some(micros) = clock_error_us {
            self.partition.board.set_clock_error(micros);
        }
        Ok(())
    }

    /// Counts the blocks of the checkpoint that were repaired since the last call: the replica is
    /// correct, but the file and the disk under it are suspect.
    pub(super) fn note_repaired_blocks(&mut self) {
        let blocks = self.replica.take_repaired_blocks();
        if blocks == 0 {
            return;
        }
        self.counts.checkpoints.blocks_repaired += blocks;
        self.checkpoints.iter_mut().for_each(Checkpoints::note_repaired_blocks);
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::warn!(
            store = %name, partition = %at.partition, blocks,
            "checkpoint blocks repaired; look at the disk"
        );
        self.publish(|_| {});
    }

    fn note_unusable_checkpoint(&mut self, error: &Error) {
        match error.code() {
            ErrorCode::Corrupt => self.counts.checkpoints.damaged += 1,
            _ => self.counts.checkpoints.ignored += 1,
        }
        let (at, name) = (self.partition.at, &self.context.name);
        tracing::warn!(store = %name, partition = %at.partition, %error, "checkpoint ignored");
    }

    /// Writes a checkpoint that is due, but not while any partition of the reader starts from an
    /// image: that needs the disk, and a partition that started so has an image there.
    pub(super) fn checkpoint_due(&mut self) {
        match &mut self.checkpoints {
            Some(checkpoints) if self.context.is_fetching() => checkpoints.rest(0),
            _ => self.checkpoint(None),
        }
    }

    /// Writes a checkpoint between two groups of records, when state and rows are at one position.
    /// The tail applies nothing during the write. A write that takes longer than `longest` is
    /// aborted.
    pub(super) fn checkpoint(&mut self, longest: Option<Duration>) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let (clock, replica) = (&*self.context.parts.clock, &self.replica);
        let usage = self.context.storage.usage(self.partition.at.partition);
        let clock_error_us = self.partition.board.freshness().clock_error_us;
        let began = clock.now();
        // A clock that jumps, in either direction, ends the write early.
        let is_late = || {
            let took_us = clock.now().micros_since(began).unsigned_abs();
            longest.is_some_and(|longest| Duration::from_micros(took_us) > longest)
        };
        let is_written =
            block_in_place(|| checkpoints.write(replica, usage, clock_error_us, &is_late));
        checkpoints.rest(clock.now().micros_since(began));
        match is_written {
            Ok(false) => return,
            Ok(true) => self.counts.checkpoints.written += 1,
            Err(error) => {
                self.counts.checkpoints.failed += 1;
                let (at, name) = (self.partition.at, &self.context.name);
                if checkpoints.is_news(&error) {
                    tracing::warn!(
                        store = %name, partition = %at.partition, %error, "checkpoint write failed"
                    );
                }
            }
        }
        self.publish(|_| {});
    }
}
