//! When memory may be used again: readers announce themselves, and what goes out of use waits for
//! those who were there at that time.
//!
//! The rule is the collector's: whoever retires has first taken the last way to the chunks away
//! (slot, directory entry or root), and whoever reads enters first and then loads each word of the
//! way with sequential consistency. Then either the reader sees that the way is gone, or the
//! collector sees the reader and waits for it.
//!
//! To make the first collector of a process that has threads takes the system 10 ms and more: it
//! waits until each core has passed through the scheduler, so that an announcement costs no barrier
//! from then on. Who opens a live copy has its documents at once, and does not wait for that: until
//! there is a collector readers announce themselves in one count, at the price of a shared write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use seize::Collector;
#[cfg(not(forebay_shuttle))]
use seize::LocalGuard as Guard;
// The guards of a thread count as one, and there all readers run in one thread.
#[cfg(forebay_shuttle)]
use seize::OwnedGuard as Guard;

use crate::memory::{Chunk, Memory};
use crate::schedule;
use crate::storage::Space;

/// How often, at most, a retirement is tried again: the collector needs as many retirements as
/// there are readers at that moment, and keeps what it has until then.
const RETRIES_MAX: u32 = 64;

/// Spaces that one call lets go.
const SPACES_PER_CALL: u32 = 4;

/// Brings an index's memory back into use.
#[derive(Debug)]
pub(crate) struct Reclaim {
    collector: OnceLock<Collector>,
    early: Early,
    waiting: Arc<Waiting>,
    retries: AtomicU32,
    left: Sender<Arc<Space>>,
    /// Spaces that readers have left. A writer lets them go: giving back a large one takes time
    /// that no reader should spend.
    spaces: Mutex<Receiver<Arc<Space>>>,
}

/// Before there is a collector.
#[derive(Debug, Default)]
struct Early {
    /// Readers that announced themselves here and are there still.
    readers: AtomicU64,
    /// Spaces that went out of use, and that such a reader may see.
    spaces: Mutex<Vec<Arc<Space>>>,
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
    reclaim: &'a Reclaim,
    /// `None` for a reader that came before there was a collector.
    guard: Option<Guard<'a>>,
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(forebay_sanitize = "thread")]
        self.reclaim.waiting.readers_left.fetch_add(1, Ordering::Release);
        if self.guard.is_none() {
            schedule::store();
            self.reclaim.early.readers.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Reclaim {
    /// For memory that this process alone uses.
    pub(crate) fn new() -> Self {
        let this = Self::unprepared();
        this.prepare();
        this
    }

    /// For live memory, of which whole spaces are retired and nothing else: at once, with the
    /// collector to come by [`Reclaim::prepare`]. Without that all is right, but reads are dearer,
    /// and spaces stay.
    pub(crate) fn unprepared() -> Self {
        let (waiting, retries, (left, spaces)) = (Arc::default(), AtomicU32::new(0), channel());
        let (collector, early) = (OnceLock::new(), Early::default());
        Self { collector, early, waiting, retries, left, spaces: Mutex::new(spaces) }
    }

    /// Makes the collector where there is none; blocks, see above.
    pub(crate) fn prepare(&self) -> &Collector {
        // What is retired is large and rare, so it goes as soon as its readers have.
        self.collector.get_or_init(|| Collector::new().batch_size(1))
    }

    /// Announces a reader. Must come before its first load.
    #[inline]
    pub(crate) fn enter(&self) -> Pin<'_> {
        schedule::store();
        #[cfg(not(forebay_shuttle))]
        let guard = self.collector.get().map(Collector::enter);
        #[cfg(forebay_shuttle)]
        let guard = self.collector.get().map(Collector::enter_owned);
        if guard.is_none() {
            schedule::store();
            self.early.readers.fetch_add(1, Ordering::SeqCst);
        }
        Pin { reclaim: self, guard }
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
        if let Some(chunks) = memory.gather(chunks) {
            self.wait_for_readers(What::Chunks(memory.clone(), chunks));
        }
    }

    /// Takes a space out of use, as [`Reclaim::retire`] does chunks.
    pub(crate) fn retire_space(&self, space: Arc<Space>) {
        schedule::lock(&self.early.spaces).push(space);
        self.let_early_go();
    }

    /// Hands spaces over to the collector, once that is there and no reader is that it does not
    /// know: one that comes later sees that the way to them is gone.
    fn let_early_go(&self) {
        let Some(mut spaces) = self.early.spaces.try_lock().filter(|spaces| !spaces.is_empty())
        else {
            return;
        };
        schedule::load();
        if self.collector.get().is_none() || self.early.readers.load(Ordering::SeqCst) > 0 {
            return;
        }
        for space in spaces.drain(..) {
            self.wait_for_readers(What::Space(space, self.left.clone()));
        }
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

    /// Lets some spaces go that readers have left: more than come meanwhile, for a reader that
    /// stood still may have kept many, and their addresses are not without end.
    pub(crate) fn let_spaces_go(&self) {
        self.let_early_go();
        if let Some(spaces) = self.spaces.try_lock() {
            (0..SPACES_PER_CALL).map_while(|_| spaces.try_recv().ok()).for_each(drop);
        }
    }

    fn hand_over(&self, what: What) {
        let retired = Box::into_raw(Box::new(Retired { waiting: self.waiting.clone(), what }));
        // SAFETY: the box was just made, nobody else has its address, and it is retired once.
        unsafe { self.prepare().retire(retired, seize::reclaim::boxed) };
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
