//! The changes in the log between the positions of two copies.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::fold::{FoldError, PartitionState, Record};
use forebay_core::id::{Offset, PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::{READER_DEFINITION_WAIT_MS, VERIFY_CHANGED_MAX};
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};
use forebay_entries::{CatalogFollower, changed_keys, follow_version};
use forebay_log::{ChangeLog, RecordRange};
use forebay_wire::entry::decode_entry;

use super::digest_scan::ChangedDocuments;

/// The log and the definitions of the store whose copies are compared.
pub struct VerifyLog {
    log: Arc<dyn ChangeLog>,
    catalog: Arc<CatalogFollower>,
    /// Storage id of the compared store version.
    storage_id: StoreId,
    pub(super) schemas: SchemaSet,
}

impl VerifyLog {
    /// Returns the log of a store, or of one of its versions, by storage id.
    ///
    /// # Errors
    /// Returns `NotFound` for a storage id that the catalog does not know.
    pub fn new(
        log: Arc<dyn ChangeLog>,
        catalog: Arc<CatalogFollower>,
        storage_id: StoreId,
    ) -> Result<Self> {
        let known_catalog = catalog.catalog();
        let missing = || Error::not_found("the catalog has no such store");
        let history = known_catalog.store(storage_id).ok_or_else(missing)?;
        let schemas = SchemaSet::new(history.versions().cloned())?;
        let log = follow_version(log, &schemas.newest().definition);
        Ok(Self { log, catalog, storage_id, schemas })
    }

    /// Returns the documents that the log changes between an older copy's state and a newer one's.
    pub(super) async fn changed_documents(
        &self,
        older: &PartitionState,
        newer: &PartitionState,
    ) -> Result<ChangedDocuments> {
        let log_id = older.log_id.unwrap_or_default();
        let range = self.records(older, newer.offset_applied);
        let keys = changed_keys(range, log_id, VERIFY_CHANGED_MAX).await?.ok_or_else(|| {
            let message = "the log changes too many documents between the two replicas; compare \
                with a newer snapshot or checkpoint";
            let limit = VERIFY_CHANGED_MAX as u64;
            Error::limit_exceeded(message, limit, limit + 1)
        })?;
        Ok(ChangedDocuments::new(keys, older, newer.drop_all_count))
    }

    /// Folds the entries between a copy's state and an offset into the documents that they change.
    pub(super) async fn fold(
        &self,
        state: &mut PartitionState,
        documents: &mut ChangedDocuments,
        end: Offset,
    ) -> Result<()> {
        let mut records = self.records(state, end);
        let unknown = |version| {
            Error::unavailable(format!("schema version {version} is not known here yet; try again"))
        };
        loop {
            let read = records.next().await?;
            if read.is_empty() {
                // After the last record there may be offsets without one.
                state.offset_applied = state.offset_applied.max(end);
                return Ok(());
            }
            for record in read {
                let (offset, append_time) = (record.offset, record.append_time);
                let entry = || decode_entry(&record.entry);
                let outcome = state.apply(
                    Record { offset, append_time, entry: entry() },
                    documents,
                    &self.schemas,
                );
                let effects = match outcome {
                    Err(FoldError::NeedsDefinition(version)) => {
                        self.learn(version).await?;
                        let record = Record { offset, append_time, entry: entry() };
                        state.apply(record, documents, &self.schemas)
                    }
                    outcome => outcome,
                };
                let effects = effects.map_err(|error| error.into_error(unknown))?;
                if effects.drop_all {
                    documents.drop_all();
                }
                for (key, row) in effects.writes {
                    documents.write(key.as_bytes(), row)?;
                }
            }
        }
    }

    fn records(&self, from: &PartitionState, end: Offset) -> RecordRange<'_> {
        let at = PartitionRef { store: self.storage_id, ..from.partition };
        RecordRange { log: &*self.log, at, offsets: from.offset_applied..end }
    }

    /// Waits for a definition that is not known here yet.
    async fn learn(&self, version: SchemaVersion) -> Result<()> {
        let wait_max = Duration::from_millis(READER_DEFINITION_WAIT_MS);
        let schema = self.catalog.definition(self.storage_id, version, wait_max).await?;
        self.schemas.add(schema)
    }
}
