//! The stores that feature views emit to: made before the views, and cleared of what these need no
//! more.

use forebay_core::catalog::Catalog;
use forebay_core::id::{FieldId, StoreId};
use forebay_core::schema::Definition;
use forebay_core::view::{EmissionSpec, left_behind};
use forebay_core::{Error, ErrorCode, Result};

use super::rules::emits;
use crate::writer::Writer;

/// How often fields are dropped again of a store that others alter at the same time.
const DROP_ATTEMPTS: usize = 5;

impl Writer {
    /// The store that a view needs to emit to it. `view` is what the view shall be, without its
    /// emission, `current` what it is.
    ///
    /// # Errors
    /// `InvalidArgument` or `LimitExceeded` where the view cannot emit to it.
    pub(super) fn emission_store(
        &self,
        catalog: &Catalog,
        emission: &EmissionSpec,
        view: &Definition,
        current: Option<&Definition>,
    ) -> Result<Definition> {
        let Ok(store) = catalog.by_name(&emission.store) else {
            return emission.new_store(self.parts.entropy.store_id()?, view);
        };
        let store = &store.definition;
        let is_emitted = |field| is_emitted(catalog, store.store, field);
        emission.altered_store(view, current, store, &is_emitted)
    }

    /// Creates the store that a view is to emit to, or gives it its next version.
    ///
    /// # Errors
    /// `Conflict` when another definition came first, else as the log's append.
    pub(super) async fn make_emission_store(
        &self,
        catalog: &Catalog,
        store: &Definition,
    ) -> Result<()> {
        match catalog.by_name(&store.name) {
            Err(_) => self.define_first(store).await.map(drop),
            Ok(now) if now.definition != *store => self.define_next(store).await.map(drop),
            Ok(_) => Ok(()),
        }
    }

    /// Tells of a store that was deleted, or fields that were dropped, before the view was there
    /// that emits to them.
    ///
    /// # Errors
    /// `Conflict`, naming the store.
    pub(super) fn check_emission(&self, view: &Definition) -> Result<()> {
        let Some(emission) = view.view().and_then(|view| view.emission.as_ref()) else {
            return Ok(());
        };
        let catalog = self.parts.catalog.catalog();
        let store = catalog.stores().find(|schema| schema.definition.store == emission.store);
        let mut ids = emission.fields.iter().chain([&emission.position]);
        if store.is_some_and(|store| ids.all(|id| store.definition.field_by_id(*id).is_some())) {
            return Ok(());
        }
        let message = "another one altered the store that the view emits to at the same time; \
                       apply the view again";
        let name = store.map(|store| store.definition.name.clone()).unwrap_or_default();
        Err(Error::conflict(message).with_store(name))
    }

    /// Drops of all stores the fields that a view of this name has left behind: those of values
    /// that it has no more, all where it is gone.
    ///
    /// # Errors
    /// `Conflict` while others alter the store again and again, else as the log's append.
    pub(crate) async fn drop_left_behind(&self, view: &str) -> Result<()> {
        for _ in 1..DROP_ATTEMPTS {
            match self.try_drop_left_behind(view).await {
                Err(error) if error.code() == ErrorCode::Conflict => self.catch_up().await?,
                ended => return ended,
            }
        }
        self.try_drop_left_behind(view).await
    }

    async fn try_drop_left_behind(&self, view: &str) -> Result<()> {
        let catalog = self.parts.catalog.catalog();
        for schema in catalog.stores() {
            let store = &schema.definition;
            let is_emitted = |field| is_emitted(&catalog, store.store, field);
            let alterations = left_behind(store, view, &is_emitted);
            if !alterations.is_empty() {
                self.define_next(&store.altered(&alterations)?).await?;
            }
        }
        Ok(())
    }
}

/// Whether a view that is there emits to a field.
fn is_emitted(catalog: &Catalog, store: StoreId, field: FieldId) -> bool {
    let mut views = catalog.living().filter_map(|schema| schema.definition.view());
    views.any(|view| emits(view, store, field))
}
