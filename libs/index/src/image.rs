//! Images: one partition's documents at one position, as a file that is mapped and not read.
//!
//! The format is `proto/spec/image.md`. A file contains the memory of a space, block by block, each
//! with a checksum, and the small amount of metadata that a writer needs to continue. Opening an
//! image reads only the metadata. A block is compared with its checksum at its first use, so no
//! damaged data is ever served, and the cost of an open grows with a thousandth of the image's
//! size. A damaged block is repaired from parity if the other blocks of its class are sound
//! (`blocks`).
//!
//! The fold's state next to the documents is stored in the image as opaque bytes: its *state*.

mod blocks;
mod format;
mod opening;
mod write;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::{fmt, io};

use forebay_core::id::{PartitionCount, PartitionRef};
use forebay_core::replica_state::{PartitionUsage, Progress};
use forebay_core::{Error, Result};

pub(crate) use blocks::Blocks;
pub(crate) use format::{BlockBytes, Extent, SegmentAt};
pub use opening::Image;
pub(crate) use write::{Content, write};

/// A file that an image can be opened from.
pub trait ImageFile: Send + Sync + fmt::Debug {
    /// The file's length in bytes.
    ///
    /// # Errors
    /// Any error of the file system.
    fn size(&self) -> io::Result<u64>;

    /// Reads at an offset; returns fewer bytes than requested only at the file's end.
    ///
    /// # Errors
    /// Any error of the file system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The descriptor to map the file by; without a descriptor the bytes are read. The owner of an
    /// image must ensure that the file is neither written nor truncated while it is mapped; the
    /// file may be renamed and removed.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A file of the host's file system, from which images are mapped.
#[derive(Debug)]
pub struct MappedFile(File);

impl From<File> for MappedFile {
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl ImageFile for MappedFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled_bytes = 0;
        while filled_bytes < buffer.len() {
            match self.0.read_at(&mut buffer[filled_bytes..], offset + filled_bytes as u64) {
                Ok(0) => break,
                Ok(read) => filled_bytes += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled_bytes)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// A file to write an image to, from front to end except its first block, which is written last.
pub trait ImageSink {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// Any: the image is then abandoned, with the same error.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()>;
}

/// The metadata of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageMetadata {
    /// The partition and its store.
    pub partition: PartitionRef,
    /// The number of partitions of that store.
    pub partitions: PartitionCount,
    /// The point in the partition's history.
    pub progress: Progress,
    /// The content's size; `memory_bytes` is the memory that the documents took when the image was
    /// written.
    pub usage: PartitionUsage,
}

impl ImageMetadata {
    /// Fails for an image of another partition, or of a store with another number of partitions.
    ///
    /// # Errors
    /// `Unsupported`, naming both.
    pub fn check_is_of(&self, partition: PartitionRef, partitions: PartitionCount) -> Result<()> {
        if (self.partition, self.partitions) == (partition, partitions) {
            return Ok(());
        }
        let message = format!(
            "the image is of partition {} of {}, not of {partition} of {partitions}; the reader \
             ignores the image",
            self.partition, self.partitions
        );
        Err(Error::unsupported(message).with_partition(partition.partition))
    }
}

/// Returns the error for an unusable image.
pub(crate) fn damaged(damage: &str) -> Error {
    let message = format!("the image is damaged: {damage}; the index is rebuilt from the log");
    Error::corrupt(message)
}

/// Reads as many bytes as the buffer has.
///
/// # Errors
/// `Corrupt` if the file ends before; `Unavailable`.
fn read_exactly(file: &dyn ImageFile, buffer: &mut [u8], offset: u64) -> Result<()> {
    match file.read_at(buffer, offset).map_err(|error| io_error("read", &error))? {
        read if read == buffer.len() => Ok(()),
        _ => Err(damaged("the file ends too early")),
    }
}

/// Returns the error for a file that cannot be read.
fn io_error(operation: &str, error: &io::Error) -> Error {
    Error::unavailable(format!("{operation} an image failed: {error}; check the file and the disk"))
}
