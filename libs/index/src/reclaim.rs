//! When memory may be reused: readers announce themselves, and memory that goes out of use waits
//! for the readers that were present at that time.
//!
//! The rule is the collector's. Before a writer retires chunks, it removes the last path to them
//! (slot, directory entry or root). A reader first announces itself, and then loads each word of
//! the path with sequential consistency. Therefore either the reader sees that the path is gone, or
//! the collector sees the reader and waits for it.
//!
//! Creating the first collector of a process that has threads takes the system 10 ms or more: the
//! system waits until each core has passed through the scheduler, so that an announcement needs no
//! barrier from then on. A process that opens a shared copy serves its documents at once, without
//! waiting for the collector: until the collector exists, readers announce themselves in one shared
//! count, at the cost of a shared write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use seize::Collector;
#[cfg(not(forebay_shuttle))]
use seize::LocalGuard as Guard;
// Under shuttle all readers run in one OS thread, and the local guards of a thread count as one.
#[cfg(forebay_shuttle)]
use seize::OwnedGuard as Guard;

use crate::memory::{Chunk, Memory};
use crate::schedule;
use crate::space::Space;

/// Maximum number of retries of a retirement: the collector needs as many retirements as there are
/// readers at that moment, and holds its garbage until then.
const RETRIES_MAX: u32 = 64;

/// Number of spaces that one call frees.
const SPACES_PER_CALL: u32 = 4;

/// Reclaims an index's memory for reuse.
#[derive(Debug)]
pub(crate) struct Reclaim {
    collector: OnceLock<Collector>,
    early: EarlyReaders,
    waiting: Arc<PendingRetirements>,
    retries: AtomicU32,
    released: Sender<Arc<Space>>,
    /// Spaces that readers have left. A writer frees them: freeing a large space takes time that no
    /// reader should spend.
    spaces: Mutex<Receiver<Arc<Space>>>,
}

/// The state that is used while there is no collector.
#[derive(Debug, Default)]
struct EarlyReaders {
    /// Readers that announced themselves here and have not left yet.
    readers: AtomicU64,
    /// Spaces that went out of use, and that such a reader may see.
    spaces: Mutex<Vec<Arc<Space>>>,
}

/// Number of retirements that readers have not left yet.
#[derive(Debug, Default)]
struct PendingRetirements {
    retirements: AtomicU64,
    /// ThreadSanitizer does not understand fences, by which the collector orders a reader's last
    /// access before the reuse of the memory that it read. This word expresses the same order by an
    /// atomic.
    #[cfg(forebay_sanitize = "thread")]
    readers_left: AtomicU64,
}

/// A reader's announcement; all memory that the reader reaches stays until the announcement ends.
pub(crate) struct Pin<'a> {
    reclaim: &'a Reclaim,
    /// `None` for a reader that entered before there was a collector.
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
    /// Creates a reclaimer for memory that only this process uses.
    pub(crate) fn new() -> Self {
        let reclaim = Self::unprepared();
        reclaim.prepare();
        reclaim
    }

    /// Creates a reclaimer for shared memory, where only whole spaces are retired. Returns at once;
    /// [`Reclaim::prepare`] creates the collector later. Until then reads are correct but cost
    /// more, and retired spaces are not freed.
    pub(crate) fn unprepared() -> Self {
        let (waiting, retries, (released, spaces)) = (Arc::default(), AtomicU32::new(0), channel());
        let (collector, early) = (OnceLock::new(), EarlyReaders::default());
        Self { collector, early, waiting, retries, released, spaces: Mutex::new(spaces) }
    }

    /// Creates the collector if there is none; blocks (see the module).
    pub(crate) fn prepare(&self) -> &Collector {
        // Retired objects are large and rare, so each is freed as soon as its readers have left.
        self.collector.get_or_init(|| Collector::new().batch_size(1))
    }

    /// Announces a reader. The call must precede the reader's first load.
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

    /// Retires chunks of a memory: they are reused once every reader that could still reach them
    /// has left. No word that a new reader loads may lead to the chunks any more.
    pub(crate) fn retire(&self, memory: &Arc<Memory>, chunks: Vec<Chunk>) {
        if chunks.is_empty() {
            return;
        }
        // Readers of shared memory make no announcement; the chunks go to quarantine.
        if memory.is_shared() {
            return memory.quarantine(chunks);
        }
        // This planted fault proves that AddressSanitizer detects a reader in memory that was
        // reused.
        if cfg!(forebay_planted = "use-after-free") {
            return memory.accept_released(chunks);
        }
        if let Some(chunks) = memory.gather(chunks) {
            self.wait_for_readers(RetiredItem::Chunks(memory.clone(), chunks));
        }
    }

    /// Retires a space, as [`Reclaim::retire`] retires chunks.
    pub(crate) fn retire_space(&self, space: Arc<Space>) {
        schedule::lock(&self.early.spaces).push(space);
        self.free_early_spaces();
    }

    /// Hands spaces over to the collector, once the collector exists and every present reader is
    /// known to it. A reader that enters later sees that the path to the spaces is gone.
    fn free_early_spaces(&self) {
        let Some(mut spaces) = self.early.spaces.try_lock().filter(|spaces| !spaces.is_empty())
        else {
            return;
        };
        schedule::load();
        if self.collector.get().is_none() || self.early.readers.load(Ordering::SeqCst) > 0 {
            return;
        }
        for space in spaces.drain(..) {
            self.wait_for_readers(RetiredItem::Space(space, self.released.clone()));
        }
    }

    fn wait_for_readers(&self, item: RetiredItem) {
        self.waiting.retirements.fetch_add(1, Ordering::Relaxed);
        self.retries.store(RETRIES_MAX, Ordering::Relaxed);
        self.hand_over(item);
    }

    /// Continues pending retirements, a bounded amount. Writers of spaces call this now and then,
    /// each with its own memory.
    pub(crate) fn advance(&self, memory: &Memory) {
        let is_waiting = self.waiting.retirements.load(Ordering::Relaxed) > 0;
        let retries = self.retries.load(Ordering::Relaxed);
        if is_waiting && retries > 0 {
            self.retries.store(retries - 1, Ordering::Relaxed);
            self.hand_over(RetiredItem::Nothing);
        }
        memory.free_released();
        self.free_spaces();
    }

    /// Frees some of the spaces that readers have left. Each call frees more spaces than are
    /// retired between two calls: a stalled reader may have held many, and address space is finite.
    pub(crate) fn free_spaces(&self) {
        self.free_early_spaces();
        if let Some(spaces) = self.spaces.try_lock() {
            (0..SPACES_PER_CALL).map_while(|_| spaces.try_recv().ok()).for_each(drop);
        }
    }

    fn hand_over(&self, item: RetiredItem) {
        let retired = Box::into_raw(Box::new(Retirement { waiting: self.waiting.clone(), item }));
        // SAFETY: the box was just made, no other thread has its address, and it is retired once.
        unsafe { self.prepare().retire(retired, seize::reclaim::boxed) };
    }
}

/// Retired memory that some reader may still see.
enum RetiredItem {
    Nothing,
    Chunks(Arc<Memory>, Vec<Chunk>),
    Space(Arc<Space>, Sender<Arc<Space>>),
}

struct Retirement {
    waiting: Arc<PendingRetirements>,
    item: RetiredItem,
}

impl Drop for Retirement {
    fn drop(&mut self) {
        #[cfg(forebay_sanitize = "thread")]
        self.waiting.readers_left.load(Ordering::Acquire);
        match std::mem::replace(&mut self.item, RetiredItem::Nothing) {
            RetiredItem::Nothing => return,
            RetiredItem::Chunks(memory, chunks) => memory.accept_released(chunks),
            // If there is no receiver, the index is ending, and the space is dropped with it.
            RetiredItem::Space(space, released) => drop(released.send(space)),
        }
        self.waiting.retirements.fetch_sub(1, Ordering::Relaxed);
    }
}
