//! Yield points: a point before each access to words that readers and writers share, where they may
//! take turns.
//!
//! In a build with `--cfg forebay_shuttle` each point calls a hook, by which `tests/schedules` runs
//! readers and writers in orders of its choice. Faults can be planted, which the test must find. In
//! any other build the points are empty and cost nothing.

use parking_lot::{Mutex, MutexGuard};

/// Bytes that are written between two points: a reader may run in between.
pub(crate) const BYTES_AT_ONCE: usize = 64;

/// The step that follows a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(forebay_shuttle), expect(dead_code, reason = "no hook hears of it"))]
pub enum Step {
    /// A load of a word that another task may store.
    Load,
    /// A store that another task may see.
    Store,
    /// A retry: another task must make progress first.
    Wait,
    /// No access: a reader has just found that the memory of its copy was reused.
    Reused,
}

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Readers of shared memory use their copies without validation.
    NotCompared,
    /// Shared memory is reused before the reuse word is incremented, which happens at the next
    /// slot.
    RaisedLate,
    /// A segment is reused while announced readers are in it.
    NotWaitedFor,
    /// A slot is stored before its record.
    SlotFirst,
    /// A successor that takes over does not finish half-done writes.
    NotFinished,
}

#[cfg(forebay_shuttle)]
mod hooks {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use parking_lot::Mutex;

    use super::{Fault, Step};

    static HOOK: OnceLock<fn(Step)> = OnceLock::new();
    static PLANTED: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;

    /// Actions that a planted fault has put off.
    static LATE: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

    /// Calls this hook at each point from now on; only the first call has an effect.
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

    /// Puts an action off until the next slot was stored.
    pub(crate) fn put_off(action: impl FnOnce() + Send + 'static) {
        LATE.lock().push(Box::new(action));
    }

    /// Runs the actions that were put off, after a slot was stored.
    pub(crate) fn stored_slot() {
        let actions = std::mem::take(&mut *LATE.lock());
        for action in actions {
            at(Step::Store);
            action();
        }
    }
}

#[cfg(forebay_shuttle)]
pub use hooks::{call, plant};
#[cfg(forebay_shuttle)]
pub(crate) use hooks::{is_planted, put_off, stored_slot};

#[cfg(not(forebay_shuttle))]
mod no_hooks {
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
pub(crate) use no_hooks::{is_planted, put_off, stored_slot};

#[inline(always)]
fn at(step: Step) {
    #[cfg(forebay_shuttle)]
    hooks::at(step);
    let _ = step;
}

/// Marks the point before a load.
#[inline(always)]
pub(crate) fn load() {
    at(Step::Load);
}

/// Marks the point before a store.
#[inline(always)]
pub(crate) fn store() {
    at(Step::Store);
}

/// Reports whether a reader's copy is unchanged; returns the value that the reader uses.
#[inline(always)]
pub(crate) fn compared(is_unchanged: bool) -> bool {
    if cfg!(forebay_shuttle) && !is_unchanged {
        at(Step::Reused);
    }
    is_unchanged || is_planted(Fault::NotCompared)
}

/// Takes a lock that may be held across points: the task that holds the lock must be able to run.
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
