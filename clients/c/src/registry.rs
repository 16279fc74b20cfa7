//! Open objects, by id. An id is a slot and the slot's generation: `generation << 16 | slot`. A
//! slot is reused under its next generation, so an old id finds nothing, even if the slot is in use
//! again.
//!
//! A lookup takes no lock and writes nothing that another thread reads; opening and closing take a
//! lock. A lookup holds the object until the caller is done, so the last user of a closed object
//! frees it.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use forebay::writes::PendingWrite;
use forebay::{Error, Result};
use parking_lot::Mutex;

use crate::handles::{OpenClient, OpenPlan, OpenReader, OpenScan, OpenStore, OpenStream};
use crate::inbox::Inbox;

/// Slots of one chunk.
const CHUNK_SLOTS: usize = 1024;
/// Most chunks: 65,536 objects may be open in a process.
const CHUNKS_MAX: usize = 64;
const SLOT_BITS: u32 = 16;

/// An object that a caller has opened.
pub(crate) enum Object {
    Client(OpenClient),
    Store(OpenStore),
    Reader(OpenReader),
    Plan(OpenPlan),
    Scan(Mutex<OpenScan>),
    Pending(Mutex<Option<PendingWrite>>),
    Stream(Box<OpenStream>),
    Inbox(Arc<Inbox>),
}

impl Object {
    pub(crate) fn pending(pending: PendingWrite) -> Self {
        Self::Pending(Mutex::new(Some(pending)))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Store(_) => "store",
            Self::Reader(_) => "reader",
            Self::Plan(_) => "gather plan",
            Self::Scan(_) => "scan",
            Self::Pending(_) => "pending write",
            Self::Stream(_) => "stream",
            Self::Inbox(_) => "inbox",
        }
    }
}

struct Entry {
    id: u64,
    object: Object,
}

type Slot = ArcSwapOption<Entry>;

static CHUNKS: [OnceLock<Box<[Slot]>>; CHUNKS_MAX] = [const { OnceLock::new() }; CHUNKS_MAX];
static FREE: Mutex<FreeSlots> =
    Mutex::new(FreeSlots { generations: Vec::new(), free: VecDeque::new() });

/// The slots that may be used next.
struct FreeSlots {
    /// Latest generation of each slot.
    generations: Vec<u32>,
    free: VecDeque<usize>,
}

/// An object that cannot go away while this is held.
pub(crate) struct OpenObject(Guard<Option<Arc<Entry>>>);

impl OpenObject {
    fn object(&self) -> &Object {
        &self.0.as_ref().expect("an empty slot is refused before it becomes this").object
    }
}

macro_rules! opened {
    ($($name:ident, $variant:ident, $type:ty);* $(;)?) => {
        impl OpenObject {
            $(
                pub(crate) fn $name(&self) -> Result<&$type> {
                    match self.object() {
                        Object::$variant(object) => Ok(object),
                        other => Err(mistaken(other)),
                    }
                }
            )*
        }
    };
}

opened! {
    client, Client, OpenClient;
    store, Store, OpenStore;
    reader, Reader, OpenReader;
    plan, Plan, OpenPlan;
    scan, Scan, Mutex<OpenScan>;
    pending, Pending, Mutex<Option<PendingWrite>>;
    stream, Stream, OpenStream;
    inbox, Inbox, Arc<Inbox>;
}

fn mistaken(found: &Object) -> Error {
    Error::invalid_argument(format!(
        "the id is of a {}; pass an id of the requested kind",
        found.name()
    ))
}

fn closed() -> Error {
    Error::closed("the handle was closed, or was never open; open another one")
}

fn slot(number: usize) -> Option<&'static Slot> {
    CHUNKS.get(number / CHUNK_SLOTS)?.get()?.get(number % CHUNK_SLOTS)
}

fn slot_of(id: u64) -> Option<&'static Slot> {
    slot((id & ((1 << SLOT_BITS) - 1)) as usize)
}

/// Opens an object under a new id.
///
/// # Errors
/// `LimitExceeded` if 65,536 objects are open.
pub(crate) fn insert(object: Object) -> Result<u64> {
    let mut slots = FREE.lock();
    let number = match slots.free.pop_front() {
        Some(number) => number,
        None => {
            let number = slots.generations.len();
            let limit = CHUNKS_MAX * CHUNK_SLOTS;
            if number >= limit {
                let message =
                    "close clients, readers, plans, scans, streams and pending writes after use";
                return Err(Error::limit_exceeded(message, limit as u64, number as u64 + 1));
            }
            let chunk = || (0..CHUNK_SLOTS).map(|_| Slot::empty()).collect();
            CHUNKS[number / CHUNK_SLOTS].get_or_init(chunk);
            slots.generations.push(0);
            number
        }
    };
    // A slot whose generations are used up is never free again.
    slots.generations[number] += 1;
    let id = (u64::from(slots.generations[number]) << SLOT_BITS) | number as u64;
    slot(number).expect("the chunk was made above").store(Some(Arc::new(Entry { id, object })));
    Ok(id)
}

/// Returns the object of an id.
///
/// # Errors
/// `Closed` if there is none.
pub(crate) fn open(id: u64) -> Result<OpenObject> {
    let loaded = slot_of(id).ok_or_else(closed)?.load();
    let found = loaded.as_ref().is_some_and(|loaded| loaded.id == id);
    if found { Ok(OpenObject(loaded)) } else { Err(closed()) }
}

/// Ends an id. Current users of the object continue; the last of them frees the object.
///
/// # Errors
/// `Closed` if the id was closed before; a reader's errors of its last checkpoints.
pub(crate) fn close(id: u64) -> Result<()> {
    let mut slots = FREE.lock();
    let slot = slot_of(id).ok_or_else(closed)?;
    if slot.load().as_ref().is_none_or(|loaded| loaded.id != id) {
        return Err(closed());
    }
    let swapped = slot.swap(None);
    let number = (id & ((1 << SLOT_BITS) - 1)) as usize;
    if slots.generations[number] < u32::MAX {
        slots.free.push_back(number);
    }
    drop(slots);
    match swapped.as_deref().map(|swapped| &swapped.object) {
        Some(Object::Reader(reader)) => return reader.close(),
        Some(Object::Client(client)) => client.close(),
        Some(Object::Inbox(inbox)) => inbox.close(),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::ErrorCode;

    fn empty_object() -> Object {
        Object::Pending(Mutex::new(None))
    }

    #[test]
    fn closed_id_never_finds_a_later_handle_of_its_slot() {
        let first = insert(empty_object()).unwrap();
        assert!(open(first).is_ok());
        close(first).unwrap();
        assert_eq!(close(first).unwrap_err().code(), ErrorCode::Closed);
        let others: Vec<_> = (0..3).map(|_| insert(empty_object()).unwrap()).collect();
        assert!(!others.contains(&first));
        assert_eq!(open(first).err().unwrap().code(), ErrorCode::Closed);
        others.into_iter().for_each(|id| close(id).unwrap());
    }

    #[test]
    fn open_handle_outlives_its_close() {
        let id = insert(empty_object()).unwrap();
        let handle = open(id).unwrap();
        close(id).unwrap();
        assert!(handle.pending().is_ok());
        assert_eq!(handle.reader().err().unwrap().code(), ErrorCode::InvalidArgument);
    }

    #[test]
    fn unknown_number_is_a_closed_id() {
        for id in [0, 1, 7 << SLOT_BITS, u64::MAX, u64::from(u32::MAX)] {
            assert_eq!(open(id).err().unwrap().code(), ErrorCode::Closed);
            assert_eq!(close(id).unwrap_err().code(), ErrorCode::Closed);
        }
    }
}
