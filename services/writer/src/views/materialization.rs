//! Stores to which feature views materialize: the writer creates them before the views, and drops
//! fields that no view needs any more.

use forebay_core::catalog::Catalog;
use forebay_core::id::{FieldId, StoreId};
use forebay_core::schema::Definition;
use forebay_core::view::{MaterializationSpec, orphaned_fields};
use forebay_core::{Error, ErrorCode, Result};

use super::rules::materializes;
use crate::writer::Writer;

/// Number of attempts to drop fields of a store that others alter at the same time.
const DROP_ATTEMPTS: usize = 5;

impl Writer {
    /// Returns the store that a view needs for its materialization. `view` is the declared view
    /// without its materialization, `current` the view's present definition.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` if the view cannot materialize to the store.
    pub(super) fn materialization_store(
        &self,
        catalog: &Catalog,
        materialization: &MaterializationSpec,
        view: &Definition,
        current: Option<&Definition>,
    ) -> Result<Definition> {
        let Ok(store) = catalog.store_by_name(&materialization.store) else {
            return materialization.new_store(self.context.entropy.store_id()?, view);
        };
        let store = &store.definition;
        let is_materialized = |field| is_materialized(catalog, store.store, field);
        materialization.altered_store(view, current, store, &is_materialized)
    }

    /// Creates the store to which a view will materialize, or its next version.
    ///
    /// # Errors
    /// `Conflict` if another definition came first, else as the log's append.
    pub(super) async fn make_materialization_store(
        &self,
        catalog: &Catalog,
        store: &Definition,
    ) -> Result<()> {
        match catalog.store_by_name(&store.name) {
            Err(_) => self.define_first(store).await.map(drop),
            Ok(now) if *now.definition != *store => self.define_next(store).await.map(drop),
            Ok(_) => Ok(()),
        }
    }

    /// Checks that the store and the fields to which the view materializes still exist: another
    /// writer may have deleted or dropped them before the view was defined.
    ///
    /// # Errors
    /// `Conflict`, naming the store.
    pub(super) fn check_materialization(&self, view: &Definition) -> Result<()> {
        let Some(materialization) = view.view().and_then(|view| view.materialization.as_ref())
        else {
            return Ok(());
        };
        let catalog = self.context.catalog.catalog();
        let store = catalog
            .document_stores()
            .find(|schema| schema.definition.store == materialization.store);
        let mut ids = materialization.fields.iter().chain([&materialization.position]);
        if store.is_some_and(|store| ids.all(|id| store.definition.field_by_id(*id).is_some())) {
            return Ok(());
        }
        let message = "another request altered the store that the view materializes to at the same \
            time; apply the view again";
        let name = store.map(|store| store.definition.name.clone()).unwrap_or_default();
        Err(Error::conflict(message).with_store(name))
    }

    /// Drops, from all stores, the orphaned fields of a view of this name: fields of values that
    /// the view no longer has, or all of its fields if the view is gone.
    ///
    /// # Errors
    /// `Conflict` if others alter the store at each attempt, else as the log's append.
    pub(crate) async fn drop_orphaned_fields(&self, view: &str) -> Result<()> {
        for _ in 1..DROP_ATTEMPTS {
            match self.try_drop_orphaned_fields(view).await {
                Err(error) if error.code() == ErrorCode::Conflict => self.catch_up().await?,
                ended => return ended,
            }
        }
        self.try_drop_orphaned_fields(view).await
    }

    async fn try_drop_orphaned_fields(&self, view: &str) -> Result<()> {
        let catalog = self.context.catalog.catalog();
        for schema in catalog.document_stores() {
            let store = &schema.definition;
            let is_materialized = |field| is_materialized(&catalog, store.store, field);
            let alterations = orphaned_fields(store, view, &is_materialized);
            if !alterations.is_empty() {
                self.define_next(&store.altered(&alterations)?).await?;
            }
        }
        Ok(())
    }
}

/// Returns whether an existing view materializes to a field.
fn is_materialized(catalog: &Catalog, store: StoreId, field: FieldId) -> bool {
    let mut views = catalog.active_stores().filter_map(|schema| schema.definition.view());
    views.any(|view| materializes(view, store, field))
}
