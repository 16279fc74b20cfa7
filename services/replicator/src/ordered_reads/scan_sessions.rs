//! Sessions of scans: views that scans read page by page. Each view is retained for a while after
//! its last page, so that a scan whose connection broke resumes at its position.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::limits::{SCAN_SNAPSHOT_TTL_MS, SCAN_SNAPSHOTS_MAX};
use forebay_core::{Error, Result};
use forebay_shard::{OwnedView, Shard};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after which an unread view may be evicted if there are too many views.
const IDLE: Duration = Duration::from_secs(5);

struct ScanSession {
    view: Arc<OwnedView>,
    used: Instant,
}

/// The sessions of the scans of one store's shards.
#[derive(Default)]
pub(crate) struct ScanSessions(Mutex<BTreeMap<u64, ScanSession>>);

impl ScanSessions {
    /// Begins a session under a unique number, which retains a view.
    ///
    /// # Errors
    /// `LimitExceeded` if too many scans are in progress.
    pub fn begin(&self, number: u64, view: Arc<OwnedView>) -> Result<()> {
        let (mut sessions, now) = (self.0.lock(), Instant::now());
        if sessions.len() >= SCAN_SNAPSHOTS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
            let idle = oldest.filter(|(_, session)| now.duration_since(session.used) >= IDLE);
            let Some(number) = idle.map(|(number, _)| *number) else {
                let advice =
                    "too many scans of the store run at once; read one to its end, then try again";
                let limit = SCAN_SNAPSHOTS_MAX as u64;
                return Err(Error::limit_exceeded(advice, limit, limit + 1));
            };
            sessions.remove(&number);
        }
        sessions.insert(number, ScanSession { view, used: now });
        Ok(())
    }

    /// Returns the view of this number, for one page; `None` if it is no longer retained.
    pub fn get(&self, number: u64) -> Option<Arc<OwnedView>> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&number)?;
        session.used = Instant::now();
        Some(Arc::clone(&session.view))
    }

    /// Drops the view of a finished scan.
    pub fn end(&self, number: u64) {
        self.0.lock().remove(&number);
    }

    /// Drops the views of a shard that closes.
    pub fn release(&self, shard: &Arc<Shard>) {
        self.0.lock().retain(|_, session| !Arc::ptr_eq(session.view.shard(), shard));
    }

    /// Drops the views that were not read for long.
    pub fn sweep(&self) {
        let (now, longest) = (Instant::now(), Duration::from_millis(SCAN_SNAPSHOT_TTL_MS));
        self.0.lock().retain(|_, session| now.duration_since(session.used) < longest);
    }
}
