//! Inboxes: the queues of callers that fetch events instead of being called from a foreign thread.

use std::collections::VecDeque;
use std::time::Duration;

use forebay::{Error, Result};
use parking_lot::{Condvar, Mutex};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Level;

use crate::output::packed_record;

/// Most log records in an inbox; later ones are counted and dropped. All other events in an inbox
/// hold space of their client or stream.
const RECORDS_MAX: usize = 4_096;

/// An event, with the space of its client or stream that it holds until the caller has it.
pub(crate) struct Event {
    pub(crate) ticket: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) _room: Option<OwnedSemaphorePermit>,
}

/// Events that wait until the caller fetches them, oldest first.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<InboxQueues>,
    arrived: Condvar,
}

#[derive(Default)]
struct InboxQueues {
    events: VecDeque<Event>,
    /// Log records, each with its ticket, in a separate queue with its own bound.
    records: VecDeque<Event>,
    dropped_records: u64,
    is_closed: bool,
}

impl Inbox {
    pub(crate) fn add(&self, event: Event) {
        self.waiting.lock().events.push_back(event);
        self.arrived.notify_one();
    }

    pub(crate) fn add_record(&self, ticket: u64, bytes: Vec<u8>) {
        let mut waiting = self.waiting.lock();
        if waiting.records.len() == RECORDS_MAX {
            waiting.dropped_records += 1;
            return;
        }
        waiting.records.push_back(Event { ticket, bytes, _room: None });
        drop(waiting);
        self.arrived.notify_one();
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.arrived.notify_all();
    }

    /// Waits for events and takes some; returns none if none come in time.
    pub(crate) fn take(&self, timeout: Duration, max: usize) -> Result<Vec<Event>> {
        let mut waiting = self.waiting.lock();
        while waiting.events.is_empty() && waiting.records.is_empty() && !waiting.is_closed {
            if self.arrived.wait_for(&mut waiting, timeout).timed_out() {
                return Ok(Vec::new());
            }
        }
        if waiting.is_closed {
            return Err(Error::closed("the inbox was closed; open another one"));
        }
        let count = waiting.records.len().min(max);
        let mut events: Vec<_> = waiting.records.drain(..count).collect();
        if let Some(ticket) =
            events.last().map(|last| last.ticket).filter(|_| waiting.dropped_records > 0)
        {
            let bytes = dropped_record(std::mem::take(&mut waiting.dropped_records));
            events.push(Event { ticket, bytes, _room: None });
        }
        let count = waiting.events.len().min(max.saturating_sub(events.len()));
        events.extend(waiting.events.drain(..count));
        Ok(events)
    }
}

/// Returns the record that states the number of dropped records of an inbox.
fn dropped_record(count: u64) -> Vec<u8> {
    let message = format!(
        "{count} records were dropped, because nothing fetched them in time; raise the level"
    );
    packed_record(Level::WARN, "forebay", &message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay::ErrorCode;

    use super::*;
    use crate::event::Sink;

    const LONG: Duration = Duration::from_secs(60);

    fn tickets(inbox: &Inbox, max: usize) -> Vec<u64> {
        inbox.take(LONG, max).unwrap().iter().map(|event| event.ticket).collect()
    }

    #[test]
    fn inbox_returns_events_in_order_up_to_the_requested_count() {
        let inbox = Arc::new(Inbox::default());
        for ticket in 1..=3 {
            Sink::Inbox(Arc::clone(&inbox), ticket).tell(vec![7], None);
        }
        assert_eq!(tickets(&inbox, 2), [1, 2]);
        assert_eq!(tickets(&inbox, 2), [3]);
        assert!(inbox.take(Duration::ZERO, 2).unwrap().is_empty());
    }

    #[test]
    fn full_inbox_drops_and_counts_records_but_no_events() {
        let inbox = Arc::new(Inbox::default());
        let sink = Sink::Inbox(Arc::clone(&inbox), 5);
        for _ in 0..RECORDS_MAX + 3 {
            sink.tell_record(vec![1]);
            sink.tell(vec![2], None);
        }
        let events = inbox.take(LONG, usize::MAX).unwrap();
        let count_of = |byte: u8| events.iter().filter(|event| event.bytes == [byte]).count();
        assert_eq!((count_of(1), count_of(2)), (RECORDS_MAX, RECORDS_MAX + 3));
        let text = String::from_utf8_lossy(&events[RECORDS_MAX].bytes).into_owned();
        assert!(text.contains("3 records"), "{text}");
    }

    #[test]
    fn close_wakes_inbox_waiters() {
        let inbox = Arc::new(Inbox::default());
        let waiter = std::thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || inbox.take(LONG, 1).err().map(|error| error.code())
        });
        inbox.close();
        assert_eq!(waiter.join().unwrap(), Some(ErrorCode::Closed));
    }
}
