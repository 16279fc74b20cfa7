//! Later events: the sinks of callers, and the inboxes of callers that fetch events instead of
//! being called from a foreign thread.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Error, Result};
use parking_lot::{Condvar, Mutex};
use tokio::sync::OwnedSemaphorePermit;

use crate::abi::{FbBytes, FbError, FbSink, FbText};
use crate::fault::entry;
use crate::input::{one, put};
use crate::output::Packer;
use crate::registry::{self, Object};

/// Most log records in an inbox; later ones are counted and dropped. All other events in an inbox
/// hold space of their client or stream.
const RECORDS_MAX: usize = 4_096;

/// A caller's own pointer, which is passed back to the caller.
#[derive(Clone, Copy)]
pub(crate) struct Context(*mut c_void);

// SAFETY: nothing here dereferences the pointer, and the header requires that callback and context
// may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The destination of one kind of events.
#[derive(Clone)]
pub(crate) enum Sink {
    Callback(extern "C" fn(*mut c_void, FbText), Context),
    Inbox(Arc<Inbox>, u64),
}

impl Sink {
    /// Returns the sink that the caller points to.
    ///
    /// # Safety
    /// The rules of [`one`] apply.
    ///
    /// # Errors
    /// `InvalidArgument` for a sink without a callback and an inbox, `Closed` for a closed inbox.
    pub(crate) unsafe fn of(sink: *const FbSink) -> Result<Self> {
        // SAFETY: the caller vouches for it.
        let given = unsafe { one(sink)? };
        if let Some(callback) = given.callback {
            return Ok(Self::Callback(callback, Context(given.context)));
        }
        if given.inbox == 0 {
            return Err(Error::invalid_argument("a sink has a callback or an inbox; give one"));
        }
        let open = registry::open(given.inbox)?;
        Ok(Self::Inbox(Arc::clone(open.inbox()?), given.ticket))
    }

    /// Passes an event to the caller, and releases the event's space once the caller has received
    /// it.
    pub(crate) fn tell(&self, bytes: Vec<u8>, room: Option<OwnedSemaphorePermit>) {
        match self {
            Self::Callback(callback, context) => call(*callback, *context, &bytes),
            Self::Inbox(inbox, ticket) => inbox.add(Event { ticket: *ticket, bytes, _room: room }),
        }
    }

    /// Passes a log record to the caller; the record may be dropped if too many wait.
    pub(crate) fn tell_record(&self, bytes: Vec<u8>) {
        match self {
            Self::Callback(callback, context) => call(*callback, *context, &bytes),
            Self::Inbox(inbox, ticket) => inbox.add_record(*ticket, bytes),
        }
    }
}

fn call(callback: extern "C" fn(*mut c_void, FbText), context: Context, bytes: &[u8]) {
    callback(context.0, FbText { data: bytes.as_ptr(), length: bytes.len() as u64 });
}

struct Event {
    ticket: u64,
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// Events that wait until the caller fetches them, oldest first.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Log records, each with its ticket, in a separate queue with its own bound.
    records: VecDeque<Event>,
    dropped: u64,
    closed: bool,
}

impl Inbox {
    fn add(&self, event: Event) {
        self.waiting.lock().events.push_back(event);
        self.arrived.notify_one();
    }

    fn add_record(&self, ticket: u64, bytes: Vec<u8>) {
        let mut waiting = self.waiting.lock();
        if waiting.records.len() == RECORDS_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.records.push_back(Event { ticket, bytes, _room: None });
        drop(waiting);
        self.arrived.notify_one();
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Waits for events and takes some; returns none if none come in time.
    fn take(&self, timeout: Duration, max: usize) -> Result<Vec<Event>> {
        let mut waiting = self.waiting.lock();
        while waiting.events.is_empty() && waiting.records.is_empty() && !waiting.closed {
            if self.arrived.wait_for(&mut waiting, timeout).timed_out() {
                return Ok(Vec::new());
            }
        }
        if waiting.closed {
            return Err(Error::closed("the inbox was closed; open another one"));
        }
        let count = waiting.records.len().min(max);
        let mut taken: Vec<_> = waiting.records.drain(..count).collect();
        if let Some(dropped) = taken.last().map(|last| last.ticket).filter(|_| waiting.dropped > 0)
        {
            let bytes = crate::log::dropped(std::mem::take(&mut waiting.dropped));
            taken.push(Event { ticket: dropped, bytes, _room: None });
        }
        let count = waiting.events.len().min(max.saturating_sub(taken.len()));
        taken.extend(waiting.events.drain(..count));
        Ok(taken)
    }
}

/// Opens an inbox.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_inbox_open(inbox: *mut u64, error: *mut FbError) -> i32 {
    entry(error, || {
        let id = registry::insert(Object::Inbox(Arc::default()))?;
        // SAFETY: the caller follows the header's rules.
        unsafe { put(inbox, id) };
        Ok(())
    })
}

/// Waits for events; returns per event its ticket u64, its length u32 and its bytes.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_inbox_next(
    inbox: u64,
    timeout_ms: u64,
    events_max: u64,
    events: *mut FbBytes,
    count: *mut u64,
    error: *mut FbError,
) -> i32 {
    entry(error, || {
        // The call has its own reference: a wait may be long, and a close ends it.
        let inbox = Arc::clone(registry::open(inbox)?.inbox()?);
        let max = usize::try_from(events_max).unwrap_or(usize::MAX).max(1);
        let taken = inbox.take(Duration::from_millis(timeout_ms), max)?;
        let mut packer = Packer::default();
        for event in &taken {
            packer.u64(event.ticket);
            packer.text(&event.bytes);
        }
        // SAFETY: the caller follows the header's rules.
        unsafe {
            put(count, taken.len() as u64);
            put(events, packer.finish());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::ErrorCode;

    const LONG: Duration = Duration::from_secs(60);

    fn tickets(inbox: &Inbox, max: usize) -> Vec<u64> {
        inbox.take(LONG, max).unwrap().iter().map(|event| event.ticket).collect()
    }

    #[test]
    fn events_come_in_their_order_and_no_more_than_asked_for() {
        let inbox = Arc::new(Inbox::default());
        for ticket in 1..=3 {
            Sink::Inbox(Arc::clone(&inbox), ticket).tell(vec![7], None);
        }
        assert_eq!(tickets(&inbox, 2), [1, 2]);
        assert_eq!(tickets(&inbox, 2), [3]);
        assert!(inbox.take(Duration::ZERO, 2).unwrap().is_empty());
    }

    #[test]
    fn too_many_records_are_dropped_and_counted_and_events_are_not() {
        let inbox = Arc::new(Inbox::default());
        let sink = Sink::Inbox(Arc::clone(&inbox), 5);
        for _ in 0..RECORDS_MAX + 3 {
            sink.tell_record(vec![1]);
            sink.tell(vec![2], None);
        }
        let taken = inbox.take(LONG, usize::MAX).unwrap();
        let of = |byte: u8| taken.iter().filter(|event| event.bytes == [byte]).count();
        assert_eq!((of(1), of(2)), (RECORDS_MAX, RECORDS_MAX + 3));
        let text = String::from_utf8_lossy(&taken[RECORDS_MAX].bytes).into_owned();
        assert!(text.contains("3 records"), "{text}");
    }

    #[test]
    fn a_close_wakes_whoever_waits() {
        let inbox = Arc::new(Inbox::default());
        let waiter = std::thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || inbox.take(LONG, 1).err().map(|error| error.code())
        });
        inbox.close();
        assert_eq!(waiter.join().unwrap(), Some(ErrorCode::Closed));
    }
}
