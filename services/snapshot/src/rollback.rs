//! Drops earlier versions of documents once their rollback window has passed.
//!
//! The time at which a version became live is not stored. The window starts when this process first
//! sees the version live, so earlier versions stay at least as long as configured, and longer over
//! a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::id::StoreId;
use forebay_core::schema::Definition;
use forebay_core::versions::VersionNumber;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::context::SnapshotParts;
use crate::version_admin::drop_version;

/// The live version of each store, and when this process first saw it live.
#[derive(Default)]
pub(crate) struct RollbackWindows {
    live: BTreeMap<StoreId, (VersionNumber, Instant)>,
}

impl RollbackWindows {
    /// Drops, for these stores, the versions before one that has been live for the whole window.
    pub(crate) async fn close(&mut self, parts: &SnapshotParts, stores: &[Definition]) {
        self.live.retain(|id, _| stores.iter().any(|store| store.store == *id));
        for store in stores {
            for number in self.passed_versions(store, parts.options.rollback_window) {
                match drop_version(parts, &store.name, number).await {
                    Err(error) if error.code() == ErrorCode::NotFound => {}
                    Err(error) => {
                        warn!(store = store.name, version = %number, %error, "version not dropped");
                    }
                    Ok(_) => info!(store = store.name, version = %number, "version dropped"),
                }
            }
        }
    }

    /// Returns the versions of a store whose rollback window has passed.
    fn passed_versions(&mut self, store: &Definition, window: Duration) -> Vec<VersionNumber> {
        let live = store.versions.live().number;
        let (last_live, live_at) = self.live.entry(store.store).or_insert((live, Instant::now()));
        if *last_live != live {
            (*last_live, *live_at) = (live, Instant::now());
        }
        if live_at.elapsed() < window {
            return Vec::new();
        }
        let numbers = store.versions.all().iter().map(|version| version.number);
        numbers.filter(|number| *number < live).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::Offset;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn version_is_passed_one_rollback_window_after_its_successor_became_live() {
        let window = Duration::from_secs(10);
        let first =
            StoreSpec::documents("users", KeyType::Int64).partitions(1).define(StoreId(1)).unwrap();
        let mut windows = RollbackWindows::default();
        assert_eq!(windows.passed_versions(&first, window), []);
        tokio::time::advance(2 * window).await;
        assert_eq!(windows.passed_versions(&first, window), [], "there is none before it");
        let pushed = first.with_version(StoreId(8), vec![Offset(3)]).unwrap();
        assert_eq!(windows.passed_versions(&pushed, window), [], "it is not live yet");
        let live = pushed.with_live(VersionNumber(2)).unwrap();
        assert_eq!(windows.passed_versions(&live, window), []);
        tokio::time::advance(window / 2).await;
        let rolled_back = live.with_live(VersionNumber(1)).unwrap();
        assert_eq!(windows.passed_versions(&rolled_back, window), []);
        tokio::time::advance(2 * window).await;
        assert_eq!(
            windows.passed_versions(&rolled_back, window),
            [],
            "a later one may be gone on to"
        );
        assert_eq!(windows.passed_versions(&live, window), [], "it is live again");
        tokio::time::advance(window).await;
        assert_eq!(windows.passed_versions(&live, window), [VersionNumber(1)]);
    }
}
