//! Applies a declaration: creates or alters a feature view to match the text.

use forebay_core::Result;
use forebay_core::catalog::Catalog;
use forebay_core::schema::Definition;
use forebay_core::view::{ViewFault, ViewPart, ViewSpec};

use super::declaration::Declaration;
use crate::writer::Writer;

/// The effect of applying a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The view was created.
    Created,
    /// The view got its next version.
    Altered,
    /// The view already matched the declaration.
    Unchanged,
}

impl Writer {
    /// Creates the view that a text declares, or its next version; before that, creates or alters
    /// the store to which the view emits. Applying the text again completes an interrupted
    /// application. A dry run only returns the result; the id of a view that it would create is not
    /// the id that the view gets later.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound` or `LimitExceeded` with the line and the column of the invalid
    /// part; `Conflict` if another definition came first; else as the log's append.
    pub async fn apply_view(
        &self,
        declaration: &str,
        is_dry_run: bool,
    ) -> Result<(Applied, Definition)> {
        let declaration = Declaration::read(declaration)?;
        self.catch_up().await?;
        let catalog = self.context.catalog.catalog();
        let Plan { applied, view, store } = self.plan(&catalog, &declaration)?;
        if is_dry_run {
            return Ok((applied, view));
        }
        if let Some(store) = store.filter(|_| applied != Applied::Unchanged) {
            self.make_emission_store(&catalog, &store).await?;
        }
        let view = match applied {
            Applied::Created => self.define_first(&view).await?.definition.clone(),
            Applied::Altered => self.define_next(&view).await?.definition.clone(),
            Applied::Unchanged => view,
        };
        self.check_emission(&view)?;
        self.drop_left_behind(&view.name).await?;
        Ok((applied, view))
    }

    /// Computes the effect of a declaration on the stores and views of the catalog.
    fn plan(&self, catalog: &Catalog, declaration: &Declaration) -> Result<Plan> {
        let spec = &declaration.spec;
        let locate = |fault| declaration.locate(fault);
        let by_name = |name: &str| catalog.by_name(name).map(|schema| schema.definition.clone());
        let source = by_name(&spec.stream);
        let source = source.map_err(|error| locate(ViewFault { part: ViewPart::Stream, error }))?;
        let current = catalog.by_name(&spec.name).ok().map(|schema| &schema.definition);
        let new_id = self.context.entropy.store_id()?;
        let store = spec.emission.as_ref().map(|emission| {
            let silent = ViewSpec { emission: None, ..spec.clone() };
            let silent = match current {
                None => silent.define(new_id, &source, &by_name),
                Some(current) => silent.alter(current, &source, &by_name),
            };
            let store = self.emission_store(catalog, emission, &silent?, current);
            store.map_err(|error| ViewFault { part: ViewPart::Emission, error })
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
        let applied = match current {
            None => Applied::Created,
            Some(current) if view == *current => Applied::Unchanged,
            Some(_) => Applied::Altered,
        };
        Ok(Plan { applied, view, store })
    }
}

/// The definitions that applying a declaration appends.
struct Plan {
    applied: Applied,
    view: Definition,
    /// The store to which the view emits, as it must be before the view is defined.
    store: Option<Definition>,
}
