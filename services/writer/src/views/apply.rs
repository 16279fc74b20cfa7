//! Applies a declaration: creates or alters a feature view to match the text.

use forebay_core::Result;
use forebay_core::catalog::Catalog;
use forebay_core::schema::Definition;
use forebay_core::view::{ViewSpec, ViewSpecError, ViewSpecPath};

use super::declaration::Declaration;
use crate::writer::Writer;

/// The effect of applying a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyEffect {
    /// The view was created.
    Created,
    /// The view got its next version.
    Altered,
    /// The view already matched the declaration.
    Unchanged,
}

impl Writer {
    /// Creates the view that a text declares, or its next version; before that, creates or alters
    /// the store to which the view materializes. Applying the text again completes an interrupted
    /// application. A dry run only returns the result; the id of a view that it would create is not
    /// the id that the view gets later.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound` or `LimitExceeded` with the line and the column of the invalid
    /// part, where the first line of the text has the number `first_line`; `Conflict` if another
    /// definition came first; else as the log's append.
    pub async fn apply_view(
        &self,
        declaration: &str,
        first_line: u32,
        is_dry_run: bool,
    ) -> Result<(ApplyEffect, Definition)> {
        let declaration = Declaration::read(declaration, first_line)?;
        self.catch_up().await?;
        let catalog = self.context.catalog.catalog();
        let Plan { effect, view, store } = self.plan(&catalog, &declaration)?;
        if is_dry_run {
            return Ok((effect, view));
        }
        if let Some(store) = store.filter(|_| effect != ApplyEffect::Unchanged) {
            self.make_materialization_store(&catalog, &store).await?;
        }
        let view = match effect {
            ApplyEffect::Created => Definition::clone(&self.define_first(&view).await?.definition),
            ApplyEffect::Altered => Definition::clone(&self.define_next(&view).await?.definition),
            ApplyEffect::Unchanged => view,
        };
        self.check_materialization(&view)?;
        self.drop_orphaned_fields(&view.name).await?;
        Ok((effect, view))
    }

    /// Computes the effect of a declaration on the stores and views of the catalog.
    fn plan(&self, catalog: &Catalog, declaration: &Declaration) -> Result<Plan> {
        let spec = &declaration.spec;
        let locate = |error| declaration.locate(error);
        let by_name =
            |name: &str| catalog.store_by_name(name).map(|schema| (*schema.definition).clone());
        let source = by_name(&spec.source);
        let source =
            source.map_err(|error| locate(ViewSpecError { path: ViewSpecPath::Source, error }))?;
        let current = catalog.store_by_name(&spec.name).ok().map(|schema| &*schema.definition);
        let new_id = self.context.entropy.store_id()?;
        let store = spec.materialization.as_ref().map(|materialization| {
            let silent = ViewSpec { materialization: None, ..spec.clone() };
            let silent = match current {
                None => silent.define(new_id, &source, &by_name),
                Some(current) => silent.alter(current, &source, &by_name),
            };
            let store = self.materialization_store(catalog, materialization, &silent?, current);
            store.map_err(|error| ViewSpecError { path: ViewSpecPath::Materialization, error })
        });
        let store = store.transpose().map_err(locate)?;
        let by_name = |name: &str| match &store {
            Some(store) if store.name == name => Ok(store.clone()),
            _ => by_name(name),
        };
        let view = match current {
            None => spec.define(new_id, &source, &by_name),
            Some(current) => spec.alter(current, &source, &by_name),
        };
        let view = view.map_err(locate)?;
        let effect = match current {
            None => ApplyEffect::Created,
            Some(current) if view == *current => ApplyEffect::Unchanged,
            Some(_) => ApplyEffect::Altered,
        };
        Ok(Plan { effect, view, store })
    }
}

/// The definitions that applying a declaration appends.
struct Plan {
    effect: ApplyEffect,
    view: Definition,
    /// The store to which the view materializes, as it must be before the view is defined.
    store: Option<Definition>,
}
