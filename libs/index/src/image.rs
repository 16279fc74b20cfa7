//! Images: one partition's documents at one position, as a file that is mapped and not read.
//!
//! The bytes are `proto/spec/image.md`. A file holds what lies in a space's memory, block by block,
//! each with a checksum, and beside it the little that a writer must know to go on. Opening one
//! reads only that; a block is compared with its checksum when somebody first comes to it, so
//! nothing damaged is ever served, and what an open costs grows with a thousandth of the image. A
//! damaged block is mended from parity where the others of its class are sound (`blocks`).
//!
//! What the fold keeps beside the documents travels in the image as bytes that this crate does not
//! know: its *state*.

mod blocks;
mod format;
mod open;
mod write;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use forebay_core::id::{PartitionCount, PartitionRef};
use forebay_core::{Error, Result};

pub(crate) use blocks::Blocks;
pub(crate) use format::{Block, Extent, SegmentAt};
pub use open::Image;
pub(crate) use write::{Content, write};

use crate::header::{Held, Progress};

/// A file to open an image from.
pub trait ImageFile: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn size(&self) -> io::Result<u64>;

    /// Reads at a place; fewer bytes than asked for only at the file's end.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// What to map it by; without one its bytes are read. Whoever has an image of it must see to it
    /// that it is neither written nor cut while it is mapped; it may be renamed and removed.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A file of the host's, which images are mapped from.
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

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// A file to write an image to, from front to end but for its first block, which comes last.
pub trait ImageSink {
    /// Writes all bytes at a place.
    ///
    /// # Errors
    /// Any: the image is given up then, with the same error.
    fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<()>;
}

/// What an image says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageAbout {
    /// Which partition of which store.
    pub partition: PartitionRef,
    /// How many partitions that store has.
    pub partitions: PartitionCount,
    /// Where in its history it is.
    pub progress: Progress,
    /// What it holds; of `memory_bytes`, what the documents took when it was written.
    pub held: Held,
}

impl ImageAbout {
    /// Refuses an image of another partition, or of a store with another number of them.
    ///
    /// # Errors
    /// `Unsupported`, naming both.
    pub fn check_is_of(&self, partition: PartitionRef, partitions: PartitionCount) -> Result<()> {
        if (self.partition, self.partitions) == (partition, partitions) {
            return Ok(());
        }
        let message = format!(
            "the image is of partition {} of {}, not of {partition} of {partitions}; it is ignored",
            self.partition, self.partitions
        );
        Err(Error::unsupported(message).with_partition(partition.partition))
    }
}

/// Why an image cannot be used.
pub(crate) fn damaged(what: &str) -> Error {
    let message = format!("the image is damaged: {what}; it is built anew from its log");
    Error::corrupt(message)
}
