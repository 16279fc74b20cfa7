//! A checkpoint file: an image of the documents, with the fold's state in it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forebay_core::{Error, Result};
use forebay_index::{Image, ImageFile, ImageSink};
use forebay_log::disk::DiskFile;
use forebay_snapshot::ImageState;

use crate::storage::ReplicaWriter;

/// A checkpoint file that is being written.
struct Output<'l> {
    file: &'l dyn DiskFile,
    is_late: &'l dyn Fn() -> bool,
}

impl ImageSink for Output<'_> {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if (self.is_late)() {
            let message =
                "the checkpoint took too long and was abandoned; the previous checkpoint stays";
            return Err(Error::deadline_exceeded(message));
        }
        self.file.write_at(bytes, offset).map_err(|error| disk_error("write", &error))
    }
}

/// Writes a whole checkpoint and makes its bytes durable; returns their number.
///
/// # Errors
/// Returns `Unavailable` if the disk refuses; `LimitExceeded` for content that is too large;
/// `Corrupt` if the replica reads from a damaged image; `DeadlineExceeded` once `is_late` returns
/// true.
pub fn write_checkpoint(
    file: &dyn DiskFile,
    head: &ImageState,
    documents: &dyn ReplicaWriter,
    is_late: &dyn Fn() -> bool,
) -> Result<u64> {
    let mut output = Output { file, is_late };
    let bytes = documents.write_image(head.encode()?, &mut output)?;
    file.sync_data().map_err(|error| disk_error("make durable", &error))?;
    Ok(bytes)
}

/// Opens a checkpoint: reads its state and next to nothing of its documents.
///
/// # Errors
/// Returns `Unsupported` for a format that this build does not know, `Corrupt` for damage,
/// `Unavailable` for bytes that cannot be read.
pub fn open_checkpoint(file: Arc<dyn DiskFile>) -> Result<(Image, ImageState)> {
    open_image(Arc::new(CheckpointImage(file)))
}

/// Opens a checkpoint as [`open_checkpoint`] does, from a file that may be incomplete.
///
/// # Errors
/// Returns the same errors as [`open_checkpoint`].
pub(crate) fn open_image(file: Arc<dyn ImageFile>) -> Result<(Image, ImageState)> {
    let image = Image::open(file)?;
    let metadata = image.metadata();
    let head = ImageState::decode(
        metadata.partition,
        metadata.partitions,
        metadata.progress,
        image.state(),
    )?;
    Ok((image, head))
}

/// The file of a checkpoint; immutable once it has its final name.
#[derive(Debug)]
struct CheckpointImage(Arc<dyn DiskFile>);

impl ImageFile for CheckpointImage {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_fd()
    }
}

/// Returns the error for a disk operation on a checkpoint that failed.
pub(super) fn disk_error(doing: &str, error: &io::Error) -> Error {
    Error::unavailable(format!(
        "could not {doing} a checkpoint: {error}; look at the checkpoint directory and its disk"
    ))
}
