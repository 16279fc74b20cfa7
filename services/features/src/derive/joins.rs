//! Joins of a view's events: readers of the stores, in this process.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::id::StoreId;
use forebay_core::row::Document;
use forebay_core::value::Value;
use forebay_core::view::FeatureView;
use forebay_core::{Error, Result};
use forebay_reader::{DocumentKey, Reader, ReaderOptions};
use forebay_shard_replica::replica_parts;

use crate::parts::FeatureParts;

/// Longest wait until the readers hold their stores; then the derivation restarts.
const READY_WAIT: Duration = Duration::from_secs(60);

/// The reader of each store.
pub(super) struct JoinReaders(BTreeMap<StoreId, Reader>);

impl JoinReaders {
    /// Opens the readers of a view's stores, and waits until they hold their stores: a join in an
    /// incomplete reader would miss documents.
    ///
    /// # Errors
    /// `NotFound` if a store was deleted; `Unavailable` if a store cannot be read in time.
    pub(super) async fn open(parts: &FeatureParts, view: &FeatureView) -> Result<Self> {
        let mut readers = BTreeMap::new();
        for join in &view.joins {
            if readers.contains_key(&join.store) {
                continue;
            }
            let catalog = parts.context.catalog.catalog();
            let schema = catalog
                .active_stores()
                .find(|schema| schema.definition.versions.home() == join.store);
            let deleted_error = || Error::not_found("a store of the view's joins was deleted");
            let name = &schema.ok_or_else(deleted_error)?.definition.name;
            let mut options = ReaderOptions::new(name);
            options.snapshots = parts.context.snapshots.clone();
            let reader = Reader::open(options, replica_parts(&parts.context).into()).await?;
            readers.insert(join.store, reader);
        }
        for reader in readers.values() {
            reader.await_ready(READY_WAIT).await?;
        }
        Ok(Self(readers))
    }

    /// Returns the document under a key, as this process has it now.
    ///
    /// # Errors
    /// `Unavailable` while the store's partition does not answer.
    pub(super) fn get(&self, store: StoreId, key: &Value) -> Result<Option<Document>> {
        let reader = self.0.get(&store);
        let reader = reader.ok_or_else(|| Error::internal("a join has no reader"))?;
        let key = match key {
            Value::String(text) => DocumentKey::from(text),
            Value::Bytes(bytes) => DocumentKey::from(bytes),
            Value::Int64(number) => DocumentKey::from(*number),
            // No store has keys of this type.
            _ => return Ok(None),
        };
        reader.get_document(key)
    }
}
