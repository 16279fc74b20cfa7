//! The header of one partition: the path by which the readers of a process reach it.
//!
//! A header leads to the words that the partition's writer publishes (`header_words`) and to the
//! space with the documents. For a shared copy the header maps each later space when a reader first
//! finds its number in the words.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_core::Result;
use forebay_core::clock::Timestamp;
use forebay_core::id::SchemaVersion;
use forebay_core::replica_state::Phase;

use crate::header_words::{Status, Words};
use crate::reclaim::Reclaim;
use crate::schedule;
use crate::shared_copy::{Attach, PublishedWords};
use crate::space::Space;

/// The path by which the readers of one process reach a partition.
#[derive(Debug)]
pub(crate) struct Header {
    /// The words of `first`, or of the shared copy once readers have switched to it.
    words: AtomicPtr<Words>,
    /// A pointer from an `Arc` that this header owns.
    space: AtomicPtr<Space>,
    /// The words that readers began with. They stay: some readers may still use them.
    #[expect(dead_code, reason = "held, and let go by its drop")]
    first: PublishedWords,
    /// The shared copy. Unset for a partition in the process's own memory, and for a partition that
    /// began with an image until readers switch to its shared copy.
    shared_copy: OnceLock<(PublishedWords, Attach)>,
}

impl Header {
    pub(crate) fn new(
        published: PublishedWords,
        space: Arc<Space>,
        attach: Option<Attach>,
    ) -> Self {
        let words = AtomicPtr::new(std::ptr::from_ref::<Words>(&published).cast_mut());
        let space = AtomicPtr::new(Arc::into_raw(space).cast_mut());
        let shared_copy = attach.map(|attach| (published.clone(), attach));
        let shared_copy = shared_copy.map_or_else(OnceLock::new, OnceLock::from);
        Self { words, space, first: published, shared_copy }
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: the words belong to `first` or to `shared_copy`, each of which lives as long as
        // `self`.
        unsafe { &*self.words.load(Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn load_phase_acquire(&self) -> Phase {
        self.words().load_phase_acquire()
    }

    /// Whether readers use a shared copy.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared_copy.get().is_some()
    }

    /// Switches readers from the image that they began with to a shared copy; returns the image, to
    /// be retired. Returns `None` if another thread was first.
    ///
    /// The space is stored before the words, so a reader that sees a position finds the documents
    /// of it.
    #[must_use]
    pub(crate) fn switch_to_shared_copy(
        &self,
        published: PublishedWords,
        space: Arc<Space>,
        attach: Attach,
    ) -> Option<Arc<Space>> {
        let words = std::ptr::from_ref::<Words>(&published).cast_mut();
        self.shared_copy.set((published, attach)).ok()?;
        let image = self.swap_space(space);
        self.words.store(words, Ordering::Release);
        Some(image)
    }

    /// Returns the space that readers see.
    ///
    /// # Errors
    /// `Unavailable` when the space of a partition with a shared copy cannot be mapped.
    ///
    /// # Safety
    /// The caller either holds a guard of this index, entered before this call and held for as long
    /// as `'g` lasts, or is the writer, which alone takes spaces out of use.
    #[inline]
    pub(crate) unsafe fn load_space<'g>(&self, reclaim: &Reclaim) -> Result<&'g Space> {
        let generation = self.words().load_generation();
        schedule::load();
        // SAFETY: the pointer is never null, and its space stays until the caller's guard is gone.
        // The load is sequentially consistent, as all loads on the path to a record: see
        // `Group::load_to_follow`.
        let space = unsafe { &*self.space.load(Ordering::SeqCst) };
        if space.generation == generation {
            return Ok(space);
        }
        self.attach_latest(reclaim)?;
        // SAFETY: as above.
        Ok(unsafe { &*self.space.load(Ordering::SeqCst) })
    }

    /// Maps the current shared space in place of the previous one.
    #[cold]
    fn attach_latest(&self, reclaim: &Reclaim) -> Result<()> {
        let Some((published, attach)) = self.shared_copy.get() else { return Ok(()) };
        if !std::ptr::eq(self.words(), &raw const **published) {
            // Readers are between the two steps of `switch_to_shared_copy`; a process that was
            // forked there stays there.
            return Ok(());
        }
        let _one_at_a_time = schedule::lock(&attach.lock);
        let generation = published.load_generation();
        // SAFETY: only one thread at a time takes spaces out of use.
        if unsafe { &*self.space.load(Ordering::SeqCst) }.generation != generation {
            let space = attach.space(published)?;
            reclaim.retire_space(self.swap_space(space));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn load_partition_time_acquire(&self) -> Timestamp {
        schedule::load();
        Timestamp::from_micros(self.words().partition_time.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn load_schema_version_acquire(&self) -> SchemaVersion {
        schedule::load();
        SchemaVersion(self.words().schema_version.load(Ordering::Acquire))
    }

    /// Replaces the space that readers see; returns the old space, to be retired. For a partition
    /// in the process's own memory only the writer calls this, and publishes afterwards.
    #[must_use]
    pub(crate) fn swap_space(&self, space: Arc<Space>) -> Arc<Space> {
        schedule::store();
        let old = self.space.swap(Arc::into_raw(space).cast_mut(), Ordering::SeqCst);
        // SAFETY: the pointer came from an `Arc`, by `new` or by this function.
        unsafe { Arc::from_raw(old) }
    }

    /// Returns the status as one entry left it.
    pub(crate) fn status(&self) -> Status {
        self.words().status()
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: as in `swap_space`; no reader is left.
        drop(unsafe { Arc::from_raw(*self.space.get_mut()) });
    }
}
