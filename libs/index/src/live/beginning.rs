//! The initial source of a partition's reads: its live copy, or an image until there is a live
//! copy.
//!
//! An image is mapped and answers at once, whatever its size, while the live copy is being built
//! concurrently. The image is mapped read-only, by this process alone: its pages are pages of the
//! file, which the system may reclaim, and no budget counts them. Readers switch to the live copy
//! once it has reached the image's position, so the position that they see never decreases.

use std::sync::Arc;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, ErrorCode, Result};

use super::directory::LiveDirectory;
use super::header_file::{HeaderFile, Published};
use super::spaces::Attach;
use crate::header_words::Words;
use crate::image::Image;
use crate::space::Space;
use crate::state::{Following, PartitionPhase, Progress, Status};
use crate::table::Table;

/// The initial source of a partition's reads.
#[derive(Debug)]
pub struct Beginning {
    pub(crate) published: Published,
    pub(crate) space: Arc<Space>,
    /// The path to the live copy's later spaces; `None` for an image.
    pub(crate) attach: Option<Attach>,
}

impl Beginning {
    /// Starts with the live copy of a partition.
    ///
    /// # Errors
    /// `NotFound` if there is none yet; `Unavailable`, `Unsupported`, `Corrupt` for a copy that
    /// cannot be read.
    pub fn live(directory: &LiveDirectory, at: PartitionRef) -> Result<Self> {
        let (published, space, attach) = Attach::open(directory, at.store, at.partition)?;
        Ok(Self { published, space, attach: Some(attach) })
    }

    /// Starts with an image, in phase serving: the caller knows that it had caught up, and the
    /// state of its log. The image's blocks are verified at first use.
    ///
    /// # Errors
    /// `Corrupt` for an image that cannot be a table; `Unsupported` for an image with a spilled
    /// part, which would have to be copied first; `LimitExceeded` without addresses; `Unavailable`
    /// when the file can be neither mapped nor read.
    pub fn of_image(image: &Image, following: Following) -> Result<Self> {
        if image.is_spilled() {
            let message =
                "an image with spilled documents cannot serve reads; copy the image first";
            return Err(Error::unsupported(message));
        }
        let space = Table::space_of_image(image)?;
        let (progress, held) = (image.about().progress, image.about().held);
        let words = Words::new();
        words.publish(&Status { progress, held, following, generation: space.generation });
        words.store_phase_release(PartitionPhase::Serving);
        Ok(Self { published: Published::Own(Arc::new(words)), space, attach: None })
    }

    /// Starts with the live copy if it may be served instead of an image; returns `None` if there
    /// is no such copy yet.
    pub(crate) fn in_place_of(
        directory: &LiveDirectory,
        at: PartitionRef,
        image: &Status,
    ) -> Result<Option<Self>> {
        let header = match HeaderFile::open(&directory.header(at.store, at.partition), false) {
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            header => header?,
        };
        let is_serving = header.words().load_phase_acquire() == PartitionPhase::Serving;
        let live = header.words().status();
        let is_of_log = live.following.log_id == image.following.log_id;
        let is_behind = is_of_log && live.progress.offset_applied < image.progress.offset_applied;
        if !is_serving || is_behind {
            return Ok(None);
        }
        Self::live(directory, at).map(Some)
    }

    /// Whether anything was applied to the source.
    pub fn has_begun(&self) -> bool {
        self.published.status().progress != Progress::START
    }

    /// Whether the source does not serve yet.
    pub fn is_bootstrapping(&self) -> bool {
        self.published.load_phase_acquire() == PartitionPhase::Bootstrapping
    }
}
