//! What the features service is made of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::StoreId;
use forebay_log::{CatalogFollower, ChangeLog, Membership};
use forebay_query::SqlOptions;
use forebay_reader::{LogBarriers, ReaderParts};
use forebay_shard::{Resources, ShardDirectory};
use forebay_snapshot::SnapshotStore;

use crate::export::Exports;

const TILES: &str = "tiles";
const EVENTS: &str = "events";
const DERIVED: &str = "derived";
const SQL: &str = "sql";

/// What the service is made of; the simulator brings its own.
#[derive(Clone)]
pub struct FeatureParts {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The fold of the control log.
    pub catalog: Arc<CatalogFollower>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness: the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Which partitions are this process's, of streams and of views.
    pub membership: Arc<dyn Membership>,
    /// Where it keeps what it knows.
    pub shards: FeatureShards,
    /// Where the snapshots lie that readers of looked-up stores begin with.
    pub snapshots: Option<SnapshotStore>,
}

/// Where the service keeps what it knows: of views their tiles, and how far their events were
/// derived, of streams their events. Whatever is lost of it is made of the logs again.
#[derive(Clone)]
pub struct FeatureShards {
    dir: PathBuf,
    resources: Resources,
    sql: SqlOptions,
    exports: Option<Exports>,
}

impl FeatureShards {
    /// In a folder of its own, which need not exist yet.
    pub fn new(dir: impl AsRef<Path>, resources: Resources) -> Self {
        let dir = dir.as_ref().to_owned();
        let sql = SqlOptions::new(dir.join(SQL));
        Self { dir, resources, sql, exports: None }
    }

    /// With so much memory for statements of SQL.
    pub fn with_sql_memory_mib(mut self, mib: u32) -> Self {
        self.sql.memory_bytes = (mib as usize) << 20;
        self
    }

    /// With this folder for exports.
    pub fn with_exports(mut self, exports: Option<SnapshotStore>) -> Self {
        self.exports = exports.map(Exports::new);
        self
    }

    /// Where exports are, if anywhere.
    pub(crate) fn exports(&self) -> Option<&Exports> {
        self.exports.as_ref()
    }

    /// What statements of SQL may take.
    pub(crate) fn sql(&self) -> &SqlOptions {
        &self.sql
    }

    /// The tiles of all views.
    pub(crate) fn tiles(&self) -> ShardDirectory {
        // Groups that come for the first time have none.
        ShardDirectory::new(self.dir.join(TILES), self.resources.clone().with_filtered_writes())
    }

    /// The events of all streams.
    pub(crate) fn events(&self) -> ShardDirectory {
        ShardDirectory::with_events(self.dir.join(EVENTS), self.resources.clone())
    }

    /// How far the events of a view were derived of its source.
    pub(crate) fn derived(&self, view: StoreId) -> ShardDirectory {
        ShardDirectory::new(self.derived_dir(view), self.resources.clone())
    }

    fn derived_dir(&self, view: StoreId) -> PathBuf {
        self.dir.join(DERIVED).join(view.to_string())
    }

    /// The views and streams of which something is kept.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(crate) fn stores(&self) -> Result<BTreeSet<StoreId>> {
        Ok(self.tiles().stores()?.into_iter().chain(self.events().stores()?).collect())
    }

    /// Removes what is kept of a view or a stream, of which nothing may be open.
    ///
    /// # Errors
    /// `Unavailable` for a disk that refuses.
    pub(crate) fn remove(&self, view: StoreId) -> Result<()> {
        for source in self.derived(view).stores()? {
            self.derived(view).remove_store(source)?;
        }
        // Empty by now, but for what is not ours.
        drop(std::fs::remove_dir(self.derived_dir(view)));
        self.tiles().remove_store(view)?;
        self.events().remove_store(view)
    }
}

impl FeatureParts {
    /// All definitions of a store, as far as the catalog has them.
    pub(crate) fn versions(&self, store: StoreId) -> Vec<Arc<SchemaAt>> {
        let catalog = self.catalog.catalog();
        let history = catalog.store(store).into_iter();
        history.flat_map(|history| history.versions().cloned()).collect()
    }

    /// The parts of what follows a store.
    pub(crate) fn reader_parts(&self) -> ReaderParts {
        ReaderParts {
            log: Arc::clone(&self.log),
            catalog: Arc::clone(&self.catalog),
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
            barriers: Arc::new(LogBarriers(Arc::clone(&self.log))),
            on_skipped: None,
            disk: None,
            replicator: None,
        }
    }
}
