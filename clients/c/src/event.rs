//! Later events: the sinks of callers, and the inboxes of callers that fetch events instead of
//! being called from a foreign thread.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Error, Result};
use tokio::sync::OwnedSemaphorePermit;

use crate::abi::{FbBytes, FbError, FbSink, FbText};
use crate::error::ffi_call;
use crate::inbox::{Event, Inbox};
use crate::input::{one, put};
use crate::output::Packer;
use crate::registry::{self, Object};

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
        let given_sink = unsafe { one(sink)? };
        if let Some(callback) = given_sink.callback {
            return Ok(Self::Callback(callback, Context(given_sink.context)));
        }
        if given_sink.inbox == 0 {
            return Err(Error::invalid_argument("a sink has a callback or an inbox; give one"));
        }
        let open = registry::open(given_sink.inbox)?;
        Ok(Self::Inbox(Arc::clone(open.inbox()?), given_sink.ticket))
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

/// Opens an inbox.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_inbox_open(inbox: *mut u64, error: *mut FbError) -> i32 {
    ffi_call(error, || {
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
    ffi_call(error, || {
        // The call has its own reference: a wait may be long, and a close ends it.
        let inbox = Arc::clone(registry::open(inbox)?.inbox()?);
        let max = usize::try_from(events_max).unwrap_or(usize::MAX).max(1);
        let events_taken = inbox.take(Duration::from_millis(timeout_ms), max)?;
        let mut packer = Packer::default();
        for event in &events_taken {
            packer.u64(event.ticket);
            packer.text(&event.bytes);
        }
        // SAFETY: the caller follows the header's rules.
        unsafe {
            put(count, events_taken.len() as u64);
            put(events, packer.finish());
        }
        Ok(())
    })
}
