//! Dependencies of the features service.

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

/// Dependencies of the service; the simulator supplies its own.
#[derive(Clone)]
pub struct FeatureParts {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The fold of the control log.
    pub catalog: Arc<CatalogFollower>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness: the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
    /// Assignment of the partitions of streams and views to this process.
    pub membership: Arc<dyn Membership>,
    /// Storage of the service.
    pub shards: FeatureShards,
    /// Snapshots from which readers of looked-up stores bootstrap.
    pub snapshots: Option<SnapshotStore>,
}

/// Storage of the service: the tiles and the derivation checkpoints of views, and the events of
/// streams. Lost data is rebuilt from the logs.
#[derive(Clone)]
pub struct FeatureShards {
    dir: PathBuf,
    resources: Resources,
    sql: SqlOptions,
    exports: Option<Exports>,
}

impl FeatureShards {
    /// Creates the storage in a folder of its own, which need not exist yet.
    pub fn new(dir: impl AsRef<Path>, resources: Resources) -> Self {
        let dir = dir.as_ref().to_owned();
        let sql = SqlOptions::new(dir.join(SQL));
        Self { dir, resources, sql, exports: None }
    }

    /// Sets the memory of SQL statements.
    pub fn with_sql_memory_mib(mut self, mib: u32) -> Self {
        self.sql.memory_bytes = (mib as usize) << 20;
        self
    }

    /// Sets the folder for exports.
    pub fn with_exports(mut self, exports: Option<SnapshotStore>) -> Self {
        self.exports = exports.map(Exports::new);
        self
    }

    /// Returns the exports, if a folder is configured.
    pub(crate) fn exports(&self) -> Option<&Exports> {
        self.exports.as_ref()
    }

    /// Returns the limits of SQL statements.
    pub(crate) fn sql(&self) -> &SqlOptions {
        &self.sql
    }

    /// Returns the directory of the tiles of all views.
    pub(crate) fn tiles(&self) -> ShardDirectory {
        // New groups have no tiles, so filters save reads.
        ShardDirectory::new(self.dir.join(TILES), self.resources.clone().with_filtered_writes())
    }

    /// Returns the directory of the events of all streams.
    pub(crate) fn events(&self) -> ShardDirectory {
        ShardDirectory::with_events(self.dir.join(EVENTS), self.resources.clone())
    }

    /// Returns the directory of a view's derivation checkpoints.
    pub(crate) fn derived(&self, view: StoreId) -> ShardDirectory {
        ShardDirectory::new(self.derived_dir(view), self.resources.clone())
    }

    fn derived_dir(&self, view: StoreId) -> PathBuf {
        self.dir.join(DERIVED).join(view.to_string())
    }

    /// Returns the views and streams that have stored data.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub(crate) fn stores(&self) -> Result<BTreeSet<StoreId>> {
        Ok(self.tiles().stores()?.into_iter().chain(self.events().stores()?).collect())
    }

    /// Removes the data of a view or a stream, none of which may be open.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub(crate) fn remove(&self, view: StoreId) -> Result<()> {
        for source in self.derived(view).stores()? {
            self.derived(view).remove_store(source)?;
        }
        // The folder is empty now, except for foreign files.
        drop(std::fs::remove_dir(self.derived_dir(view)));
        self.tiles().remove_store(view)?;
        self.events().remove_store(view)
    }
}

impl FeatureParts {
    /// Returns all definitions of a store that the catalog has.
    pub(crate) fn versions(&self, store: StoreId) -> Vec<Arc<SchemaAt>> {
        let catalog = self.catalog.catalog();
        let history = catalog.store(store).into_iter();
        history.flat_map(|history| history.versions().cloned()).collect()
    }

    /// Returns the dependencies of a reader or follower of a store.
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
