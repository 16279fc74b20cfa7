//! Which documents of a partition expire when: lets their memory go once they have expired.
//!
//! Reads never depend on it; an expired document is absent whether or not its row is still there.
//! Each document stands in the queue at most once. One whose expiry moved on is put back with the
//! new one when its turn comes, so refreshing a time to live costs nothing here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use forebay_core::clock::Timestamp;

/// The queue of one generation of one partition; belongs to its writer.
#[derive(Debug, Default)]
pub(crate) struct ExpiryQueue {
    due: BinaryHeap<Reverse<(Timestamp, Arc<[u8]>)>>,
    queued: HashSet<Arc<[u8]>>,
}

impl ExpiryQueue {
    /// Notes that the document under a key expires.
    pub(crate) fn note(&mut self, identity: &[u8], expires_at: Timestamp) {
        if self.queued.contains(identity) {
            return;
        }
        let identity: Arc<[u8]> = identity.into();
        self.queued.insert(identity.clone());
        self.due.push(Reverse((expires_at, identity)));
    }

    /// The next key whose turn came at this time; it leaves the queue.
    pub(crate) fn next_due(&mut self, now: Timestamp) -> Option<Arc<[u8]>> {
        let Reverse((at, _)) = self.due.peek()?;
        if *at > now {
            return None;
        }
        let Reverse((_, identity)) = self.due.pop()?;
        self.queued.remove(&identity);
        Some(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_due_in_order_and_once() {
        let mut queue = ExpiryQueue::default();
        let at = Timestamp::from_micros;
        queue.note(b"b", at(20));
        queue.note(b"a", at(10));
        queue.note(b"a", at(15));
        assert_eq!(queue.next_due(at(9)), None);
        assert_eq!(queue.next_due(at(30)).as_deref(), Some(&b"a"[..]));
        assert_eq!(queue.next_due(at(30)).as_deref(), Some(&b"b"[..]));
        assert_eq!(queue.next_due(at(30)), None);
        queue.note(b"a", at(40));
        assert_eq!(queue.next_due(at(40)).as_deref(), Some(&b"a"[..]));
    }
}
