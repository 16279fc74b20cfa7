//! The initial source of a partition's reads: its shared copy, or an image until there is a shared
//! copy.
//!
//! An image is mapped and answers at once, whatever its size, while the shared copy is being built
//! concurrently. The image is mapped read-only, by this process alone: its pages are pages of the
//! file, which the system may reclaim, and no limit counts them. Readers switch to the shared copy
//! once it has reached the image's position, so the position that they see never decreases.

use std::sync::Arc;

use forebay_core::id::PartitionRef;
use forebay_core::replica_state::{LogCursor, Phase, Progress};
use forebay_core::{Error, ErrorCode, Result};

use super::directory::SharedCopyDirectory;
use super::header_file::{HeaderFile, PublishedWords};
use super::spaces::Attach;
use crate::header_words::{Status, Words};
use crate::image::Image;
use crate::space::Space;
use crate::table::Table;

/// The initial source of a partition's reads.
#[derive(Debug)]
pub struct InitialSource {
    pub(crate) published: PublishedWords,
    pub(crate) space: Arc<Space>,
    /// The path to the shared copy's later spaces; `None` for an image.
    pub(crate) attach: Option<Attach>,
}

impl InitialSource {
    /// Starts with the shared copy of a partition.
    ///
    /// # Errors
    /// `NotFound` if there is none yet; `Unavailable`, `Unsupported`, `Corrupt` for a copy that
    /// cannot be read.
    pub fn shared_copy(directory: &SharedCopyDirectory, at: PartitionRef) -> Result<Self> {
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
    pub fn from_image(image: &Image, cursor: LogCursor) -> Result<Self> {
        if image.is_spilled() {
            let message =
                "an image with spilled documents cannot serve reads; copy the image first";
            return Err(Error::unsupported(message));
        }
        let space = Table::space_from_image(image)?;
        let (progress, usage) = (image.metadata().progress, image.metadata().usage);
        let words = Words::new();
        words.publish(&Status { progress, usage, cursor, generation: space.generation });
        words.store_phase_release(Phase::Serving);
        Ok(Self { published: PublishedWords::Own(Arc::new(words)), space, attach: None })
    }

    /// Starts with the shared copy if it may be served instead of an image; returns `None` if there
    /// is no such copy yet.
    pub(crate) fn replacing_image(
        directory: &SharedCopyDirectory,
        at: PartitionRef,
        image: &Status,
    ) -> Result<Option<Self>> {
        let header = match HeaderFile::open(&directory.header(at.store, at.partition), false) {
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            header => header?,
        };
        let is_serving = header.words().load_phase_acquire() == Phase::Serving;
        let shared = header.words().status();
        let is_of_log = shared.cursor.log_id == image.cursor.log_id;
        let is_behind = is_of_log && shared.progress.offset_applied < image.progress.offset_applied;
        if !is_serving || is_behind {
            return Ok(None);
        }
        Self::shared_copy(directory, at).map(Some)
    }

    /// Whether anything was applied to the source.
    pub fn has_begun(&self) -> bool {
        self.published.status().progress != Progress::START
    }

    /// Whether the source does not serve yet.
    pub fn is_bootstrapping(&self) -> bool {
        self.published.load_phase_acquire() == Phase::Bootstrapping
    }
}
