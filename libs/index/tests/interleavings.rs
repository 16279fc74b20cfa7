//! Every interleaving of the protocols between readers and writers, on small models under loom.
//!
//! A model is the loads and stores of one protocol with the orders that the code uses; the comment
//! above it names the code. Each test also runs the same model with one order weakened, in which
//! loom must find the error: a model that detects nothing would pass everything.

use std::panic::catch_unwind;

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Whether every interleaving of a model satisfies its assertions.
fn holds(model: impl Fn() + Send + Sync + 'static) -> bool {
    catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(model))).is_ok()
}

/// Models `Group::store` and `Group::find_by`: a record is written, then its slot is stored; a
/// reader loads the slot, then reads the record.
fn publish(store_order: Ordering) {
    let slot = Arc::new(AtomicUsize::new(0));
    let record = Arc::new(UnsafeCell::new(0));
    let writer = {
        let (slot, record) = (slot.clone(), record.clone());
        thread::spawn(move || {
            // SAFETY: nobody has the record's address yet; loom checks it.
            record.with_mut(|record| unsafe { *record = 7 });
            slot.store(1, store_order);
        })
    };
    if slot.load(Acquire) == 1 {
        // SAFETY: the slot was published after the record; loom checks it.
        assert_eq!(record.with(|record| unsafe { *record }), 7);
    }
    writer.join().unwrap();
}

#[test]
fn reader_of_a_slot_sees_its_record() {
    assert!(holds(|| publish(Release)));
    assert!(!holds(|| publish(Relaxed)), "loom did not see a record behind its slot");
}

/// Models `Reclaim` and its collector: a writer removes the name of a record and reuses its memory
/// if no reader is present; a reader announces itself and then follows the name. Each side stores
/// its own word before it loads the other's.
fn reclaim(has_fences: bool) {
    let pause = move || {
        if has_fences {
            fence(SeqCst);
        }
    };
    let shared = Arc::new((AtomicUsize::new(0), AtomicUsize::new(1), UnsafeCell::new(7)));
    let reader = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (readers, slot, record) = &*shared;
            readers.store(1, Relaxed);
            pause();
            if slot.load(Acquire) == 1 {
                // SAFETY: a writer that would reuse the record has seen this reader; loom checks
                // it.
                assert_eq!(record.with(|record| unsafe { *record }), 7);
            }
            readers.store(0, Release);
        })
    };
    let (readers, slot, record) = &*shared;
    slot.store(0, Release);
    pause();
    if readers.load(Acquire) == 0 {
        // SAFETY: no reader is present, and a later reader finds no name; loom checks it.
        record.with_mut(|record| unsafe { *record = 9 });
    }
    reader.join().unwrap();
}

#[test]
fn reader_sees_reused_memory_or_the_writer_sees_the_reader() {
    assert!(holds(|| reclaim(true)));
    assert!(!holds(|| reclaim(false)), "loom did not see a reader in memory that was used again");
}

/// Models `Proof`: a writer verifies a block and then changes two of its words; a reader that began
/// to compare earlier finds a difference, and then the bit.
fn prove(changed: Ordering) {
    let shared = Arc::new((AtomicU64::new(0), [AtomicU64::new(1), AtomicU64::new(1)]));
    let writer = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (proved, words) = &*shared;
            proved.fetch_or(1, Relaxed);
            words.iter().for_each(|word| word.store(2, changed));
        })
    };
    let (proved, words) = &*shared;
    let is_sound = words.iter().all(|word| word.load(Acquire) == 1);
    if !is_sound {
        assert_eq!(proved.load(Relaxed), 1, "a block that was changed in order counts as damaged");
    }
    writer.join().unwrap();
}

#[test]
fn block_under_change_is_never_taken_for_damaged() {
    assert!(holds(|| prove(Release)));
    assert!(!holds(|| prove(Relaxed)), "loom did not see a change before the proof");
}

/// Models `Proof::repair`: a reader and a writer reach a block with one damaged word, which is 0;
/// the thread that finds the damage repairs the block under a lock. Then the reader reads the
/// block, and the writer changes it.
fn repair(set: Ordering, looks_again: bool, stores_all: bool) {
    type BlockWords = (AtomicU64, Mutex<()>, [AtomicU64; 2]);
    let words = [AtomicU64::new(0), AtomicU64::new(1)];
    let shared: Arc<BlockWords> = Arc::new((AtomicU64::new(0), Mutex::new(()), words));
    let come = move |(proved, lock, words): &BlockWords| {
        if proved.load(Acquire) == 1 {
            return;
        }
        let is_sound = words.iter().all(|word| word.load(Acquire) == 1);
        if !is_sound && proved.load(Acquire) == 0 {
            let _repair = lock.lock().unwrap();
            if looks_again && proved.load(Acquire) == 1 {
                return;
            }
            for word in words {
                if stores_all || word.load(Relaxed) != 1 {
                    word.store(1, Release);
                }
            }
            proved.fetch_or(1, set);
            return;
        }
        proved.fetch_or(1, set);
    };
    let writer = {
        let shared = shared.clone();
        thread::spawn(move || {
            come(&shared);
            shared.2.iter().for_each(|word| word.store(2, Release));
        })
    };
    come(&shared);
    for word in &shared.2 {
        assert_ne!(word.load(Relaxed), 0, "a block that was proved and is damaged");
    }
    writer.join().unwrap();
    for word in &shared.2 {
        assert_eq!(word.load(Relaxed), 2, "a change that repair has undone");
    }
}

#[test]
fn damaged_block_is_repaired_once_and_never_over_a_change() {
    assert!(holds(|| repair(Release, true, false)));
    assert!(!holds(|| repair(Relaxed, true, false)), "loom did not see a block before its repair");
    assert!(!holds(|| repair(Release, false, false)), "loom did not see a second repair");
    assert!(
        !holds(|| repair(Release, true, true)),
        "loom did not see a sound word stored too late"
    );
}

/// Models `Words::publish` and `Words::status`: two sets of words that take turns.
fn status(has_fence: bool) {
    const PUBLISHES: u64 = 2;
    let word = || AtomicU64::new(0);
    let shared = Arc::new((word(), [[word(), word()], [word(), word()]]));
    let writer = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (turn, sets) = &*shared;
            for number in 1..=PUBLISHES {
                let next = turn.load(Relaxed) + 1;
                if has_fence {
                    fence(Release);
                }
                sets[(next & 1) as usize].iter().for_each(|word| word.store(number, Relaxed));
                turn.store(next, Release);
            }
        })
    };
    let (turn, sets) = &*shared;
    // The model makes one attempt: a retry happens only when the writer made progress.
    let before = turn.load(Acquire);
    let set = &sets[(before & 1) as usize];
    let (first_word, second_word) = (set[0].load(Relaxed), set[1].load(Relaxed));
    fence(Acquire);
    if turn.load(Relaxed) == before {
        assert_eq!((first_word, second_word), (before, before), "a status of two moments");
    }
    writer.join().unwrap();
}

#[test]
fn status_read_is_of_one_moment() {
    assert!(holds(|| status(true)));
    assert!(!holds(|| status(false)), "loom did not see a status that was mixed");
}

/// Models `Memory::note_reuse` and `Reused`: a slot changes from one record to another, and the
/// memory of the first record is reused after an increment of the word. A reader of another process
/// copies the record that the slot names, and uses the copy if the word is unchanged.
fn reuse(raise_order: Ordering, has_fence: bool) {
    let word = AtomicU64::new;
    let shared = Arc::new((word(0), AtomicUsize::new(0), [word(7), word(8)]));
    let writer = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (reuse, slot, records) = &*shared;
            slot.store(1, Release);
            reuse.fetch_add(1, raise_order);
            if has_fence {
                fence(Release);
            }
            records[0].store(9, Relaxed);
        })
    };
    let (reuse, slot, records) = &*shared;
    let before = reuse.load(Acquire);
    let address = slot.load(Acquire);
    let copy = records[address].load(Relaxed);
    fence(Acquire);
    if reuse.load(Relaxed) == before {
        assert_eq!(copy, [7, 8][address], "a copy of memory that was used again");
    }
    writer.join().unwrap();
}

#[test]
fn optimistic_read_detects_reused_memory() {
    assert!(holds(|| reuse(Release, true)));
    assert!(!holds(|| reuse(Release, false)), "loom did not see the new use before the word");
    assert!(!holds(|| reuse(Relaxed, true)), "loom did not see an old way behind the word");
}
