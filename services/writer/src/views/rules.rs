//! Rules that protect feature views: clients do not write a view's events, and nobody drops the
//! streams, stores and fields that a view reads or to which it materializes.

use forebay_core::catalog::Catalog;
use forebay_core::id::{FieldId, StoreId};
use forebay_core::schema::{Alteration, Definition};
use forebay_core::view::FeatureView;
use forebay_core::{Error, Result};

/// Refuses a client's write into a view.
///
/// # Errors
/// `InvalidArgument`, naming the stream of the view.
pub(crate) fn check_write(catalog: &Catalog, definition: &Definition) -> Result<()> {
    let Some(view) = definition.view() else { return Ok(()) };
    let stream = catalog.store(view.source).and_then(|history| history.newest());
    let stream = stream.map_or("its stream", |stream| &stream.definition.name);
    let message = format!(
        "a feature view takes no writes, because it derives its events; insert into `{stream}`"
    );
    Err(Error::invalid_argument(message))
}

/// Refuses to alter the declared parts of a view.
///
/// # Errors
/// `InvalidArgument` for anything but options.
pub(crate) fn check_alterations(definition: &Definition, alterations: &[Alteration]) -> Result<()> {
    let is_option = |alteration: &Alteration| matches!(alteration, Alteration::SetOptions(_));
    if definition.view().is_none() || alterations.iter().all(is_option) {
        return Ok(());
    }
    let message =
        "only the options of a feature view can be altered this way; apply its declaration instead";
    Err(Error::invalid_argument(message).with_store(&definition.name))
}

/// Refuses the next definition of a stream or store if it drops or widens a field that a view
/// needs, or to which a view materializes. A rename is allowed, because views refer to columns by
/// their ids.
///
/// # Errors
/// `InvalidArgument`, naming the column and the views that need it.
pub(crate) fn check_next(catalog: &Catalog, now: &Definition, next: &Definition) -> Result<()> {
    for field in &now.fields {
        let next_field = next.field_by_id(field.id);
        if next_field.is_some_and(|next_field| next_field.field_type == field.field_type) {
            continue;
        }
        let change = if next_field.is_some() { "widened" } else { "dropped" };
        let refused = |message| {
            let error = Error::invalid_argument(message).with_store(&now.name);
            Err(error.with_field(&field.name))
        };
        let views = names(catalog, |view| needs(view, now.store, field.id));
        if !views.is_empty() {
            return refused(format!(
                "the field cannot be {change}, because feature views need it; drop these views \
                 first: {views}"
            ));
        }
        let views = names(catalog, |view| materializes(view, now.store, field.id));
        if !views.is_empty() {
            return refused(format!(
                "the field cannot be {change}, because feature views materialize to it; apply \
                 these views without the value, or drop them: {views}"
            ));
        }
    }
    Ok(())
}

/// Refuses to delete a stream or store that a view reads, or to which a view materializes.
///
/// # Errors
/// `InvalidArgument`, naming the views.
pub(crate) fn check_delete(catalog: &Catalog, definition: &Definition) -> Result<()> {
    let store = definition.store;
    let joins = |view: &FeatureView| view.joins.iter().any(|join| join.store == store);
    let views = names(catalog, |view| view.source == store || joins(view));
    let refused = |message| Err(Error::invalid_argument(message).with_store(&definition.name));
    if !views.is_empty() {
        return refused(format!("the store has feature views; drop these views first: {views}"));
    }
    let materializes = |view: &FeatureView| {
        view.materialization.as_ref().is_some_and(|target| target.store == store)
    };
    let views = names(catalog, materializes);
    if !views.is_empty() {
        return refused(format!(
            "feature views materialize to the store; apply these views without `materialize`, \
             or drop them, first: {views}"
        ));
    }
    Ok(())
}

/// Returns whether a view materializes to a field of a store.
pub(super) fn materializes(view: &FeatureView, store: StoreId, field: FieldId) -> bool {
    view.materialization.as_ref().is_some_and(|materialization| materialization.is_to(store, field))
}

/// Returns whether a view needs a column of its stream, or a field of a store that it joins.
fn needs(view: &FeatureView, store: StoreId, column: FieldId) -> bool {
    let is_of_source = view.source == store && view.columns_of_source().contains(&column);
    is_of_source || view.fields_of(store).contains(&column)
}

/// Returns the names of the active views that match.
fn names(catalog: &Catalog, is_match: impl Fn(&FeatureView) -> bool) -> String {
    let active = catalog.active_stores().map(|schema| &schema.definition);
    let views = active.filter(|definition| definition.view().is_some_and(&is_match));
    views.map(|definition| definition.name.as_str()).collect::<Vec<_>>().join(", ")
}
