//! When memory may be used again: readers announce themselves, and what goes out of use waits for
//! those who were there at that time.
//!
//! The rule is the collector's: whoever retires has first taken the last way to the chunks away
//! (slot, directory entry or root), and whoever reads enters first and then loads each word of the
//! way with sequential consistency. Then either the reader sees that the way is gone, or the
//! collector sees the reader and waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use seize::{Collector, LocalGuard};

use crate::memory::{Chunk, Memory};
use crate::storage::Space;

/// How often, at most, a retirement is tried again: the collector needs as many retirements as
/// there are readers at that moment, and keeps what it has until then.
const RETRIES_MAX: u32 = 64;

/// Brings an index's memory back into use.
#[derive(Debug)]
pub(crate) struct Reclaim {
    collector: Collector,
    waiting: Arc<Waiting>,
    retries: AtomicU32,
    left: Sender<Arc<Space>>,
    /// Spaces that readers have left. A writer lets them go: giving back a large one takes time
    /// that no reader should spend.
    spaces: Mutex<Receiver<Arc<Space>>>,
}

/// How much is retired and not left yet.
#[derive(Debug, Default)]
struct Waiting {
    retirements: AtomicU64,
    /// ThreadSanitizer does not know fences, by which the collector orders a reader's last access
    /// before the reuse of what it read. This word says the same in words that it knows.
    #[cfg(forebay_sanitize = "thread")]
    readers_left: AtomicU64,
}

/// A reader's announcement; everything that it comes to stays until it ends.
pub(crate) struct Pin<'a> {
    #[cfg(forebay_sanitize = "thread")]
    waiting: &'a Waiting,
    _guard: LocalGuard<'a>,
}

#[cfg(forebay_sanitize = "thread")]
impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.waiting.readers_left.fetch_add(1, Ordering::Release);
    }
}

impl Reclaim {
    pub(crate) fn new() -> Self {
        // What is retired is large and rare, so it goes as soon as its readers have.
        let collector = Collector::new().batch_size(1);
        let (waiting, retries, (left, spaces)) = (Arc::default(), AtomicU32::new(0), channel());
        Self { collector, waiting, retries, left, spaces: Mutex::new(spaces) }
    }

    /// Announces a reader. Must come before its first load.
    #[inline]
    pub(crate) fn enter(&self) -> Pin<'_> {
        Pin {
            #[cfg(forebay_sanitize = "thread")]
            waiting: &self.waiting,
            _guard: self.collector.enter(),
        }
    }

    /// Takes chunks of a memory out of use once every reader that could still come to them has
    /// gone. No word that a new reader loads may lead to them any more.
    pub(crate) fn retire(&self, memory: &Arc<Memory>, chunks: Vec<Chunk>) {
        if chunks.is_empty() {
            return;
        }
        // Readers of live memory announce themselves to nobody.
        if memory.is_live() {
            return memory.rest(chunks);
        }
        // Planted, it proves that AddressSanitizer sees a reader in memory that was taken from it.
        if cfg!(forebay_planted = "use-after-free") {
            return memory.leave(chunks);
        }
        self.wait_for_readers(What::Chunks(memory.clone(), chunks));
    }

    /// Takes a space out of use, as [`Reclaim::retire`] does chunks.
    pub(crate) fn retire_space(&self, space: Arc<Space>) {
        self.wait_for_readers(What::Space(space, self.left.clone()));
    }

    fn wait_for_readers(&self, what: What) {
        self.waiting.retirements.fetch_add(1, Ordering::Relaxed);
        self.retries.store(RETRIES_MAX, Ordering::Relaxed);
        self.hand_over(what);
    }

    /// Goes on with what waits, a bounded amount: called now and then by the writers of spaces,
    /// each with its own memory.
    pub(crate) fn go_on(&self, memory: &Memory) {
        let is_waiting = self.waiting.retirements.load(Ordering::Relaxed) > 0;
        let retries = self.retries.load(Ordering::Relaxed);
        if is_waiting && retries > 0 {
            self.retries.store(retries - 1, Ordering::Relaxed);
            self.hand_over(What::Nothing);
        }
        memory.settle();
        self.let_spaces_go();
    }

    /// Lets one space go that readers have left.
    pub(crate) fn let_spaces_go(&self) {
        if let Some(spaces) = self.spaces.try_lock() {
            drop(spaces.try_recv());
        }
    }

    fn hand_over(&self, what: What) {
        let retired = Box::into_raw(Box::new(Retired { waiting: self.waiting.clone(), what }));
        // SAFETY: the box was just made, nobody else has its address, and it is retired once.
        unsafe { self.collector.retire(retired, seize::reclaim::boxed) };
    }
}

/// What some reader may still see.
enum What {
    Nothing,
    Chunks(Arc<Memory>, Vec<Chunk>),
    Space(Arc<Space>, Sender<Arc<Space>>),
}

struct Retired {
    waiting: Arc<Waiting>,
    what: What,
}

impl Drop for Retired {
    fn drop(&mut self) {
        #[cfg(forebay_sanitize = "thread")]
        self.waiting.readers_left.load(Ordering::Acquire);
        match std::mem::replace(&mut self.what, What::Nothing) {
            What::Nothing => return,
            What::Chunks(memory, chunks) => memory.leave(chunks),
            // Without anybody to receive it the index ends, and the space with it.
            What::Space(space, left) => drop(left.send(space)),
        }
        self.waiting.retirements.fetch_sub(1, Ordering::Relaxed);
    }
}
