//! Where readers and writers may take turns: a point before each access to words that they share.
//!
//! Built with `--cfg forebay_shuttle` each point calls a hook, by which `tests/schedules.rs` runs
//! readers and writers in orders of its own choice; and a fault can be planted, which it must find.
//! In any other build all of this is nothing, and costs nothing.

use parking_lot::{Mutex, MutexGuard};

/// Bytes that are written from one point to the next: a reader may come in between.
pub(crate) const BYTES_AT_ONCE: usize = 64;

/// What comes behind a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(forebay_shuttle), expect(dead_code, reason = "no hook hears of it"))]
pub enum Step {
    /// A load of what somebody else may store.
    Load,
    /// A store that somebody else may see.
    Store,
    /// Another try: somebody else must get further first.
    Wait,
    /// Nothing: a reader has just found that what it copied was used again meanwhile.
    Reused,
}

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Readers of live memory believe what they have copied.
    NotCompared,
    /// Live memory is used again before the word says so, which it does with the next slot.
    RaisedLate,
    /// A segment is used again while readers are in it that have announced themselves.
    NotWaitedFor,
    /// A slot is stored before its record.
    SlotFirst,
    /// Whoever takes over leaves half done what was half done.
    NotFinished,
}

#[cfg(forebay_shuttle)]
mod hooked {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use parking_lot::Mutex;

    use super::{Fault, Step};

    static HOOK: OnceLock<fn(Step)> = OnceLock::new();
    static PLANTED: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;

    /// What is done late, where that is the fault.
    static LATE: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

    /// Calls this at each point from now on; the first one counts.
    pub fn call(hook: fn(Step)) {
        HOOK.get_or_init(|| hook);
    }

    /// Plants a fault, or none.
    pub fn plant(fault: Option<Fault>) {
        LATE.lock().clear();
        PLANTED.store(fault.map_or(NONE, |fault| fault as u32), Ordering::Relaxed);
    }

    pub(crate) fn is_planted(fault: Fault) -> bool {
        PLANTED.load(Ordering::Relaxed) == fault as u32
    }

    pub(super) fn at(step: Step) {
        if let Some(hook) = HOOK.get() {
            hook(step);
        }
    }

    /// Puts something off until the next slot was stored.
    pub(crate) fn put_off(late: impl FnOnce() + Send + 'static) {
        LATE.lock().push(Box::new(late));
    }

    /// A slot was stored.
    pub(crate) fn stored_slot() {
        let late = std::mem::take(&mut *LATE.lock());
        for late in late {
            at(Step::Store);
            late();
        }
    }
}

#[cfg(forebay_shuttle)]
pub use hooked::{call, plant};
#[cfg(forebay_shuttle)]
pub(crate) use hooked::{is_planted, put_off, stored_slot};

#[cfg(not(forebay_shuttle))]
mod nothing {
    use super::Fault;

    #[inline(always)]
    pub(crate) const fn is_planted(_: Fault) -> bool {
        false
    }

    pub(crate) fn put_off(_: impl FnOnce() + Send + 'static) {}

    #[inline(always)]
    pub(crate) const fn stored_slot() {}
}

#[cfg(not(forebay_shuttle))]
pub(crate) use nothing::{is_planted, put_off, stored_slot};

#[inline(always)]
fn at(step: Step) {
    #[cfg(forebay_shuttle)]
    hooked::at(step);
    let _ = step;
}

/// The point before a load.
#[inline(always)]
pub(crate) fn load() {
    at(Step::Load);
}

/// The point before a store.
#[inline(always)]
pub(crate) fn store() {
    at(Step::Store);
}

/// Notes whether what a reader has copied is still what it was.
#[inline(always)]
pub(crate) fn compared(is_unchanged: bool) -> bool {
    if cfg!(forebay_shuttle) && !is_unchanged {
        at(Step::Reused);
    }
    is_unchanged || is_planted(Fault::NotCompared)
}

/// Takes a lock that may be held over points: whoever holds it must be let go on.
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(forebay_shuttle)]
    loop {
        match mutex.try_lock() {
            Some(guard) => return guard,
            None => at(Step::Wait),
        }
    }
    #[cfg(not(forebay_shuttle))]
    mutex.lock()
}
