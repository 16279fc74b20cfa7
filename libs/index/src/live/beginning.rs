//! Where the readers of a partition begin: in its live copy, or in an image until there is one.
//!
//! An image is mapped and answers at once, whatever its size, while the live copy is made beside
//! the reads. It is read only, by this process alone: its pages are those of the file, which the
//! system may take back, and no budget counts them. Readers go on with the live copy once that has
//! come as far: what they see never falls.

use std::sync::Arc;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, ErrorCode, Result};

use super::{Attach, HeaderFile, LiveDirectory};
use crate::header::{Following, PartitionPhase, Progress, Published, Status, Words};
use crate::image::Image;
use crate::storage::Space;
use crate::table::Table;

/// Where the readers of a partition begin.
#[derive(Debug)]
pub struct Beginning {
    pub(crate) published: Published,
    pub(crate) space: Arc<Space>,
    /// How they come to the live copy's later spaces; `None` in an image.
    pub(crate) attach: Option<Attach>,
}

impl Beginning {
    /// In the live copy of a partition.
    ///
    /// # Errors
    /// `NotFound` where there is none yet; `Unavailable`, `Unsupported`, `Corrupt` for one that
    /// cannot be read.
    pub fn live(directory: &LiveDirectory, at: PartitionRef) -> Result<Self> {
        let (published, space, attach) = Attach::open(directory, at.store, at.partition)?;
        Ok(Self { published, space, attach: Some(attach) })
    }

    /// In an image, which serves: the caller knows that it had caught up, and what was known of its
    /// log. Its blocks are proved when somebody comes to them.
    ///
    /// # Errors
    /// `Corrupt` for an image that cannot be a table; `Unsupported` for one of which a part was
    /// spilled, which would have to be copied first; `LimitExceeded` without addresses;
    /// `Unavailable` when the file can be neither mapped nor read.
    pub fn of_image(image: &Image, following: Following) -> Result<Self> {
        if image.is_spilled() {
            let message = "an image of what was spilled is not served before it is copied";
            return Err(Error::unsupported(message));
        }
        let space = Table::space_of_image(image)?;
        let (progress, held) = (image.about().progress, image.about().held);
        let words = Words::new();
        words.publish(&Status { progress, held, following, generation: space.generation });
        words.store_phase_release(PartitionPhase::Serving);
        Ok(Self { published: Published::Own(Arc::new(words)), space, attach: None })
    }

    /// In the live copy, if that may be served in place of an image; `None` where there is no such
    /// copy yet.
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

    /// Whether anything was applied to it.
    pub fn has_begun(&self) -> bool {
        self.published.status().progress != Progress::START
    }

    /// Whether it does not serve yet.
    pub fn is_bootstrapping(&self) -> bool {
        self.published.load_phase_acquire() == PartitionPhase::Bootstrapping
    }
}
