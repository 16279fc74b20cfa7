//! Appends on their way through a commit: waiting, written to a segment, acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::id::{Offset, PartitionRef};
use forebay_core::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::journal::format::{Piece, SegmentName};
use super::partition::Partition;
use crate::change_log::AppendReceipt;
use crate::disk::DiskFile;

/// An append that waits for its commit.
pub(super) struct PendingAppend {
    pub(super) partition: Arc<Partition>,
    pub(super) entry: Bytes,
    pub(super) reply: oneshot::Sender<Result<AppendReceipt>>,
    /// Share of the entry in the byte budget of the queues.
    pub(super) _room: OwnedSemaphorePermit,
}

impl PendingAppend {
    pub(super) fn answer(self, result: Result<AppendReceipt>) {
        // The caller may have dropped its call.
        let _ = self.reply.send(result);
    }
}

/// Frames that were written to one segment and are not yet acknowledged.
pub(super) struct SegmentWrite {
    pub(super) partition: Arc<Partition>,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) base: Offset,
    /// Byte offset of the frames in the segment.
    pub(super) at: u64,
    /// Bytes of the segment, including these frames.
    pub(super) bytes: u64,
    /// Whether the frames are durable in the segment itself.
    pub(super) is_synced: bool,
    pub(super) frames: Vec<FrameWrite>,
    /// Bytes of the frames, for the journal; `None` if they exceed a journal record.
    pub(super) copy: Option<Vec<u8>>,
}

impl SegmentWrite {
    pub(super) fn segment(&self) -> SegmentName {
        (self.partition.at, self.base)
    }

    /// Returns the frames as a piece of a journal record.
    pub(super) fn piece(&self) -> Option<Piece<'_>> {
        let (at, base) = self.segment();
        self.copy.as_deref().map(|bytes| Piece { at, base, place: self.at, bytes })
    }

    /// Fails the appends with an unknown outcome: the frames may or may not be durable.
    pub(super) fn answer_unknown(self) {
        let error = unknown_outcome(self.partition.at);
        for frame in self.frames {
            frame.pending.answer(Err(error.clone()));
        }
    }
}

/// A frame of a segment write.
pub(super) struct FrameWrite {
    pub(super) pending: PendingAppend,
    pub(super) receipt: AppendReceipt,
    /// Byte offset of the frame in the segment.
    pub(super) at: u64,
}

/// Returns the error for an append that may or may not be durable.
pub(super) fn unknown_outcome(at: PartitionRef) -> Error {
    Error::unknown_outcome(
        "the entry may or may not survive a restart: the disk failed while it was made durable; \
         restart the service and send the same write again",
    )
    .with_partition(at.partition)
}
