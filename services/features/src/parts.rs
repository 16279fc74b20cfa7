//! Dependencies of the features service.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::id::StoreId;
use forebay_query::SqlOptions;
use forebay_reader::ReaderParts;
use forebay_replica::{LogBarriers, ReplicaParts};
use forebay_runtime::ServiceContext;
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
    /// Dependencies that all services share.
    pub context: ServiceContext,
    /// Storage of the service.
    pub shards: FeatureShards,
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

    /// Sets the memory of SQL statements, in bytes.
    pub fn with_sql_memory(mut self, bytes: usize) -> Self {
        self.sql.memory_bytes = bytes;
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
    /// Returns the dependencies of a replica of a store in the shards of the service.
    pub(crate) fn replica_parts(&self) -> ReplicaParts {
        ReplicaParts {
            log: Arc::clone(&self.context.log),
            catalog: Arc::clone(&self.context.catalog),
            clock: Arc::clone(&self.context.clock),
            entropy: Arc::clone(&self.context.entropy),
            barriers: Arc::new(LogBarriers(Arc::clone(&self.context.log))),
            replicator: None,
        }
    }

    /// Returns the dependencies of an embedded reader of a store.
    pub(crate) fn reader_parts(&self) -> ReaderParts {
        ReaderParts {
            log: Arc::clone(&self.context.log),
            catalog: Arc::clone(&self.context.catalog),
            clock: Arc::clone(&self.context.clock),
            entropy: Arc::clone(&self.context.entropy),
            barriers: Arc::new(LogBarriers(Arc::clone(&self.context.log))),
            disk: None,
            replicator: None,
        }
    }
}
