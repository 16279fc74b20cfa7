//! Dependencies of the features service.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_core::Result;
use forebay_core::id::StoreId;
use forebay_query::SqlOptions;
use forebay_runtime::{DataSettings, ExportSettings, ServiceContext, SqlSettings};
use forebay_shard::{Resources, ShardDirectory};

use crate::export::Exports;

const TILES: &str = "tiles";
const EVENTS: &str = "events";
const DERIVED: &str = "derived";
const SQL: &str = "sql";
/// Folder of the storage in the data folder.
const FEATURES: &str = "features";

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

    /// Creates the storage in the data folder, with these resources, limits and exports.
    ///
    /// # Errors
    /// `InvalidArgument` if the URL of exports names no folder.
    pub fn with_settings(
        data: &DataSettings,
        resources: Resources,
        sql: &SqlSettings,
        exports: &ExportSettings,
    ) -> Result<Self> {
        let mut shards = Self::new(data.data_dir.join(FEATURES), resources);
        shards.sql.memory_bytes = sql.memory_bytes();
        shards.exports = exports.open()?.map(Exports::new);
        Ok(shards)
    }

    /// Returns the resources of all shards.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
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
