//! Administration of stores: the writer appends a definition to the control log, then announces it
//! in every partition.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::{ControlRecord, SchemaAt};
use forebay_core::change::EntryBody;
use forebay_core::id::{SchemaVersion, StoreId};
use forebay_core::schema::{Alteration, Definition, StoreSpec};
use forebay_core::{Error, Result};

use crate::views;
use crate::writer::Writer;

/// Longest wait until the catalog has folded a control record that is in the log.
const FOLD_WAIT: Duration = Duration::from_secs(10);

impl Writer {
    /// Creates a store and the logs of its partitions.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` if the spec is invalid, `Conflict` if the name is
    /// taken, else as the log's append.
    pub async fn create_store(&self, spec: &StoreSpec) -> Result<Arc<SchemaAt>> {
        let definition = spec.define(self.context.entropy.store_id()?)?;
        self.catch_up().await?;
        if self.context.catalog.catalog().store_by_name(&definition.name).is_ok() {
            return Err(name_taken(&definition.name));
        }
        self.define_first(&definition).await
    }

    /// Appends the next version of a store's definition. `from` is the version that the caller has
    /// seen; 0 takes the newest.
    ///
    /// # Errors
    /// - `NotFound` if the store does not exist.
    /// - `InvalidArgument` with the reason, for example because the store is a feature view or a
    ///   feature view needs the altered field.
    /// - `Conflict` with both versions if another alteration came first.
    /// - Else as the log's append.
    pub async fn alter_store(
        &self,
        name: &str,
        from: SchemaVersion,
        alterations: &[Alteration],
    ) -> Result<Arc<SchemaAt>> {
        self.catch_up().await?;
        let catalog = self.context.catalog.catalog();
        let newest = &catalog.store_by_name(name)?.definition;
        if from != SchemaVersion(0) && from != newest.version {
            return Err(overtaken_error(name, from, newest.version));
        }
        views::check_alterations(newest, alterations)?;
        let next = newest.altered(alterations).map_err(|e| e.with_store(name))?;
        views::check_next(&catalog, newest, &next)?;
        self.define_next(&next).await
    }

    /// Deletes a store, then its logs. For a feature view, also drops the fields to which the view
    /// materialized.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` while a feature view reads the store or materializes to it;
    /// else as the log's append.
    pub async fn delete_store(&self, name: &str) -> Result<()> {
        self.catch_up().await?;
        let catalog = self.context.catalog.catalog();
        let definition = &catalog.store_by_name(name)?.definition;
        views::check_delete(&catalog, definition)?;
        let store = definition.store;
        self.control(ControlRecord::Delete(store)).await?;
        let history = self.context.catalog.catalog().store(store).cloned();
        let mut deleted = Ok(());
        for logs in history.unwrap_or_default().logs() {
            self.forget(logs);
            deleted = deleted.and(self.delete_logs(logs).await);
        }
        if definition.view().is_some() {
            deleted = deleted.and(self.drop_orphaned_fields(name).await);
        }
        self.or_later(deleted)
    }

    /// Deletes the logs of a store and the logs of its dead letters.
    pub(crate) async fn delete_logs(&self, logs: StoreId) -> Result<()> {
        self.context.log.delete(logs).await?;
        match logs.dead_letters() {
            Some(letters) => self.context.log.delete(letters).await,
            None => Ok(()),
        }
    }

    /// Returns one definition of an active store; version 0 is the newest.
    ///
    /// # Errors
    /// `NotFound`, naming store and version.
    pub async fn describe_store(
        &self,
        name: &str,
        version: SchemaVersion,
    ) -> Result<Arc<SchemaAt>> {
        self.catch_up().await?;
        let catalog = self.context.catalog.catalog();
        let newest = catalog.store_by_name(name)?;
        if version == SchemaVersion(0) {
            return Ok(Arc::clone(newest));
        }
        let history = catalog.store(newest.definition.store);
        history.and_then(|history| history.at(version)).cloned().ok_or_else(|| {
            let message = format!(
                "the store has no schema version {version}; the newest is {}",
                newest.definition.version
            );
            Error::not_found(message).with_store(name)
        })
    }

    /// Returns the newest definitions of all active stores, by name.
    pub async fn list_stores(&self) -> Result<Vec<Arc<SchemaAt>>> {
        self.catch_up().await?;
        Ok(self.context.catalog.catalog().active_stores().cloned().collect())
    }

    /// Waits until the catalog has folded all records that the control log holds at the call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        self.control.log_id().await?;
        self.context.catch_up(FOLD_WAIT).await
    }

    /// Defines a new store or view and creates its logs.
    ///
    /// # Errors
    /// `Conflict` if the name is taken, else as the log's append.
    pub(crate) async fn define_first(&self, definition: &Definition) -> Result<Arc<SchemaAt>> {
        let created = self.define(definition).await?;
        let created = created.ok_or_else(|| name_taken(&definition.name))?;
        self.or_later(self.announce(&created).await)?;
        Ok(created)
    }

    /// Appends the next version of an existing definition.
    ///
    /// # Errors
    /// `Conflict` with both versions if another alteration came first, else as the log's append.
    pub(crate) async fn define_next(&self, next: &Definition) -> Result<Arc<SchemaAt>> {
        let altered = self.define(next).await?;
        let altered = altered.ok_or_else(|| {
            let start_version = SchemaVersion(next.version.0.saturating_sub(1));
            let catalog = self.context.catalog.catalog();
            let now = catalog
                .store_by_name(&next.name)
                .map_or(start_version, |schema| schema.definition.version);
            overtaken_error(&next.name, start_version, now)
        })?;
        self.or_later(self.announce(&altered).await)?;
        Ok(altered)
    }

    /// Appends a definition; returns `None` if another record for the same version came first.
    async fn define(&self, definition: &Definition) -> Result<Option<Arc<SchemaAt>>> {
        self.control(ControlRecord::Define(Box::new(definition.clone()))).await?;
        let catalog = self.context.catalog.catalog();
        let history = catalog.store(definition.store);
        let found = history.and_then(|history| history.at(definition.version)).cloned();
        Ok(found.filter(|schema| *schema.definition == *definition))
    }

    async fn control(&self, record: ControlRecord) -> Result<()> {
        let body = EntryBody::Control(record);
        let (_, appended) = self.control.append(SchemaVersion(0), body).await?;
        self.context.catalog.wait_applied(appended.offset.next(), FOLD_WAIT).await
    }

    /// Creates the logs of a store's partitions and appends the definition's version to each.
    pub(crate) async fn announce(&self, schema: &SchemaAt) -> Result<()> {
        let definition = &schema.definition;
        let logs = definition.write_logs();
        self.context.log.create(logs.store, logs.partitions).await?;
        for partition in logs.all() {
            let queue = self.queue(partition);
            queue.log().announce(definition.version).await?;
        }
        Ok(())
    }
}

fn name_taken(name: &str) -> Error {
    let message = "a store with this name exists already; alter it, or choose another name";
    Error::conflict(message).with_store(name)
}

fn overtaken_error(name: &str, from: SchemaVersion, now: SchemaVersion) -> Error {
    let message = format!(
        "the alteration starts from version {from}, but the store is at {now}; describe the store \
         and alter it again"
    );
    Error::conflict(message).with_store(name)
}
